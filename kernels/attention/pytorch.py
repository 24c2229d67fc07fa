"""Attention in PyTorch operations: torch's own blockwise operator where it is exact, else chunks.

torch's operator for CPUs returns the LSE and takes it back, but it needs at least one key, aligns
causal at the top left, gives the LSE of a row without visible keys as 0, takes a row of NaN for one
where there are less than 16 keys, and has no gradient of the LSE or the mask. (Its backward
computes weights from the LSE, which is rounded to its own size: the gradients of large logits err
by eps / 2 * |lse|.) So it serves what it can express (see `_as_fused`); windows, packed sequences,
biases with gradients, and what may be such a row, are computed in chunks.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dualwave.kernels.attention.plans import Call
from dualwave.kernels.attention.pytorch_chunked import (
    Gradients,
    attention_backward_chunked,
    attention_forward_chunked,
)

_fused_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_fused_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True)
class _Fused:
    """A call in the form of torch's operator: (B, H, S, D), as many key heads as query heads."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    is_causal: bool


def attention_forward_pytorch(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """out (B, Sq, Hq, D) in ``call.out_dtype``, lse (B, Hq, Sq) and normalisers (2, B, Hq, Sq)."""
    fused = _as_fused(call)
    if fused is None:
        return attention_forward_chunked(call)
    out, lse = _fused_forward(
        fused.q,
        fused.k,
        fused.v,
        is_causal=fused.is_causal,
        attn_mask=fused.mask,
        scale=call.scale,
    )
    lse = lse.contiguous()
    if fused.mask is not None:
        lse = lse.masked_fill(torch.isneginf(fused.mask).all(dim=-1), -torch.inf)
    if bool((lse == 0.0).any()) and bool(((lse == 0.0) & (out == 0.0).all(dim=-1)).any()):
        return attention_forward_chunked(call)  # perhaps a row of NaN, taken for one without keys
    normalisers = torch.stack([lse, torch.zeros_like(lse)])
    return out.transpose(1, 2).to(call.out_dtype).contiguous(), lse, normalisers


def attention_backward_pytorch(
    call: Call,
    out: Tensor,
    normalisers: Tensor,
    grad_out: Tensor,
    grad_lse: Tensor | None,
    grad_dtype: torch.dtype,
    wanted: tuple[bool, bool, bool, bool],
) -> Gradients:
    """The wanted gradients of q, k, v (in ``grad_dtype``) and bias; None for the others."""
    fused = None if wanted[3] else _as_fused(call)
    if fused is None:
        return attention_backward_chunked(
            call, out, normalisers, grad_out, grad_lse, grad_dtype, wanted
        )
    operands = [fused.q, fused.k, fused.v]
    lse = normalisers.sum(dim=0)
    out, grad_out = (_operand(tensor, fused.q.dtype) for tensor in (out, grad_out))
    if grad_lse is not None:
        # One more column: with out = -1 and grad_out = grad_lse in it, the operator's
        # sum(out * grad_out) becomes delta - grad_lse, and nothing else changes.
        operands = [F.pad(tensor, (0, 1)) for tensor in operands]
        out = torch.cat([out, torch.full_like(out[..., :1], -1.0)], dim=-1)
        grad_out = torch.cat([grad_out, grad_lse.unsqueeze(-1).to(grad_out.dtype)], dim=-1)
    grads = _fused_backward(
        grad_out,
        *operands,
        out,
        lse.masked_fill(torch.isneginf(lse), 0.0),
        0.0,
        fused.is_causal,
        attn_mask=fused.mask,
        scale=call.scale,
    )
    key_heads, size = call.k.shape[2:]
    finished: list[Tensor | None] = []
    for grad, is_wanted, is_key in zip(grads, wanted[:3], (False, True, True), strict=True):
        if not is_wanted:
            finished.append(None)
            continue
        grad = grad[..., :size].to(grad_dtype)
        if is_key and grad.shape[1] != key_heads:
            grad = grad.unflatten(1, (key_heads, -1)).sum(dim=2)
        finished.append(grad.transpose(1, 2).contiguous())
    return finished[0], finished[1], finished[2], None


def _as_fused(call: Call) -> _Fused | None:
    """The call for torch's operator, or None where that can't express it."""
    queries, keys = call.q.shape[1], call.k.shape[1]
    visibility, bias = call.visibility, call.bias
    if call.q.device.type != "cpu" or call.packing is not None:
        return None
    if call.q.numel() == 0 or keys == 0:
        return None
    q_offset, k_offset = visibility.offsets or (keys, queries)
    shift = q_offset - k_offset
    reaches_first = visibility.left is None or visibility.left >= shift + queries - 1
    reaches_last = visibility.right is None or visibility.right + shift >= keys - 1
    is_causal = not reaches_last and visibility.right is not None and visibility.right + shift == 0
    if not reaches_first or not (reaches_last or (is_causal and queries == keys)):
        return None
    if is_causal and (bias is not None or call.scale <= 0):
        # The operator takes no mask beside causal, and scales after hiding: 0 * -inf is NaN.
        return None
    # 16-bit results are rounded by the operator, partial ones must not be.
    dtype = torch.float32 if call.out_dtype != call.q.dtype else call.q.dtype
    group = call.q.shape[2] // call.k.shape[2]
    q, k, v = (_operand(tensor, dtype) for tensor in (call.q, call.k, call.v))
    if group > 1:
        k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
    if bias is not None and bias.dtype != torch.float64:
        bias = bias.float()
    return _Fused(q, k, v, bias, is_causal)


def _operand(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, H, S, D) of (B, S, H, D), its last dimension contiguous: the operator assumes that."""
    operand = tensor.transpose(1, 2).to(dtype)
    return operand if operand.stride(-1) == 1 else operand.contiguous()
