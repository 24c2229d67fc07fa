"""The gradients of keys and values: a program owns a tile of keys and walks over their queries.

It does so for every query head that reads its key head. Tiles are transposed, keys by queries, so
that both sums are products of what is in registers with rows that are loaded.
"""

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
def attention_grad_key_value_kernel(
    q,
    k,
    v,
    bias,
    cu_seqlens_q,
    cu_seqlens_k,
    normalisers,
    delta,
    grad_out,
    grad_k,
    grad_v,
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
    grad_k_stride_b,
    grad_k_stride_s,
    grad_k_stride_h,
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
    """dk and dv of BLOCK_K keys of one key head, contiguous; shapes as in the forward kernel."""
    program = tl.program_id(0)
    tiles = tl.cdiv(longest, BLOCK_K)
    first_key = program % tiles * BLOCK_K
    key_heads = heads // group
    key_head = program // tiles % key_heads
    sequence = program // tiles // key_heads
    q_begin, q_length, k_begin, k_length, shift = sequence_bounds(
        sequence, cu_seqlens_q, cu_seqlens_k, queries, keys, q_offset, k_offset,
        IS_PACKED, IS_ABSOLUTE,
    )  # fmt: skip
    if first_key >= k_length:
        return
    batch = sequence
    if IS_PACKED:
        batch = 0 * sequence
    local_q, local_k = tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K)
    j = first_key + local_k
    there = j < k_length
    k_rows = rows_of_head(k, batch, key_head, k_stride_b, k_stride_h, USES_DESCRIPTORS)
    v_rows = rows_of_head(v, batch, key_head, v_stride_b, v_stride_h, USES_DESCRIPTORS)
    key = load_rows(
        k_rows, k_begin + first_key, local_k, there, k_stride_s, k_stride_d, SIZE, OFFSETS,
        PRECISION,
    )  # fmt: skip
    value = load_rows(
        v_rows, k_begin + first_key, local_k, there, v_stride_s, v_stride_d, SIZE, OFFSETS,
        PRECISION,
    )  # fmt: skip

    begin, end = 0, q_length
    if HAS_RIGHT:
        begin = tl.maximum(first_key - shift - right, 0) // BLOCK_Q * BLOCK_Q
    if HAS_LEFT:
        last_key = tl.minimum(first_key + BLOCK_K, k_length) - 1
        end = tl.minimum(q_length, last_key - shift + left + 1)
    key_sums = zero_rows(BLOCK_K, SIZE)
    value_sums = zero_rows(BLOCK_K, SIZE)
    for member in range(group):
        head = key_head * group + member
        q_rows = rows_of_head(q, batch, head, q_stride_b, q_stride_h, USES_DESCRIPTORS)
        grad_rows = rows_of_head(
            grad_out, batch, head, grad_out_stride_b, grad_out_stride_h, USES_DESCRIPTORS
        )
        row = offset(batch * heads + head, queries) + q_begin
        bias_base = bias
        if HAS_BIAS:
            bias_base += offset(batch, bias_stride_b) + offset(head, bias_stride_h)
            bias_base += offset(k_begin + first_key, bias_stride_k)
        for first_query in range(begin, end, BLOCK_Q):
            i = first_query + local_q
            inside = i < q_length
            query = load_rows(
                q_rows, q_begin + first_query, local_q, inside, q_stride_s, q_stride_d, SIZE,
                OFFSETS, PRECISION,
            )  # fmt: skip
            grad = load_rows(
                grad_rows, q_begin + first_query, local_q, inside, grad_out_stride_s,
                grad_out_stride_d, SIZE, OFFSETS, PRECISION,
            )  # fmt: skip
            largest, log_total = load_normalisers(normalisers, normaliser_stride, row + i, inside)
            row_delta = tl.load(delta + row + i, mask=inside, other=0.0)
            weights, grad_logits = weights_and_grad_logits(
                key, query, value, grad, largest[None, :], log_total[None, :], row_delta[None, :],
                bias_base, offset(q_begin + first_query, bias_stride_q), local_q[None, :],
                local_k[:, None], i[None, :], j[:, None], scale, exponent_scale, q_length, k_length,
                shift, left, right, bias_stride_q, bias_stride_k, HAS_LEFT, HAS_RIGHT, HAS_BIAS,
                SCALES_FIRST, OFFSETS, PRECISION,
            )  # fmt: skip
            value_sums = add_mixed_rows(value_sums, weights, grad, PRECISION)
            key_sums = add_mixed_rows(key_sums, grad_logits, query, PRECISION)
    base = offset(batch, grad_k_stride_b) + offset(key_head, grad_k_stride_h)
    key_sums = scale_rows(key_sums, scale)
    store_rows(
        grad_k + base, key_sums, k_begin + first_key, local_k, there, grad_k_stride_s, SIZE,
        OFFSETS,
    )  # fmt: skip
    store_rows(
        grad_v + base, value_sums, k_begin + first_key, local_k, there, grad_k_stride_s, SIZE,
        OFFSETS,
    )  # fmt: skip
