"""Device functions that the spectral kernels share."""

import triton
import triton.language as tl


@triton.jit
def round_to_tf32(values):
    """Round float32 to 11 significant bits, to nearest; infinities and NaN stay what they are.

    Tensor cores cut the last 13 bits off instead, which errs four times as much over the whole
    operation (emulated), and always to the same side.
    """
    bits = values.to(tl.int32, bitcast=True)
    rounded = ((bits + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    return tl.where(values == values, rounded, values)


@triton.jit
def product(
    left,
    right,
    PRECISION: tl.constexpr,
    LEFT_IS_ROUNDED: tl.constexpr = False,
    RIGHT_IS_ROUNDED: tl.constexpr = False,
):
    """Matrix product of two tiles with float32 accumulation.

    Operands of ``"fp16"`` are converted here: they must be scaled to its range by the caller.
    Operands of ``"tf32"`` are rounded here, but for those that hold rounded values already:
    a table that is left alone goes to shared memory and takes no registers until it is used.
    """
    if PRECISION == "fp16":
        return tl.dot(left.to(tl.float16), right.to(tl.float16))
    elif PRECISION == "tf32":
        if not LEFT_IS_ROUNDED:
            left = round_to_tf32(left)
        if not RIGHT_IS_ROUNDED:
            right = round_to_tf32(right)
        return tl.dot(left, right, input_precision="tf32")
    else:
        return tl.dot(left, right, input_precision=PRECISION)


@triton.constexpr_function
def last_bin_apart(WIDTH, BINS):
    """Whether bin k = W / 2 has no column of its own among the bins of a tile."""
    return WIDTH // 2 + 1 > BINS


@triton.jit
def power_of_two_scale(largest):
    """The power of two that brings ``largest`` into [1, 2), and its inverse; both exact.

    Args:
        largest: float32, not negative, any shape. Below 2^-126 it counts as that; infinity and NaN
            count as 2^126, so that they stay infinity and NaN when scaled.
    """
    exponent = (largest.to(tl.int32, bitcast=True) >> 23) & 0xFF
    exponent = tl.minimum(tl.maximum(exponent, 1), 253)
    scale = ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    inverse = (exponent << 23).to(tl.float32, bitcast=True)
    return scale, inverse


@triton.jit
def offset(index, stride):
    """``index * stride`` in 64 bits, so that it holds beyond 2^31 elements."""
    return index.to(tl.int64) * stride
