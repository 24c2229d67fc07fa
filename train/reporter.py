"""What a run says while it goes on: progress bar, metrics file, TensorBoard."""

import sys
import time
from collections.abc import Sequence
from typing import Any, Self

from tqdm import tqdm

from dualwave.train.config import TrainConfig
from dualwave.train.metrics_log import MetricsLog
from dualwave.train.output import RunFolder
from dualwave.train.plan import PlannedBatch
from dualwave.train.step import StepFigures

# A terminal's bar is redrawn in place; in a log file every drawing is another line.
_SECONDS_BETWEEN_DRAWINGS = {True: 0.2, False: 15.0}


class Reporter:
    """Rank 0's voice; on the other ranks nothing is reported.

    Args:
        config: the run.
        folder: where the metrics go; it exists.
        step: steps that were made before.
        seconds: time that was spent on them.
    """

    def __init__(self, config: TrainConfig, folder: RunFolder, step: int, seconds: float):
        self._config = config
        self._log = MetricsLog(folder.path, resumed_step=step)
        self._bar: Any = tqdm(
            total=config.schedule.steps,
            initial=step,
            unit="step",
            mininterval=_SECONDS_BETWEEN_DRAWINGS[sys.stderr.isatty()],
        )
        self._first_step = step + 1
        self._started = time.perf_counter() - seconds
        self._window_started = time.perf_counter()
        self._window_rows = 0

    def report(
        self,
        step: int,
        planned: Sequence[PlannedBatch],
        figures: StepFigures,
        learning_rate: float,
        skipped_steps: int,
    ) -> None:
        """Move the bar, and write a line if it is time for one.

        Args:
            step: number of the step, 1 for the first of the run.
            planned: its batches.
            figures: what it found.
            learning_rate: its rate.
            skipped_steps: fp16 steps left out so far.
        """
        self._window_rows += sum(len(batch.rows) for batch in planned)
        now = time.perf_counter()
        speed = self._window_rows / (now - self._window_started)
        self._bar.set_postfix_str(f"loss {figures.loss:.4f}, {speed:.0f} samples/s", refresh=False)
        self._bar.update()
        is_last = step == self._config.schedule.steps
        if not (step == self._first_step or is_last or step % self._config.log_every == 0):
            return
        line: dict[str, float | None] = {
            "step": step,
            "epoch": planned[-1].epoch,
            "loss": figures.loss,
            "saliency_loss": figures.saliency_loss,
            "contrastive_loss": figures.contrastive_loss,
            "learning_rate": learning_rate,
            "grad_norm": figures.grad_norm,
            "logit_scale": figures.logit_scale,
            "samples_per_second": speed,
            "padding_share": sum(batch.padding_share for batch in planned) / len(planned),
            "seconds": now - self._started,
        }
        if self._config.precision == "fp16":
            line["skipped_steps"] = skipped_steps
        self._log.write(line)
        self._window_started, self._window_rows = now, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.close()
        self._log.close()
