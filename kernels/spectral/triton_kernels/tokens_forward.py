"""The forward pass on token grids that fit on chip: reads x once and writes y once."""

import triton
import triton.language as tl

from dualwave.kernels.device_functions import offset
from dualwave.kernels.spectral.triton_kernels.tokens_spectrum import (
    bin_weights,
    grids_of,
    half_spectrum,
    load_tables,
)
from dualwave.kernels.spectral.triton_kernels.tokens_tiles import (
    load_grids,
    program_channels,
    scale_channels,
    store_grids,
)


@triton.jit
def tokens_forward_kernel(
    x,
    y,
    bias,
    temperature,
    temperature_value,
    tables,
    channels,
    x_stride_b,
    x_stride_c,
    x_stride_h,
    x_stride_w,
    y_stride_b,
    y_stride_c,
    y_stride_h,
    y_stride_w,
    bias_stride_b,
    bias_stride_c,
    bias_stride_h,
    bias_stride_k,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BINS: tl.constexpr,
    BLOCK_C: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_TEMPERATURE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Filter BLOCK_C channels of one batch element."""
    batch, channel = program_channels(channels, BLOCK_C)
    if HAS_TEMPERATURE:
        temperature_value = tl.load(temperature)
    transforms = load_tables(tables, ROWS, COLUMNS, BINS)
    # [BLOCK_C, ROWS, COLUMNS]
    tile = load_grids(
        x + offset(batch, x_stride_b), channel, channels, x_stride_c, x_stride_h, x_stride_w,
        HEIGHT, WIDTH, ROWS, COLUMNS,
    )  # fmt: skip
    tile, unscale = scale_channels(tile, PRECISION)
    # [BLOCK_C, BINS, ROWS] and [BLOCK_C, ROWS]
    re, im, last_re, last_im = half_spectrum(tile, transforms, WIDTH, PRECISION)
    scaled_power = re * re + im * im
    last_scaled_power = last_re * last_re + last_im * last_im
    # Not times unscale^2, which may lie outside float32's range when the power does not.
    power = scaled_power * unscale[:, None, None] * unscale[:, None, None]
    last_power = last_scaled_power * unscale[:, None] * unscale[:, None]
    bias_of_batch = bias
    if HAS_BIAS:
        bias_of_batch += offset(batch, bias_stride_b)
    weights, last_weights = bin_weights(
        power, last_power, temperature_value, bias_of_batch, channel, channels,
        bias_stride_c, bias_stride_h, bias_stride_k, HEIGHT, WIDTH, HAS_BIAS,
    )  # fmt: skip
    # [BLOCK_C, ROWS, COLUMNS]
    filtered = grids_of(
        weights * re, weights * im, last_weights * last_re, last_weights * last_im,
        transforms, WIDTH, PRECISION,
    )  # fmt: skip
    store_grids(
        y + offset(batch, y_stride_b), filtered * unscale[:, None, None], channel, channels,
        y_stride_c, y_stride_h, y_stride_w, HEIGHT, WIDTH, ROWS, COLUMNS,
    )  # fmt: skip
