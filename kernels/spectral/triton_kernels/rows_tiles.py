"""What the row kernels do with a row's tile before and after they filter it.

A row m = 0 .. H // 2 of a grid's column transform holds, once transformed itself, the frequencies
k = 0 .. W - 1 of row m. Those up to W // 2 are row m of the half spectrum; the others, and k = 0
and W / 2 again, are the complex conjugates of its mirror row -m, at W - k. So both softmaxes, and
the averages of the two at k = 0 and W / 2, need no other row. Rows 0 and H / 2 are their own mirror
rows.
"""

import triton
import triton.language as tl

from dualwave.kernels.device_functions import offset
from dualwave.kernels.spectral.triton_kernels.factored_transform import (
    bins_of_block,
    largest_of_lines,
    samples_of_block,
    sum_of_lines,
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
    """The frequencies at a tile's places, [first, second].

    Returns:
        frequency k, whether k is one of row m's, the mirror row's
        frequency W - k, whether that is one of the mirror row's. Places outside belong to neither.
    """
    WIDTH: tl.constexpr = FIRST * SECOND
    first, second = tl.arange(0, FIRST_PADDED)[:, None], tl.arange(0, SECOND_PADDED)[None, :]
    is_valid = (first < FIRST) & (second < SECOND)
    bin = first + second * FIRST
    mirror_bin = tl.where(bin == 0, 0, WIDTH - bin)
    is_bin = is_valid & (2 * bin <= WIDTH)
    is_mirror_bin = is_valid & (2 * mirror_bin <= WIDTH)
    return bin, is_bin, mirror_bin, is_mirror_bin


@triton.jit
def load_bins(
    real_ptr,
    imag_ptr,
    place,
    is_row,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    FIRST_PADDED: tl.constexpr,
    SECOND_PADDED: tl.constexpr,
):
    """Rows of stored transforms as a tile, [first, rows, second]; 0 in the padding."""
    bin, is_bin, _, is_mirror_bin = bins_of_tile(FIRST, SECOND, FIRST_PADDED, SECOND_PADDED)
    rows = offset(place, FIRST * SECOND)[None, :, None]
    mask = is_row[None, :, None] & (is_bin | is_mirror_bin)[:, None, :]
    real = tl.load(real_ptr + rows + bin[:, None, :], mask=mask, other=0.0)
    return real, tl.load(imag_ptr + rows + bin[:, None, :], mask=mask, other=0.0)


@triton.jit
def store_bins(
    real,
    imag,
    real_ptr,
    imag_ptr,
    place,
    is_row,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    FIRST_PADDED: tl.constexpr,
    SECOND_PADDED: tl.constexpr,
):
    """Store a tile of transforms, [first, rows, second], in the order of the bins."""
    bin, is_bin, _, is_mirror_bin = bins_of_tile(FIRST, SECOND, FIRST_PADDED, SECOND_PADDED)
    rows = offset(place, FIRST * SECOND)[None, :, None]
    mask = is_row[None, :, None] & (is_bin | is_mirror_bin)[:, None, :]
    tl.store(real_ptr + rows + bin[:, None, :], real, mask=mask)
    tl.store(imag_ptr + rows + bin[:, None, :], imag, mask=mask)


@triton.jit
def load_spectrum(
    real_ptr,
    imag_ptr,
    place,
    is_row,
    first_ptr,
    twiddle_ptr,
    second_ptr,
    normalization,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    FIRST_PADDED: tl.constexpr,
    SECOND_PADDED: tl.constexpr,
    SECOND_BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    TRANSFORM: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The transforms of rows, [first, rows, second]; without TRANSFORM they are stored as such.

    Samples are read and transformed in blocks of n2, which keeps few of them in registers.
    """
    n1 = tl.arange(0, FIRST_PADDED)
    rows = offset(place, FIRST * SECOND)[None, :, None]
    if TRANSFORM:
        real = tl.zeros([FIRST_PADDED, ROWS, SECOND_PADDED], tl.float32)
        imag = tl.zeros([FIRST_PADDED, ROWS, SECOND_PADDED], tl.float32)
        for second_start in range(0, SECOND_PADDED, SECOND_BLOCK):
            n2 = second_start + tl.arange(0, SECOND_BLOCK)
            sample = n1[:, None] * SECOND + n2[None, :]
            is_sample = (n1 < FIRST)[:, None] & (n2 < SECOND)[None, :]
            # [first, rows, second]
            mask = is_row[None, :, None] & is_sample[:, None, :]
            block_real = tl.load(real_ptr + rows + sample[:, None, :], mask=mask, other=0.0)
            block_imag = tl.load(imag_ptr + rows + sample[:, None, :], mask=mask, other=0.0)
            block_real, block_imag = bins_of_block(
                block_real,
                block_imag,
                first_ptr,
                twiddle_ptr,
                second_ptr,
                n1,
                n2,
                FIRST_PADDED,
                SECOND_PADDED,
                FIRST_PADDED,
                SECOND_BLOCK,
                SECOND_PADDED,
                ROWS,
                False,
                PRECISION,
            )
            real += block_real
            imag += block_imag
        return real * normalization, imag * normalization
    else:
        return load_bins(
            real_ptr, imag_ptr, place, is_row, FIRST, SECOND, FIRST_PADDED, SECOND_PADDED
        )


@triton.jit
def store_rows(
    real,
    imag,
    real_ptr,
    imag_ptr,
    place,
    is_row,
    first_ptr,
    twiddle_ptr,
    second_ptr,
    normalization,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    FIRST_PADDED: tl.constexpr,
    SECOND_PADDED: tl.constexpr,
    SECOND_BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    TRANSFORM: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Store rows, [first, rows, second], transformed back; without TRANSFORM as they are."""
    n1 = tl.arange(0, FIRST_PADDED)
    rows = offset(place, FIRST * SECOND)[None, :, None]
    if TRANSFORM:
        for second_start in range(0, SECOND_PADDED, SECOND_BLOCK):
            n2 = second_start + tl.arange(0, SECOND_BLOCK)
            block_real, block_imag = samples_of_block(
                real,
                imag,
                first_ptr,
                twiddle_ptr,
                second_ptr,
                n1,
                n2,
                FIRST_PADDED,
                SECOND_PADDED,
                FIRST_PADDED,
                SECOND_BLOCK,
                SECOND_PADDED,
                ROWS,
                False,
                PRECISION,
            )
            sample = n1[:, None] * SECOND + n2[None, :]
            is_sample = (n1 < FIRST)[:, None] & (n2 < SECOND)[None, :]
            # [first, rows, second]
            mask = is_row[None, :, None] & is_sample[:, None, :]
            tl.store(real_ptr + rows + sample[:, None, :], block_real * normalization, mask=mask)
            tl.store(imag_ptr + rows + sample[:, None, :], block_imag * normalization, mask=mask)
    else:
        store_bins(
            real,
            imag,
            real_ptr,
            imag_ptr,
            place,
            is_row,
            FIRST,
            SECOND,
            FIRST_PADDED,
            SECOND_PADDED,
        )


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
