"""Which rows each step sees: the sampler's batches, shared out over ranks, and a place to resume."""

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
    sampler: TokenBudgetBatchSampler, world_size: int, position: dict[str, Any] | None = None
) -> Iterator[PlannedBatch]:
    """Batches without end, epoch after epoch.

    The position is noted for each batch, so that a checkpoint can name the batch that was used
    last, however far ahead the next ones are being read.

    Args:
        sampler: gives the batches of all ranks together.
        world_size: ranks that share each batch.
        position: a `position_after` to go on from.

    Raises:
        ValueError: a batch has fewer rows than there are ranks.
    """
    if position is not None:
        sampler.load_state_dict(position)
    while True:
        epoch = int(sampler.state_dict()["epoch"])
        for rows in sampler:
            if len(rows) < world_size:
                raise ValueError(
                    f"a batch of {len(rows)} rows can't be shared by {world_size} processes: "
                    "raise batch.token_budget or start fewer processes."
                )
            yield PlannedBatch(
                list(rows), epoch, float(sampler.padding_share(rows)), dict(sampler.state_dict())
            )
        sampler.set_epoch(epoch + 1)
