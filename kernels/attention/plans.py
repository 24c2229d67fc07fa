"""What a planned call of the attention kernels consists of."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dualwave.kernels.launch import Launch
from dualwave.kernels.targets import Target


@dataclass(frozen=True)
class Packing:
    """Several sequences in one row (B = 1).

    Attributes:
        cu_seqlens_q: (n + 1,) int32 or int64: sequence s holds the queries whose place in the whole
            packed row is from cu_seqlens_q[s] to before cu_seqlens_q[s + 1].
        cu_seqlens_k: (n + 1,), likewise for keys and values.
        max_seqlen_q: the most queries of one sequence.
        max_seqlen_k: the most keys of one sequence.
    """

    cu_seqlens_q: Tensor
    cu_seqlens_k: Tensor
    max_seqlen_q: int
    max_seqlen_k: int


@dataclass(frozen=True)
class Visibility:
    """Which keys a query sees: those whose place relative to its own is in the window.

    Key j is visible to query i of the same sequence where
    ``-left <= position(j) - position(i) <= right``. With ``offsets``, positions are absolute:
    ``q_offset + i`` and ``k_offset + j``, with i and j counted from the start of the tensors, also
    when these are a shard of a packed row. Without, the last query and the last key of each
    sequence have the same position (bottom right).

    Attributes:
        left: keys before the query's own position, or None for all.
        right: keys after it, or None for all; causal is 0.
        offsets: (q_offset, k_offset) or None.
    """

    left: int | None
    right: int | None
    offsets: tuple[int, int] | None


@dataclass(frozen=True)
class Call:
    """The arguments of one forward call, in the form that all kernels share.

    Attributes:
        q: (B, Sq, Hq, D), any strides; float32, bfloat16 or float16.
        k: (B, Sk, Hkv, D), any strides, q's dtype; Hq is a multiple of Hkv, and query head h reads
            key head h // (Hq // Hkv).
        v: like k.
        bias: added to the logits after scaling: (B or 1, Hq or 1, Sq, Sk), any strides (0 along Sq
            or Sk as well), any floating dtype of at most 32 bits; or None. With packing it is
            indexed by places in the tensors.
        packing: of several sequences in one row, or None.
        visibility: which keys a query sees.
        scale: factor of the products of queries and keys.
        out_dtype: of the output: q's, or float32 for partial results.
        precision: of the matrix products: ``"ieee"``, ``"tf32x3"``, ``"tf32"``, ``"fp16"`` or
            ``"bf16"``.
        target: what the kernels are configured for.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor | None
    packing: Packing | None
    visibility: Visibility
    scale: float
    out_dtype: torch.dtype
    precision: str
    target: Target


@dataclass(frozen=True)
class ForwardPlan:
    """Launches in order, and what they fill.

    Attributes:
        launches: in order.
        out: (B, Sq, Hq, D) contiguous; 0 where a query sees no key or is in no sequence.
        lse: (B, Hq, Sq) float32, the natural logarithm of the sum of exponentials of a query's
            logits; -inf where it sees no key.
        normalisers: (2, B, Hq, Sq) float32, what backward computes the weights from. The LSE is
            rounded to its own size: weights from it would err the more the larger the logits are.
    """

    launches: list[Launch]
    out: Tensor
    lse: Tensor
    normalisers: Tensor


@dataclass(frozen=True)
class BackwardPlan:
    """Launches in order, and what they fill; None where it was not wanted.

    Attributes:
        launches: in order.
        grad_q: (B, Sq, Hq, D) contiguous.
        grad_k: (B, Sk, Hkv, D) contiguous.
        grad_v: (B, Sk, Hkv, D) contiguous.
        grad_bias: float32 (B or 1, Hq or 1, Sq, Sk), summed over the dimensions in which the bias
            has size 1 among the first two.
    """

    launches: list[Launch]
    grad_q: Tensor | None
    grad_k: Tensor | None
    grad_v: Tensor | None
    grad_bias: Tensor | None
