"""The backward pass: the gradients of a tile of rows, with the logits computed again.

A program owns a tile of rows and a slice of their features, accumulates that slice's gradient in
float32 on chip, and goes over all columns: nothing is added to from two programs. A gradient as
wide as the features does not fit on chip, so each slice computes the logits again, from all
features. The gradient of the images is a pass over the rows of the logits, that of the texts one
over the transposed matrix.
"""

import triton
import triton.language as tl

from dualwave.kernels.contrastive.triton_kernels.tiles import (
    label_mask,
    load_features,
    pair_products,
)
from dualwave.kernels.device_functions import offset, product


@triton.constexpr_function
def weight_scale(PRECISION):
    """A power of two that keeps weights, which are at most 1, away from float16's smallest."""
    return 4096.0 if PRECISION == "fp16" else 1.0


@triton.jit(do_not_specialize=["label_offset"])
def contrastive_backward_kernel(
    rows,
    columns,
    scale,
    bias,
    grad_loss,
    row_normalisers,
    column_normalisers,
    grad_rows,
    grad_scale_parts,
    grad_bias_parts,
    row_count,
    column_count,
    size,
    slices,
    label_offset,
    rows_stride_row,
    rows_stride_place,
    columns_stride_row,
    columns_stride_place,
    KIND: tl.constexpr,
    WANTS_ROWS_GRADIENT: tl.constexpr,
    WANTS_SUMS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_SLICE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """BLOCK_SLICE features of the gradients of BLOCK_ROWS rows.

    Writes grad_rows (row_count, size), contiguous, and of each row what it adds to the gradients of
    scale and bias for a grad_loss of 1; that of the bias for sigmoid only.
    """
    row = (tl.program_id(0) // slices) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    slice_index = tl.program_id(0) % slices
    slice_place = slice_index * BLOCK_SLICE + tl.arange(0, BLOCK_SLICE)
    row_exists = row < row_count
    factor = tl.load(scale)
    shift = tl.load(bias)
    if KIND == "softmax":
        row_maxima = tl.load(row_normalisers + row, mask=row_exists, other=0.0)
        row_sums = tl.load(row_normalisers + row_count + row, mask=row_exists, other=1.0)
        row_parts = 0.5 / row_sums
    gradient = tl.zeros([BLOCK_ROWS, BLOCK_SLICE], tl.float32)
    scale_sums = tl.zeros([BLOCK_ROWS], tl.float32)
    bias_sums = tl.zeros([BLOCK_ROWS], tl.float32)
    for start in range(0, column_count, BLOCK_COLUMNS):
        column = start + tl.arange(0, BLOCK_COLUMNS)
        column_exists = column < column_count
        # [BLOCK_ROWS, BLOCK_COLUMNS]
        products = pair_products(
            rows, columns, row, row_exists, column, column_exists, size, rows_stride_row,
            rows_stride_place, columns_stride_row, columns_stride_place, BLOCK_ROWS, BLOCK_COLUMNS,
            BLOCK_SIZE, PRECISION,
        )  # fmt: skip
        logits = factor * products + shift
        is_label = label_mask(row, column, label_offset)
        # The gradient of the loss for each logit.
        if KIND == "softmax":
            column_maxima = tl.load(column_normalisers + column, mask=column_exists, other=0.0)
            column_sums = tl.load(
                column_normalisers + column_count + column, mask=column_exists, other=1.0
            )
            weights = tl.exp(logits - row_maxima[:, None]) * row_parts[:, None]
            weights += tl.exp(logits - column_maxima[None, :]) * (0.5 / column_sums)[None, :]
            weights = tl.where(is_label, weights - 1.0, weights)
        else:
            # At a label sigmoid(x) - 1, of which -sigmoid(-x) is the exact form.
            weights = 1.0 / (1.0 + tl.exp(tl.where(is_label, logits, -logits)))
            weights = tl.where(is_label, -weights, weights)
        # Columns that do not exist have products of 0, but their weights may be anything.
        weights = tl.where(column_exists[None, :], weights, 0.0)
        if WANTS_SUMS:
            scale_sums += tl.sum(weights * products, 1)
            if KIND == "sigmoid":
                bias_sums += tl.sum(weights, 1)
        if WANTS_ROWS_GRADIENT:
            # [BLOCK_COLUMNS, BLOCK_SLICE]
            tile = load_features(
                columns, column, column_exists, slice_place, size, columns_stride_row,
                columns_stride_place, PRECISION,
            )  # fmt: skip
            gradient += product(weights * weight_scale(PRECISION), tile, PRECISION)
    if WANTS_ROWS_GRADIENT:
        gradient *= factor * tl.load(grad_loss) / weight_scale(PRECISION)
        tl.store(
            grad_rows + offset(row, size)[:, None] + slice_place[None, :],
            gradient.to(grad_rows.dtype.element_ty),
            mask=row_exists[:, None] & (slice_place < size)[None, :],
        )
    if WANTS_SUMS and slice_index == 0:
        tl.store(grad_scale_parts + row, scale_sums, mask=row_exists)
        if KIND == "sigmoid":
            tl.store(grad_bias_parts + row, bias_sums, mask=row_exists)
