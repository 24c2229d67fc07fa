"""Checkpoints: complete or not there at all."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist

from dualwave.models.quiet import quiet_transformers
from dualwave.parallel.process_group import World

STATE_FILE = "training_state.pt"
_WRITING = ".writing-"


class _Saveable(Protocol):
    def save_pretrained(self, save_directory: str) -> Any: ...


def checkpoint_name(step: int) -> str:
    """Folder name of the checkpoint after `step` steps."""
    return f"step_{step:08d}"


def save_checkpoint(
    folder: Path,
    step: int,
    *,
    model: _Saveable,
    processor: _Saveable,
    state: dict[str, Any],
    keep: int,
) -> Path:
    """Write `folder/step_XXXXXXXX`, and only then remove the oldest ones.

    It is written under another name, flushed to the disk and renamed, so a kill at any moment
    leaves the earlier checkpoints and no half one.

    Args:
        folder: holds all checkpoints of the run.
        step: steps made.
        model: saved as a Hugging Face folder.
        processor: saved into the same folder.
        state: plain values and tensors for `training_state.pt`.
        keep: how many of the newest checkpoints stay.

    Returns:
        The checkpoint's folder.
    """
    target = folder / checkpoint_name(step)
    write_folder(target, model=model, processor=processor, state=state)
    for old in list_checkpoints(folder)[:-keep]:
        # Under its own name a half-removed checkpoint would still look complete.
        doomed = old.rename(old.with_name(_WRITING + old.name))
        shutil.rmtree(doomed)
    return target


def write_folder(
    target: Path, *, model: _Saveable, processor: _Saveable, state: dict[str, Any] | None = None
) -> None:
    """Write model, processor and state to a temporary name beside `target`, then rename.

    An earlier `target` is replaced.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    writing = target.with_name(_WRITING + target.name)
    if writing.exists():
        shutil.rmtree(writing)
    writing.mkdir()
    with quiet_transformers():
        model.save_pretrained(str(writing))
    processor.save_pretrained(str(writing))
    if state is not None:
        torch.save(state, writing / STATE_FILE)
    for path in [*writing.rglob("*"), writing]:
        _flush_to_disk(path)
    if target.exists():
        shutil.rmtree(target)
    writing.rename(target)
    _flush_to_disk(target.parent)


def list_checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints in `folder`, oldest first; none if there is no folder."""
    return sorted(path for path in folder.glob("step_*") if (path / STATE_FILE).is_file())


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed process was writing in `folder`."""
    for path in folder.glob(f"{_WRITING}*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def load_state(checkpoint: Path) -> dict[str, Any]:
    """Read a checkpoint's `training_state.pt`, tensors on the CPU; nothing in it is executed.

    Raises:
        ValueError: the file is damaged.
    """
    path = checkpoint / STATE_FILE
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        missing = {"config", "stepper", "position"} - state.keys()
        if missing:
            raise KeyError(f"no {sorted(missing)}")
        return state
    except Exception as error:
        raise ValueError(
            f"{path} can't be read ({type(error).__name__}): remove {checkpoint} to go on from an "
            "earlier checkpoint."
        ) from error


def random_states(world: World) -> list[dict[str, Any]]:
    """The state of every random generator of every rank, in rank order; same on all ranks."""
    numpy_state: Any = np.random.get_state(legacy=False)
    own = {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(world.device) if world.device.type == "cuda" else None,
        # Arrays of numpy are not among what torch.load takes without executing anything.
        "numpy": numpy_state | {"state": _with(numpy_state["state"], "key", np.ndarray.tolist)},
        "python": random.getstate(),
    }
    if world.group is None:
        return [own]
    states: list[Any] = [None] * world.size
    dist.all_gather_object(states, own, group=world.group)
    return states


def restore_random_states(states: list[dict[str, Any]], world: World, seed: int) -> None:
    """Set this rank's generators to what they were; a rank that was not there is seeded anew."""
    if world.rank >= len(states):
        seed_everything(seed, world.rank)
        return
    own = states[world.rank]
    torch.set_rng_state(own["torch"])
    if world.device.type == "cuda" and own["cuda"] is not None:
        torch.cuda.set_rng_state(own["cuda"], world.device)
    inner = _with(own["numpy"]["state"], "key", lambda keys: np.array(keys, dtype=np.uint32))
    np.random.set_state(own["numpy"] | {"state": inner})
    random.setstate(own["python"])


def seed_everything(seed: int, rank: int = 0) -> None:
    """Seed torch, numpy and Python; ranks get different streams."""
    mixed = np.random.SeedSequence([seed, rank]).generate_state(1, np.uint32)[0]
    torch.manual_seed(int(mixed))
    np.random.seed(int(mixed))
    random.seed(int(mixed))


def _with(values: dict[str, Any], key: str, convert: Callable[[Any], Any]) -> dict[str, Any]:
    return values | {key: convert(values[key])}


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
