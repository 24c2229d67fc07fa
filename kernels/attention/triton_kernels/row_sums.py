"""delta, the row sums that backward starts with: sum_d out * grad_out - grad_lse.

The gradient of a logit is its weight times (grad of the weight - delta), and an LSE's gradient
enters it as weight * grad_lse: so it is folded into delta (Dao, arXiv 2307.08691, section 3.1.2).
"""

import triton
import triton.language as tl

from dualwave.kernels.device_functions import offset


@triton.jit
def attention_row_sums_kernel(
    out,
    grad_out,
    grad_lse,
    delta,
    rows,
    heads,
    out_stride_b,
    out_stride_s,
    out_stride_h,
    grad_out_stride_b,
    grad_out_stride_s,
    grad_out_stride_h,
    grad_out_stride_d,
    grad_lse_stride_b,
    grad_lse_stride_h,
    grad_lse_stride_s,
    SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    HAS_GRAD_LSE: tl.constexpr,
):
    """delta (B, heads, rows) contiguous, from out and grad_out (B, rows, heads, SIZE)."""
    program = tl.program_id(0)
    tiles = tl.cdiv(rows, ROWS)
    row = program % tiles * ROWS + tl.arange(0, ROWS)
    head = program // tiles % heads
    batch = program // tiles // heads
    column = tl.arange(0, COLUMNS)
    inside = row < rows
    mask = inside[:, None] & (column < SIZE)[None, :]
    out_base = out + offset(batch, out_stride_b) + offset(head, out_stride_h)
    value = tl.load(out_base + offset(row, out_stride_s)[:, None] + column[None, :], mask, 0.0)
    grad_base = grad_out + offset(batch, grad_out_stride_b) + offset(head, grad_out_stride_h)
    grad_rows, grad_columns = offset(row, grad_out_stride_s), offset(column, grad_out_stride_d)
    grad = tl.load(grad_base + grad_rows[:, None] + grad_columns[None, :], mask, 0.0)
    total = tl.sum(value.to(tl.float32) * grad.to(tl.float32), 1)
    if HAS_GRAD_LSE:
        grad_base = grad_lse + offset(batch, grad_lse_stride_b) + offset(head, grad_lse_stride_h)
        total -= tl.load(grad_base + offset(row, grad_lse_stride_s), inside, 0.0).to(tl.float32)
    tl.store(delta + offset(batch * heads + head, rows) + row, total, inside)
