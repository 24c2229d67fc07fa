"""Weights and gradients of logits, computed again in every backward kernel from q, k, v and lse."""

import triton
import triton.language as tl

from dualwave.kernels.attention.triton_kernels.tiles import rows_by_rows, visible_pairs
from dualwave.kernels.device_functions import offset

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def load_base_2_lse(lse, i, inside):
    """The LSE in base 2; infinity where a query sees nothing, so that its weights become 0."""
    values = tl.load(lse + i, mask=inside, other=float("-inf"))
    return tl.where(values == float("-inf"), float("inf"), values * LOG2_E)


@triton.jit
def weights_and_grad_logits(
    rows,
    columns,
    grad_rows,
    grad_columns,
    base_2_lse,
    delta,
    bias_base,
    i,
    j,
    scale,
    q_length,
    k_length,
    shift,
    left,
    right,
    bias_stride_q,
    bias_stride_k,
    HAS_LEFT: tl.constexpr,
    HAS_RIGHT: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Weights of a tile of pairs, and the gradients of its logits; 0 where not visible.

    Either the rows of the tile are queries and its columns keys, or the other way round.

    Args:
        rows: q (or k) of the tile's rows, columns: k (or q) of its columns.
        columns: see above.
        grad_rows: grad_out (or v) of the tile's rows.
        grad_columns: v (or grad_out) of its columns.
        base_2_lse: of the queries, as a row or column of the tile.
        delta: likewise.
        bias_base: where the sequence's bias begins.
        i: places of the queries, as a row or column of the tile.
        j: places of the keys, likewise.
        scale: of the products.
        q_length, k_length, shift, left, right: see `visible_pairs`.
        bias_stride_q, bias_stride_k: strides of the bias.
        HAS_LEFT, HAS_RIGHT, HAS_BIAS: variants.
        PRECISION: of the products.
    """
    logits = rows_by_rows(rows, columns, PRECISION) * (scale * LOG2_E)
    visible = visible_pairs(i, j, q_length, k_length, shift, left, right, HAS_LEFT, HAS_RIGHT)
    if HAS_BIAS:
        pointers = bias_base + offset(i, bias_stride_q) + offset(j, bias_stride_k)
        pairs = (i < q_length) & (j < k_length)
        logits += tl.load(pointers, mask=pairs, other=0.0).to(tl.float32) * LOG2_E
    weights = tl.where(visible, tl.exp2(logits - base_2_lse), 0.0)
    grad_weights = rows_by_rows(grad_rows, grad_columns, PRECISION)
    grad_logits = tl.where(visible, weights * (grad_weights - delta), 0.0)
    return weights, grad_logits
