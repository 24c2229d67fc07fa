"""Runs of the attention kernels in Triton's interpreter, everything poisoned and guarded."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from dualwave.kernels.attention import blockwise_attention, planning
from dualwave.kernels.attention.configurations import Tile

from ..guarded_buffers import poisoned_and_guarded
from .oracle import Problem, Results, assert_within_budget, results_of

SMALL_TILE = (16, 16)
"""Queries and keys: several tiles each way need no more than some dozens of rows."""


@contextmanager
def tiles_of(queries: int, keys: int) -> Iterator[None]:
    """All kernels work on tiles of this size."""

    def tile(*_: Any) -> Tile:
        return Tile(queries, keys, num_warps=4, num_stages=1)

    with mock.patch.object(planning, "tile_of", tile):
        yield


def attend(*tensors: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """The public function in the Triton implementation, with its LSE."""
    return blockwise_attention(*tensors, return_lse=True, implementation="triton", **options)


def run(
    problem: Problem, dtype: torch.dtype, tile: tuple[int, int] = SMALL_TILE, **more: Any
) -> Results:
    """Outputs and gradients of a problem."""
    with poisoned_and_guarded(), tiles_of(*tile):
        return results_of(attend, problem, dtype, **more)


def check(
    problem: Problem,
    dtype: torch.dtype = torch.float32,
    tile: tuple[int, int] = SMALL_TILE,
    *,
    with_lse: bool = True,
    **more: Any,
) -> Results:
    """Run a problem, and compare with the definition in float64."""
    results = run(problem, dtype, tile, with_lse=with_lse, **more)
    assert_within_budget(results, problem, dtype, with_lse=with_lse)
    return results
