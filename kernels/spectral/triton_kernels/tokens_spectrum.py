"""Between the grids of a program's channels and their half spectra, and the softmax over bins.

A half spectrum is four tiles: real and imaginary part of the first BINS bins, [BLOCK_C, BINS, ROWS]
each, and of one more bin, [BLOCK_C, ROWS] each. That bin is needed where the number of bins is one
more than a power of two (W = 32: padding 17 bins to 32 would double the products and the
registers). It is then k = W / 2, whose basis is +1, -1, +1, ... along a row. Elsewhere every bin is
among the first, and the last two are zeros that nothing reads.
"""

import triton
import triton.language as tl

from dualwave.kernels.device_functions import product
from dualwave.kernels.spectral.triton_kernels.common import last_bin_apart
from dualwave.kernels.spectral.triton_kernels.tokens_tiles import tile_offsets


@triton.jit
def load_tables(pointer, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BINS: tl.constexpr):
    """Cosines and sines along the columns, along the rows, and along the rows back.

    They follow each other in memory; `small_tokens.py` makes them.
    """
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    bins = tl.arange(0, BINS)
    SQUARE: tl.constexpr = ROWS * ROWS
    OBLONG: tl.constexpr = COLUMNS * BINS
    square = pointer + rows[:, None] * ROWS + rows[None, :]
    there = pointer + 2 * SQUARE + columns[:, None] * BINS + bins[None, :]
    back = pointer + 2 * SQUARE + 2 * OBLONG + bins[:, None] * COLUMNS + columns[None, :]
    return (
        tl.load(square),
        tl.load(square + SQUARE),
        tl.load(there),
        tl.load(there + OBLONG),
        tl.load(back),
        tl.load(back + OBLONG),
    )


@triton.jit
def times_table(tile, table, PRECISION: tl.constexpr):
    """A product with a table, which was rounded to the precision when it was made."""
    return product(tile, table, PRECISION, RIGHT_IS_ROUNDED=True)


@triton.jit
def half_spectrum(tile, tables, WIDTH: tl.constexpr, PRECISION: tl.constexpr):
    """The half spectrum of each channel's grid.

    Args:
        tile: [BLOCK_C, ROWS, COLUMNS].
        tables: of `load_tables`.
        WIDTH: W.
        PRECISION: of the products.
    """
    column_cos, column_sin, row_cos, row_sin, _, _ = tables
    BLOCK_C: tl.constexpr = tile.shape[0]
    ROWS: tl.constexpr = tile.shape[1]
    COLUMNS: tl.constexpr = tile.shape[2]
    BINS: tl.constexpr = row_cos.shape[1]
    APART: tl.constexpr = last_bin_apart(WIDTH, BINS)
    first = (tl.arange(0, BINS) == 0)[None, :, None]
    # [BLOCK_C * ROWS, COLUMNS] @ [COLUMNS, BINS]
    lines = tl.reshape(tile, (BLOCK_C * ROWS, COLUMNS))
    line_re = tl.reshape(times_table(lines, row_cos, PRECISION), (BLOCK_C, ROWS, BINS))
    line_im = tl.reshape(-times_table(lines, row_sin, PRECISION), (BLOCK_C, ROWS, BINS))
    last_re = tl.zeros((BLOCK_C, ROWS), tl.float32)
    last_im = tl.zeros((BLOCK_C, ROWS), tl.float32)
    if ROWS == 1:
        re = tl.permute(line_re, (0, 2, 1))
        im = tl.permute(line_im, (0, 2, 1))
        if APART:
            last_re = tl.sum(tl.where(first, im, 0.0), 1)
            im = tl.where(first, 0.0, im)
    else:
        # [BLOCK_C * BINS, ROWS] @ [ROWS, ROWS]
        line_re = tl.permute(line_re.to(tile.dtype), (0, 2, 1))
        line_im = tl.permute(line_im.to(tile.dtype), (0, 2, 1))
        line_re = tl.reshape(line_re, (BLOCK_C * BINS, ROWS))
        line_im = tl.reshape(line_im, (BLOCK_C * BINS, ROWS))
        if APART:
            im_sin = tl.reshape(times_table(line_im, column_sin, PRECISION), (BLOCK_C, BINS, ROWS))
            re_cos = tl.reshape(times_table(line_re, column_cos, PRECISION), (BLOCK_C, BINS, ROWS))
            re = re_cos + tl.where(first, 0.0, im_sin)
            last_im = -tl.sum(tl.where(first, im_sin, 0.0), 1)
            re_sin = tl.reshape(times_table(line_re, column_sin, PRECISION), (BLOCK_C, BINS, ROWS))
            im_cos = tl.reshape(times_table(line_im, column_cos, PRECISION), (BLOCK_C, BINS, ROWS))
            im = tl.where(first, 0.0, im_cos) - re_sin
            last_re = tl.sum(tl.where(first, im_cos, 0.0), 1)
        else:
            re = times_table(line_im, column_sin, PRECISION) + times_table(
                line_re, column_cos, PRECISION
            )
            im = -times_table(line_re, column_sin, PRECISION) + times_table(
                line_im, column_cos, PRECISION
            )
            re = tl.reshape(re, (BLOCK_C, BINS, ROWS))
            im = tl.reshape(im, (BLOCK_C, BINS, ROWS))
    return re, im, last_re, last_im


