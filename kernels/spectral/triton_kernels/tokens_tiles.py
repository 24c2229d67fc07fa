"""Tiles of the token kernels: how they are read, transformed and written.

A program owns one batch element and BLOCK_C channels. Its tiles have the channels first although
they lie next to each other in memory, so that every matrix product has (channel, row) or
(channel, bin) pairs as its rows: a channel never meets another one, and the table on the right is
shared by all of them. Sizes are padded to ROWS, COLUMNS and BINS with zeros, in the tables too.
"""

import triton
import triton.language as tl

from dualwave.kernels.device_functions import offset
from dualwave.kernels.spectral.triton_kernels.common import power_of_two_scale


@triton.jit
def tile_offsets(channel, second, third, stride_channel, stride_second, stride_third):
    """Offsets of a [channel, second, third] tile in 64 bits, whatever the strides."""
    return (
        offset(channel, stride_channel)[:, None, None]
        + offset(second, stride_second)[None, :, None]
        + offset(third, stride_third)[None, None, :]
    )


@triton.jit
def program_channels(channels, BLOCK_C: tl.constexpr):
    """The batch element and the channels of this program; neighbours share their cache lines."""
    blocks = tl.cdiv(channels, BLOCK_C)
    program = tl.program_id(0)
    return program // blocks, (program % blocks) * BLOCK_C + tl.arange(0, BLOCK_C)


@triton.jit
def load_grids(
    pointer,
    channel,
    channels,
    stride_c,
    stride_h,
    stride_w,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The grids of some channels in float32, zero beyond their edges."""
    h = tl.arange(0, ROWS)
    w = tl.arange(0, COLUMNS)
    # [BLOCK_C, ROWS, COLUMNS]
    inside = (
        (channel < channels)[:, None, None] & (h < HEIGHT)[None, :, None] & (w < WIDTH)[None, None]
    )
    offsets = tile_offsets(channel, h, w, stride_c, stride_h, stride_w)
    return tl.load(pointer + offsets, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def store_grids(
    pointer,
    values,
    channel,
    channels,
    stride_c,
    stride_h,
    stride_w,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write what lies inside the grids of some channels."""
    h = tl.arange(0, ROWS)
    w = tl.arange(0, COLUMNS)
    # [BLOCK_C, ROWS, COLUMNS]
    inside = (
        (channel < channels)[:, None, None] & (h < HEIGHT)[None, :, None] & (w < WIDTH)[None, None]
    )
    offsets = tile_offsets(channel, h, w, stride_c, stride_h, stride_w)
    tl.store(pointer + offsets, values.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def scale_channels(tile, PRECISION: tl.constexpr):
    """Bring each channel's largest value into [1, 2) where the precision's range asks for it.

    Returns:
        The scaled tile, and per channel the factor that undoes the scaling.
    """
    if PRECISION == "fp16":
        scale, inverse = power_of_two_scale(tl.max(tl.max(tl.abs(tile), 2), 1))
        return (tile * scale[:, None, None]).to(tl.float16), inverse
    else:
        return tile, tl.full((tile.shape[0],), 1.0, tl.float32)
