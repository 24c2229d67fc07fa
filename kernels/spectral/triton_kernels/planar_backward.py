"""The backward pass on planar images that fit on chip: reads x and dy once and writes dx once."""

import triton
import triton.language as tl

from dualwave.kernels.device_functions import offset
from dualwave.kernels.spectral.triton_kernels.common import last_bin_apart, power_of_two_scale
from dualwave.kernels.spectral.triton_kernels.planar_spectrum import (
    half_spectrum,
    images_of,
    load_tables,
    logits_of,
    softmax_over_bins,
)
from dualwave.kernels.spectral.triton_kernels.planar_tiles import (
    column_of,
    images_largest,
    magnitude,
    row_mask,
    row_offsets,
    scale_images,
    stack_rows,
    sum_of_rows,
    tile_mask,
    tile_offsets,
)


@triton.jit
def planar_backward_kernel(
    grad_out,
    x,
    bias,
    temperature,
    temperature_value,
    tables,
    grad_x,
    grad_bias_parts,
    grad_temperature_parts,
    batches,
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
    IMAGE_ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BINS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_TEMPERATURE: tl.constexpr,
    WANTS_X_GRADIENT: tl.constexpr,
    WANTS_BIAS_GRADIENT: tl.constexpr,
    SUMS_BIAS_OVER_ROWS: tl.constexpr,
    WANTS_TEMPERATURE_GRADIENT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradients of a stack of images; the spectrum is computed again."""
    STACKED: tl.constexpr = (IMAGE_ROWS > 1) and (IMAGE_ROWS < ROWS)
    PACKED: tl.constexpr = last_bin_apart(WIDTH, BINS)
    batch, channel, h = stack_rows(tl.program_id(0), channels, ROWS, IMAGE_ROWS)
    if HAS_TEMPERATURE:
        temperature_value = tl.load(temperature)
    transforms = load_tables(tables, ROWS, COLUMNS, BINS, HEIGHT)
    w = tl.arange(0, COLUMNS)
    k = tl.arange(0, BINS)
    # (ROWS, COLUMNS)
    inside = tile_mask(batch, batches, h, w, HEIGHT, WIDTH)
    offsets = tile_offsets(batch, channel, h, w, x_stride_b, x_stride_c, x_stride_h, x_stride_w)
    tile = tl.load(x + offsets, mask=inside, other=0.0).to(tl.float32)
    tile, unscale, is_finite = scale_images(tile, IMAGE_ROWS, PRECISION)
    # (ROWS, BINS) and (ROWS,)
    x_re, x_im, last_x_re, last_x_im = half_spectrum(tile, transforms, HEIGHT, WIDTH, PRECISION)
    x_re *= column_of(unscale)
    x_im *= column_of(unscale)
    last_x_re *= unscale
    last_x_im *= unscale
    power = x_re * x_re + x_im * x_im
    last_power = last_x_re * last_x_re + last_x_im * last_x_im
    logits, last_logits = logits_of(
        power, last_power, temperature_value, bias, batch, batches, channel, h,
        bias_stride_b, bias_stride_c, bias_stride_h, bias_stride_k, HEIGHT, WIDTH, HAS_BIAS,
    )  # fmt: skip
    weights, last_weights, _ = softmax_over_bins(logits, last_logits, WIDTH)

    offsets = tile_offsets(
        batch, channel, h, w,
        grad_out_stride_b, grad_out_stride_c, grad_out_stride_h, grad_out_stride_w,
    )  # fmt: skip
    tile = tl.load(grad_out + offsets, mask=inside, other=0.0).to(tl.float32)
    # Everything below is linear in dy: its scaling is undone where results leave.
    tile, unscale, grad_is_finite = scale_images(tile, IMAGE_ROWS, PRECISION)
    is_finite &= grad_is_finite
    g_re, g_im, last_g_re, last_g_im = half_spectrum(tile, transforms, HEIGHT, WIDTH, PRECISION)

    # c_k, how many bins of the full spectrum a bin stands for: 1 for k = 0 and W / 2.
    twins = tl.where((k == 0) | (2 * k == WIDTH), 1.0, 2.0)[None, :]
    grad_weights = twins * (x_re * g_re + x_im * g_im)
    last_grad_weights = last_x_re * last_g_re + last_x_im * last_g_im
    mean = tl.sum(weights * grad_weights, 1)
    if PACKED:
        mean += last_weights * last_grad_weights
    grad_logits = weights * (grad_weights - mean[:, None])
    last_grad_logits = last_weights * (last_grad_weights - mean)

    if WANTS_BIAS_GRADIENT:
        grad_bias = grad_logits * column_of(unscale)
        last_grad_bias = last_grad_logits * unscale
        if STACKED:
            grad_bias = tl.where(column_of(is_finite), grad_bias, float("nan"))
            last_grad_bias = tl.where(is_finite, last_grad_bias, float("nan"))
        store_bias_parts(
            grad_bias_parts, grad_bias, last_grad_bias, batch, batches, channel, h,
            parts_stride_b, parts_stride_c, parts_stride_h, parts_stride_k,
            HEIGHT, WIDTH, IMAGE_ROWS, SUMS_BIAS_OVER_ROWS,
        )  # fmt: skip
    if WANTS_TEMPERATURE_GRADIENT:
        # grad_logits sum to 0 over a row: less the mean power, their rounding weighs less.
        mean_power = tl.sum(weights * power, 1)
        if PACKED:
            mean_power += last_weights * last_power
        per_row = tl.sum(grad_logits * (power - mean_power[:, None]), 1)
        if PACKED:
            per_row += last_grad_logits * (last_power - mean_power)
        per_row *= unscale
        if STACKED:
            per_row = tl.where(is_finite, per_row, float("nan"))
        # Rows of no image may hold anything.
        per_row = tl.where(row_mask(batch, batches, h, HEIGHT), per_row, 0.0)
        tl.store(grad_temperature_parts + tl.program_id(0) + tl.arange(0, 1), sum_of_rows(per_row))

    if WANTS_X_GRADIENT:
        # Z, whose inverse transform is dx.
        factor = 2.0 * temperature_value
        grad_power = factor * grad_logits / twins
        last_grad_power = factor * last_grad_logits
        re = weights * g_re + grad_power * x_re
        im = weights * g_im + grad_power * x_im
        last_re = last_weights * last_g_re + last_grad_power * last_x_re
        last_im = last_weights * last_g_im + last_grad_power * last_x_im
        if STACKED or PRECISION == "fp16":
            largest = tl.max(tl.maximum(magnitude(re), magnitude(im)), 1)
            if PACKED:
                last_largest = tl.maximum(magnitude(last_re), magnitude(last_im))
                largest = tl.maximum(largest, last_largest)
            largest = images_largest(largest, IMAGE_ROWS)
            scale, unscale_again = power_of_two_scale(largest)
            re *= column_of(scale)
            im *= column_of(scale)
            last_re *= scale
            last_im *= scale
            if STACKED:
                is_finite &= largest < float("inf")
                re = tl.where(column_of(is_finite), re, 0.0)
                im = tl.where(column_of(is_finite), im, 0.0)
                last_re = tl.where(is_finite, last_re, 0.0)
                last_im = tl.where(is_finite, last_im, 0.0)
        # (ROWS, COLUMNS)
        images = images_of(re, im, last_re, last_im, transforms, HEIGHT, WIDTH, PRECISION)
        if STACKED or PRECISION == "fp16":
            images *= column_of(unscale_again)
        images *= column_of(unscale)
        if STACKED:
            images = tl.where(column_of(is_finite), images, float("nan"))
        offsets = tile_offsets(
            batch, channel, h, w,
            grad_x_stride_b, grad_x_stride_c, grad_x_stride_h, grad_x_stride_w,
        )  # fmt: skip
        tl.store(grad_x + offsets, images.to(grad_x.dtype.element_ty), mask=inside)


@triton.jit
def store_bias_parts(
    parts,
    values,
    last_values,
    batch,
    batches,
    channel,
    h,
    stride_b,
    stride_c,
    stride_h,
    stride_k,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    IMAGE_ROWS: tl.constexpr,
    SUMS_OVER_ROWS: tl.constexpr,
):
    """Write the gradient of the bias, row by row or summed over the rows of each image."""
    ROWS: tl.constexpr = values.shape[0]
    BINS: tl.constexpr = values.shape[1]
    IMAGES: tl.constexpr = ROWS // IMAGE_ROWS
    k = tl.arange(0, BINS)
    rows = row_offsets(batch, channel, h, stride_b, stride_c, stride_h)
    last_rows = rows + offset(tl.full((), BINS, tl.int32), stride_k)
    row_inside = row_mask(batch, batches, h, HEIGHT)
    if SUMS_OVER_ROWS and IMAGE_ROWS > 1:
        values = tl.where(row_inside[:, None], values, 0.0)
        last_values = tl.where(row_inside, last_values, 0.0)
        # The sum leaves through the first row of its image: (IMAGES, IMAGE_ROWS, BINS).
        totals = tl.sum(tl.reshape(values, (IMAGES, IMAGE_ROWS, BINS)), 1)
        values = tl.reshape(
            tl.broadcast_to(totals[:, None, :], (IMAGES, IMAGE_ROWS, BINS)), (ROWS, BINS)
        )
        last_totals = tl.sum(tl.reshape(last_values, (IMAGES, IMAGE_ROWS)), 1)
        last_values = tl.reshape(
            tl.broadcast_to(last_totals[:, None], (IMAGES, IMAGE_ROWS)), (ROWS,)
        )
        row_inside &= h == 0
    inside = row_inside[:, None] & (k < WIDTH // 2 + 1)[None, :]
    tl.store(parts + rows[:, None] + offset(k, stride_k)[None, :], values, mask=inside)
    if last_bin_apart(WIDTH, BINS):
        tl.store(parts + last_rows, last_values, mask=row_inside)
