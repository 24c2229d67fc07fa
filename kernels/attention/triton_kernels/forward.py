"""The forward pass: a program owns a tile of queries of one head and walks over its keys.

Online softmax (Milakov and Gimelshein, arXiv 1805.02867; Dao, arXiv 2307.08691) in base 2, so that
exp2, which is one instruction, takes the place of exp. The maximum is subtracted before the factor
of the exponent: a product of large logits would be rounded to their size, and not to that of the
difference.
"""

import triton
import triton.language as tl

from dualwave.kernels.attention.triton_kernels.logits import attention_logits
from dualwave.kernels.attention.triton_kernels.tiles import (
    add_mixed_rows,
    load_rows,
    rows_of_head,
    scale_rows,
    sequence_bounds,
    store_rows,
    visible_pairs,
    zero_rows,
)
from dualwave.kernels.device_functions import offset

LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit(
    do_not_specialize=["queries", "keys", "longest", "left", "right", "q_offset", "k_offset"]
)
def attention_forward_kernel(
    q,
    k,
    v,
    bias,
    cu_seqlens_q,
    cu_seqlens_k,
    out,
    lse,
    normalisers,
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
    out_stride_b,
    out_stride_s,
    out_stride_h,
    normaliser_stride,
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
    """out, lse and normalisers of BLOCK_Q queries.

    Shapes: q (B, queries, heads, SIZE), k and v (B, keys, heads / group, SIZE), bias
    (B or 1, heads or 1, queries, keys), out like q, lse (B, heads, queries) contiguous, normalisers
    (2, B, heads, queries) contiguous: the largest logit as `attention_logits` gives them, and the
    base-2 logarithm of the sum of exponentials less that. Programs: sequences * heads * tiles of
    the ``longest`` sequence.
    """
    program = tl.program_id(0)
    tiles = tl.cdiv(longest, BLOCK_Q)
    # The last queries see the most keys when there is a bound on the right: they begin first.
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
    local_q = tl.arange(0, BLOCK_Q)
    i = first_query + local_q
    inside = i < q_length
    q_rows = rows_of_head(q, batch, head, q_stride_b, q_stride_h, USES_DESCRIPTORS)
    query = load_rows(
        q_rows, q_begin + first_query, local_q, inside, q_stride_s, q_stride_d, SIZE, OFFSETS,
        PRECISION,
    )  # fmt: skip
    k_rows = rows_of_head(k, batch, head // group, k_stride_b, k_stride_h, USES_DESCRIPTORS)
    v_rows = rows_of_head(v, batch, head // group, v_stride_b, v_stride_h, USES_DESCRIPTORS)
    bias_base = bias
    if HAS_BIAS:
        bias_base += offset(batch, bias_stride_b) + offset(head, bias_stride_h)
        bias_base += offset(q_begin + first_query, bias_stride_q)

    # Keys that any query of the tile sees.
    last_query = tl.minimum(first_query + BLOCK_Q, q_length) - 1
    begin, end = 0, k_length
    if HAS_LEFT:
        begin = tl.maximum(first_query + shift - left, 0) // BLOCK_K * BLOCK_K
    if HAS_RIGHT:
        end = tl.minimum(k_length, last_query + shift + right + 1)

    largest = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    sums = zero_rows(BLOCK_Q, SIZE)
    if not (HAS_LEFT or HAS_BIAS):
        # Keys that all of them see need no mask. A window has few of these, and with a bias two
        # loops take more registers than a mask takes time.
        whole_end = k_length // BLOCK_K * BLOCK_K
        if HAS_RIGHT:
            seen_by_all = tl.maximum(first_query + shift + right + 1, 0) // BLOCK_K * BLOCK_K
            whole_end = tl.minimum(whole_end, seen_by_all)
        largest, total, sums = _attend(
            largest, total, sums, query, k_rows, v_rows, bias_base, scale, exponent_scale, local_q,
            i, q_length, k_begin, k_length, shift, left, right, begin, whole_end, k_stride_s,
            k_stride_d, v_stride_s, v_stride_d, bias_stride_q, bias_stride_k, SIZE, BLOCK_K,
            HAS_LEFT, HAS_RIGHT, HAS_BIAS, SCALES_FIRST, False, OFFSETS, PRECISION,
        )  # fmt: skip
        begin = whole_end
    largest, total, sums = _attend(
        largest, total, sums, query, k_rows, v_rows, bias_base, scale, exponent_scale, local_q, i,
        q_length, k_begin, k_length, shift, left, right, begin, end, k_stride_s, k_stride_d,
        v_stride_s, v_stride_d, bias_stride_q, bias_stride_k, SIZE, BLOCK_K, HAS_LEFT, HAS_RIGHT,
        HAS_BIAS, SCALES_FIRST, True, OFFSETS, PRECISION,
    )  # fmt: skip

    sees_nothing = total == 0.0
    total = tl.where(sees_nothing, 1.0, total)
    log_total = tl.log2(total)
    row = offset(batch * heads + head, queries) + q_begin + i
    tl.store(normalisers + row, tl.where(sees_nothing, 0.0, largest), mask=inside)
    tl.store(
        normalisers + normaliser_stride + row,
        tl.where(sees_nothing, float("inf"), log_total),
        mask=inside,
    )
    if not SCALES_FIRST:
        largest *= scale
    natural = tl.where(sees_nothing, float("-inf"), largest + log_total * LN_2)
    tl.store(lse + row, natural, mask=inside)
    out_base = out + offset(batch, out_stride_b) + offset(head, out_stride_h)
    sums = scale_rows(sums, (1.0 / total)[:, None])
    store_rows(out_base, sums, q_begin + first_query, local_q, inside, out_stride_s, SIZE, OFFSETS)


@triton.jit
def _attend(
    largest,
    total,
    sums,
    query,
    k_rows,
    v_rows,
    bias_base,
    scale,
    exponent_scale,
    local_q,
    i,
    q_length,
    k_begin,
    k_length,
    shift,
    left,
    right,
    begin,
    end,
    k_stride_s,
    k_stride_d,
    v_stride_s,
    v_stride_d,
    bias_stride_q,
    bias_stride_k,
    SIZE: tl.constexpr,
    BLOCK_K: tl.constexpr,
    HAS_LEFT: tl.constexpr,
    HAS_RIGHT: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    SCALES_FIRST: tl.constexpr,
    IS_MASKED: tl.constexpr,
    OFFSETS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Take the keys from ``begin`` to before ``end`` into the running maximum, total and sums."""
    local_k = tl.arange(0, BLOCK_K)
    for first_key in range(begin, end, BLOCK_K):
        j = first_key + local_k
        there = j < k_length
        key = load_rows(
            k_rows, k_begin + first_key, local_k, there, k_stride_s, k_stride_d, SIZE, OFFSETS,
            PRECISION,
        )  # fmt: skip
        logits = attention_logits(
            query, key, bias_base, offset(k_begin + first_key, bias_stride_k), local_q[:, None],
            local_k[None, :], i[:, None], j[None, :], scale, q_length, k_length, bias_stride_q,
            bias_stride_k, HAS_BIAS, SCALES_FIRST, OFFSETS, PRECISION,
        )  # fmt: skip
        if IS_MASKED:
            visible = visible_pairs(
                i[:, None], j[None, :], q_length, k_length, shift, left, right, HAS_LEFT, HAS_RIGHT
            )
            logits = tl.where(visible, logits, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(logits, 1))
        # A row that has seen nothing yet: -inf minus -inf would be NaN.
        reference = tl.where(new_largest == float("-inf"), 0.0, new_largest)
        shares = tl.exp2((logits - reference[:, None]) * exponent_scale)
        shrink = tl.exp2((largest - reference) * exponent_scale)
        total = total * shrink + tl.sum(shares, 1)
        value = load_rows(
            v_rows, k_begin + first_key, local_k, there, v_stride_s, v_stride_d, SIZE, OFFSETS,
            PRECISION,
        )  # fmt: skip
        sums = add_mixed_rows(scale_rows(sums, shrink[:, None]), shares, value, PRECISION)
        largest = new_largest
    return largest, total, sums
