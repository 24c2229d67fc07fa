"""Attention for autograd: forward, and the exact backward that computes the weights again.

Saved are q, k, v, the bias, the packing, out and lse. Every tensor is in the canonical form of
`dualwave.kernels.attention.plans.Call`, except that the PyTorch implementation takes float64 too.
"""

from typing import Any, NoReturn

import torch
from torch import Tensor

import dualwave.kernels.attention.ops  # noqa: F401  (registers torch.ops.dualwave.attention_*)

_TENSORS = 6
"""q, k, v, bias, cu_seqlens_q and cu_seqlens_k come first among the arguments."""


def _refuse_vmap(*_: Any) -> NoReturn:
    raise ValueError(
        "blockwise_attention does not go through torch.vmap: put the mapped dimension into B or "
        "into the heads instead."
    )


class BlockwiseAttention(torch.autograd.Function):
    """(out, lse) from the arguments of the operation ``dualwave::attention_forward``."""

    vmap = staticmethod(_refuse_vmap)

    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor, Tensor]:
        """Attend."""
        return torch.ops.dualwave.attention_forward(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep what backward needs."""
        ctx.options = inputs[_TENSORS:]
        ctx.save_for_backward(*inputs[:_TENSORS], *output)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(
        ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """The gradients of q, k, v and bias, where they are needed."""
        *arguments, out, lse = ctx.saved_tensors
        wanted = tuple(ctx.needs_input_grad[:4])
        if grad_out is None:
            grad_out = torch.zeros_like(out)
        grads = _BlockwiseAttentionBackward.apply(
            grad_out, grad_lse, out, lse, *arguments, *ctx.options, arguments[0].dtype, wanted
        )
        return (*grads, *(None for _ in range(len(arguments) - 4 + len(ctx.options))))


class _BlockwiseAttentionBackward(torch.autograd.Function):
    """A function of its own only to say clearly that there is no second derivative."""

    vmap = staticmethod(_refuse_vmap)

    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor | None, ...]:
        wanted = arguments[-1]
        grads = torch.ops.dualwave.attention_backward(*arguments)
        return tuple(
            grad if is_wanted else None for grad, is_wanted in zip(grads, wanted, strict=True)
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> NoReturn:
        raise RuntimeError(
            "blockwise_attention has no second derivative: a gradient of its gradient "
            "(create_graph=True) cannot be taken."
        )
