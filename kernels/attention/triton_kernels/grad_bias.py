"""The gradient of the bias: a program owns a tile of pairs, and walks over what shares its bias."""

import triton
import triton.language as tl

from dualwave.kernels.attention.triton_kernels.logits import (
    load_normalisers,
    weights_and_grad_logits,
)
from dualwave.kernels.attention.triton_kernels.tiles import (
    load_rows,
    rows_of_head,
    sequence_bounds,
)
from dualwave.kernels.device_functions import offset


@triton.jit(
    do_not_specialize=[
        "queries", "keys", "longest_q", "longest_k", "left", "right", "q_offset", "k_offset"
    ]
)  # fmt: skip
def attention_grad_bias_kernel(
    q,
    k,
    v,
    bias,
    cu_seqlens_q,
    cu_seqlens_k,
    normalisers,
    delta,
    grad_out,
    grad_bias,
    scale,
    exponent_scale,
    heads,
    group,
    queries,
    keys,
    longest_q,
    longest_k,
    left,
    right,
    q_offset,
    k_offset,
    batches,
    bias_heads,
    heads_of_a_bias,
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
    grad_bias_stride_b,
    grad_bias_stride_h,
    grad_bias_stride_q,
    grad_bias_stride_k,
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
    """dbias of BLOCK_Q x BLOCK_K pairs, float32; shapes as in the forward kernel.

    A bias serves ``batches`` batch elements (1 or all) and ``heads_of_a_bias`` heads (1 or all), of
    which it has ``bias_heads``. Pairs that are not visible get 0.
    """
    program = tl.program_id(0)
    k_tiles = tl.cdiv(longest_k, BLOCK_K)
    q_tiles = tl.cdiv(longest_q, BLOCK_Q)
    first_key = program % k_tiles * BLOCK_K
    program = program // k_tiles
    first_query = program % q_tiles * BLOCK_Q
    program = program // q_tiles
    bias_head = program % bias_heads
    sequence = program // bias_heads
    q_begin, q_length, k_begin, k_length, shift = sequence_bounds(
        sequence, cu_seqlens_q, cu_seqlens_k, queries, keys, q_offset, k_offset,
        IS_PACKED, IS_ABSOLUTE,
    )  # fmt: skip
    if first_query >= q_length:
        return
    local_q, local_k = tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K)
    i = first_query + local_q
    j = first_key + local_k
    inside, there = i < q_length, j < k_length
    first_batch = sequence * batches
    bias_batch = sequence
    if IS_PACKED:
        first_batch = 0 * sequence
        bias_batch = first_batch
    sums = tl.zeros((BLOCK_Q, BLOCK_K), tl.float32)
    for batch_member in range(batches):
        batch = first_batch + batch_member
        for head_member in range(heads_of_a_bias):
            head = bias_head * heads_of_a_bias + head_member
            q_rows = rows_of_head(q, batch, head, q_stride_b, q_stride_h, USES_DESCRIPTORS)
            k_rows = rows_of_head(k, batch, head // group, k_stride_b, k_stride_h, USES_DESCRIPTORS)
            v_rows = rows_of_head(v, batch, head // group, v_stride_b, v_stride_h, USES_DESCRIPTORS)
            grad_rows = rows_of_head(
                grad_out, batch, head, grad_out_stride_b, grad_out_stride_h, USES_DESCRIPTORS
            )
            bias_base = bias + offset(batch, bias_stride_b) + offset(head, bias_stride_h)
            bias_base += offset(q_begin + first_query, bias_stride_q)
            query = load_rows(
                q_rows, q_begin + first_query, local_q, inside, q_stride_s, q_stride_d, SIZE,
                OFFSETS, PRECISION,
            )  # fmt: skip
            key = load_rows(
                k_rows, k_begin + first_key, local_k, there, k_stride_s, k_stride_d, SIZE, OFFSETS,
                PRECISION,
            )  # fmt: skip
            value = load_rows(
                v_rows, k_begin + first_key, local_k, there, v_stride_s, v_stride_d, SIZE, OFFSETS,
                PRECISION,
            )  # fmt: skip
            grad = load_rows(
                grad_rows, q_begin + first_query, local_q, inside, grad_out_stride_s,
                grad_out_stride_d, SIZE, OFFSETS, PRECISION,
            )  # fmt: skip
            row = offset(batch * heads + head, queries) + q_begin
            largest, log_total = load_normalisers(normalisers, normaliser_stride, row + i, inside)
            row_delta = tl.load(delta + row + i, mask=inside, other=0.0)
            _, grad_logits = weights_and_grad_logits(
                query, key, grad, value, largest[:, None], log_total[:, None], row_delta[:, None],
                bias_base, offset(k_begin + first_key, bias_stride_k), local_q[:, None],
                local_k[None, :], i[:, None], j[None, :], scale, exponent_scale, q_length, k_length,
                shift, left, right, bias_stride_q, bias_stride_k, HAS_LEFT, HAS_RIGHT, HAS_BIAS,
                SCALES_FIRST, OFFSETS, PRECISION,
            )  # fmt: skip
            sums += grad_logits
    base = (
        grad_bias + offset(bias_batch, grad_bias_stride_b) + offset(bias_head, grad_bias_stride_h)
    )
    rows = offset(q_begin + i, grad_bias_stride_q)
    columns = offset(k_begin + j, grad_bias_stride_k)
    tl.store(base + rows[:, None] + columns[None, :], sums, mask=inside[:, None] & there[None, :])
