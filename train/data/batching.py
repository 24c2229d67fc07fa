"""Batches of rows with captions of like length, under a budget of text tokens."""

from collections.abc import Iterator, Sequence
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

    Batches are global: they depend on (seed, epoch) alone, and rank r of n is given the rows at the
    positions r, r + n, ... of each, so ranks may hold different numbers of rows, but at least one.

    Iterating goes on where the last iteration stopped (at the end: nothing is left);
    `set_epoch` starts an epoch from its first batch.

    Args:
        lengths: text tokens of every row.
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
            if state[name] != value:
                raise ValueError(
                    f"The place in the data was saved with {name} {state[name]}, but {name} is "
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
            "batch_size": self._batch_size,
            "token_budget": self._token_budget,
            "seed": self._seed,
        }

    def _plan(self, epoch: int) -> list[list[int]]:
        rng = np.random.default_rng([self._seed, epoch])
        shuffled = rng.permutation(len(self._lengths))
        pool_rows = _POOL_BATCHES * self._batch_size
        pools = []
        for number, start in enumerate(range(0, len(shuffled), pool_rows)):
            pool = shuffled[start : start + pool_rows]
            pool = pool[np.argsort(self._lengths[pool], kind="stable")]
            # Up and down in turn, so that a batch across two pools has like lengths, too.
            pools.append(pool if number % 2 == 0 else pool[::-1])
        # The end is dropped, so it must not always be the longest or the shortest rows.
        rows = np.roll(np.concatenate(pools), int(rng.integers(len(shuffled))))
        batches = self._cut(rows.tolist())
        return [batches[number] for number in rng.permutation(len(batches))]

    def _cut(self, rows: list[int]) -> list[list[int]]:
        lengths = self._lengths.tolist()
        batches: list[list[int]] = []
        batch: list[int] = []
        longest = 0
        for row in rows:
            longest = max(longest, lengths[row])
            if self._token_budget is not None and longest * (len(batch) + 1) > self._token_budget:
                batches.append(batch)
                batch, longest = [], lengths[row]
            batch.append(row)
            if len(batch) == self._batch_size:
                batches.append(batch)
                batch, longest = [], 0
        # The constructor sees to it that there are rows for one batch at least.
        assert batches
        return batches
