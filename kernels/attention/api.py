"""The public function of blockwise attention: checks its arguments and picks a form."""

import torch
from torch import Tensor

from dualwave.kernels.arguments import (
    check_floating_point,
    check_position,
    check_same_device,
    check_scalar,
    with_all_dimensions,
)
from dualwave.kernels.attention.autograd import BlockwiseAttention
from dualwave.kernels.choices import (
    Implementation,
    Precision,
    choose_implementation,
    choose_precision,
    under_autocast,
)

_LARGEST_HEAD_SIZE = 256
Window = tuple[int | None, int | None]


def blockwise_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window: Window | None = None,
    scale: float | None = None,
    bias: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    q_offset: int | None = None,
    k_offset: int | None = None,
    return_lse: bool = False,
    partial_dtype: torch.dtype | None = None,
    precision: Precision | None = None,
    implementation: Implementation | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Exact attention, computed tile by tile: the matrix of logits is never stored.

        logits[i, j] = scale * q[i] . k[j] + bias[i, j]   where key j is visible to query i
        lse[i] = log(sum_j exp(logits[i, j]))
        out[i] = sum_j exp(logits[i, j] - lse[i]) * v[j]

    A query that sees no key gives out = 0, lse = -inf and no gradient, never NaN. The gradients
    are exact, those of ``lse`` and ``bias`` included, and the same bits every time. Inputs are read
    where they lie: views of a fused projection are not copied. There is no second derivative, and
    no torch.vmap; torch.compile takes the call whole (but refuses a tensor that is given twice,
    such as k for v, where gradients are needed: give a view of it).

    Args:
        q: (B, Sq, Hq, D), D from 1 to 256; float32, bfloat16 or float16, float64 with PyTorch only.
            Under autocast, q, k and v are first cast to its dtype.
        k: (B, Sk, Hkv, D), where Hq is a multiple of Hkv: query head h reads key head
            h // (Hq // Hkv).
        v: like k.
        causal: a query sees no key after its own position.
        window: (left, right): a query sees keys from ``left`` before its own position to ``right``
            after it, both included; None for no bound. (0, 0) is the query's own position alone.
        scale: factor of the products, D ** -0.5 if None.
        bias: added to the logits (differentiable); broadcastable to (B, Hq, Sq, Sk), float32 or a
            16-bit dtype (float64 for float64 q). A key with -inf is not visible.
        cu_seqlens_q: several sequences packed in one row (B = 1): (n + 1,) int32 or int64, rising
            from 0; sequence s holds the queries from cu_seqlens_q[s] to before
            cu_seqlens_q[s + 1], and sees only the keys of its own. Empty sequences are allowed.
            Rows after the last sequence give out = 0. On a GPU with both lengths given, the marks
            are not read before the kernels run, and so not checked: rows that wrong ones leave out
            give 0 as well.
        cu_seqlens_k: likewise for keys; needed together with cu_seqlens_q.
        max_seqlen_q: the length of the longest sequence of queries; if None it is read from
            cu_seqlens_q, for which a GPU has to be waited for.
        max_seqlen_k: likewise for keys.
        q_offset: position of the first query. When both offsets are None, the last query and the
            last key (of each sequence) have the same position. Once one is given, positions are
            absolute, the other counts as 0, and with cu_seqlens they count along the whole packed
            row, of which q, and k with v, may then be any part.
        k_offset: position of the first key.
        return_lse: return ``(out, lse)``.
        partial_dtype: float32 to get ``out`` in float32 from 16-bit inputs, for
            `merge_attention`; None for q's dtype. The Triton kernels round its gradient to q's
            dtype, so that of float16 must stay below 65504.
        precision: of the Triton kernels' products for float32 inputs, as in `spectral_attention`;
            16-bit inputs are multiplied as they are, with float32 sums, so None for them.
        implementation: ``"triton"``, ``"torch"`` or None, as in `spectral_attention`.

    Returns:
        ``out`` (B, Sq, Hq, D) in q's dtype or ``partial_dtype``; with ``return_lse`` also ``lse``
        (B, Hq, Sq), natural logarithm, float32 (float64 for float64 input), differentiable.

    Raises:
        ValueError: shapes, dtypes or devices that do not fit, a window or packing that means
            nothing, or a precision or implementation that cannot be honoured.
        RuntimeError: a second derivative is asked for.

    Source: Dao et al., FlashAttention (arXiv 2205.14135) and FlashAttention-2 (arXiv 2307.08691).
    """
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_floating_point(name, tensor)
    q, k, v = under_autocast(q, k, v)
    _check_shapes(q, k, v)
    chosen = choose_implementation(q, implementation)
    left, right = _bounds(causal, window)
    if bias is not None:
        bias = _canonical_bias(bias, q, k)
    out_dtype = q.dtype if partial_dtype is None else partial_dtype
    if out_dtype not in (q.dtype, torch.float32) or (q.dtype, out_dtype) == (
        torch.float64,
        torch.float32,
    ):
        raise ValueError(
            f"partial_dtype must be torch.float32, or None for q's {q.dtype}, not {partial_dtype}."
        )
    chosen_precision = choose_precision("blockwise_attention", chosen, precision)
    if precision is not None and q.dtype.itemsize == 2 and chosen == "triton":
        raise ValueError(
            f"precision={precision!r} is for float32 inputs: {q.dtype} is multiplied as it is, "
            "so leave it None."
        )
    if isinstance(scale, Tensor):
        raise ValueError(
            "scale must be a number, not a tensor, which would get no gradient: multiply q by it "
            "and use scale=1."
        )
    if scale is not None:
        check_scalar("scale", scale, "q", q)
    cu_seqlens_q, cu_seqlens_k = _check_packing(q, cu_seqlens_q, cu_seqlens_k)
    if cu_seqlens_q is None and (max_seqlen_q, max_seqlen_k) != (None, None):
        raise ValueError("max_seqlen_q and max_seqlen_k need cu_seqlens_q and cu_seqlens_k.")
    for name, number in (
        ("max_seqlen_q", max_seqlen_q),
        ("max_seqlen_k", max_seqlen_k),
        ("q_offset", q_offset),
        ("k_offset", k_offset),
    ):
        if number is not None:
            check_position(name, number)
    options = (
        max_seqlen_q,
        max_seqlen_k,
        left,
        right,
        q_offset,
        k_offset,
        q.shape[-1] ** -0.5 if scale is None else float(scale),
        out_dtype,
        chosen_precision,
        chosen,
    )
    out, lse, _ = BlockwiseAttention.apply(q, k, v, bias, cu_seqlens_q, cu_seqlens_k, options)
    return (out, lse) if return_lse else out


def _check_shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not (q.ndim == k.ndim == v.ndim == 4) or k.shape != v.shape:
        raise ValueError(
            f"q must be (B, Sq, Hq, D) and k and v both (B, Sk, Hkv, D), not {shapes}."
        )
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(f"q, k and v must have the same B and D: {shapes}.")
    if k.shape[2] == 0 or q.shape[2] == 0 or q.shape[2] % k.shape[2] != 0:
        raise ValueError(f"q's heads must be a multiple of k's and v's heads: {shapes}.")
    if not 1 <= q.shape[3] <= _LARGEST_HEAD_SIZE:
        raise ValueError(f"the head size D must be from 1 to {_LARGEST_HEAD_SIZE}: {shapes}.")
    if not (q.dtype == k.dtype == v.dtype):
        raise ValueError(f"q, k and v must have one dtype, not {q.dtype}, {k.dtype}, {v.dtype}.")
    check_same_device("k", k, "q", q)
    check_same_device("v", v, "q", q)


def _bounds(causal: bool, window: Window | None) -> Window:
    """The two bounds of what is visible, causal included."""
    if not isinstance(causal, bool):
        raise ValueError(f"causal must be True or False, not {causal!r}.")
    if window is None:
        left, right = None, None
    elif isinstance(window, tuple | list) and len(window) == 2:
        left, right = window
    else:
        raise ValueError(
            f"window must be (left, right), each a number of keys or None, not {window!r}."
        )
    for bound in (left, right):
        if bound is None:
            continue
        check_position("window's bound", bound)
        if bound < 0:
            raise ValueError(
                f"window bounds must not be negative, but window is {window!r}: "
                "None stands for no bound."
            )
    if causal:
        right = 0
    return left, right


def _canonical_bias(bias: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """View as (B or 1, Hq or 1, Sq, Sk)."""
    check_floating_point("bias", bias)
    check_same_device("bias", bias, "q", q)
    if bias.dtype.itemsize > max(q.dtype.itemsize, 4):
        raise ValueError(f"bias must not be wider than float32 or q's {q.dtype}, not {bias.dtype}.")
    wanted = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    bias = with_all_dimensions("bias", bias, wanted, "(B, Hq, Sq, Sk)")
    if bias.shape[2:] != wanted[2:] and bias.dtype.itemsize == 2:
        bias = bias.float()  # its gradient is a sum over what it is broadcast to, rounded once
    return bias.expand(bias.shape[0], bias.shape[1], wanted[2], wanted[3])


def _check_packing(
    q: Tensor, cu_seqlens_q: Tensor | None, cu_seqlens_k: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Both, or neither."""
    if cu_seqlens_q is None and cu_seqlens_k is None:
        return None, None
    if cu_seqlens_q is None or cu_seqlens_k is None:
        raise ValueError("cu_seqlens_q and cu_seqlens_k must be given together.")
    if q.shape[0] != 1:
        raise ValueError(
            f"packed sequences lie in one row, so q must be (1, Sq, Hq, D), not {tuple(q.shape)}."
        )
    for name, cu_seqlens in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if not isinstance(cu_seqlens, Tensor):
            raise ValueError(
                f"{name} must be a tensor, not {type(cu_seqlens).__name__}: torch.tensor makes one."
            )
        is_integer = cu_seqlens.dtype in (torch.int32, torch.int64)
        if not is_integer or cu_seqlens.ndim != 1 or len(cu_seqlens) < 1:
            raise ValueError(
                f"{name} must be one dimension of int32 or int64, with at least the 0 that it "
                f"starts with, not {tuple(cu_seqlens.shape)} of {cu_seqlens.dtype}."
            )
        check_same_device(name, cu_seqlens, "q", q)
    if len(cu_seqlens_q) != len(cu_seqlens_k):
        raise ValueError(
            f"cu_seqlens_q and cu_seqlens_k must describe the same number of sequences, "
            f"not {len(cu_seqlens_q) - 1} and {len(cu_seqlens_k) - 1}."
        )
    return cu_seqlens_q, cu_seqlens_k
