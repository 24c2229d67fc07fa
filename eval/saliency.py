"""Saliency figures of maps against masks: pixel AP, max-F, MAE and the mean PR curve.

What each figure means is written once, in ``SALIENCY_CONVENTIONS``, and travels with the numbers.
An image contributes one pair of 256-bin histograms (object and background pixels by level) from
which every thresholded figure follows; only the exact AP of float maps and the MAE look at the
values themselves.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEVELS = 256
BETA_SQUARED = 0.3
CENTRE_PRIOR_SIGMA = 0.22

SALIENCY_CONVENTIONS: Mapping[str, str] = MappingProxyType(
    {
        "map": (
            "Pixel average precision: all pixels of one image are ranked by their saliency; AP is "
            "the sum over the distinct values, from the highest down, of the gain in recall times "
            "the precision there (no interpolation, ties count together, as in scikit-learn's "
            "average_precision_score). mAP is the mean of the images' APs. An image whose mask "
            "has no object pixel has no AP and is left out; such images are counted."
        ),
        "max_f": (
            "F with beta^2 = 0.3 of every image at 256 thresholds (value * 255, cut to a whole "
            "number, >= t), averaged over the images, then the largest of the 256 means: one "
            "threshold for all images, as in PySODMetrics. F is 0 where nothing is hit, so also "
            "for an image without object pixels. Maps are not min-max scaled."
        ),
        "mae": (
            "Mean over the pixels of |saliency - mask| per image, then mean over the images. Maps "
            "are not min-max scaled."
        ),
        "pr_curve": (
            "Mean precision and mean recall over the images at each of the same 256 thresholds, "
            "from 255 down to 0. Precision counts as 0 where no pixel reaches the threshold."
        ),
    }
)


class ThresholdCurves(NamedTuple):
    """Precision, recall and F, each (N, 256) float64, thresholds from 255 down to 0."""

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    f_measure: NDArray[np.float64]


@dataclass(frozen=True)
class PrecisionRecallCurve:
    """256 points of the mean curve, thresholds from 255 down to 0."""

    precision: tuple[float, ...]
    recall: tuple[float, ...]


@dataclass(frozen=True)
class SampleScore:
    """One image's figures; ``average_precision`` is NaN where the mask has no object pixel."""

    id: str
    group: str | None
    average_precision: float
    mae: float
    object_share: float


