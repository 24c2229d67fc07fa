"""The run's log: one JSON line a logged step, and the same figures as TensorBoard events."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

MISSING_TENSORBOARD = (
    "no TensorBoard events are written: install the extra with pip install 'dualwave[tensorboard]'."
)


class MetricsLog:
    """Writes `metrics.jsonl` and `tensorboard/` into a run's folder.

    Lines of steps after `resumed_step` are cut off first, since those steps are made again.

    Args:
        output_dir: the run's folder; it exists.
        resumed_step: the step after which the run goes on; 0 for a new run.
    """

    def __init__(self, output_dir: Path, resumed_step: int = 0):
        path = output_dir / "metrics.jsonl"
        _cut_after(path, resumed_step)
        self._file = path.open("a", encoding="utf-8")
        self._events: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            print(MISSING_TENSORBOARD)
        else:
            self._events = SummaryWriter(
                str(output_dir / "tensorboard"), purge_step=resumed_step + 1
            )

    def write(self, figures: Mapping[str, float | None]) -> None:
        """Add one line; `figures` holds `step` and JSON numbers, or None for what a step lacks."""
        self._file.write(json.dumps(figures) + "\n")
        self._file.flush()
        step = figures["step"]
        if self._events is not None and step is not None:
            for name, value in figures.items():
                if name != "step" and value is not None:
                    self._events.add_scalar(name, value, int(step))

    def close(self) -> None:
        """Flush and close both."""
        self._file.close()
        if self._events is not None:
            self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`; a last line that was cut short by a kill is left out.

    Raises:
        FileNotFoundError: there is no such file.
    """
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _cut_after(path: Path, step: int) -> None:
    if not path.exists():
        return
    kept = [figures for figures in read_metrics(path) if figures["step"] <= step]
    temporary = path.with_name(f".writing-{path.name}")
    with temporary.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(figures) + "\n" for figures in kept)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
