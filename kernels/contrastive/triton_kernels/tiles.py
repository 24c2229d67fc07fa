"""Device functions that the forward and the backward kernel share.

A pass owns tiles of rows of the logits and goes over all columns. Its rows are images and its
columns texts, or the other way round for the pass over the transposed matrix.
"""

import triton
import triton.language as tl

from dualwave.kernels.device_functions import is_of_16_bits, offset, product


@triton.jit
def load_features(
    features, row, row_exists, place, size, stride_row, stride_place, PRECISION: tl.constexpr
):
    """[rows, places] of a matrix (count, size); 0 outside.

    They come in their own dtype for 16-bit products and in float32 for the others.
    """
    pointers = features + offset(row, stride_row)[:, None] + offset(place, stride_place)[None, :]
    tile = tl.load(pointers, mask=row_exists[:, None] & (place < size)[None, :], other=0.0)
    if not is_of_16_bits(PRECISION):
        tile = tile.to(tl.float32)
    return tile


@triton.jit
def pair_products(
    rows,
    columns,
    row,
    row_exists,
    column,
    column_exists,
    size,
    rows_stride_row,
    rows_stride_place,
    columns_stride_row,
    columns_stride_place,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Every row's features times every column's, [BLOCK_ROWS, BLOCK_COLUMNS] float32."""
    products = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], tl.float32)
    for start in range(0, size, BLOCK_SIZE):
        place = start + tl.arange(0, BLOCK_SIZE)
        # [BLOCK_ROWS, BLOCK_SIZE] and [BLOCK_COLUMNS, BLOCK_SIZE]
        of_rows = load_features(
            rows, row, row_exists, place, size, rows_stride_row, rows_stride_place, PRECISION
        )
        of_columns = load_features(
            columns, column, column_exists, place, size, columns_stride_row, columns_stride_place,
            PRECISION,
        )  # fmt: skip
        products += product(of_rows, of_columns.trans(), PRECISION)
    return products


@triton.jit
def label_mask(row, column, label_offset):
    """Where the column is the row's label, [rows, columns]."""
    return (row + label_offset)[:, None] == column[None, :]


@triton.jit
def log1p_of_part(part):
    """log(1 + part) for parts from 0 to 1, with a relative error of float32's eps.

    log() of the rounded sum would lose small parts, which most pairs of a sigmoid loss have. The
    polynomial goes through log1p(x) / x at the ten Chebyshev nodes of [0, 1], and misses it by at
    most 6e-9 between them.
    """
    ratio = -0.00317605702
    ratio = ratio * part + 0.0195425273
    ratio = ratio * part - 0.0563736128
    ratio = ratio * part + 0.105436238
    ratio = ratio * part - 0.152696671
    ratio = ratio * part + 0.196632743
    ratio = ratio * part - 0.249516163
    ratio = ratio * part + 0.333297105
    ratio = ratio * part - 0.499998926
    ratio = ratio * part + 0.999999995
    return ratio * part
