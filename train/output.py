"""The folder of a run, and whether a checkpoint in it belongs to a config."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from dualwave.train.checkpoint import list_checkpoints, remove_unfinished
from dualwave.train.config import TrainConfig

# A step's rows depend on these; a resumed run with others would not be the same run.
_FIXED = ("model", "data", "batch", "seed")


class RunFolder:
    """Names of what a run writes, all in one folder.

    Args:
        path: the folder; it need not exist.
    """

    def __init__(self, path: Path):
        self.path = path
        self.config = path / "config.yaml"
        self.metrics = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"
        self.model = path / "model"

    def open(self, *, resume: bool) -> Path | None:
        """Check that the run may use the folder; nothing is written.

        Returns:
            The checkpoint to go on from; None for a new run.

        Raises:
            ValueError: it is no folder, it holds a run and `resume` is not set, or it holds no
                complete checkpoint and `resume` is set.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"output_dir {str(self.path)!r} is a file, not a folder.")
        checkpoints = list_checkpoints(self.checkpoints)
        if resume:
            if not checkpoints:
                raise ValueError(
                    f"{str(self.path)!r} holds no complete checkpoint to resume from; start a new "
                    "run without --resume."
                )
            return checkpoints[-1]
        if checkpoints or self.model.exists():
            raise ValueError(
                f"output_dir {str(self.path)!r} already holds a run: add --resume to go on with "
                "it, or name another output_dir."
            )
        return None

    def prepare(self, config: TrainConfig) -> None:
        """Make the folder, remove what a killed run left half written, and note the config."""
        self.path.mkdir(parents=True, exist_ok=True)
        for folder in (self.path, self.checkpoints):
            remove_unfinished(folder)
        temporary = self.config.with_name(f".writing-{self.config.name}")
        with temporary.open("w", encoding="utf-8") as file:
            yaml.safe_dump(config.model_dump(mode="json"), file, sort_keys=False)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.config)


def check_same_run(
    state: dict[str, Any], config: TrainConfig, *, rows: int, checkpoint: Path
) -> None:
    """Refuse to go on from a checkpoint whose run had another model, other data or another order.

    Args:
        state: the checkpoint's state.
        config: of the run that wants to go on.
        rows: training rows that were found.
        checkpoint: for the error.

    Raises:
        ValueError: the first field that differs, with both values.
    """
    before = dict(_leaves({name: state["config"][name] for name in _FIXED}))
    dumped = config.model_dump(mode="json")
    now = dict(_leaves({name: dumped[name] for name in _FIXED}))
    for key in [*now, *before]:
        if before.get(key) != now.get(key):
            raise ValueError(
                f"{key} is {now.get(key)!r}, but the run in {str(checkpoint)!r} has "
                f"{before.get(key)!r}: set it back, or start a new run in another output_dir."
            )
    if state["rows"] != rows:
        raise ValueError(
            f"the data has {rows} training rows, but the run in {str(checkpoint)!r} had "
            f"{state['rows']}: give it the same data, or start a new run in another output_dir."
        )
    if state["step"] > config.schedule.steps:
        raise ValueError(
            f"schedule.steps is {config.schedule.steps}, but the run in {str(checkpoint)!r} has "
            f"already made {state['step']} steps: set it to at least that many."
        )


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        yield path, value
        return
    for key, inner in value.items():
        yield from _leaves(inner, f"{path}.{key}" if path else str(key))