@dataclass(frozen=True)
class SaliencyScores:
    """The figures over all samples; see ``SALIENCY_CONVENTIONS`` for what each one means.

    ``map`` and the values of ``map_by_group`` are NaN where no sample has an AP.
    ``max_f_threshold`` is the level (0 to 255) at which ``max_f`` is reached. ``samples`` is
    sorted by id.
    """

    map: float
    map_by_group: Mapping[str, float]
    max_f: float
    max_f_threshold: int
    mae: float
    pr_curve: PrecisionRecallCurve
    count: int
    count_by_group: Mapping[str, int]
    count_without_object: int
    samples: tuple[SampleScore, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values (NaN becomes None), with the conventions, without samples."""
        return {
            "map": _or_none(self.map),
            "map_by_group": {name: _or_none(value) for name, value in self.map_by_group.items()},
            "max_f": self.max_f,
            "max_f_threshold": self.max_f_threshold,
            "mae": self.mae,
            "count": self.count,
            "count_by_group": dict(self.count_by_group),
            "count_without_object": self.count_without_object,
            "pr_curve": {
                "precision": list(self.pr_curve.precision),
                "recall": list(self.pr_curve.recall),
            },
            "conventions": dict(SALIENCY_CONVENTIONS),
        }

    def sample_rows(self) -> list[dict[str, Any]]:
        """Return the per-sample table as plain rows (NaN becomes None), sorted by id."""
        return [
            {
                "id": sample.id,
                "group": sample.group,
                "average_precision": _or_none(sample.average_precision),
                "mae": sample.mae,
                "object_share": sample.object_share,
            }
            for sample in self.samples
        ]


def pixel_average_precision(prediction: ArrayLike, mask: ArrayLike) -> float:
    """Return the exact average precision of one map's pixel ranking.

    Equal to ``sklearn.metrics.average_precision_score(mask.ravel(), prediction.ravel())``: a step
    at every distinct value, pixels of one value counted together, no interpolation. Only the
    ranking matters, so the values may have any range; a constant map scores the share of object
    pixels.

    Args:
        prediction: (H, W), any float or integer type; infinities rank as usual.
        mask: (H, W) bool, True on the object.

    Returns:
        AP in (0, 1], or NaN if the mask has no object pixel (AP is not defined there;
        scikit-learn returns 0 with a warning).

    Raises:
        ValueError: shapes differ or are not (H, W), a mask that is not bool, a value that is NaN.
    """
    values, object_pixels = _checked_pair(prediction, mask)
    ranked_object = np.sort(values[object_pixels])
    if ranked_object.size == 0:
        return math.nan
    # Recall grows only at values that object pixels have, so no other value adds to the sum.
    ranked = np.sort(values, axis=None)
    thresholds = np.unique(ranked_object)
    hits = ranked_object.size - np.searchsorted(ranked_object, thresholds, side="left")
    marked = ranked.size - np.searchsorted(ranked, thresholds, side="left")
    new_hits = hits - np.append(hits[1:], 0)
    return float(np.sum(new_hits * (hits / marked)) / ranked_object.size)


def level_histograms(levels: NDArray[np.uint8], mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Count the pixels of every level, background and object apart.

    Args:
        levels: (H, W) uint8.
        mask: (H, W) bool.

    Returns:
        (2, 256) int64: row 0 the background pixels, row 1 the object pixels.
    """
    bins = levels.astype(np.int64) + LEVELS * mask
    return np.bincount(bins.ravel(), minlength=2 * LEVELS).reshape(2, LEVELS)


def threshold_curves(histograms: NDArray[np.int64]) -> ThresholdCurves:
    """Return every image's precision, recall and F at the 256 thresholds ``level >= t``.

    Edge cases as in PySODMetrics: precision 0 where no pixel is marked, recall 0 where there is
    no object pixel, F 0 where nothing is hit.

    Args:
        histograms: (N, 2, 256) integers, as ``level_histograms`` returns them.
    """
    marked_by_kind = np.cumsum(histograms[..., ::-1], axis=-1)
    hits = marked_by_kind[:, 1]
    marked = marked_by_kind.sum(axis=1)
    object_pixels = hits[:, -1:]
    precision = hits / np.maximum(marked, 1)
    recall = hits / np.maximum(object_pixels, 1)
    weighted = BETA_SQUARED * precision + recall
    f_measure = (1 + BETA_SQUARED) * precision * recall / np.where(hits == 0, 1.0, weighted)
    return ThresholdCurves(precision, recall, f_measure)


class SaliencyEvaluator:
    """Collects samples one by one, in any order and from batches of any size.

    Results are kept per sample under its id and means are taken once, at the end, in the order of
    the ids: neither order nor batch size changes a bit of any figure. About 2 KB are kept a sample.

    A map has the mask's size and values in [0, 1] (float16, float32 or float64), or 0 to 255
    (uint8, divided by 255). It is used as it is: never min-max scaled, never put through a
    sigmoid; PySODMetrics min-max scales by default, so scale first to compare with its default.
    """

    def __init__(self) -> None:
        self._samples: dict[str, SampleScore] = {}
        self._histograms: dict[str, NDArray[np.int32]] = {}

    def __len__(self) -> int:
        return len(self._samples)

    def update(
        self, id: str, prediction: ArrayLike, mask: ArrayLike, group: str | None = None
    ) -> SampleScore:
        """Add one sample and return its figures.

        Args:
            id: unique name of the sample.
            prediction: (H, W) float in [0, 1] or uint8.
            mask: (H, W) bool; without object pixels the sample counts for max-F (as 0), MAE and
                the PR curve, but not for mAP.
            group: name under which ``map_by_group`` averages this sample; None for no group.

        Raises:
            ValueError: the id was seen before; other shapes; a mask that is not bool; a map with
                NaN, of another type, or with values outside [0, 1]. The sentence names the id.
        """
        if id in self._samples:
            raise ValueError(f"sample {id!r} was evaluated twice: every id must be unique")
        try:
            values, object_pixels = _checked_pair(prediction, mask)
            unit_values, levels = _unit_values_and_levels(values)
        except ValueError as error:
            raise ValueError(f"sample {id!r}: {error}") from None
        score = SampleScore(
            id=id,
            group=group,
            average_precision=pixel_average_precision(values, object_pixels),
            mae=float(np.abs(unit_values - object_pixels).mean()),
            object_share=float(object_pixels.mean()),
        )
        self._histograms[id] = level_histograms(levels, object_pixels).astype(np.int32)
        self._samples[id] = score
        return score

    def compute(self) -> SaliencyScores:
        """Return the figures over all samples so far.

        Raises:
            ValueError: there is no sample.
        """
        if not self._samples:
            raise ValueError("no sample was evaluated: there is nothing to average")
        ids = sorted(self._samples)
        samples = tuple(self._samples[id] for id in ids)
        curves = threshold_curves(np.stack([self._histograms[id] for id in ids]))
        mean_f = curves.f_measure.mean(axis=0)
        best = int(mean_f.argmax())
        groups = sorted({sample.group for sample in samples if sample.group is not None})
        members = {name: [s for s in samples if s.group == name] for name in groups}
        return SaliencyScores(
            map=_mean_average_precision(samples),
            map_by_group={name: _mean_average_precision(members[name]) for name in groups},
            max_f=float(mean_f[best]),
            max_f_threshold=LEVELS - 1 - best,
            mae=math.fsum(sample.mae for sample in samples) / len(samples),
            pr_curve=PrecisionRecallCurve(
                precision=tuple(curves.precision.mean(axis=0).tolist()),
                recall=tuple(curves.recall.mean(axis=0).tolist()),
            ),
            count=len(samples),
            count_by_group={name: len(members[name]) for name in groups},
            count_without_object=sum(math.isnan(sample.average_precision) for sample in samples),
            samples=samples,
        )


def centre_prior(height: int, width: int) -> NDArray[np.float32]:
    """Return the baseline that looks at the middle of every picture: a centred Gaussian.

    Its standard deviation is 0.22 of the height and of the width.

    Returns:
        (height, width) float32 in [0, 1], symmetric, largest in the middle.

    Raises:
        ValueError: a size below 1.
    """
    if height < 1 or width < 1:
        raise ValueError(f"a centre prior needs a size of at least 1 x 1, not {height} x {width}")
    rows = (np.arange(height) - (height - 1) / 2) / (CENTRE_PRIOR_SIGMA * height)
    columns = (np.arange(width) - (width - 1) / 2) / (CENTRE_PRIOR_SIGMA * width)
    return np.exp(-0.5 * (rows[:, None] ** 2 + columns[None, :] ** 2)).astype(np.float32)


def _checked_pair(prediction: ArrayLike, mask: ArrayLike) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    values, object_pixels = np.asarray(prediction), np.asarray(mask)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"a map has the shape (height, width), this one has {values.shape}")
    if values.shape != object_pixels.shape:
        raise ValueError(
            f"the map has the shape {values.shape} and the mask {object_pixels.shape}: "
            "resize the map to the mask's size first"
        )
    if object_pixels.dtype != np.bool_:
        raise ValueError(
            f"the mask must be bool, this one is {object_pixels.dtype}: "
            "threshold it first (`mask > 127` for a mask of 0 and 255)"
        )
    if values.dtype.kind not in "fiu":
        raise ValueError(f"a map holds floats or integers, this one is {values.dtype}")
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise ValueError(
            f"the map has NaN at {int(np.isnan(values).sum())} of {values.size} pixels"
        )
    return values, object_pixels


def _unit_values_and_levels(
    values: NDArray[Any],
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Return the map as float64 in [0, 1] and as the levels 0 to 255 that thresholds see."""
    if values.dtype == np.uint8:
        return values / 255.0, values
    if values.dtype.kind != "f":
        raise ValueError(f"a map is float in [0, 1] or uint8, this one is {values.dtype}")
    low, high = float(values.min()), float(values.max())
    if low < 0 or high > 1:
        raise ValueError(
            f"the map's values lie in [{low:.4g}, {high:.4g}] instead of [0, 1]: "
            "apply the sigmoid, or scale it, first"
        )
    # Half precision is widened first; float32 is multiplied as float32, as PySODMetrics does.
    wide = values.astype(np.float32) if values.dtype == np.float16 else values
    return values.astype(np.float64), (wide * 255).astype(np.uint8)


def _mean_average_precision(samples: Iterable[SampleScore]) -> float:
    defined = [s.average_precision for s in samples if not math.isnan(s.average_precision)]
    return math.fsum(defined) / len(defined) if defined else math.nan


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
