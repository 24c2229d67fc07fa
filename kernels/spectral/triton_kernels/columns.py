"""The transforms over the columns of a grid, real to half spectrum and back.

A column is one w of one channel. A program owns BLOCK_C x BLOCK_W of them, so that neighbours in
memory are read together whether they are channels (tokens) or w (planar). Long columns are worked
off in blocks: of the first factor's bins forward, of the second factor's samples back.
"""

import triton
import triton.language as tl

from dualwave.kernels.device_functions import offset
from dualwave.kernels.spectral.triton_kernels.factored_transform import (
    bins_of_block,
    samples_of_block,
)


@triton.jit
def lines_of_program(channels, lines, BLOCKS: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_L):
    """Which lines a program owns, and which of the BLOCKS parts of their results.

    Programs of the same lines are neighbours, so that what they all read stays in the cache.

    Returns:
        batch, channels [BLOCK_C], lines [BLOCK_L], part.
    """
    program = tl.program_id(0)
    part = program % BLOCKS
    tile = program // BLOCKS
    line_tiles = tl.cdiv(lines, BLOCK_L)
    channel_tiles = tl.cdiv(channels, BLOCK_C)
    line = (tile % line_tiles) * BLOCK_L + tl.arange(0, BLOCK_L)
    tile = tile // line_tiles
    channel = (tile % channel_tiles) * BLOCK_C + tl.arange(0, BLOCK_C)
    return tile // channel_tiles, channel, line, part


@triton.jit
def line_offsets(batch, channel, line, stride_b, stride_c, stride_l):
    """Where lines begin, in 64 bits: [BLOCK_C, BLOCK_L]."""
    channel_offsets = offset(batch, stride_b) + offset(channel, stride_c)
    return channel_offsets[:, None] + offset(line, stride_l)[None, :]


