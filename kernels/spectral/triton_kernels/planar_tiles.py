"""Tiles of the planar kernels: how stacks of images are read, scaled and written.

A program owns ROWS rows: ROWS // IMAGE_ROWS whole images on top of each other, each padded with
zeros to IMAGE_ROWS rows, a power of two. Row r is row r % IMAGE_ROWS of image r // IMAGE_ROWS.
"""

import triton
import triton.language as tl

from dualwave.kernels.device_functions import offset
from dualwave.kernels.spectral.triton_kernels.common import power_of_two_scale


@triton.jit
def stack_rows(program, channels, ROWS: tl.constexpr, IMAGE_ROWS: tl.constexpr):
    """Which rows a program owns.

    Args:
        program: index of the program.
        channels: C.
        ROWS: rows of the tile.
        IMAGE_ROWS: H, padded.

    Returns:
        The batch element (int64) and channel of each row, (ROWS,) each, or a scalar where all rows
        belong to one image; and the row in the image, (ROWS,).
    """
    IMAGES: tl.constexpr = ROWS // IMAGE_ROWS
    row = tl.arange(0, ROWS)
    # One 64-bit division for the first image; the others are counted from there.
    first = program.to(tl.int64) * IMAGES
    batch = first // channels
    channel = (first % channels).to(tl.int32)
    if IMAGES > 1:
        channel += row // IMAGE_ROWS
        batch += channel // channels
        channel %= channels
    return batch, channel, row % IMAGE_ROWS


@triton.jit
def row_offsets(batch, channel, h, stride_b, stride_c, stride_h):
    """Offsets of the rows' first elements in 64 bits, whatever the strides."""
    return offset(batch, stride_b) + offset(channel, stride_c) + offset(h, stride_h)


@triton.jit
def tile_offsets(batch, channel, h, column, stride_b, stride_c, stride_h, stride_column):
    """Offsets of a [row, column] tile in 64 bits, whatever the strides."""
    rows = row_offsets(batch, channel, h, stride_b, stride_c, stride_h)
    return rows[:, None] + offset(column, stride_column)[None, :]


@triton.jit
def row_mask(batch, batches, h, HEIGHT: tl.constexpr):
    """Which rows belong to an image, (ROWS,)."""
    # Not `(batch < batches) & (h < HEIGHT)`: where all rows share one batch element, a truth value
    # for all of them is no mask in triton 3.9's interpreter.
    return tl.where(batch < batches, h, HEIGHT) < HEIGHT


@triton.jit
def tile_mask(batch, batches, h, column, HEIGHT: tl.constexpr, LENGTH: tl.constexpr):
    """Which elements of a [row, column] tile lie inside their image, (ROWS, columns)."""
    return row_mask(batch, batches, h, HEIGHT)[:, None] & (column < LENGTH)[None, :]


@triton.jit
def images_largest(row_largest, IMAGE_ROWS: tl.constexpr):
    """For each row the maximum over the rows of its image, (ROWS,)."""
    ROWS: tl.constexpr = row_largest.shape[0]
    if IMAGE_ROWS == 1:
        return row_largest
    else:
        IMAGES: tl.constexpr = ROWS // IMAGE_ROWS
        largest = tl.max(tl.reshape(row_largest, (IMAGES, IMAGE_ROWS)), 1)
        return tl.reshape(tl.broadcast_to(largest[:, None], (IMAGES, IMAGE_ROWS)), (ROWS,))


@triton.jit
def magnitude(values):
    """Absolute values; NaN counts as infinity, because a maximum may lose NaN."""
    return tl.where(values == values, tl.abs(values), float("inf"))


@triton.jit
def sum_of_rows(per_row):
    """The sum over all rows, (1,)."""
    # A reduction of one dimension to a scalar breaks the compiler of sm_100 (triton 3.7).
    return tl.sum(tl.reshape(per_row, (1, per_row.shape[0])), 1)


@triton.jit
def column_of(per_row):
    """A value per row, or one for all of them, shaped to be multiplied with a tile."""
    if len(per_row.shape) == 0:
        return per_row
    else:
        return per_row[:, None]


@triton.jit
def scale_images(tile, IMAGE_ROWS: tl.constexpr, PRECISION: tl.constexpr):
    """Bring each image's largest value into [1, 2) by a power of two, where that is needed.

    It is for the range of fp16. The zeros between the blocks of the column transform are the
    other reason: times an overflow of one image they would be NaN in the next. So images that are
    not finite become zero here, and the caller makes their results NaN.

    Args:
        tile: (ROWS, columns).
        IMAGE_ROWS: H, padded.
        PRECISION: of the matrix products.

    Returns:
        The tile, the factor that undoes the scaling, and whether the image is finite; the last
        two are per row, or for all rows.
    """
    ROWS: tl.constexpr = tile.shape[0]
    STACKED: tl.constexpr = (IMAGE_ROWS > 1) and (IMAGE_ROWS < ROWS)
    if STACKED or PRECISION == "fp16":
        largest = images_largest(tl.max(magnitude(tile), 1), IMAGE_ROWS)
        scale, unscale = power_of_two_scale(largest)
        is_finite = largest < float("inf")
        tile *= column_of(scale)
        if STACKED:
            tile = tl.where(column_of(is_finite), tile, 0.0)
        return tile, unscale, is_finite
    else:
        one = tl.full((), 1.0, tl.float32)
        return tile, one, one > 0
