"""Device functions that the spectral kernels share."""

import triton
import triton.language as tl


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
