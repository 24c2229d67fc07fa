"""Transforms and softmax of a stack of images, as matrix products with tables.

The row transform is a product with a table on the right. The column transform is one with a
block-diagonal table on the left, a block for each image of the stack.

K = W // 2 + 1 bins just exceed a power of two for W = 32 and 64. There the last bin (k = W / 2)
travels in the imaginary part of bin 0: after the row transform both are real. The four real
products of the column transform keep the two apart, at no cost. The tables make the exchange.
"""

import triton
import triton.language as tl

from dualwave.kernels.device_functions import offset, product
from dualwave.kernels.spectral.triton_kernels.common import last_bin_apart
from dualwave.kernels.spectral.triton_kernels.planar_tiles import (
    row_mask,
    row_offsets,
    tile_mask,
    tile_offsets,
)


@triton.jit
def load_table(tables, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A contiguous (ROWS, COLUMNS) table."""
    return tl.load(tables + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :])


@triton.jit
def load_tables(
    tables, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BINS: tl.constexpr, HEIGHT: tl.constexpr
):
    """Cosines and sines of the column transform, of the row transform and of its inverse.

    Returns:
        Two (ROWS, ROWS), two (COLUMNS, BINS) and two (BINS, COLUMNS). For H = 1 the first two,
        which nothing uses, are those of the row transform.
    """
    back = tables + 2 * COLUMNS * BINS
    columns = back + 2 * COLUMNS * BINS
    row_cos = load_table(tables, COLUMNS, BINS)
    row_sin = load_table(tables + COLUMNS * BINS, COLUMNS, BINS)
    back_cos = load_table(back, BINS, COLUMNS)
    back_sin = load_table(back + COLUMNS * BINS, BINS, COLUMNS)
    column_cos, column_sin = row_cos, row_sin
    if HEIGHT > 1:
        column_cos = load_table(columns, ROWS, ROWS)
        column_sin = load_table(columns + ROWS * ROWS, ROWS, ROWS)
    return column_cos, column_sin, row_cos, row_sin, back_cos, back_sin


@triton.jit
def _left_product(table, tile, PRECISION: tl.constexpr):
    return product(table, tile, PRECISION, LEFT_IS_ROUNDED=True)


@triton.jit
def _right_product(tile, table, PRECISION: tl.constexpr):
    return product(tile, table, PRECISION, RIGHT_IS_ROUNDED=True)


@triton.jit
def half_spectrum(tile, tables, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr):
    """The orthonormal rfft2 of each image.

    Args:
        tile: (ROWS, COLUMNS).
        tables: of `load_tables`.
        HEIGHT: H.
        WIDTH: W.
        PRECISION: of the products.

    Returns:
        Real and imaginary part, (ROWS, BINS); and those of the last bin, (ROWS,), where it is
        packed: else zeros.
    """
    column_cos, column_sin, row_cos, row_sin, _, _ = tables
    BINS: tl.constexpr = row_cos.shape[1]
    PACKED: tl.constexpr = last_bin_apart(WIDTH, BINS)
    ROWS: tl.constexpr = tile.shape[0]
    # (ROWS, COLUMNS) @ (COLUMNS, BINS)
    re = _right_product(tile, row_cos, PRECISION)
    im = _right_product(tile, row_sin, PRECISION)
    last_re = tl.zeros((ROWS,), tl.float32)
    last_im = tl.zeros((ROWS,), tl.float32)
    at_zero = (tl.arange(0, BINS) == 0)[None, :]
    if HEIGHT > 1:
        # (ROWS, ROWS) @ (ROWS, BINS), with the conjugate of cos + i sin
        cos_re = _left_product(column_cos, re, PRECISION)
        sin_im = _left_product(column_sin, im, PRECISION)
        cos_im = _left_product(column_cos, im, PRECISION)
        sin_re = _left_product(column_sin, re, PRECISION)
        if PACKED:
            last_re = tl.sum(tl.where(at_zero, cos_im, 0.0), 1)
            last_im = -tl.sum(tl.where(at_zero, sin_im, 0.0), 1)
            sin_im = tl.where(at_zero, 0.0, sin_im)
            cos_im = tl.where(at_zero, 0.0, cos_im)
        re = cos_re + sin_im
        im = cos_im - sin_re
    elif PACKED:
        last_re = tl.sum(tl.where(at_zero, im, 0.0), 1)
        im = tl.where(at_zero, 0.0, im)
    return re, im, last_re, last_im


@triton.jit
def images_of(
    re,
    im,
    last_re,
    last_im,
    tables,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The real part of the inverse transform of half spectra.

    Taking the real part only in the last product averages the rows m and -m at k = 0 and W / 2.

    Args:
        re: (ROWS, BINS), as is ``im``, in the range of the precision.
        im: see ``re``.
        last_re: (ROWS,), as is ``last_im``: the last bin, where it is packed.
        last_im: see ``last_re``.
        tables: of `load_tables`.
        HEIGHT: H.
        WIDTH: W.
        PRECISION: of the products.

    Returns:
        (ROWS, COLUMNS), float32.
    """
    column_cos, column_sin, _, _, back_cos, back_sin = tables
    BINS: tl.constexpr = re.shape[1]
    PACKED: tl.constexpr = last_bin_apart(WIDTH, BINS)
    at_zero = (tl.arange(0, BINS) == 0)[None, :]
    cos_part = im
    sin_part = re
    if PACKED:
        cos_part = tl.where(at_zero, last_re[:, None], im)
        sin_part = tl.where(at_zero, -last_im[:, None], re)
    if HEIGHT > 1:
        # (ROWS, ROWS) @ (ROWS, BINS)
        lines_re = -_left_product(column_sin, im, PRECISION) + _left_product(
            column_cos, re, PRECISION
        )
        lines_im = _left_product(column_sin, sin_part, PRECISION)
        lines_im += _left_product(column_cos, cos_part, PRECISION)
    else:
        lines_re = re
        lines_im = cos_part
    # (ROWS, BINS) @ (BINS, COLUMNS)
    images = _right_product(lines_re, back_cos, PRECISION)
    images += _right_product(lines_im, back_sin, PRECISION)
    return images


@triton.jit
def logits_of(
    power,
    last_power,
    temperature,
    bias,
    batch,
    batches,
    channel,
    h,
    bias_stride_b,
    bias_stride_c,
    bias_stride_h,
    bias_stride_k,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):
    """temperature * power + bias, for the bins and for the packed last bin."""
    BINS: tl.constexpr = power.shape[1]
    # (ROWS, BINS) and (ROWS,)
    logits = temperature * power
    last_logits = temperature * last_power
    if HAS_BIAS:
        k = tl.arange(0, BINS)
        inside = tile_mask(batch, batches, h, k, HEIGHT, WIDTH // 2 + 1)
        offsets = tile_offsets(
            batch, channel, h, k, bias_stride_b, bias_stride_c, bias_stride_h, bias_stride_k
        )
        logits += tl.load(bias + offsets, mask=inside, other=0.0).to(tl.float32)
        if last_bin_apart(WIDTH, BINS):
            rows = row_offsets(batch, channel, h, bias_stride_b, bias_stride_c, bias_stride_h)
            last = bias + rows + offset(tl.full((), BINS, tl.int32), bias_stride_k)
            inside = row_mask(batch, batches, h, HEIGHT)
            last_logits += tl.load(last, mask=inside, other=0.0).to(tl.float32)
    return logits, last_logits


@triton.jit
def softmax_over_bins(logits, last_logits, WIDTH: tl.constexpr):
    """Weights of the bins of each row.

    Args:
        logits: (ROWS, BINS).
        last_logits: (ROWS,), used where the last bin is packed.
        WIDTH: W.

    Returns:
        Weights shaped as ``logits``, zero for bins that do not exist; those of the last bin,
        (ROWS,); and whether a row has any, (ROWS,): it has not where a logit is NaN or infinity.
    """
    BINS: tl.constexpr = logits.shape[1]
    PACKED: tl.constexpr = last_bin_apart(WIDTH, BINS)
    exists = (tl.arange(0, BINS) < WIDTH // 2 + 1)[None, :]
    logits = tl.where(exists, logits, float("-inf"))
    largest = tl.max(logits, 1)
    if PACKED:
        largest = tl.maximum(largest, last_logits)
    weights = tl.exp(logits - largest[:, None])
    last_weights = tl.exp(last_logits - largest)
    total = tl.sum(weights, 1)
    if PACKED:
        total += last_weights
    share = 1.0 / total
    return weights * share[:, None], last_weights * share, total < float("inf")
