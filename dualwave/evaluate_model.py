"""A model's maps against masks, with two baselines; for ``dualwave eval model`` and the demo."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tqdm import tqdm

import dualwave
from dualwave.eval.baselines import shuffled_captions
from dualwave.eval.saliency import SaliencyEvaluator, SaliencyScores, centre_prior
from dualwave.models import DualStreamModel
from dualwave.overrides import read_section
from dualwave.train.data import DataConfig, Row, RowSource, open_rows


@dataclass(frozen=True)
class ModelEvaluation:
    """Three evaluations of the same rows.

    Attributes:
        model: the model with each row's own caption.
        shuffled_captions: the model with the caption of another row of the same level.
        centre_prior: a fixed bump in the middle, no model at all.
    """

    model: SaliencyScores
    shuffled_captions: SaliencyScores
    centre_prior: SaliencyScores

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; the meaning of each figure is said once, under ``conventions``."""
        scores = {
            "model": self.model.to_dict(),
            "shuffled_captions": self.shuffled_captions.to_dict(),
            "centre_prior": self.centre_prior.to_dict(),
        }
        conventions = [entry.pop("conventions") for entry in scores.values()]
        return {"conventions": conventions[0], **scores}


def predict_maps(
    model: DualStreamModel, images: Sequence[Image.Image], captions: Sequence[str]
) -> list[np.ndarray]:
    """Maps of one batch, each (H, W) float32 in [0, 1] in its image's own size."""
    return list(model.saliency(list(images), list(captions)))


def evaluate_model(
    model: DualStreamModel,
    rows: RowSource,
    *,
    batch_size: int = 32,
    seed: int = 0,
    progress: bool = True,
) -> ModelEvaluation:
    """Judge a model on rows, beside shuffled captions and a centre prior.

    A map is brought to the mask's size, never the mask to the map's. Captions are shuffled within
    each level, so that a shuffled caption is of the same kind as the row's own.

    Args:
        model: with its processor, in eval mode.
        rows: images, masks, captions; at least two.
        batch_size: images predicted at a time; changes no figure beyond rounding.
        seed: of the caption shuffle.
        progress: show a progress bar on stderr.

    Raises:
        ValueError: fewer than two rows, or a row that can't be read (it is named).
    """
    others = shuffled_captions(rows.captions, rows.levels, seed)
    own, shuffled, prior = SaliencyEvaluator(), SaliencyEvaluator(), SaliencyEvaluator()
    with tqdm(total=len(rows), desc="evaluate", unit="image", disable=not progress) as bar:
        for indices in _batches(len(rows), batch_size):
            batch = [rows[index] for index in indices]
            images = [row.image for row in batch]
            own_maps = predict_maps(model, images, [row.caption for row in batch])
            shuffled_maps = predict_maps(model, images, [others[index] for index in indices])
            for row, own_map, shuffled_map in zip(batch, own_maps, shuffled_maps, strict=True):
                _judge(own, row, own_map)
                _judge(shuffled, row, shuffled_map)
                _judge(prior, row, centre_prior(*row.mask.shape))
            bar.update(len(batch))
    return ModelEvaluation(own.compute(), shuffled.compute(), prior.compute())


def _refuse_too_long_captions(model: DualStreamModel, rows: RowSource) -> None:
    assert model.processor is not None
    longest = model.config.max_text_length
    for number, tokens in enumerate(model.processor.tokenizer(rows.captions)["input_ids"]):
        if len(tokens) > longest:
            raise ValueError(
                f"the caption of the row with the id {rows.ids[number]!r} has {len(tokens)} "
                f"tokens, and this model reads at most {longest}: shorten it, or leave the row out."
            )


def _judge(evaluator: SaliencyEvaluator, row: Row, saliency: np.ndarray) -> None:
    evaluator.update(row.id, saliency, row.mask, row.level)


def _batches(count: int, size: int) -> Iterator[range]:
    for start in range(0, count, size):
        yield range(start, min(start + size, count))


def score_table(
    evaluation: ModelEvaluation, title: str, levels: Sequence[str] | None = None
) -> Table:
    """The figures as a table for the terminal: one row a figure, one column an evaluation.

    ``levels`` gives the order of the levels; they are sorted by name without it.
    """
    table = Table(title=Text(title), title_justify="left")
    table.add_column("figure")
    for heading in ("model", "shuffled\ncaptions", "centre\nprior", "images"):
        table.add_column(heading, justify="right")
    columns = (evaluation.model, evaluation.shuffled_captions, evaluation.centre_prior)
    judged = evaluation.model.count - evaluation.model.count_without_object
    table.add_row("pixel mAP", *(f"{scores.map:.4f}" for scores in columns), str(judged))
    counts = evaluation.model.count_by_group
    for level in levels or sorted(counts):
        figures = (f"{scores.map_by_group[level]:.4f}" for scores in columns)
        table.add_row(Text(f"  {level}"), *figures, str(counts[level]))
    total = str(evaluation.model.count)
    table.add_row("max-F (beta² 0.3)", *(f"{scores.max_f:.4f}" for scores in columns), total)
    table.add_row("MAE (lower is better)", *(f"{scores.mae:.4f}" for scores in columns), total)
    return table


def write_json(values: dict[str, Any], path: Path) -> None:
    """Write JSON to a temporary name beside ``path``, then rename it; folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(partial, path)


def evaluate_command(
    checkpoint: Path,
    *,
    data: str,
    split: str | None,
    overrides: Sequence[str],
    json_file: Path | None,
    batch_size: int,
    seed: int,
) -> None:
    """Run ``dualwave eval model``: load, evaluate, print the table, write the JSON.

    Raises:
        FileNotFoundError: no checkpoint or no data set of that name.
        ValueError: data or checkpoint that can't be used, in one sentence.
    """
    if json_file is not None and json_file.is_dir():
        raise ValueError(f"--json {json_file} is a folder; name a file")
    config = read_section("data", DataConfig, {"path": data}, overrides)
    split = split or config.test_split
    rows = open_rows(config, split)
    if rows.bad_rows:
        left_out = len(rows.bad_rows)
        print(f"bad rows left out: {left_out}; the first: {rows.bad_rows[0].sentence}")
    model = dualwave.load(checkpoint)
    _refuse_too_long_captions(model, rows)
    evaluation = evaluate_model(model, rows, batch_size=batch_size, seed=seed)
    Console().print(score_table(evaluation, f"{checkpoint} on {data}, split {split}"))
    if json_file is not None:
        source = {
            "checkpoint": str(checkpoint),
            "data": config.model_dump(),
            "split": split,
            "caption_shuffle_seed": seed,
            "bad_rows_left_out": len(rows.bad_rows),
        }
        write_json({**source, **evaluation.to_dict()}, json_file)
        print(f"wrote {json_file}")
