"""Batches of rows with captions of like length, under a budget of text tokens."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

_POOL_BATCHES = 50  # batches whose rows are sorted by length together


class TokenBudgetBatchSampler:
    """Batches of row numbers, bucketed by text length.

    In each epoch all rows are shuffled, sorted by length inside pools of 50 batches (up and down in
    turn), cut into batches at a random starting point, and the batches are shuffled. A batch
    has `batch_size` rows, or fewer where one more would make its padded text (longest length times
    rows) exceed `token_budget`. What is left at the end of an epoch and fills no batch is dropped,
    other rows each time.

    Rows of one group come next to each other in one batch. Groups, then, are what is shuffled, and
    sorted by their longest row. A batch is also full when the next group doesn't fit as a whole, so
    it may have fewer rows than `batch_size`; what is dropped at the end of an epoch are the groups
    after the last full batch, fewer than `batch_size` rows. A group that is more than a batch by
    itself is spread row by row: it fills up one batch and goes on in the next.

    Batches are global: they depend on (seed, epoch) alone, and rank r of n is given the rows at the
    positions r, r + n, ... of each, so ranks may hold different numbers of rows, but at least one.

    Iterating goes on where the last iteration stopped (at the end: nothing is left);
    `set_epoch` starts an epoch from its first batch.

    Args:
        lengths: text tokens of every row.
        groups: of every row, which group it belongs to; None when each row is by itself.
        batch_size: most rows in a global batch.
        token_budget: most padded text tokens in a global batch; None for no limit.
        seed: of the shuffles.
        rank: which part of each batch to give.
        world_size: how many parts there are.

    Raises:
        ValueError: no batch can be made, or a batch could be too small for the ranks.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        *,
        groups: Sequence[Hashable] | None = None,
        batch_size: int,
        token_budget: int | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ):
        self._lengths = np.asarray(lengths, dtype=np.int64)
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is not one of {world_size} (0 to {world_size - 1}).")
        if batch_size < world_size:
            raise ValueError(
                f"A batch of {batch_size} rows can't be shared by {world_size} processes."
            )
        if batch_size > len(self._lengths):
            raise ValueError(
                f"A batch of {batch_size} rows can't be made from {len(self._lengths)} rows."
            )
        longest = int(self._lengths.max())
        if token_budget is not None and token_budget < longest * world_size:
            raise ValueError(
                f"A budget of {token_budget} text tokens a batch is too small: row "
                f"{int(self._lengths.argmax())} has {longest} tokens, so {world_size} such row(s), "
                f"one a process, need {longest * world_size}."
            )
        self._batch_size = batch_size
        self._token_budget = token_budget
        self._is_grouped = groups is not None
        self._groups = self._rows_by_group(groups)
        self._longest = np.array([self._lengths[rows].max() for rows in self._groups])
        self._check_smallest_batch(world_size)
        self._seed = seed
        self._rank, self._world_size = rank, world_size
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Start `epoch` from its first batch."""
        self._epoch = epoch
        self._position = 0
        self._batches = self._plan(epoch)

    def __len__(self) -> int:
        """Batches in the current epoch; under a token budget epochs may differ."""
        return len(self._batches)

    def __iter__(self) -> Iterator[list[int]]:
        while self._position < len(self._batches):
            batch = self._batches[self._position]
            self._position += 1
            yield batch[self._rank :: self._world_size]

    def state_dict(self) -> dict[str, Any]:
        """The place in the data: the epoch and how many of its batches have been given out."""
        return {"epoch": self._epoch, "batch": self._position, **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on after the batches that `state` counts.

        Raises:
            ValueError: the state belongs to other rows, batches or another seed.
        """
        for name, value in self._identity().items():
            # States from before there were groups have none.
            if state.get(name) != value:
                raise ValueError(
                    f"The place in the data was saved with {name} {state.get(name)}, but {name} is "
                    f"{value} now: a run can only go on with the same data and batches."
                )
        self.set_epoch(state["epoch"])
        self._position = state["batch"]

    def padding_share(self, batch: Sequence[int]) -> float:
        """Padding tokens over all tokens when these rows are padded to the longest of them."""
        lengths = self._lengths[list(batch)]
        padded = int(lengths.max()) * len(lengths)
        return 1 - int(lengths.sum()) / padded if padded else 0.0

    def _identity(self) -> dict[str, Any]:
        return {
            "rows": len(self._lengths),
            "groups": len(self._groups) if self._is_grouped else None,
            "batch_size": self._batch_size,
            "token_budget": self._token_budget,
            "seed": self._seed,
        }

    def _plan(self, epoch: int) -> list[list[int]]:
        rng = np.random.default_rng([self._seed, epoch])
        shuffled = rng.permutation(len(self._groups))
        # As many groups as have about the rows of so many batches.
        share = len(self._groups) / len(self._lengths)
        pool_groups = max(1, round(_POOL_BATCHES * self._batch_size * share))
        pools = []
        for number, start in enumerate(range(0, len(shuffled), pool_groups)):
            pool = shuffled[start : start + pool_groups]
            pool = pool[np.argsort(self._longest[pool], kind="stable")]
            # Up and down in turn, so that a batch across two pools has like lengths, too.
            pools.append(pool if number % 2 == 0 else pool[::-1])
        # The end is dropped, so it must not always be the longest or the shortest rows.
        order = np.roll(np.concatenate(pools), int(rng.integers(len(shuffled))))
        batches = self._cut(order.tolist())
        return [batches[number] for number in rng.permutation(len(batches))]

    def _cut(self, order: list[int]) -> list[list[int]]:
        lengths = self._lengths.tolist()
        batches: list[list[int]] = []
        batch: list[int] = []
        longest = 0
        for group in order:
            rows = self._groups[group]
            parts = [rows] if self._fits_alone(group) else [[row] for row in rows]
            for part in parts:
                part_longest = max(lengths[row] for row in part)
                longest = max(longest, part_longest)
                if not self._fits(len(batch) + len(part), longest):
                    batches.append(batch)
                    batch, longest = [], part_longest
                batch.extend(part)
                if len(batch) == self._batch_size:
                    batches.append(batch)
                    batch, longest = [], 0
        # The constructor sees to it that there are rows for one batch at least.
        assert batches
        return batches

    def _fits(self, rows: int, longest: int) -> bool:
        """Whether a batch may hold so many rows with texts of at most this length."""
        within_budget = self._token_budget is None or rows * longest <= self._token_budget
        return rows <= self._batch_size and within_budget

    def _fits_alone(self, group: int) -> bool:
        return self._fits(len(self._groups[group]), int(self._longest[group]))

    def _rows_by_group(self, groups: Sequence[Hashable] | None) -> list[list[int]]:
        if groups is None:
            return [[row] for row in range(len(self._lengths))]
        if len(groups) != len(self._lengths):
            raise ValueError(f"There are {len(self._lengths)} rows, but {len(groups)} groups.")
        rows_of: dict[Hashable, list[int]] = {}
        for row, group in enumerate(groups):
            rows_of.setdefault(group, []).append(row)
        return list(rows_of.values())

    def _check_smallest_batch(self, world_size: int) -> None:
        """Batches are the same for every `world_size`, so the smallest must have a row for each."""
        largest = max(
            (len(rows) for group, rows in enumerate(self._groups) if self._fits_alone(group)),
            default=1,
        )
        most = self._batch_size
        if self._token_budget is not None:
            most = min(most, self._token_budget // max(1, int(self._longest.max())))
        smallest = max(1, most + 1 - largest)  # where one row more and the largest group would fit
        if smallest < world_size:
            raise ValueError(
                f"Groups of up to {largest} rows may leave a batch with only {smallest} row(s), "
                f"too few for {world_size} processes: batches must be larger."
            )
