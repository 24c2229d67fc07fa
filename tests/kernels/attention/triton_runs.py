"""Runs of the attention kernels in Triton's interpreter, everything poisoned and guarded."""

from typing import Any

import torch
from torch import Tensor

from dualwave.kernels.attention import blockwise_attention

from ..guarded_buffers import poisoned_and_guarded
from .oracle import Problem, Results, results_of


def run(problem: Problem, dtype: torch.dtype, *, with_lse: bool = True, **more: Any) -> Results:
    """The public function in the Triton implementation."""

    def ours(*tensors: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        return blockwise_attention(*tensors, return_lse=True, implementation="triton", **options)

    with poisoned_and_guarded():
        return results_of(ours, problem, dtype, with_lse=with_lse, **more)
