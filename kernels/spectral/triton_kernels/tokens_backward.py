"""The backward pass on token grids that fit on chip: reads x and dy once and writes dx once."""

import triton
import triton.language as tl

from dualwave.kernels.device_functions import offset
from dualwave.kernels.spectral.triton_kernels.common import last_bin_apart, power_of_two_scale
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
    tile_offsets,
)


@triton.jit
def tokens_backward_kernel(
    grad_out,
    x,
    bias,
    temperature,
    temperature_value,
    tables,
    grad_x,
    grad_bias_parts,
    grad_temperature_parts,
    channels,
    grad_out_stride_b,
    grad_out_stride_c,
    grad_out_stride_h,
    grad_out_stride_w,
    x_stride_b,
    x_stride_c,
    x_stride_h,
    x_stride_w,
    bias_stride_b,
    bias_stride_c,
    bias_stride_h,
    bias_stride_k,
    grad_x_stride_b,
    grad_x_stride_c,
    grad_x_stride_h,
    grad_x_stride_w,
    parts_stride_b,
    parts_stride_c,
    parts_stride_h,
    parts_stride_k,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BINS: tl.constexpr,
    BLOCK_C: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_TEMPERATURE: tl.constexpr,
    WANTS_X_GRADIENT: tl.constexpr,
    WANTS_BIAS_GRADIENT: tl.constexpr,
    SUMS_BIAS_OVER_ROWS: tl.constexpr,
    WANTS_TEMPERATURE_GRADIENT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradients of BLOCK_C channels of one batch element; the spectrum is computed again."""
    APART: tl.constexpr = last_bin_apart(WIDTH, BINS)
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
    x_re, x_im, last_x_re, last_x_im = half_spectrum(tile, transforms, WIDTH, PRECISION)
    x_re *= unscale[:, None, None]
    x_im *= unscale[:, None, None]
    last_x_re *= unscale[:, None]
    last_x_im *= unscale[:, None]
    power = x_re * x_re + x_im * x_im
    last_power = last_x_re * last_x_re + last_x_im * last_x_im
    bias_of_batch = bias
    if HAS_BIAS:
        bias_of_batch += offset(batch, bias_stride_b)
    weights, last_weights = bin_weights(
        power, last_power, temperature_value, bias_of_batch, channel, channels,
        bias_stride_c, bias_stride_h, bias_stride_k, HEIGHT, WIDTH, HAS_BIAS,
    )  # fmt: skip

    tile = load_grids(
        grad_out + offset(batch, grad_out_stride_b), channel, channels,
        grad_out_stride_c, grad_out_stride_h, grad_out_stride_w, HEIGHT, WIDTH, ROWS, COLUMNS,
    )  # fmt: skip
    tile, unscale = scale_channels(tile, PRECISION)
    g_re, g_im, last_g_re, last_g_im = half_spectrum(tile, transforms, WIDTH, PRECISION)
    g_re *= unscale[:, None, None]
    g_im *= unscale[:, None, None]
    last_g_re *= unscale[:, None]
    last_g_im *= unscale[:, None]

    # c_k, how many bins of the full spectrum a bin stands for; 1 for the last.
    k = tl.arange(0, BINS)
    twins = tl.where((k == 0) | (2 * k == WIDTH), 1.0, 2.0)[None, :, None]
    grad_weights = twins * (x_re * g_re + x_im * g_im)
    last_grad_weights = last_x_re * last_g_re + last_x_im * last_g_im
    # S: [BLOCK_C, ROWS]
    mean = tl.sum(weights * grad_weights, 1)
    if APART:
        mean += last_weights * last_grad_weights
    grad_logits = weights * (grad_weights - mean[:, None, :])
    last_grad_logits = last_weights * (last_grad_weights - mean)

    if WANTS_BIAS_GRADIENT:
        parts = grad_bias_parts + offset(batch, parts_stride_b)
        _store_bias_parts(
            parts, grad_logits, k, channel, channels,
            parts_stride_c, parts_stride_h, parts_stride_k, HEIGHT, WIDTH, SUMS_BIAS_OVER_ROWS,
        )  # fmt: skip
        if APART:
            last = tl.full((1,), BINS, tl.int32)
            _store_bias_parts(
                parts, last_grad_logits[:, None, :], last, channel, channels,
                parts_stride_c, parts_stride_h, parts_stride_k, HEIGHT, WIDTH, SUMS_BIAS_OVER_ROWS,
            )  # fmt: skip
    if WANTS_TEMPERATURE_GRADIENT:
        terms = tl.sum(grad_logits * power, 1)
        if APART:
            terms += last_grad_logits * last_power
        tl.store(grad_temperature_parts + tl.program_id(0), tl.sum(terms))

    if WANTS_X_GRADIENT:
        factor = (2.0 * temperature_value) * grad_logits / twins
        z_re = weights * g_re + factor * x_re
        z_im = weights * g_im + factor * x_im
        last_factor = (2.0 * temperature_value) * last_grad_logits
        last_z_re = last_weights * last_g_re + last_factor * last_x_re
        last_z_im = last_weights * last_g_im + last_factor * last_x_im
        unscale = tl.full((BLOCK_C,), 1.0, tl.float32)
        if PRECISION == "fp16":
            # Z grows with |X|^2, out of any range that the scales of x and dy would bound.
            largest = tl.max(tl.maximum(tl.abs(z_re), tl.abs(z_im)), 1)
            if APART:
                last_largest = tl.maximum(tl.abs(last_z_re), tl.abs(last_z_im))
                largest = tl.maximum(largest, last_largest)
            scale, unscale = power_of_two_scale(tl.max(largest, 1))
            z_re *= scale[:, None, None]
            z_im *= scale[:, None, None]
            last_z_re *= scale[:, None]
            last_z_im *= scale[:, None]
        # [BLOCK_C, ROWS, COLUMNS]
        gradient = grids_of(z_re, z_im, last_z_re, last_z_im, transforms, WIDTH, PRECISION)
        store_grids(
            grad_x + offset(batch, grad_x_stride_b), gradient * unscale[:, None, None],
            channel, channels, grad_x_stride_c, grad_x_stride_h, grad_x_stride_w,
            HEIGHT, WIDTH, ROWS, COLUMNS,
        )  # fmt: skip


@triton.jit
def _store_bias_parts(
    pointer,
    grad_logits,
    k,
    channel,
    channels,
    stride_c,
    stride_h,
    stride_k,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    SUMS_OVER_ROWS: tl.constexpr,
):
    """Write the gradients of some bins' logits, or their sums over the rows."""
    # [BLOCK_C, bins, ROWS] or [BLOCK_C, bins, 1]
    inside = (channel < channels)[:, None, None] & (k < WIDTH // 2 + 1)[None, :, None]
    if SUMS_OVER_ROWS:
        # Rows beyond the grid hold zeros.
        grad_bias = tl.sum(grad_logits, 2)[:, :, None]
        m = tl.arange(0, 1)
    else:
        grad_bias = grad_logits
        m = tl.arange(0, grad_logits.shape[2])
        inside = inside & (m < HEIGHT)[None, None, :]
    offsets = tile_offsets(channel, k, m, stride_c, stride_k, stride_h)
    tl.store(pointer + offsets, grad_bias, mask=inside)
