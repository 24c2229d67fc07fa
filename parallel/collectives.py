"""Collectives with gradients, for tensors whose first dimension is split over processes."""

from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable


def gather_row_counts(tensor: torch.Tensor, group: dist.ProcessGroup | None) -> list[int]:
    """Rows (first dimension) of `tensor` on every rank of `group`, in rank order.

    Args:
        tensor: (rows, ...); ranks may hold different numbers of rows.
        group: the processes; None for this process alone.
    """
    if group is None:
        return [tensor.shape[0]]
    own = torch.tensor([tensor.shape[0]], dtype=torch.int64, device=tensor.device)
    counts = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(counts, own, group=group)
    return [int(count) for count in torch.cat(counts).tolist()]


def all_gather_with_grad(
    tensor: torch.Tensor, group: dist.ProcessGroup | None, counts: list[int] | None = None
) -> torch.Tensor:
    """Concatenate the ranks' rows, in rank order, keeping the gradient of every rank's result.

    The gradient that reaches a rank's rows is the sum over all ranks of what each rank's loss says
    about them (`torch.autograd.grad` of the sum of all ranks' losses): nothing is divided by the
    number of ranks. Every rank must run backward through its result.

    Args:
        tensor: (rows, ...), the same trailing shape and dtype on every rank; the number of rows may
            differ between ranks, and may be 0.
        group: the processes; None for this process alone (the tensor itself is returned).
        counts: rows of every rank, where known (see `gather_row_counts`); asked for otherwise.

    Returns:
        (sum of all rows, ...), the same on every rank.
    """
    if group is None:
        return tensor
    if counts is None:
        counts = gather_row_counts(tensor, group)
    return _GatherRows.apply(tensor, counts, group)


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, counts: list[int], group: dist.ProcessGroup
    ) -> torch.Tensor:
        rank = dist.get_rank(group)
        ctx.group = group
        ctx.first_row = list(accumulate(counts, initial=0))[rank]
        ctx.rows = counts[rank]
        # Backends gather equal shapes only: pad to the longest, cut the padding off again.
        padded = tensor.new_zeros((max(counts), *tensor.shape[1:]))
        padded[: ctx.rows] = tensor
        pieces = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(pieces, padded, group=group)
        return torch.cat([piece[:count] for piece, count in zip(pieces, counts, strict=True)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # A copy, since autograd may hand the same tensor to other consumers.
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total[ctx.first_row : ctx.first_row + ctx.rows], None, None