@triton.jit
def grids_of(re, im, last_re, last_im, tables, WIDTH: tl.constexpr, PRECISION: tl.constexpr):
    """The real part of the inverse transform of half spectra.

    Taking the real part only in the last product averages the rows m and -m at k = 0 and W / 2.

    Args:
        re: with the next three a half spectrum, scaled to the range of the precision.
        im: see ``re``.
        last_re: see ``re``.
        last_im: see ``re``.
        tables: of `load_tables`.
        WIDTH: W.
        PRECISION: of the products.

    Returns:
        float32 [BLOCK_C, ROWS, COLUMNS].
    """
    column_cos, column_sin, _, _, row_cos, row_sin = tables
    BLOCK_C: tl.constexpr = re.shape[0]
    BINS: tl.constexpr = re.shape[1]
    ROWS: tl.constexpr = re.shape[2]
    COLUMNS: tl.constexpr = row_cos.shape[1]
    # What the imaginary part of a line is made of: it holds the last bin where k = 0 has none.
    first = (tl.arange(0, BINS) == 0)[None, :, None]
    source_re, source_im = re, im
    if last_bin_apart(WIDTH, BINS):
        source_re = tl.where(first, -last_im[:, None, :], re)
        source_im = tl.where(first, last_re[:, None, :], im)
    if ROWS == 1:
        im = source_im
    else:
        # [BLOCK_C * BINS, ROWS] @ [ROWS, ROWS]
        re = tl.reshape(re, (BLOCK_C * BINS, ROWS)).to(column_cos.dtype)
        im = tl.reshape(im, (BLOCK_C * BINS, ROWS)).to(column_cos.dtype)
        source_re = tl.reshape(source_re, (BLOCK_C * BINS, ROWS)).to(column_cos.dtype)
        source_im = tl.reshape(source_im, (BLOCK_C * BINS, ROWS)).to(column_cos.dtype)
        re = -times_table(im, column_sin, PRECISION) + times_table(re, column_cos, PRECISION)
        im = times_table(source_re, column_sin, PRECISION) + times_table(
            source_im, column_cos, PRECISION
        )
        re = tl.reshape(re.to(column_cos.dtype), (BLOCK_C, BINS, ROWS))
        im = tl.reshape(im.to(column_cos.dtype), (BLOCK_C, BINS, ROWS))
    # [BLOCK_C * ROWS, BINS] @ [BINS, COLUMNS]
    line_re = tl.reshape(tl.permute(re, (0, 2, 1)), (BLOCK_C * ROWS, BINS))
    line_im = tl.reshape(tl.permute(im, (0, 2, 1)), (BLOCK_C * ROWS, BINS))
    lines = -times_table(line_im, row_sin, PRECISION) + times_table(line_re, row_cos, PRECISION)
    return tl.reshape(lines, (BLOCK_C, ROWS, COLUMNS))


@triton.jit
def bin_weights(
    power,
    last_power,
    temperature,
    bias,
    channel,
    channels,
    bias_stride_c,
    bias_stride_h,
    bias_stride_k,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):
    """The softmax over the bins of temperature * power + bias.

    Args:
        power: [BLOCK_C, BINS, ROWS].
        last_power: [BLOCK_C, ROWS].
        temperature: a scalar.
        bias: pointer to this batch element's.
        channel: [BLOCK_C].
        channels: C.
        bias_stride_c: in elements, as are the next two.
        bias_stride_h: see ``bias_stride_c``.
        bias_stride_k: see ``bias_stride_c``.
        HEIGHT: H.
        WIDTH: W.
        HAS_BIAS: whether there is one.

    Returns:
        Weights shaped as ``power``, zero in bins that do not exist, and as ``last_power``.
    """
    BINS: tl.constexpr = power.shape[1]
    ROWS: tl.constexpr = power.shape[2]
    APART: tl.constexpr = last_bin_apart(WIDTH, BINS)
    k = tl.arange(0, BINS)
    exists = (k < WIDTH // 2 + 1)[None, :, None]
    # [BLOCK_C, BINS, ROWS] and [BLOCK_C, ROWS]
    logits = temperature * power
    last_logits = temperature * last_power
    if HAS_BIAS:
        m = tl.arange(0, ROWS)
        inside = (channel < channels)[:, None, None] & (m < HEIGHT)[None, None, :]
        offsets = tile_offsets(channel, k, m, bias_stride_c, bias_stride_k, bias_stride_h)
        logits += tl.load(bias + offsets, mask=inside & exists, other=0.0).to(tl.float32)
        if APART:
            last = tl.full((1,), BINS, tl.int32)
            offsets = tile_offsets(channel, last, m, bias_stride_c, bias_stride_k, bias_stride_h)
            last_bias = tl.load(bias + offsets, mask=inside, other=0.0).to(tl.float32)
            last_logits += tl.reshape(last_bias, last_logits.shape)
    logits = tl.where(exists, logits, float("-inf"))
    largest = tl.max(logits, 1)
    if APART:
        largest = tl.maximum(largest, last_logits)
    exponentials = tl.exp(logits - largest[:, None, :])
    total = tl.sum(exponentials, 1)
    last_exponentials = tl.exp(last_logits - largest)
    if APART:
        total += last_exponentials
    return exponentials * (1.0 / total)[:, None, :], last_exponentials * (1.0 / total)
