"""One optimizer step: forward and backward of its batches, reduced figures, the update."""

import math
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dualwave.parallel.process_group import World
from dualwave.train.batches import Batch
from dualwave.train.config import TrainConfig
from dualwave.train.interrupts import SignalWatch
from dualwave.train.losses import contrastive_loss, saliency_loss
from dualwave.train.optimizer import build_optimizer

_AUTOCAST_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}

SMALLEST_LOSS_SCALE = 2.0**-14
"""An fp16 run whose loss scale has sunk below this has no finite gradient at any scale."""


class TrainingDiverged(ValueError):
    """The loss or its gradient is not finite."""


@dataclass(frozen=True)
class StepFigures:
    """What a step found out, the same on every rank.

    Attributes:
        loss: weighted sum of the parts; the mean over the step's rows.
        saliency_loss: mean over the step's rows; None in a step of the towers alone.
        contrastive_loss: mean over the step's rows.
        grad_norm: global norm of the gradient before clipping.
        logit_scale: factor of the contrastive logits.
        signal: a signal that any rank has received (SIGTERM before SIGINT), or None.
    """

    loss: float
    saliency_loss: float | None
    contrastive_loss: float
    grad_norm: float
    logit_scale: float
    signal: int | None

    @property
    def is_finite(self) -> bool:
        """Whether the loss is a number."""
        return math.isfinite(self.loss)


class Stepper:
    """Model, optimizer and gradient scaler, advanced one step at a time.

    With several ranks the gradient is one process's over all rows: losses are divided by the rows
    of all ranks, and `DistributedDataParallel` averages over ranks (see `train.losses`).

    Args:
        model: the model, on its device, the same weights on every rank.
        config: the run.
        world: this process' place among the ranks.
    """

    def __init__(self, model: nn.Module, config: TrainConfig, world: World):
        self.model = model
        self.config = config
        self.world = world
        self.optimizer = build_optimizer(model, config.optimizer)
        self.scaler = torch.amp.GradScaler(
            world.device.type, enabled=config.precision == "fp16", init_scale=2.0**11
        )
        self.skipped_steps = 0
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._module: nn.Module = model
        if world.group is not None:
            # The fusion blocks take no part in the first, contrastive steps of a run.
            self._module = DistributedDataParallel(
                model,
                process_group=world.group,
                find_unused_parameters=config.schedule.contrastive_only_share > 0,
            )

    def backward(
        self,
        batches: Iterable[Batch],
        row_counts: Sequence[int],
        signal: int | None,
        *,
        with_saliency: bool = True,
    ) -> StepFigures:
        """Leave the step's gradient, clipped, in the parameters.

        Args:
            batches: this rank's rows of each batch that the step accumulates.
            row_counts: rows of each of these batches over all ranks.
            signal: a signal that this rank has received; all ranks hear of it.
            with_saliency: False trains the towers alone.
        """
        self.optimizer.zero_grad(set_to_none=True)
        total_rows = sum(row_counts)
        sums = torch.zeros(4, dtype=torch.float64, device=self.world.device)
        for number, batch in enumerate(batches, start=1):
            batch = batch.to(self.world.device)
            with self._reduction(is_last=number == len(row_counts)):
                saliency, contrastive, logit_scale = self._losses(batch, with_saliency)
                saliency = saliency.sum() * (self.world.size / total_rows)
                contrastive = contrastive * (row_counts[number - 1] / total_rows)
                weights = self.config.loss
                # A switched-off part may be undefined, so it is left out instead of weighted by 0.
                loss = weights.contrastive * contrastive
                if with_saliency:
                    loss = loss + weights.saliency * saliency
                self.scaler.scale(loss).backward()
            sums[:2] += torch.stack([saliency.detach(), contrastive.detach()])
        sums[:2] /= self.world.size
        if signal is not None:
            sums[2 + SignalWatch.SIGNALS.index(signal)] = 1
        if self.world.group is not None:
            dist.all_reduce(sums, group=self.world.group)
        self.scaler.unscale_(self.optimizer)
        grad_norm = nn.utils.clip_grad_norm_(self._parameters, self.config.optimizer.clip_norm)
        saliency_mean, contrastive_mean, interrupted, terminated = sums.tolist()
        return StepFigures(
            loss=weights.saliency * saliency_mean + weights.contrastive * contrastive_mean,
            saliency_loss=saliency_mean if with_saliency else None,
            contrastive_loss=contrastive_mean,
            grad_norm=float(grad_norm),
            logit_scale=float(logit_scale.detach()),
            signal=_agreed_signal(bool(interrupted), bool(terminated)),
        )

    def update(self, figures: StepFigures, learning_rate: float) -> None:
        """Move the weights; an fp16 step whose gradient overflowed is left out and counted.

        Raises:
            TrainingDiverged: the loss or the gradient is not finite (in fp16: the gradient is not
                finite at any loss scale).
        """
        if not figures.is_finite:
            raise TrainingDiverged(f"the loss is {figures.loss}")
        overflowed = not math.isfinite(figures.grad_norm)
        if overflowed and not self.scaler.is_enabled():
            raise TrainingDiverged(f"the gradient's norm is {figures.grad_norm}")
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.skipped_steps += overflowed
        if overflowed and self.scaler.get_scale() < SMALLEST_LOSS_SCALE:
            raise TrainingDiverged("the gradient is not finite at any loss scale")

    def state_dict(self) -> dict[str, Any]:
        """Optimizer, scaler and the count of skipped steps."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "skipped_steps": self.skipped_steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.optimizer.load_state_dict(state["optimizer"])
        # A scaler that is switched off has an empty state, which a switched-on one refuses.
        if self.scaler.is_enabled() and state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        self.skipped_steps = state["skipped_steps"]

    def _reduction(self, is_last: bool) -> Any:
        if isinstance(self._module, DistributedDataParallel) and not is_last:
            return self._module.no_sync()
        return nullcontext()

    def _losses(
        self, batch: Batch, with_saliency: bool
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        precision = self.config.precision
        with torch.autocast(
            self.world.device.type,
            dtype=_AUTOCAST_TYPES.get(precision),
            enabled=precision in _AUTOCAST_TYPES,
        ):
            output = self._module(
                pixel_values=batch.pixel_values,
                input_ids=batch.input_ids,
                attention_mask=batch.attention_mask,
                image_index=batch.image_index,
                region_masks=batch.masks,
                with_saliency=with_saliency,
            )
        saliency = (
            saliency_loss(output.saliency_logits, batch.masks)
            if with_saliency
            else output.logit_scale.new_zeros(len(batch.input_ids))
        )
        contrastive = contrastive_loss(
            output.image_embeds,
            output.text_embeds,
            output.logit_scale,
            self.world.group,
            torch.stack([batch.caption_ids, batch.region_ids], dim=1),
        )
        return saliency, contrastive, output.logit_scale


def _agreed_signal(interrupted: bool, terminated: bool) -> int | None:
    sigint, sigterm = SignalWatch.SIGNALS
    if terminated:
        return int(sigterm)
    return int(sigint) if interrupted else None