@triton.jit
def columns_forward(
    grid_ptr,
    real_ptr,
    imag_ptr,
    first_ptr,
    twiddle_ptr,
    second_ptr,
    channels,
    width,
    grid_stride_b,
    grid_stride_c,
    grid_stride_h,
    grid_stride_w,
    normalization,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    FIRST_PADDED: tl.constexpr,
    SECOND_PADDED: tl.constexpr,
    FIRST_BLOCK: tl.constexpr,
    SECOND_BLOCK: tl.constexpr,
    SECOND_BINS: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_W: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """x (B, C, H, W) to the bins m = 0 .. H // 2 of its columns, planar (B * C, M, W).

    A program gives the bins m = k1 + FIRST k2 of FIRST_BLOCK values of k1 and all k2 that are
    needed (SECOND_BINS of them, padded), and sums over blocks of n2.
    """
    HEIGHT: tl.constexpr = FIRST * SECOND
    BINS: tl.constexpr = HEIGHT // 2 + 1
    LINES: tl.constexpr = BLOCK_C * BLOCK_W
    batch, channel, line, part = lines_of_program(
        channels, width, FIRST_PADDED // FIRST_BLOCK, BLOCK_C, BLOCK_W
    )
    columns = line_offsets(batch, channel, line, grid_stride_b, grid_stride_c, grid_stride_w)
    is_column = (channel < channels)[:, None] & (line < width)[None, :]
    n1 = tl.arange(0, FIRST_PADDED)
    k1 = part * FIRST_BLOCK + tl.arange(0, FIRST_BLOCK)

    # [first, lines, second]
    total_real = tl.zeros([FIRST_BLOCK, LINES, SECOND_BINS], tl.float32)
    total_imag = tl.zeros([FIRST_BLOCK, LINES, SECOND_BINS], tl.float32)
    for second_start in range(0, SECOND_PADDED, SECOND_BLOCK):
        n2 = second_start + tl.arange(0, SECOND_BLOCK)
        sample = n1[:, None] * SECOND + n2[None, :]
        is_sample = (n1 < FIRST)[:, None] & (n2 < SECOND)[None, :]
        # [first, channels, w, second]
        x = tl.load(
            grid_ptr + columns[None, :, :, None] + offset(sample, grid_stride_h)[:, None, None, :],
            mask=is_column[None, :, :, None] & is_sample[:, None, None, :],
            other=0.0,
        ).to(tl.float32)
        # [first, lines, second]
        x = tl.reshape(x, [FIRST_PADDED, LINES, SECOND_BLOCK])
        real, imag = bins_of_block(
            x,
            x,
            first_ptr,
            twiddle_ptr,
            second_ptr,
            k1,
            n2,
            FIRST_PADDED,
            SECOND_PADDED,
            FIRST_BLOCK,
            SECOND_BLOCK,
            SECOND_BINS,
            LINES,
            True,
            PRECISION,
        )
        total_real += real
        total_imag += imag

    k2 = tl.arange(0, SECOND_BINS)
    image = offset(batch, channels) + channel
    columns = offset(image, BINS * width)[:, None] + line[None, :]
    bins = k1[:, None] + k2[None, :] * FIRST
    is_bin = (k1 < FIRST)[:, None] & (bins < BINS)
    # [first, channels, w, second]
    places = columns[None, :, :, None] + offset(bins, width)[:, None, None, :]
    is_place = is_column[None, :, :, None] & is_bin[:, None, None, :]
    real = tl.reshape(total_real, [FIRST_BLOCK, BLOCK_C, BLOCK_W, SECOND_BINS])
    imag = tl.reshape(total_imag, [FIRST_BLOCK, BLOCK_C, BLOCK_W, SECOND_BINS])
    tl.store(real_ptr + places, real * normalization, mask=is_place)
    tl.store(imag_ptr + places, imag * normalization, mask=is_place)


@triton.jit
def columns_inverse(
    real_ptr,
    imag_ptr,
    grid_ptr,
    first_ptr,
    twiddle_ptr,
    second_ptr,
    channels,
    width,
    grid_stride_b,
    grid_stride_c,
    grid_stride_h,
    grid_stride_w,
    normalization,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    FIRST_PADDED: tl.constexpr,
    SECOND_PADDED: tl.constexpr,
    FIRST_BLOCK: tl.constexpr,
    SECOND_BLOCK: tl.constexpr,
    SECOND_BINS: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_W: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The bins m = 0 .. H // 2 of columns, planar (B * C, M, W), to real y (B, C, H, W).

    A program gives the samples h = SECOND n1 + n2 of all n1 and of SECOND_BLOCK values of n2, and
    sums over blocks of k1.
    """
    HEIGHT: tl.constexpr = FIRST * SECOND
    BINS: tl.constexpr = HEIGHT // 2 + 1
    LINES: tl.constexpr = BLOCK_C * BLOCK_W
    batch, channel, line, part = lines_of_program(
        channels, width, SECOND_PADDED // SECOND_BLOCK, BLOCK_C, BLOCK_W
    )
    image = offset(batch, channels) + channel
    columns = offset(image, BINS * width)[:, None] + line[None, :]
    is_column = (channel < channels)[:, None] & (line < width)[None, :]
    n1 = tl.arange(0, FIRST_PADDED)
    n2 = part * SECOND_BLOCK + tl.arange(0, SECOND_BLOCK)
    k2 = tl.arange(0, SECOND_BINS)

    # [first, lines, second]
    total = tl.zeros([FIRST_PADDED, LINES, SECOND_BLOCK], tl.float32)
    for first_start in range(0, FIRST_PADDED, FIRST_BLOCK):
        k1 = first_start + tl.arange(0, FIRST_BLOCK)
        bins = k1[:, None] + k2[None, :] * FIRST
        is_bin = (k1 < FIRST)[:, None] & (bins < BINS)
        # [first, channels, w, second]
        places = columns[None, :, :, None] + offset(bins, width)[:, None, None, :]
        is_place = is_column[None, :, :, None] & is_bin[:, None, None, :]
        # A bin stands for itself and its mirror image, unless it is that itself.
        stands_for = tl.where((bins == 0) | (2 * bins == HEIGHT), 1.0, 2.0)[:, None, None, :]
        real = tl.load(real_ptr + places, mask=is_place, other=0.0) * stands_for
        imag = tl.load(imag_ptr + places, mask=is_place, other=0.0) * stands_for
        samples, _ = samples_of_block(
            tl.reshape(real, [FIRST_BLOCK, LINES, SECOND_BINS]),
            tl.reshape(imag, [FIRST_BLOCK, LINES, SECOND_BINS]),
            first_ptr,
            twiddle_ptr,
            second_ptr,
            k1,
            n2,
            FIRST_PADDED,
            SECOND_PADDED,
            FIRST_BLOCK,
            SECOND_BLOCK,
            SECOND_BINS,
            LINES,
            True,
            PRECISION,
        )
        total += samples

    columns = line_offsets(batch, channel, line, grid_stride_b, grid_stride_c, grid_stride_w)
    sample = n1[:, None] * SECOND + n2[None, :]
    is_sample = (n1 < FIRST)[:, None] & (n2 < SECOND)[None, :]
    # [first, channels, w, second]
    y = tl.reshape(total * normalization, [FIRST_PADDED, BLOCK_C, BLOCK_W, SECOND_BLOCK])
    tl.store(
        grid_ptr + columns[None, :, :, None] + offset(sample, grid_stride_h)[:, None, None, :],
        y.to(grid_ptr.dtype.element_ty),
        mask=is_column[None, :, :, None] & is_sample[:, None, None, :],
    )
