"""Which implementation and which precision a call takes; the same rules for every operation."""

import os
from typing import Literal, get_args

import torch
from torch import Tensor

Precision = Literal["ieee", "tf32x3", "tf32", "fp16"]
Implementation = Literal["triton", "torch"]
STRICT_PRECISIONS = ("tf32x3", "ieee")
"""Those that keep all bits of float32 operands."""


def under_autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in autocast's dtype where it is on, but for float64, as in torch's operations."""
    device, dtype = tensors[0].device.type, tensors[0].dtype
    if not torch.amp.is_autocast_available(device):  # the meta device
        return tensors
    if not torch.is_autocast_enabled(device) or dtype == torch.float64:
        return tensors
    return tuple(tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors)


def choose_implementation(x: Tensor, implementation: str | None) -> str:
    """``"triton"`` or ``"torch"``: what was asked for, or what serves x's device and dtype.

    Raises:
        ValueError: it is unknown, or it can't serve x.
    """
    if implementation not in (None, *get_args(Implementation)):
        raise ValueError(
            f'implementation must be "triton", "torch" or None, not {implementation!r}.'
        )
    is_gpu = x.device.type == "cuda"  # ROCm's name as well
    if implementation is None:
        return "triton" if is_gpu and x.dtype.itemsize <= 4 else "torch"
    if implementation == "triton":
        if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise ValueError(
                f'implementation="triton" takes float32, bfloat16 and float16, not {x.dtype}: '
                'use implementation="torch".'
            )
        if not is_gpu and os.environ.get("TRITON_INTERPRET", "0") != "1":
            raise ValueError(
                f'implementation="triton" needs a CUDA or ROCm tensor, and x is on {x.device}: '
                'use implementation="torch" (or set TRITON_INTERPRET=1 before the start, to debug).'
            )
    return implementation


def choose_precision(operation: str, implementation: str, precision: str | None) -> str:
    """The precision asked for, or ``"default"``, which `resolve_precision` settles at run time.

    Raises:
        ValueError: it is unknown, or the implementation or this machine's GPU can't do it.
    """
    if precision not in (None, *get_args(Precision)):
        raise ValueError(
            f'precision must be "ieee", "tf32x3", "tf32", "fp16" or None, not {precision!r}.'
        )
    if implementation == "torch":
        if precision not in (None, "ieee"):
            raise ValueError(
                f"precision={precision!r} is not available in the PyTorch form of "
                f'{operation}: use "ieee" or None.'
            )
        return "ieee"
    if precision == "tf32x3" and torch.version.hip is not None:
        raise ValueError(
            'precision="tf32x3" is not available on AMD: use "ieee", which its matrix cores do, '
            '"tf32" or "fp16".'
        )
    return precision or "default"


def resolve_precision(precision: str, x: Tensor, of_16_bits: str) -> str:
    """The precision that a call runs with.

    It is asked when an operation runs, since torch.compile does not watch the setting that it
    depends on. Of bfloat16 on the CPU it is never ``"bf16"``: Triton's interpreter, the only one to
    ask there, would compute with the bit patterns.

    Args:
        precision: named, or ``"default"``.
        x: decides by its dtype: float32 follows `torch.get_float32_matmul_precision`.
        of_16_bits: the default for bfloat16 and float16.
    """
    if precision != "default":
        return precision
    if x.dtype.itemsize == 2:
        return "ieee" if of_16_bits == "bf16" and x.device.type == "cpu" else of_16_bits
    if torch.get_float32_matmul_precision() == "highest":
        return "ieee" if torch.version.hip is not None else "tf32x3"
    return "tf32"
