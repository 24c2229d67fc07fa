"""The forward pass on planar images that fit on chip: reads x once and writes y once."""

import triton
import triton.language as tl

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
    scale_images,
    stack_rows,
    tile_mask,
    tile_offsets,
)


@triton.jit
def planar_forward_kernel(
    x,
    y,
    bias,
    temperature,
    temperature_value,
    tables,
    batches,
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
    IMAGE_ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BINS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_TEMPERATURE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Filter a stack of images."""
    STACKED: tl.constexpr = (IMAGE_ROWS > 1) and (IMAGE_ROWS < ROWS)
    batch, channel, h = stack_rows(tl.program_id(0), channels, ROWS, IMAGE_ROWS)
    if HAS_TEMPERATURE:
        temperature_value = tl.load(temperature)
    transforms = load_tables(tables, ROWS, COLUMNS, BINS, HEIGHT)
    w = tl.arange(0, COLUMNS)
    # (ROWS, COLUMNS)
    inside = tile_mask(batch, batches, h, w, HEIGHT, WIDTH)
    x_offsets = tile_offsets(batch, channel, h, w, x_stride_b, x_stride_c, x_stride_h, x_stride_w)
    tile = tl.load(x + x_offsets, mask=inside, other=0.0).to(tl.float32)
    tile, unscale, is_finite = scale_images(tile, IMAGE_ROWS, PRECISION)

    # (ROWS, BINS) and (ROWS,)
    re, im, last_re, last_im = half_spectrum(tile, transforms, HEIGHT, WIDTH, PRECISION)
    # Not times unscale^2, which may lie outside float32's range when the power does not.
    power = (re * re + im * im) * column_of(unscale) * column_of(unscale)
    last_power = (last_re * last_re + last_im * last_im) * unscale * unscale
    logits, last_logits = logits_of(
        power, last_power, temperature_value, bias, batch, batches, channel, h,
        bias_stride_b, bias_stride_c, bias_stride_h, bias_stride_k, HEIGHT, WIDTH, HAS_BIAS,
    )  # fmt: skip
    weights, last_weights, has_weights = softmax_over_bins(logits, last_logits, WIDTH)
    re *= weights
    im *= weights
    last_re *= last_weights
    last_im *= last_weights
    if STACKED:
        re = tl.where(has_weights[:, None], re, 0.0)
        im = tl.where(has_weights[:, None], im, 0.0)
        last_re = tl.where(has_weights, last_re, 0.0)
        last_im = tl.where(has_weights, last_im, 0.0)
        is_finite &= images_largest(tl.where(has_weights, 0.0, 1.0), IMAGE_ROWS) == 0.0

    # (ROWS, COLUMNS)
    images = images_of(re, im, last_re, last_im, transforms, HEIGHT, WIDTH, PRECISION)
    images *= column_of(unscale)
    if STACKED:
        images = tl.where(column_of(is_finite), images, float("nan"))
    y_offsets = tile_offsets(batch, channel, h, w, y_stride_b, y_stride_c, y_stride_h, y_stride_w)
    tl.store(y + y_offsets, images.to(y.dtype.element_ty), mask=inside)
