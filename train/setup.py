"""What comes before the first step, in the order that finds mistakes soonest."""

from pathlib import Path
from typing import Any

import torch

from dualwave.models import DualStreamConfig, DualStreamModel, DualStreamProcessor, load
from dualwave.parallel.process_group import World
from dualwave.train.config import TrainConfig
from dualwave.train.data import RowSource, open_rows


def open_training_rows(config: TrainConfig) -> RowSource:
    """Open the training split; with `on_bad_row: skip` every row is looked at once.

    Raises:
        ValueError: the data can't be opened, or a column or one of the first rows is wrong.
    """
    rows = open_rows(config.data, config.data.train_split)
    if config.data.on_bad_row == "skip":
        # How many rows there are decides batches and epochs, so it must be known before them.
        rows.check_all()
    return rows


def refuse_a_run_without_steps(config: TrainConfig, rows: int, world_size: int) -> None:
    """Check that a batch can be filled and shared.

    Raises:
        ValueError: fewer rows than a batch holds, or fewer rows in a batch than processes.
    """
    size = config.batch.size
    if size > rows:
        raise ValueError(
            f"batch.size {size} is larger than the {rows} rows of split "
            f"{config.data.train_split!r} in {config.data.path!r}, so no step could be made: set "
            f"batch.size to at most {rows}."
        )
    if size < world_size:
        raise ValueError(
            f"batch.size {size} can't be shared by {world_size} processes: each needs a row."
        )


def refuse_too_long_captions(rows: RowSource, lengths: list[int], longest: int) -> None:
    """Check that the model can read every caption.

    Raises:
        ValueError: a caption has more tokens than the model has positions.
    """
    index = max(range(len(lengths)), key=lengths.__getitem__)
    if lengths[index] > longest:
        raise ValueError(
            f"row {index} (id {rows.ids[index]!r}) has a caption of {lengths[index]} tokens, but "
            f"model.max_text_length is {longest}: set it to {lengths[index]} or shorten the "
            "caption."
        )


def summary(config: TrainConfig, rows: int, world: World, resumed_at: int | None) -> str:
    """One line: rows a step, steps, epochs, where it computes."""
    batch, steps = config.batch, config.schedule.steps
    step_rows = batch.size * batch.accumulation
    parts = [f"{batch.size} rows"]
    if batch.accumulation > 1:
        parts.append(f"{batch.accumulation} batches a step")
    if batch.token_budget is not None:
        parts.append(f"at most {batch.token_budget} text tokens a batch")
    if world.size > 1:
        parts.append(f"shared by {world.size} processes")
    start = f", going on after step {resumed_at}" if resumed_at is not None else ""
    return (
        f"effective batch {step_rows} rows a step ({', '.join(parts)}); {steps} steps{start}; "
        f"about {steps * step_rows / rows:.1f} epochs of {rows} rows; {config.precision} on "
        f"{world.device.type}"
    )


def build_model(
    config: TrainConfig, rows: RowSource
) -> tuple[DualStreamModel, DualStreamProcessor]:
    """A new model and a processor trained on the captions; the same on every rank.

    Without `model.image_size` it is the shorter side of the first image, rounded down to whole
    patches.

    Raises:
        ValueError: sizes that don't fit together.
    """
    fields: dict[str, Any] = dict(config.model)
    if "image_size" not in fields:
        patch = fields.get("patch_size", DualStreamConfig.patch_size)
        fields["image_size"] = min(rows[0].image.size) // patch * patch
    processor = DualStreamProcessor.from_captions(rows.captions, image_size=fields["image_size"])
    fields["vocab_size"] = len(processor.tokenizer)
    fields["pad_token_id"] = processor.tokenizer.pad_token_id
    torch.manual_seed(config.seed)
    return DualStreamModel(DualStreamConfig(**fields)), processor


def reload_model(checkpoint: Path) -> tuple[DualStreamModel, DualStreamProcessor]:
    """Model and processor of a checkpoint.

    Raises:
        ValueError: a file in it is damaged.
        FileNotFoundError: a file in it is missing.
    """
    model = load(checkpoint)
    return model, model.processor
