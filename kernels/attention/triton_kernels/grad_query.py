"""The gradient of the queries: a program owns a tile of queries and walks over their keys."""

import triton
import triton.language as tl

from dualwave.kernels.attention.triton_kernels.logits import (
    load_normalisers,
    weights_and_grad_logits,
)
from dualwave.kernels.attention.triton_kernels.tiles import (
    add_mixed_rows,
    load_rows,
    rows_of_head,
    scale_rows,
    sequence_bounds,
    store_rows,
    zero_rows,
)
from dualwave.kernels.device_functions import offset


@triton.jit(
    do_not_specialize=["queries", "keys", "longest", "left", "right", "q_offset", "k_offset"]
)
def attention_grad_query_kernel(
    q,
    k,
    v,
    bias,
    cu_seqlens_q,
    cu_seqlens_k,
    normalisers,
    delta,
    grad_out,
    grad_q,
    scale,
    exponent_scale,
    heads,
    group,
    queries,
    keys,
    longest,
    left,
    right,
    q_offset,
    k_offset,
    q_stride_b,
    q_stride_s,
    q_stride_h,
    q_stride_d,
    k_stride_b,
    k_stride_s,
    k_stride_h,
    k_stride_d,
    v_stride_b,
    v_stride_s,
    v_stride_h,
    v_stride_d,
    bias_stride_b,
    bias_stride_h,
    bias_stride_q,
    bias_stride_k,
    grad_out_stride_b,
    grad_out_stride_s,
    grad_out_stride_h,
    grad_out_stride_d,
    normaliser_stride,
    grad_q_stride_b,
    grad_q_stride_s,
    grad_q_stride_h,
    SIZE: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    HAS_LEFT: tl.constexpr,
    HAS_RIGHT: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    SCALES_FIRST: tl.constexpr,
    OFFSETS: tl.constexpr,
    USES_DESCRIPTORS: tl.constexpr,
    IS_PACKED: tl.constexpr,
    IS_ABSOLUTE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """dq of BLOCK_Q queries of one head; shapes as in the forward kernel."""
    program = tl.program_id(0)
    tiles = tl.cdiv(longest, BLOCK_Q)
    first_query = (tiles - 1 - program % tiles) * BLOCK_Q
    head = program // tiles % heads
    sequence = program // tiles // heads
    q_begin, q_length, k_begin, k_length, shift = sequence_bounds(
        sequence, cu_seqlens_q, cu_seqlens_k, queries, keys, q_offset, k_offset,
        IS_PACKED, IS_ABSOLUTE,
    )  # fmt: skip
    if first_query >= q_length:
        return
    batch = sequence
    if IS_PACKED:
        batch = 0 * sequence
    local_q, local_k = tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K)
    i = first_query + local_q
    inside = i < q_length
    q_rows = rows_of_head(q, batch, head, q_stride_b, q_stride_h, USES_DESCRIPTORS)
    query = load_rows(
        q_rows, q_begin + first_query, local_q, inside, q_stride_s, q_stride_d, SIZE, OFFSETS,
        PRECISION,
    )  # fmt: skip
    grad_rows = rows_of_head(
        grad_out, batch, head, grad_out_stride_b, grad_out_stride_h, USES_DESCRIPTORS
    )
    grad = load_rows(
        grad_rows, q_begin + first_query, local_q, inside, grad_out_stride_s, grad_out_stride_d,
        SIZE, OFFSETS, PRECISION,
    )  # fmt: skip
    row = offset(batch * heads + head, queries) + q_begin
    largest, log_total = load_normalisers(normalisers, normaliser_stride, row + i, inside)
    row_delta = tl.load(delta + row + i, mask=inside, other=0.0)
    k_rows = rows_of_head(k, batch, head // group, k_stride_b, k_stride_h, USES_DESCRIPTORS)
    v_rows = rows_of_head(v, batch, head // group, v_stride_b, v_stride_h, USES_DESCRIPTORS)
    bias_base = bias
    if HAS_BIAS:
        bias_base += offset(batch, bias_stride_b) + offset(head, bias_stride_h)
        bias_base += offset(q_begin + first_query, bias_stride_q)

    begin, end = 0, k_length
    if HAS_LEFT:
        begin = tl.maximum(first_query + shift - left, 0) // BLOCK_K * BLOCK_K
    if HAS_RIGHT:
        last_query = tl.minimum(first_query + BLOCK_Q, q_length) - 1
        end = tl.minimum(k_length, last_query + shift + right + 1)
    sums = zero_rows(BLOCK_Q, SIZE)
    for first_key in range(begin, end, BLOCK_K):
        j = first_key + local_k
        there = j < k_length
        key = load_rows(
            k_rows, k_begin + first_key, local_k, there, k_stride_s, k_stride_d, SIZE, OFFSETS,
            PRECISION,
        )  # fmt: skip
        value = load_rows(
            v_rows, k_begin + first_key, local_k, there, v_stride_s, v_stride_d, SIZE, OFFSETS,
            PRECISION,
        )  # fmt: skip
        _, grad_logits = weights_and_grad_logits(
            query, key, grad, value, largest[:, None], log_total[:, None], row_delta[:, None],
            bias_base, offset(k_begin + first_key, bias_stride_k), local_q[:, None],
            local_k[None, :], i[:, None], j[None, :], scale, exponent_scale, q_length, k_length,
            shift, left, right, bias_stride_q, bias_stride_k, HAS_LEFT, HAS_RIGHT, HAS_BIAS,
            SCALES_FIRST, OFFSETS, PRECISION,
        )  # fmt: skip
        sums = add_mixed_rows(sums, grad_logits, key, PRECISION)
    sums = scale_rows(sums, scale)
    grad_q_base = grad_q + offset(batch, grad_q_stride_b) + offset(head, grad_q_stride_h)
    store_rows(
        grad_q_base, sums, q_begin + first_query, local_q, inside, grad_q_stride_s, SIZE, OFFSETS,
    )  # fmt: skip
