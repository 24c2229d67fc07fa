"""What the row kernels do with a row's tile before and after they filter it.

A row m = 0 .. H // 2 of a grid's column transform holds, once transformed itself, the frequencies
k = 0 .. W - 1 of row m. Those up to W // 2 are row m of the half spectrum; the others, and k = 0
and W / 2 again, are the complex conjugates of its mirror row -m, at W - k. So both softmaxes, and
the averages of the two at k = 0 and W / 2, need no other row. Rows 0 and H / 2 are their own mirror
rows.
"""

import triton
import triton.language as tl

from dualwave.kernels.spectral.triton_kernels.common import offset
from dualwave.kernels.spectral.triton_kernels.factored_transform import (
    largest_of_lines,
    scale_lines,
    sum_of_lines,
    transform_lines,
    transform_lines_back,
)


@triton.jit
def bias_offsets(batch, channel, row, bin, stride_b, stride_c, stride_h, stride_k):
    """Where each frequency's bias lies, in 64 bits: [first, rows, second].

    ``batch``, ``channel`` and ``row`` are [rows], ``bin`` [first, second].
    """
    rows = offset(batch, stride_b) + offset(channel, stride_c) + offset(row, stride_h)
    return rows[None, :, None] + offset(bin, stride_k)[:, None, :]


@triton.jit
def rows_of_program(rows, channels, HEIGHT: tl.constexpr, ROWS: tl.constexpr):
    """Which rows of all images' half column transforms a program owns.

    Returns:
        rows among all of them, whether they exist, image, batch, channel, m and -m; all [ROWS].
    """
    BINS: tl.constexpr = HEIGHT // 2 + 1
    place = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_row = place < rows
    image = place // BINS
    row = (place % BINS).to(tl.int32)
    mirror_row = (HEIGHT - row) % HEIGHT
    return place, is_row, image, image // channels, image % channels, row, mirror_row


@triton.jit
def bins_of_tile(
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    FIRST_PADDED: tl.constexpr,
    SECOND_PADDED: tl.constexpr,
):
    """Samples and frequencies of the tiles' places, [first, second].

    Returns:
        sample, whether there is one, frequency k, whether k is one of row m's, the mirror row's
        frequency W - k, whether that is one of the mirror row's. Places outside belong to neither.
    """
    WIDTH: tl.constexpr = FIRST * SECOND
    first, second = tl.arange(0, FIRST_PADDED)[:, None], tl.arange(0, SECOND_PADDED)[None, :]
    is_valid = (first < FIRST) & (second < SECOND)
    bin = first + second * FIRST
    mirror_bin = tl.where(bin == 0, 0, WIDTH - bin)
    is_bin = is_valid & (2 * bin <= WIDTH)
    is_mirror_bin = is_valid & (2 * mirror_bin <= WIDTH)
    return first * SECOND + second, is_valid, bin, is_bin, mirror_bin, is_mirror_bin


@triton.jit
def load_spectrum(
    real_ptr,
    imag_ptr,
    places,
    is_place,
    first_ptr,
    twiddle_ptr,
    second_ptr,
    normalization,
    FIRST: tl.constexpr,
    ROWS: tl.constexpr,
    SECOND: tl.constexpr,
    TRANSFORM: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The transforms of rows, [first, rows, second]; without TRANSFORM they are stored as such."""
    real = tl.load(real_ptr + places, mask=is_place, other=0.0)
    imag = tl.load(imag_ptr + places, mask=is_place, other=0.0)
    if TRANSFORM:
        real, imag, unscale = scale_lines(real, imag, PRECISION)
        real, imag = transform_lines(
            real, imag, first_ptr, twiddle_ptr, second_ptr, FIRST, ROWS, SECOND, PRECISION
        )
        real, imag = real * (unscale * normalization), imag * (unscale * normalization)
    return real, imag


@triton.jit
def store_rows(
    real,
    imag,
    real_ptr,
    imag_ptr,
    places,
    is_place,
    first_ptr,
    twiddle_ptr,
    second_ptr,
    normalization,
    FIRST: tl.constexpr,
    ROWS: tl.constexpr,
    SECOND: tl.constexpr,
    TRANSFORM: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Store rows transformed back; without TRANSFORM as they are."""
    if TRANSFORM:
        real, imag, unscale = scale_lines(real, imag, PRECISION)
        real, imag = transform_lines_back(
            real, imag, first_ptr, twiddle_ptr, second_ptr, FIRST, ROWS, SECOND, PRECISION
        )
        real, imag = real * (unscale * normalization), imag * (unscale * normalization)
    tl.store(real_ptr + places, real, mask=is_place)
    tl.store(imag_ptr + places, imag, mask=is_place)


@triton.jit
def weights_of_rows(
    power,
    temperature,
    bias_ptr,
    batch,
    channel,
    row,
    is_row,
    bin,
    is_bin,
    bias_stride_b,
    bias_stride_c,
    bias_stride_h,
    bias_stride_k,
    HAS_BIAS: tl.constexpr,
):
    """Softmax over ``is_bin`` of temperature * power + bias, [first, rows, second]; 0 elsewhere."""
    logits = temperature * power
    if HAS_BIAS:
        places = bias_offsets(
            batch, channel, row, bin, bias_stride_b, bias_stride_c, bias_stride_h, bias_stride_k
        )
        mask = is_row[None, :, None] & is_bin[:, None, :]
        logits += tl.load(bias_ptr + places, mask=mask, other=0.0).to(tl.float32)
    logits = tl.where(is_bin[:, None, :], logits, -float("inf"))
    weights = tl.exp(logits - largest_of_lines(logits))
    return weights / sum_of_lines(weights)
