"""Parts of an attention, over different keys, put together."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dualwave.kernels.arguments import check_floating_point, check_same_device


def merge_attention(outs: Sequence[Tensor], lses: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The attention over all keys, from attentions over parts of them.

        lse = log(sum_p exp(lse_p))
        out = sum_p exp(lse_p - lse) * out_p

    Differentiable in all arguments. LSEs of any size are merged without overflow; a part that sees
    nothing (lse -inf) counts for nothing, and rows that no part sees stay out = 0, lse = -inf.

    Args:
        outs: one or more (B, Sq, H, D) of one shape and dtype; float32 partial results of 16-bit
            inputs (``partial_dtype``) keep the error of one call, 16-bit ones add up.
        lses: as many (B, H, Sq), natural logarithm.

    Returns:
        out in the dtype of ``outs`` (sums are at least float32), and lse.

    Raises:
        ValueError: no part, or parts that do not fit each other.

    Source: Dao et al., FlashAttention-2 (arXiv 2307.08691), section 3.1.1; the same identity as in
    ring attention (Liu et al., arXiv 2310.01889).
    """
    if not all(isinstance(parts, Sequence | Tensor) for parts in (outs, lses)):
        raise ValueError(
            "merge_attention needs a list of outs and a list of lses, not "
            f"{type(outs).__name__} and {type(lses).__name__}."
        )
    if len(outs) == 0 or len(outs) != len(lses):
        raise ValueError(
            f"merge_attention needs as many lses as outs, at least one, not {len(lses)} and "
            f"{len(outs)}."
        )
    for out, lse in zip(outs, lses, strict=True):
        check_floating_point("each out", out)
        check_floating_point("each lse", lse)
        check_same_device("an out", out, "the first", outs[0])
        check_same_device("an lse", lse, "its out", out)
        if out.dtype != outs[0].dtype:
            raise ValueError(
                f"all outs must have one dtype, not {outs[0].dtype} and {out.dtype}: convert them "
                "to the wider one."
            )
        batch, queries, heads, _ = out.shape if out.ndim == 4 else (-1, -1, -1, -1)
        if out.shape != outs[0].shape or tuple(lse.shape) != (batch, heads, queries):
            raise ValueError(
                "each part must be out (B, Sq, H, D), the same for all, with lse (B, H, Sq), not "
                f"out {tuple(out.shape)} with lse {tuple(lse.shape)}."
            )
    stacked = torch.stack(tuple(lses))  # (parts, B, H, Sq)
    largest = stacked.detach().amax(dim=0)
    largest = torch.where(torch.isneginf(largest), 0.0, largest)
    shares = torch.exp(stacked - largest)
    total = shares.sum(dim=0)
    sees_nothing = total == 0
    total = total.masked_fill(sees_nothing, 1.0)
    lse = (torch.log(total) + largest).masked_fill(sees_nothing, -torch.inf)
    weights = (shares / total).transpose(-1, -2).unsqueeze(-1)  # (parts, B, Sq, H, 1)
    merged = outs[0] * weights[0]
    for out, weight in zip(outs[1:], weights[1:], strict=True):
        merged = merged + out * weight
    return merged.to(outs[0].dtype), lse
