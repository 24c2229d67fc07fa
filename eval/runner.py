"""Runs an evaluation over a stream of samples; model and data are the caller's."""

from collections.abc import Iterable
from dataclasses import dataclass

from numpy.typing import ArrayLike
from tqdm import tqdm

from dualwave.eval.saliency import SaliencyEvaluator, SaliencyScores


@dataclass(frozen=True)
class SaliencySample:
    """One scene to judge.

    Attributes:
        id: unique name.
        prediction: (H, W) float in [0, 1] or uint8, at the mask's size.
        mask: (H, W) bool.
        group: name to average under (the level), or None.
    """

    id: str
    prediction: ArrayLike
    mask: ArrayLike
    group: str | None = None


def evaluate_samples(
    samples: Iterable[SaliencySample], progress: bool = False, description: str = "evaluate"
) -> SaliencyScores:
    """Judge every sample as it comes; the stream is read once and nothing of it is kept.

    Args:
        samples: any iterable, a generator that runs the model included.
        progress: show a progress bar (with the time left where ``samples`` has a length).
        description: what the progress bar is called.

    Raises:
        ValueError: no sample, an id seen twice, a bad map or mask (see ``SaliencyEvaluator``).
    """
    evaluator = SaliencyEvaluator()
    for sample in tqdm(samples, desc=description, unit="scene", disable=not progress):
        evaluator.update(sample.id, sample.prediction, sample.mask, sample.group)
    return evaluator.compute()
