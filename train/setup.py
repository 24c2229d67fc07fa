"""What comes before the first step, in the order that finds mistakes soonest."""

import warnings

import torch

from dualwave.models import DualStreamConfig, DualStreamModel, DualStreamProcessor
from dualwave.parallel.process_group import World
from dualwave.train.config import TrainConfig
from dualwave.train.data import RowSource, open_rows


def open_training_rows(config: TrainConfig) -> RowSource:
    """Open the training split; columns, texts and the first rows are checked.

    With `on_bad_row: skip` every row is read once, and the bad ones are left out.

    Raises:
        ValueError: the data can't be opened, or a column or a row is wrong.
    """
    return open_rows(config.data, config.data.train_split)


def left_out(rows: RowSource) -> str | None:
    """One line about the bad rows that `on_bad_row: skip` has left out; None without any."""
    if not rows.bad_rows:
        return None
    return f"left out {len(rows.bad_rows)} bad rows; the first: {rows.bad_rows[0].sentence}"


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


def refuse_too_long_captions(
    config: TrainConfig, rows: RowSource, lengths: list[int], longest: int, world_size: int
) -> None:
    """Check that the model can read every caption, and that a batch may hold one for each process.

    Args:
        config: the run.
        rows: for the ids.
        lengths: tokens of each row's caption.
        longest: positions of the model.
        world_size: processes that share a batch.

    Raises:
        ValueError: a caption is too long for the model or for the token budget.
    """
    index = max(range(len(lengths)), key=lengths.__getitem__)
    where = f"row {index} (id {rows.ids[index]!r}) has a caption of {lengths[index]} tokens"
    if lengths[index] > longest:
        raise ValueError(
            f"{where}, but model.max_text_length is {longest}: set it to {lengths[index]} or "
            "shorten the caption."
        )
    budget, needed = config.batch.token_budget, lengths[index] * world_size
    if budget is not None and budget < needed:
        raise ValueError(
            f"{where}, too many for batch.token_budget {budget} on {world_size} process(es): set "
            f"it to at least {needed}."
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


def build_processor(config: TrainConfig, rows: RowSource) -> DualStreamProcessor:
    """A processor whose tokenizer is trained on the training captions.

    Without `model.image_size` images are resized to the shorter side of the first one, rounded
    down to whole patches.
    """
    image_size = config.model.get("image_size")
    if image_size is None:
        patch = config.model.get("patch_size", DualStreamConfig.patch_size)
        image_size = max(1, min(rows[0].image.size) // patch) * patch
    return DualStreamProcessor.from_captions(rows.captions, image_size=image_size)


def model_config(config: TrainConfig, processor: DualStreamProcessor) -> DualStreamConfig:
    """The model's configuration: the run's fields, and what the processor decides.

    Raises:
        ValueError: sizes that don't fit together.
    """
    decided = {
        "image_size": processor.image_processor.size["height"],
        "vocab_size": len(processor.tokenizer),
        "pad_token_id": processor.tokenizer.pad_token_id,
    }
    return DualStreamConfig(**config.model | decided)


def build_model(config: DualStreamConfig, seed: int) -> DualStreamModel:
    """A new model; the same weights on every rank."""
    torch.manual_seed(seed)
    return DualStreamModel(config)


def recompute_activations(model: DualStreamModel) -> None:
    """Switch gradient checkpointing on, in the form that DDP and autocast work with."""
    with warnings.catch_warnings():
        # Renamed in transformers 5.24; the oldest version that dualwave allows has this name only.
        warnings.filterwarnings("ignore", "`gradient_checkpointing_enable` is deprecated")
        model.gradient_checkpointing_enable({"use_reentrant": False})
