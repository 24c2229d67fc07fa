"""Filtering rows between their transforms, forward and backward (see rows_tiles.py)."""

import triton
import triton.language as tl

from dualwave.kernels.device_functions import offset
from dualwave.kernels.spectral.triton_kernels.factored_transform import sum_of_lines
from dualwave.kernels.spectral.triton_kernels.rows_tiles import (
    bins_of_tile,
    load_spectrum,
    rows_of_program,
    store_rows,
    weights_of_rows,
)


@triton.jit
def rows_forward(
    real_ptr,
    imag_ptr,
    bias_ptr,
    temperature_ptr,
    first_ptr,
    twiddle_ptr,
    second_ptr,
    rows,
    channels,
    bias_stride_b,
    bias_stride_c,
    bias_stride_h,
    bias_stride_k,
    temperature_value,
    normalization,
    HEIGHT: tl.constexpr,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    FIRST_PADDED: tl.constexpr,
    SECOND_PADDED: tl.constexpr,
    SECOND_BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    TRANSFORM: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_TEMPERATURE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Filter the rows of (B * C, M, W) in place.

    With TRANSFORM they hold samples, before and after; without, their transforms, which are written
    as they are to be transformed back.
    """
    place, is_row, _, batch, channel, row, mirror_row = rows_of_program(
        rows, channels, HEIGHT, ROWS
    )
    bin, is_bin, mirror_bin, is_mirror_bin = bins_of_tile(
        FIRST, SECOND, FIRST_PADDED, SECOND_PADDED
    )
    # [first, rows, second]
    real, imag = load_spectrum(
        real_ptr,
        imag_ptr,
        place,
        is_row,
        first_ptr,
        twiddle_ptr,
        second_ptr,
        normalization,
        FIRST,
        SECOND,
        FIRST_PADDED,
        SECOND_PADDED,
        SECOND_BLOCK,
        ROWS,
        TRANSFORM,
        PRECISION,
    )
    temperature = temperature_value
    if HAS_TEMPERATURE:
        temperature = tl.load(temperature_ptr)
    power = real * real + imag * imag
    weights = weights_of_rows(
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
        HAS_BIAS,
    )
    weights += weights_of_rows(
        power,
        temperature,
        bias_ptr,
        batch,
        channel,
        mirror_row,
        is_row,
        mirror_bin,
        is_mirror_bin,
        bias_stride_b,
        bias_stride_c,
        bias_stride_h,
        bias_stride_k,
        HAS_BIAS,
    )
    # Where both rows hold a frequency (k = 0 and W / 2), it gets the mean of their weights.
    weights *= tl.where(is_bin & is_mirror_bin, 0.5, 1.0)[:, None, :]
    store_rows(
        weights * real,
        weights * imag,
        real_ptr,
        imag_ptr,
        place,
        is_row,
        first_ptr,
        twiddle_ptr,
        second_ptr,
        normalization,
        FIRST,
        SECOND,
        FIRST_PADDED,
        SECOND_PADDED,
        SECOND_BLOCK,
        ROWS,
        TRANSFORM,
        PRECISION,
    )


@triton.jit
def rows_backward(
    real_ptr,
    imag_ptr,
    grad_real_ptr,
    grad_imag_ptr,
    bias_ptr,
    temperature_ptr,
    grad_bias_ptr,
    grad_temperature_ptr,
    first_ptr,
    twiddle_ptr,
    second_ptr,
    rows,
    channels,
    bias_stride_b,
    bias_stride_c,
    bias_stride_h,
    bias_stride_k,
    temperature_value,
    normalization,
    HEIGHT: tl.constexpr,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    FIRST_PADDED: tl.constexpr,
    SECOND_PADDED: tl.constexpr,
    SECOND_BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    TRANSFORM: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_TEMPERATURE: tl.constexpr,
    WANTS_X_GRADIENT: tl.constexpr,
    WANTS_BIAS_GRADIENT: tl.constexpr,
    WANTS_TEMPERATURE_GRADIENT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradients at the rows of (B * C, M, W), x's and grad_out's column transforms.

    With X and G the transforms of a row of each, r = Re(conj(X) G), weights w and c = 1 where both
    the row and its mirror row hold a frequency, else 2:

        dlogits = w (c r - sum(c w r))          of each of the two rows
        Z = w G + temperature X (dlogits + dlogits of the mirror row), w as in the forward pass

    Writes Z (transformed back with TRANSFORM) over the grad rows, the bias gradients of both rows
    into (B, C, H, K), and each row's sum of dlogits |X|^2 into (B * C, M).
    """
    HALF_WIDTH: tl.constexpr = FIRST * SECOND // 2 + 1
    place, is_row, image, batch, channel, row, mirror_row = rows_of_program(
        rows, channels, HEIGHT, ROWS
    )
    bin, is_bin, mirror_bin, is_mirror_bin = bins_of_tile(
        FIRST, SECOND, FIRST_PADDED, SECOND_PADDED
    )
    # [first, rows, second]
    real, imag = load_spectrum(
        real_ptr,
        imag_ptr,
        place,
        is_row,
        first_ptr,
        twiddle_ptr,
        second_ptr,
        normalization,
        FIRST,
        SECOND,
        FIRST_PADDED,
        SECOND_PADDED,
        SECOND_BLOCK,
        ROWS,
        TRANSFORM,
        PRECISION,
    )
    grad_real, grad_imag = load_spectrum(
        grad_real_ptr,
        grad_imag_ptr,
        place,
        is_row,
        first_ptr,
        twiddle_ptr,
        second_ptr,
        normalization,
        FIRST,
        SECOND,
        FIRST_PADDED,
        SECOND_PADDED,
        SECOND_BLOCK,
        ROWS,
        TRANSFORM,
        PRECISION,
    )
    temperature = temperature_value
    if HAS_TEMPERATURE:
        temperature = tl.load(temperature_ptr)
    power = real * real + imag * imag
    weights = weights_of_rows(
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
        HAS_BIAS,
    )
    mirror_weights = weights_of_rows(
        power,
        temperature,
        bias_ptr,
        batch,
        channel,
        mirror_row,
        is_row,
        mirror_bin,
        is_mirror_bin,
        bias_stride_b,
        bias_stride_c,
        bias_stride_h,
        bias_stride_k,
        HAS_BIAS,
    )
    is_shared = (is_bin & is_mirror_bin)[:, None, :]
    slope = (real * grad_real + imag * grad_imag) * tl.where(is_shared, 1.0, 2.0)
    grad_logits = weights * (slope - sum_of_lines(weights * slope))
    mirror_grad_logits = mirror_weights * (slope - sum_of_lines(mirror_weights * slope))

    # A row that is its own mirror row counts once.
    has_mirror = is_row & (mirror_row != row)
    if WANTS_BIAS_GRADIENT:
        line = offset(offset(image, HEIGHT) + row, HALF_WIDTH)
        tl.store(
            grad_bias_ptr + line[None, :, None] + bin[:, None, :],
            grad_logits,
            mask=is_row[None, :, None] & is_bin[:, None, :],
        )
        line = offset(offset(image, HEIGHT) + mirror_row, HALF_WIDTH)
        tl.store(
            grad_bias_ptr + line[None, :, None] + mirror_bin[:, None, :],
            mirror_grad_logits,
            mask=has_mirror[None, :, None] & is_mirror_bin[:, None, :],
        )
    if WANTS_TEMPERATURE_GRADIENT:
        # grad_logits sum to 0 over a row: less the mean power, their rounding weighs less.
        mirrored = tl.where(has_mirror[None, :, None], mirror_grad_logits, 0.0)
        terms = grad_logits * (power - sum_of_lines(weights * power))
        terms += mirrored * (power - sum_of_lines(mirror_weights * power))
        total = sum_of_lines(terms)
        tl.store(grad_temperature_ptr + place, tl.reshape(total, [ROWS]), mask=is_row)
    if WANTS_X_GRADIENT:
        weights = (weights + mirror_weights) * tl.where(is_shared, 0.5, 1.0)
        slope = temperature * (grad_logits + mirror_grad_logits)
        store_rows(
            weights * grad_real + slope * real,
            weights * grad_imag + slope * imag,
            grad_real_ptr,
            grad_imag_ptr,
            place,
            is_row,
            first_ptr,
            twiddle_ptr,
            second_ptr,
            normalization,
            FIRST,
            SECOND,
            FIRST_PADDED,
            SECOND_PADDED,
            SECOND_BLOCK,
            ROWS,
            TRANSFORM,
            PRECISION,
        )
