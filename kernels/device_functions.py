"""Device functions that the kernels of all operations share."""

import triton
import triton.language as tl


@triton.constexpr_function
def is_of_16_bits(PRECISION):
    """Whether operands of products with this precision have 16 bits."""
    return PRECISION == "fp16" or PRECISION == "bf16"


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

    Operands of ``"fp16"`` and ``"bf16"`` are converted here, and must be in its range already.
    Operands of ``"tf32"`` are rounded here, but for those that hold rounded values already:
    a table that is left alone goes to shared memory and takes no registers until it is used.
    """
    if PRECISION == "fp16":
        return tl.dot(left.to(tl.float16), right.to(tl.float16))
    elif PRECISION == "bf16":
        return tl.dot(left.to(tl.bfloat16), right.to(tl.bfloat16))
    elif PRECISION == "tf32":
        if not LEFT_IS_ROUNDED:
            left = round_to_tf32(left)
        if not RIGHT_IS_ROUNDED:
            right = round_to_tf32(right)
        return tl.dot(left, right, input_precision="tf32")
    else:
        return tl.dot(left, right, input_precision=PRECISION)


@triton.jit
def offset(index, stride):
    """``index * stride`` in 64 bits, so that it holds beyond 2^31 elements."""
    return index.to(tl.int64) * stride


@triton.jit
def tile_offset(index, stride, IS_WIDE: tl.constexpr):
    """``index * stride`` inside a tile, in as few registers as its span allows."""
    if IS_WIDE:
        return offset(index, stride)
    else:
        return index * stride
