"""A training run, from a checked config to a saved model."""

import signal
import sys
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from dualwave.models import load
from dualwave.parallel.process_group import World, process_group_from_environment
from dualwave.train.batches import Batch, BatchLoader
from dualwave.train.checkpoint import (
    load_state,
    random_states,
    restore_random_states,
    save_checkpoint,
    seed_everything,
    write_folder,
)
from dualwave.train.config import TrainConfig
from dualwave.train.data import TokenBudgetBatchSampler
from dualwave.train.interrupts import SignalWatch, TrainingInterrupted
from dualwave.train.output import RunFolder, check_same_run
from dualwave.train.plan import PlannedBatch, planned_batches
from dualwave.train.reporter import Reporter
from dualwave.train.schedule import learning_rate_at
from dualwave.train.setup import (
    build_model,
    build_processor,
    left_out,
    model_config,
    open_training_rows,
    recompute_activations,
    refuse_a_run_without_steps,
    refuse_too_long_captions,
    summary,
)
from dualwave.train.step import Stepper, TrainingDiverged


@dataclass(frozen=True)
class TrainResult:
    """What a run gives back.

    Attributes:
        model_dir: the trained model and its processor, for `dualwave.load`.
        steps: steps made in all, those before a resume included.
        seconds: time spent training in all, that before a resume included.
        losses: loss of each step of this call.
    """

    model_dir: Path
    steps: int
    seconds: float
    losses: list[float]


def train(config: TrainConfig, *, resume: bool = False) -> TrainResult:
    """Train a dual-stream model.

    Everything that can be wrong is looked at before the model is built. With `torchrun`'s
    variables in the environment this process is one rank of the run (gloo on the CPU, NCCL on
    CUDA); `output_dir` must then be on a file system that all ranks see. Seeds the global random
    generators of torch, numpy and Python.

    Writes into `output_dir`: `config.yaml`, `metrics.jsonl`, `tensorboard/`,
    `checkpoints/step_XXXXXXXX/` and, at the end, `model/`.

    Args:
        config: the run.
        resume: go on from the newest complete checkpoint: the same rows and the same losses as
            in a run that was never stopped.

    Raises:
        ValueError: data, output folder or config don't fit, in one sentence.
        TrainingDiverged: loss or gradient is not finite (a `ValueError`; names step, rows, rate).
        TrainingInterrupted: Ctrl-C or SIGTERM came, and a checkpoint was written (a `SystemExit`
            with code 130 or 143).
    """
    with process_group_from_environment(config.device) as world:
        return _Run(config, world, resume=resume).train()


