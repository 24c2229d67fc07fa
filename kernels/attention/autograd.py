"""Attention for autograd: forward, and the exact backward that computes the weights again.

Saved are q, k, v, the bias, the packing, out and the normalisers of the weights. Every tensor is in
the canonical form of `dualwave.kernels.attention.plans.Call`, except that the PyTorch
implementation takes float64 too.
"""

from typing import Any, NoReturn

import torch
from torch import Tensor

import dualwave.kernels.attention.ops  # noqa: F401  (registers torch.ops.dualwave.attention_*)


def _refuse_vmap(*_: Any) -> NoReturn:
    raise ValueError(
        "blockwise_attention does not go through torch.vmap: put the mapped dimension into B or "
        "into the heads instead."
    )


class BlockwiseAttention(torch.autograd.Function):
    """(out, lse, normalisers) from (q, k, v, bias, cu_seqlens_q, cu_seqlens_k, options).

    Normalisers have no gradient. ``options`` are the other arguments of the operation
    ``dualwave::attention_forward``.
    """

    vmap = staticmethod(_refuse_vmap)

    @staticmethod
    def forward(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        cu_seqlens_q: Tensor | None,
        cu_seqlens_k: Tensor | None,
        options: tuple[Any, ...],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attend."""
        return torch.ops.dualwave.attention_forward(
            q, k, v, bias, cu_seqlens_q, cu_seqlens_k, *options
        )

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        """Keep what backward needs."""
        *tensors, ctx.options = inputs
        out, _, normalisers = output
        ctx.mark_non_differentiable(normalisers)
        ctx.save_for_backward(*tensors, out, normalisers)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(
        ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None, _: None
    ) -> tuple[Tensor | None, ...]:
        """The gradients of q, k, v and bias, where they are needed."""
        *tensors, out, normalisers = ctx.saved_tensors
        wanted = tuple(ctx.needs_input_grad[:4])
        if grad_out is None:
            grad_out = torch.zeros_like(out)
        grads = _BlockwiseAttentionBackward.apply(
            grad_out, grad_lse, out, normalisers, *tensors, ctx.options, wanted
        )
        return (*grads, None, None, None)


class _BlockwiseAttentionBackward(torch.autograd.Function):
    """A function of its own only to say clearly that there is no second derivative."""

    vmap = staticmethod(_refuse_vmap)

    @staticmethod
    def forward(
        grad_out: Tensor,
        grad_lse: Tensor | None,
        out: Tensor,
        normalisers: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        cu_seqlens_q: Tensor | None,
        cu_seqlens_k: Tensor | None,
        options: tuple[Any, ...],
        wanted: tuple[bool, bool, bool, bool],
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
        grads = torch.ops.dualwave.attention_backward(
            grad_out,
            grad_lse,
            out,
            normalisers,
            q,
            k,
            v,
            bias,
            cu_seqlens_q,
            cu_seqlens_k,
            *options,
            q.dtype,
            wanted,
        )
        grad_q, grad_k, grad_v, grad_bias = (
            grad if is_wanted else None for grad, is_wanted in zip(grads, wanted, strict=True)
        )
        return grad_q, grad_k, grad_v, grad_bias

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> NoReturn:
        raise RuntimeError(
            "blockwise_attention has no second derivative: a gradient of its gradient "
            "(create_graph=True) cannot be taken."
        )
