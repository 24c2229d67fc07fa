"""The discrete Fourier transform of a length N = FIRST * SECOND as two matrix products.

With n = SECOND n1 + n2 and k = k1 + FIRST k2,

    exp(-2 pi i n k / N) = exp(-2 pi i n1 k1 / FIRST)       a product from the left, over n1
                         * exp(-2 pi i n2 k1 / N)           the twiddle, element by element
                         * exp(-2 pi i n2 k2 / SECOND)      a product from the right, over n2

so that a tile [FIRST, lines, SECOND] of samples becomes one of bins without being transposed. With
FIRST = 1 only the product from the right is left. Nothing here is normalised.
"""

import triton
import triton.language as tl

from dualwave.kernels.device_functions import product
from dualwave.kernels.spectral.triton_kernels.common import power_of_two_scale


@triton.jit
def load_rotations(table_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Cosines and sines at (rows, columns) of a contiguous (2, ROWS, COLUMNS) table."""
    # [rows, columns]
    places = table_ptr + rows[:, None] * COLUMNS + columns[None, :]
    return tl.load(places), tl.load(places + ROWS * COLUMNS)


@triton.jit
def rotate(real, imag, cosine, sine, INVERSE: tl.constexpr):
    """Multiply by exp(-i angle), or exp(i angle) if INVERSE, element by element."""
    if INVERSE:
        return real * cosine - imag * sine, imag * cosine + real * sine
    else:
        return real * cosine + imag * sine, imag * cosine - real * sine


@triton.jit
def product_from_left(cosine, sine, real, imag, INVERSE: tl.constexpr, PRECISION: tl.constexpr):
    """The matrix exp(-i angle), or exp(i angle) if INVERSE, times a complex tile.

    Tables for tf32 are rounded already (`large_grid_tables`).
    """
    real_cosine = product(cosine, real, PRECISION, True, False)
    imag_cosine = product(cosine, imag, PRECISION, True, False)
    real_sine = product(sine, real, PRECISION, True, False)
    imag_sine = product(sine, imag, PRECISION, True, False)
    if INVERSE:
        return real_cosine - imag_sine, imag_cosine + real_sine
    else:
        return real_cosine + imag_sine, imag_cosine - real_sine


@triton.jit
def product_from_right(real, imag, cosine, sine, INVERSE: tl.constexpr, PRECISION: tl.constexpr):
    """A complex tile times the matrix exp(-i angle), or exp(i angle) if INVERSE."""
    real_cosine = product(real, cosine, PRECISION, False, True)
    imag_cosine = product(imag, cosine, PRECISION, False, True)
    real_sine = product(real, sine, PRECISION, False, True)
    imag_sine = product(imag, sine, PRECISION, False, True)
    if INVERSE:
        return real_cosine - imag_sine, imag_cosine + real_sine
    else:
        return real_cosine + imag_sine, imag_cosine - real_sine


@triton.jit
def largest_of_lines(values):
    """The largest value of each line of a tile [first, lines, second]: [1, lines, 1]."""
    return tl.max(tl.max(values, axis=2), axis=0)[None, :, None]


@triton.jit
def sum_of_lines(values):
    """The sum of each line of a tile [first, lines, second]: [1, lines, 1]."""
    return tl.sum(tl.sum(values, axis=2), axis=0)[None, :, None]


@triton.jit
def scale_lines(real, imag, PRECISION: tl.constexpr):
    """Bring each line of a tile [first, lines, second] into the range of the products' operands.

    fp16 operands are scaled by a power of two, which is exact, so that a line's largest value is in
    [1, 2): sums of up to 64 of them are far below fp16's 65,504. Lines never share a scale, so one
    image's numbers do not touch another's.

    Returns:
        the scaled tile, and what its lines are multiplied by to undo it, [1, lines, 1].
    """
    if PRECISION == "fp16":
        largest = largest_of_lines(tl.maximum(tl.abs(real), tl.abs(imag)))
        scale, inverse = power_of_two_scale(largest)
        return real * scale, imag * scale, inverse
    else:
        return real, imag, tl.full([1, real.shape[1], 1], 1.0, tl.float32)


@triton.jit
def bins_of_block(
    real,
    imag,
    first_ptr,
    twiddle_ptr,
    second_ptr,
    k1,
    n2,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    FIRST_BLOCK: tl.constexpr,
    SECOND_BLOCK: tl.constexpr,
    SECOND_BINS: tl.constexpr,
    LINES: tl.constexpr,
    IS_REAL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """What the samples of all n1 and a block of n2 add to the bins of a block of k1.

    Args:
        real: [FIRST, LINES, SECOND_BLOCK] with FIRST and SECOND the padded factors.
        imag: likewise; ignored if IS_REAL.
        first_ptr: the tables of `large_grid_tables.factored_tables`.
        twiddle_ptr: likewise.
        second_ptr: likewise.
        k1: [FIRST_BLOCK].
        n2: [SECOND_BLOCK].

    Returns:
        real and imaginary part, [FIRST_BLOCK, LINES, SECOND_BINS]: k2 = 0 .. SECOND_BINS - 1.
    """
    real, imag, unscale = scale_lines(real, imag, PRECISION)
    if FIRST > 1:
        cosine, sine = load_rotations(first_ptr, k1, tl.arange(0, FIRST), FIRST, FIRST)
        # [first, lines * second]
        real = tl.reshape(real, [FIRST, LINES * SECOND_BLOCK])
        if IS_REAL:
            imag = -product(sine, real, PRECISION, True, False)
            real = product(cosine, real, PRECISION, True, False)
        else:
            imag = tl.reshape(imag, [FIRST, LINES * SECOND_BLOCK])
            real, imag = product_from_left(cosine, sine, real, imag, False, PRECISION)
        cosine, sine = load_rotations(twiddle_ptr, k1, n2, FIRST, SECOND)
        # [first, lines, second]
        real, imag = rotate(
            tl.reshape(real, [FIRST_BLOCK, LINES, SECOND_BLOCK]),
            tl.reshape(imag, [FIRST_BLOCK, LINES, SECOND_BLOCK]),
            cosine[:, None, :],
            sine[:, None, :],
            False,
        )
    cosine, sine = load_rotations(second_ptr, n2, tl.arange(0, SECOND_BINS), SECOND, SECOND)
    # [first * lines, second]
    real = tl.reshape(real, [FIRST_BLOCK * LINES, SECOND_BLOCK])
    if IS_REAL and FIRST == 1:
        imag = -product(real, sine, PRECISION, False, True)
        real = product(real, cosine, PRECISION, False, True)
    else:
        imag = tl.reshape(imag, [FIRST_BLOCK * LINES, SECOND_BLOCK])
        real, imag = product_from_right(real, imag, cosine, sine, False, PRECISION)
    real = tl.reshape(real, [FIRST_BLOCK, LINES, SECOND_BINS])
    imag = tl.reshape(imag, [FIRST_BLOCK, LINES, SECOND_BINS])
    if PRECISION == "fp16":
        real, imag = real * unscale, imag * unscale
    return real, imag


@triton.jit
def samples_of_block(
    real,
    imag,
    first_ptr,
    twiddle_ptr,
    second_ptr,
    k1,
    n2,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    FIRST_BLOCK: tl.constexpr,
    SECOND_BLOCK: tl.constexpr,
    SECOND_BINS: tl.constexpr,
    LINES: tl.constexpr,
    IS_REAL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """What the bins of a block of k1 and k2 = 0 .. SECOND_BINS - 1 add to a block of samples.

    Args:
        real: [FIRST_BLOCK, LINES, SECOND_BINS].
        imag: likewise.
        first_ptr: the tables of `large_grid_tables.factored_tables`.
        twiddle_ptr: likewise.
        second_ptr: likewise.
        k1: [FIRST_BLOCK].
        n2: [SECOND_BLOCK].

    Returns:
        real and imaginary part, [FIRST, LINES, SECOND_BLOCK]: all n1, the block's n2. If IS_REAL,
        the real part twice.
    """
    real, imag, unscale = scale_lines(real, imag, PRECISION)
    cosine, sine = load_rotations(second_ptr, tl.arange(0, SECOND_BINS), n2, SECOND, SECOND)
    # [first * lines, second]
    real = tl.reshape(real, [FIRST_BLOCK * LINES, SECOND_BINS])
    imag = tl.reshape(imag, [FIRST_BLOCK * LINES, SECOND_BINS])
    if IS_REAL and FIRST == 1:
        real = product(real, cosine, PRECISION, False, True)
        real -= product(imag, sine, PRECISION, False, True)
        imag = real
    else:
        real, imag = product_from_right(real, imag, cosine, sine, True, PRECISION)
    if FIRST > 1:
        cosine, sine = load_rotations(twiddle_ptr, k1, n2, FIRST, SECOND)
        # [first, lines, second]
        real, imag = rotate(
            tl.reshape(real, [FIRST_BLOCK, LINES, SECOND_BLOCK]),
            tl.reshape(imag, [FIRST_BLOCK, LINES, SECOND_BLOCK]),
            cosine[:, None, :],
            sine[:, None, :],
            True,
        )
        cosine, sine = load_rotations(first_ptr, tl.arange(0, FIRST), k1, FIRST, FIRST)
        # [first, lines * second]
        real = tl.reshape(real, [FIRST_BLOCK, LINES * SECOND_BLOCK])
        imag = tl.reshape(imag, [FIRST_BLOCK, LINES * SECOND_BLOCK])
        if IS_REAL:
            real = product(cosine, real, PRECISION, True, False)
            real -= product(sine, imag, PRECISION, True, False)
            imag = real
        else:
            real, imag = product_from_left(cosine, sine, real, imag, True, PRECISION)
    real = tl.reshape(real, [FIRST, LINES, SECOND_BLOCK])
    imag = tl.reshape(imag, [FIRST, LINES, SECOND_BLOCK])
    if PRECISION == "fp16":
        real, imag = real * unscale, imag * unscale
    return real, imag