class _Run:
    def __init__(self, config: TrainConfig, world: World, *, resume: bool):
        self.config = config
        self.world = world
        self.folder = RunFolder(Path(config.output_dir))
        checkpoint = self.folder.open(resume=resume)
        self.rows = open_training_rows(config)
        refuse_a_run_without_steps(config, len(self.rows), world.size)
        state: dict[str, Any] | None = None
        if checkpoint is not None:
            state = load_state(checkpoint)
            check_same_run(state, config, rows=len(self.rows), checkpoint=checkpoint)
        for line in (
            left_out(self.rows),
            summary(config, len(self.rows), world, state["step"] if state else None),
        ):
            if line is not None:
                self._say(line)

        saved = load(checkpoint) if checkpoint is not None else None
        self.processor = (
            saved.processor
            if saved is not None and saved.processor is not None
            else build_processor(config, self.rows)
        )
        self.loader = BatchLoader(self.rows, self.processor)
        sizes = saved.config if saved is not None else model_config(config, self.processor)
        refuse_too_long_captions(
            config, self.rows, self.loader.lengths, sizes.max_text_length, world.size
        )
        model = saved if saved is not None else build_model(sizes, config.seed)
        if config.gradient_checkpointing:
            recompute_activations(model)
        self.model = model.to(world.device).train()
        self.stepper = Stepper(self.model, config, world)
        self.step = 0
        self.seconds_before = 0.0
        self.position: dict[str, Any] | None = None
        seed_everything(config.seed, world.rank)
        if state is not None:
            self.step = state["step"]
            self.seconds_before = state["seconds"]
            self.position = state["position"]
            self.stepper.load_state_dict(state["stepper"])
            restore_random_states(state["random_states"], world, config.seed)
        # Every rank has looked at the folder before the first one writes into it.
        world.barrier()
        if world.is_first:
            self.folder.prepare(config)

    def train(self) -> TrainResult:
        started = time.perf_counter()
        losses: list[float] = []
        reporter = (
            Reporter(self.config, self.folder, self.step, self.seconds_before)
            if self.world.is_first
            else None
        )
        stopped_by: int | None = None
        with (
            SignalWatch() as watch,
            reporter or nullcontext(),
            closing(self._batches_of_steps()) as batches_of_steps,
        ):
            while self.step < self.config.schedule.steps and stopped_by is None:
                planned, batches = next(batches_of_steps)
                rate = self._learning_rate()
                figures = self.stepper.backward(
                    batches,
                    [len(batch.rows) for batch in planned],
                    watch.received,
                    with_saliency=self.step >= self.config.schedule.contrastive_only_steps,
                )
                try:
                    self.stepper.update(figures, rate)
                except TrainingDiverged as error:
                    raise TrainingDiverged(self._place(str(error), planned, rate)) from None
                self.step += 1
                self.position = planned[-1].position_after
                losses.append(figures.loss)
                stopped_by = figures.signal
                if reporter is not None:
                    reporter.report(self.step, planned, figures, rate, self.stepper.skipped_steps)
                if (
                    stopped_by is not None
                    or self.step % self.config.checkpoint_every == 0
                    or self.step == self.config.schedule.steps
                ):
                    self._save_checkpoint(self.seconds_before + time.perf_counter() - started)
        seconds = self.seconds_before + time.perf_counter() - started
        if stopped_by is not None and self.step < self.config.schedule.steps:
            self._say(
                f"stopped by {signal.Signals(stopped_by).name} after step {self.step}; go on with: "
                f"dualwave train --config {self.folder.config} --resume",
                file=sys.stderr,
            )
            raise TrainingInterrupted(stopped_by)
        if self.world.is_first:
            write_folder(self.folder.model, model=self.model, processor=self.processor)
        self.world.barrier()
        return TrainResult(self.folder.model, self.step, seconds, losses)

    def _batches_of_steps(self) -> Generator[tuple[list[PlannedBatch], Iterator[Batch]]]:
        """For each step its plan and this rank's part of its batches, loaded ahead."""
        config, world = self.config, self.world
        # Every rank plans the batches of all ranks, and so knows how many rows a step has.
        sampler = TokenBudgetBatchSampler(
            self.loader.lengths,
            groups=self.rows.scenes,
            batch_size=config.batch.size,
            token_budget=config.batch.token_budget,
            seed=config.seed,
        )
        planned = planned_batches(sampler, self.position)
        steps: deque[list[PlannedBatch]] = deque()

        def own_rows() -> Iterator[list[int]]:
            while True:
                steps.append(list(islice(planned, config.batch.accumulation)))
                yield from (batch.rows_of(world.rank, world.size) for batch in steps[-1])

        with closing(self.loader.load_ahead(own_rows(), config.loader_workers)) as batches:
            for first in batches:
                rest = islice(batches, config.batch.accumulation - 1)
                yield steps.popleft(), chain([first], rest)

    def _learning_rate(self) -> float:
        schedule = self.config.schedule
        return learning_rate_at(
            self.step + 1,
            peak=self.config.optimizer.lr,
            steps=schedule.steps,
            warmup_steps=schedule.warmup_steps,
            final_ratio=schedule.final_lr_ratio,
        )

    def _place(self, problem: str, planned: list[PlannedBatch], rate: float) -> str:
        ids = ", ".join(str(self.rows.ids[row]) for batch in planned for row in batch.rows)
        return (
            f"{problem} in step {self.step + 1} (learning rate {rate:.3g}), whose rows have the "
            f"ids {ids}: a lower optimizer.lr or another precision may help, or a look at them."
        )

    def _save_checkpoint(self, seconds: float) -> None:
        states = random_states(self.world)
        if self.world.is_first:
            save_checkpoint(
                self.folder.checkpoints,
                self.step,
                model=self.model,
                processor=self.processor,
                state={
                    "step": self.step,
                    "seconds": seconds,
                    "config": self.config.model_dump(mode="json"),
                    "rows": len(self.rows),
                    "position": self.position,
                    # The learning rate is a function of the step and of the config above.
                    "stepper": self.stepper.state_dict(),
                    "random_states": states,
                },
                keep=self.config.keep_checkpoints,
            )
        self.world.barrier()

    def _say(self, line: str, file: Any = None) -> None:
        if self.world.is_first:
            print(line, file=file, flush=True)
