"""Logits, and what every backward kernel computes again from q, k, v and lse."""

import triton
import triton.language as tl

from dualwave.kernels.attention.triton_kernels.tiles import rows_by_rows, visible_pairs
from dualwave.kernels.device_functions import tile_offset


@triton.jit
def attention_logits(
    rows,
    columns,
    bias_base,
    bias_offset,
    local_i,
    local_j,
    i,
    j,
    scale,
    q_length,
    k_length,
    bias_stride_q,
    bias_stride_k,
    HAS_BIAS: tl.constexpr,
    SCALES_FIRST: tl.constexpr,
    OFFSETS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Logits of a tile of pairs, visible or not; without SCALES_FIRST they are not scaled yet.

    Either the rows of the tile are queries and its columns keys, or the other way round. A bias,
    and a scale that is not positive, need SCALES_FIRST.

    Args:
        rows: q (or k) of the tile's rows.
        columns: k (or q) of its columns.
        bias_base: the head's bias; unused without one.
        bias_offset: from there to where the tile's bias begins.
        local_i: places of the queries in the tile, as a row or column of it.
        local_j: places of the keys in the tile, likewise.
        i: places of the queries in the sequence, likewise.
        j: places of the keys in the sequence, likewise.
        scale: of the products.
        q_length: queries of the sequence.
        k_length: keys of the sequence.
        bias_stride_q: from the bias of a query to that of the next.
        bias_stride_k: from the bias of a key to that of the next.
        HAS_BIAS: variant.
        SCALES_FIRST: variant.
        OFFSETS: see `load_rows`.
        PRECISION: of the products.
    """
    logits = rows_by_rows(rows, columns, PRECISION)
    if SCALES_FIRST:
        logits *= scale
    if HAS_BIAS:
        offsets = tile_offset(local_i, bias_stride_q, OFFSETS == "wide")
        offsets = offsets + tile_offset(local_j, bias_stride_k, OFFSETS == "wide")
        pairs = (i < q_length) & (j < k_length)
        logits += tl.load(bias_base + bias_offset + offsets, mask=pairs, other=0.0).to(tl.float32)
    return logits


@triton.jit
def load_normalisers(normalisers, normaliser_stride, row, inside):
    """The forward kernel's of some queries; those that see nothing get weights of 0."""
    largest = tl.load(normalisers + row, mask=inside, other=0.0)
    log_total = tl.load(normalisers + normaliser_stride + row, mask=inside, other=float("inf"))
    return largest, log_total


@triton.jit
def weights_and_grad_logits(
    rows,
    columns,
    grad_rows,
    grad_columns,
    largest,
    log_total,
    delta,
    bias_base,
    bias_offset,
    local_i,
    local_j,
    i,
    j,
    scale,
    exponent_scale,
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
    SCALES_FIRST: tl.constexpr,
    OFFSETS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Weights of a tile of pairs, and the gradients of its logits; 0 where not visible.

    Arguments are those of `attention_logits` and `visible_pairs`, and:
        grad_rows: grad_out (or v) of the tile's rows.
        grad_columns: v (or grad_out) of its columns.
        largest: of the queries, as a row or column of the tile; see `load_normalisers`.
        log_total: likewise.
        delta: likewise.
        exponent_scale: what turns logits into exponents of 2.
    """
    logits = attention_logits(
        rows, columns, bias_base, bias_offset, local_i, local_j, i, j, scale, q_length, k_length,
        bias_stride_q, bias_stride_k, HAS_BIAS, SCALES_FIRST, OFFSETS, PRECISION,
    )  # fmt: skip
    visible = visible_pairs(i, j, q_length, k_length, shift, left, right, HAS_LEFT, HAS_RIGHT)
    weights = tl.where(visible, tl.exp2((logits - largest) * exponent_scale - log_total), 0.0)
    grad_weights = rows_by_rows(grad_rows, grad_columns, PRECISION)
    grad_logits = tl.where(visible, weights * (grad_weights - delta), 0.0)
    return weights, grad_logits
