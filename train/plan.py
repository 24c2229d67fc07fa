"""Which rows each step sees: the sampler's batches, shared out, and where a run goes on."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dualwave.train.data import TokenBudgetBatchSampler


@dataclass(frozen=True)
class PlannedBatch:
    """One batch before any of it is read.

    Attributes:
        rows: row numbers over all ranks.
        epoch: 0 in the first pass over the data.
        padding_share: padding tokens over all tokens of the batch.
        position_after: the sampler's state once this batch has been used.
    """

    rows: list[int]
    epoch: int
    padding_share: float
    position_after: dict[str, Any]

    def rows_of(self, rank: int, world_size: int) -> list[int]:
        """The rows that `rank` computes: every `world_size`-th, from its own number on."""
        return self.rows[rank::world_size]


def planned_batches(
    sampler: TokenBudgetBatchSampler, position: dict[str, Any] | None = None
) -> Iterator[PlannedBatch]:
    """Batches without end, epoch after epoch.

    The position is noted for each batch, so that a checkpoint can name the batch that was used
    last, however far ahead the next ones are being read.

    Args:
        sampler: gives the batches of all ranks together.
        position: a `position_after` to go on from.
    """
    if position is not None:
        sampler.load_state_dict(position)
    while True:
        epoch = int(sampler.state_dict()["epoch"])
        for rows in sampler:
            yield PlannedBatch(
                list(rows), epoch, float(sampler.padding_share(rows)), dict(sampler.state_dict())
            )
        sampler.set_epoch(epoch + 1)
