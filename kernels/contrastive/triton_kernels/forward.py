"""The forward pass: what each row of the logits adds to the loss.

A program owns a tile of rows and goes over all columns. For softmax the kernel runs over the rows
and again over the transposed matrix, for sigmoid over the rows alone.
"""

import triton
import triton.language as tl

from dualwave.kernels.contrastive.triton_kernels.tiles import (
    label_mask,
    log1p_of_part,
    pair_products,
)
from dualwave.kernels.device_functions import is_of_16_bits, offset, round_to_tf32


@triton.jit(do_not_specialize=["label_offset"])
def contrastive_forward_kernel(
    rows,
    columns,
    scale,
    bias,
    losses,
    normalisers,
    row_count,
    column_count,
    size,
    label_offset,
    rows_stride_row,
    rows_stride_place,
    columns_stride_row,
    columns_stride_place,
    KIND: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The loss of BLOCK_ROWS rows; for softmax half of it, and the rows' normalisers.

    Writes losses (row_count,) and, for softmax, normalisers (2, row_count).
    """
    first = tl.program_id(0) * BLOCK_ROWS
    row = first + tl.arange(0, BLOCK_ROWS)
    row_exists = row < row_count
    factor = tl.load(scale)
    shift = tl.load(bias)
    # Of sigmoid only the sums are used: of the pairs' losses.
    maxima = tl.full([BLOCK_ROWS], float("-inf"), tl.float32)
    sums = tl.zeros([BLOCK_ROWS], tl.float32)
    label_logits = tl.zeros([BLOCK_ROWS], tl.float32)
    for start in range(0, column_count, BLOCK_COLUMNS):
        column = start + tl.arange(0, BLOCK_COLUMNS)
        column_exists = column < column_count
        # [BLOCK_ROWS, BLOCK_COLUMNS]
        logits = factor * pair_products(
            rows, columns, row, row_exists, column, column_exists, size, rows_stride_row,
            rows_stride_place, columns_stride_row, columns_stride_place, BLOCK_ROWS, BLOCK_COLUMNS,
            BLOCK_SIZE, PRECISION,
        ) + shift  # fmt: skip
        is_label = label_mask(row, column, label_offset)
        if KIND == "softmax":
            logits = tl.where(column_exists[None, :], logits, float("-inf"))
            label_logits += tl.sum(tl.where(is_label & column_exists[None, :], logits, 0.0), 1)
            larger = tl.maximum(maxima, tl.max(logits, 1))
            sums = sums * tl.exp(maxima - larger)
            sums += tl.sum(tl.exp(logits - larger[:, None]), 1)
            maxima = larger
        else:
            against = tl.where(is_label, -logits, logits)
            pair_losses = tl.maximum(against, 0.0) + log1p_of_part(tl.exp(-tl.abs(against)))
            sums += tl.sum(tl.where(column_exists[None, :], pair_losses, 0.0), 1)
    if KIND == "softmax":
        # The maximum less the label's logit comes first: where they are the same, it is exact.
        tl.store(losses + row, 0.5 * ((maxima - label_logits) + tl.log(sums)), mask=row_exists)
        tl.store(normalisers + row, maxima, mask=row_exists)
        tl.store(normalisers + row_count + row, sums, mask=row_exists)
    else:
        tl.store(losses + row, sums, mask=row_exists)


@triton.jit
def as_operand(features, PRECISION: tl.constexpr):
    """What becomes of features in the products, in float32."""
    if is_of_16_bits(PRECISION):
        return features.to(tl.bfloat16 if PRECISION == "bf16" else tl.float16).to(tl.float32)
    elif PRECISION == "tf32":
        return round_to_tf32(features)
    else:
        return features


@triton.jit(do_not_specialize=["label_offset"])
def label_losses_kernel(
    rows,
    columns,
    scale,
    bias,
    losses,
    row_normalisers,
    column_normalisers,
    row_count,
    column_count,
    size,
    label_offset,
    rows_stride_row,
    rows_stride_place,
    columns_stride_row,
    columns_stride_place,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The softmax loss of BLOCK_ROWS rows from given normalisers, 0 of rows without label.

    The products are those of the other kernels but for the order of sums: where a label has all
    the probability its rounded logit goes against the LSE that was made of it.
    """
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    label = row + label_offset
    has_label = (row < row_count) & (label >= 0) & (label < column_count)
    products = tl.zeros([BLOCK_ROWS], tl.float32)
    for start in range(0, size, BLOCK_SIZE):
        place = start + tl.arange(0, BLOCK_SIZE)
        mask = has_label[:, None] & (place < size)[None, :]
        # [BLOCK_ROWS, BLOCK_SIZE]
        of_rows = tl.load(
            rows
            + offset(row, rows_stride_row)[:, None]
            + offset(place, rows_stride_place)[None, :],
            mask=mask,
            other=0.0,
        ).to(tl.float32)
        of_labels = tl.load(
            columns
            + offset(label, columns_stride_row)[:, None]
            + offset(place, columns_stride_place)[None, :],
            mask=mask,
            other=0.0,
        ).to(tl.float32)
        products += tl.sum(as_operand(of_rows, PRECISION) * as_operand(of_labels, PRECISION), 1)
    logits = tl.load(scale) * products + tl.load(bias)
    row_lse = tl.load(row_normalisers + row, mask=has_label, other=0.0) + tl.log(
        tl.load(row_normalisers + row_count + row, mask=has_label, other=1.0)
    )
    column_lse = tl.load(column_normalisers + label, mask=has_label, other=0.0) + tl.log(
        tl.load(column_normalisers + column_count + label, mask=has_label, other=1.0)
    )
    label_losses = 0.5 * ((row_lse - logits) + (column_lse - logits))
    tl.store(losses + row, tl.where(has_label, label_losses, 0.0), mask=row < row_count)
