"""The public function of the spectral operation: checks its arguments and picks a form."""

import os
from numbers import Real
from operator import index
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from dualwave.kernels.spectral.autograd import SpectralAttention

Precision = Literal["ieee", "tf32x3", "tf32", "fp16"]
Implementation = Literal["triton", "torch"]
_LARGEST_SIZE = 4096


def spectral_attention(
    x: Tensor,
    *,
    grid: tuple[int, int] | None = None,
    temperature: float | Tensor = 1.0,
    bias: Tensor | None = None,
    precision: Precision | None = None,
    implementation: Implementation | None = None,
) -> Tensor:
    """Spectral-power softmax attention: each channel's grid is filtered by its own spectrum.

        X = rfft2(x)                                  (H, K) complex, K = W // 2 + 1
        w[m, :] = softmax_k(temperature * |X[m, :]|^2 + bias[m, :])
        y = Re ifft2(A * fft2(x))

    with ``A`` the real, centro-symmetric extension of ``w`` (rows m and -m averaged in the columns
    k = 0 and, for even W, k = W / 2). All transforms use ``norm="ortho"``.
    The operation has no parameters and shrinks its input (give it a learned gain); it prefers the
    constant (k = 0) frequency as soon as the mean is not zero; it is not causal and does not know
    of padding: use it on image grids and sequences of a fixed length.

    Both layouts are read and written where they lie, strided and expanded tensors included; only
    planar ``x`` with more than two leading dimensions that cannot be merged is copied first.
    Backward keeps ``x``, ``bias`` and a tensor temperature, nothing else, and gives the same bits
    every time. There is no second derivative, and no torch.vmap; torch.compile takes it whole.

    Args:
        x: planar (..., H, W) when ``grid`` is None; tokens (B, N, C) with N = H * W otherwise.
            H and W from 1 to 4096. float32, bfloat16 or float16; float64 with PyTorch only.
            |X|^2, softmax and sums are in float32 for the first three: NaN, as from any softmax
            of infinities, once |X|^2 is beyond float32 (a mean of 1e19 over 1x1, less over more).
        grid: (H, W) of the tokens. A sequence of length N is ``(1, N)``.
        temperature: a number or a tensor of one element (differentiable).
        bias: added to the logits (differentiable); broadcastable to (..., H, K) for planar input,
            to (B, H, K, C) for tokens.
        precision: of the Triton kernels' matrix products, float32 accumulation in each:
            ``"fp16"``: float16 operands, after scaling each image by an exact power of two;
            ``"tf32"``; ``"tf32x3"``: three tf32 products, nearly float32 (not on AMD);
            ``"ieee"``: float32. With ``"fp16"`` and ``"tf32"`` the gradients lose digits as
            temperature * |X|^2 grows: percents from some hundreds on, most in that of the
            temperature; take the mean out first, or use ``"tf32x3"``. None means ``"fp16"`` for
            16-bit ``x``; for float32 it follows `torch.get_float32_matmul_precision`: ``highest``
            is tf32x3 (ieee on AMD), ``high`` and ``medium`` are tf32. The PyTorch form computes in
            full precision only: None or ``"ieee"``.
        implementation: ``"triton"`` (CUDA and ROCm tensors, or any under ``TRITON_INTERPRET=1``),
            ``"torch"``, or None: Triton for CUDA and ROCm tensors of at most 32 bits, else PyTorch.

    Returns:
        The shape and dtype of ``x``; the memory order is the form's own and may differ between
        sizes. An empty batch gives an empty result.

    Raises:
        ValueError: arguments of other types, shapes that do not fit, tensors on different devices,
            or a precision or implementation that cannot be honoured.
        RuntimeError: a second derivative is asked for.

    Source: the definition is this project's (ARCHITECTURE.md, "Spectral-power softmax attention").
    """
    _check_values(x, "x")
    chosen = _choose_implementation(x, implementation)
    chosen_precision = _choose_precision(x, chosen, precision)
    compute_dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    temperature_value, temperature_tensor = _split_temperature(temperature, x, compute_dtype)
    if bias is not None:
        _check_values(bias, "bias")
        if bias.device != x.device:
            raise ValueError(
                f"bias is on {bias.device} and x on {x.device}: move one to the other."
            )

    if grid is None:
        values, logit_bias = _planar_to_canonical(x, bias)
    else:
        values, logit_bias = _tokens_to_canonical(x, grid, bias)
    result = SpectralAttention.apply(
        values, logit_bias, temperature_tensor, temperature_value, chosen_precision, chosen
    )
    if grid is None:
        return result.reshape(x.shape)
    return result.permute(0, 2, 3, 1).flatten(1, 2)


def _check_values(tensor: object, name: str) -> None:
    if not isinstance(tensor, Tensor):
        raise ValueError(
            f"{name} must be a tensor, not {type(tensor).__name__}: torch.as_tensor makes one."
        )
    if not tensor.dtype.is_floating_point or tensor.dtype.itemsize < 2:
        raise ValueError(
            f"spectral_attention needs a floating-point {name} of at least 16 bits, not "
            f"{tensor.dtype}: convert it first, for example with {name}.float()."
        )


def _split_temperature(
    temperature: Any, x: Tensor, compute_dtype: torch.dtype
) -> tuple[float, Tensor | None]:
    """The temperature as (value, None) or, if it is a tensor, as (unused, the tensor)."""
    if not isinstance(temperature, Tensor):
        if not isinstance(temperature, Real):  # NumPy's as well
            raise ValueError(
                "temperature must be a number or a tensor of one element, "
                f"not {type(temperature).__name__}."
            )
        return float(temperature), None
    if temperature.numel() != 1 or temperature.dtype.is_complex:
        raise ValueError(
            "temperature must be a number or a real tensor of one element, not "
            f"{temperature.dtype} of shape {tuple(temperature.shape)}: express anything finer "
            "through bias."
        )
    if temperature.is_meta and not x.is_meta:
        raise ValueError(
            f"temperature is on the meta device, where no values are; x on {x.device}."
        )
    return 1.0, temperature.reshape(()).to(device=x.device, dtype=compute_dtype)


def _choose_implementation(x: Tensor, implementation: str | None) -> str:
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


def _choose_precision(x: Tensor, implementation: str, precision: str | None) -> str:
    if precision not in (None, *get_args(Precision)):
        raise ValueError(
            f'precision must be "ieee", "tf32x3", "tf32", "fp16" or None, not {precision!r}.'
        )
    if implementation == "torch":
        if precision not in (None, "ieee"):
            raise ValueError(
                f"precision={precision!r} is not available in the PyTorch form of "
                'spectral_attention: use "ieee" or None.'
            )
        return "ieee"
    is_amd = torch.version.hip is not None
    if precision == "tf32x3" and is_amd:
        raise ValueError(
            'precision="tf32x3" is not available on AMD: use "ieee", which its matrix cores do, '
            '"tf32" or "fp16".'
        )
    return precision or "default"


def _planar_to_canonical(x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """(..., H, W) and its bias to (B, C, H, W) and (B or 1, C or 1, H or 1, K or 1)."""
    if x.ndim < 2:
        raise ValueError(
            f"planar x must be (..., H, W) with H and W of at least 1, not {tuple(x.shape)}."
        )
    *leading, height, width = x.shape
    height, width = index(height), index(width)  # fixed for the compiler, as kernels are made
    _check_grid(height, width, x)
    if bias is not None:
        bias = _with_all_dimensions(bias, (*leading, height, width // 2 + 1))
        if x.ndim > 4 and any(size > 1 for size in bias.shape[:-3]):
            bias = bias.expand(*leading[:-1], *bias.shape[-3:])
        bias = _four_dimensional(bias)
    return _four_dimensional(x), bias


def _four_dimensional(tensor: Tensor) -> Tensor:
    if tensor.ndim <= 4:
        return tensor.reshape((1,) * (4 - tensor.ndim) + tuple(tensor.shape))
    return tensor.flatten(0, -4)


def _tokens_to_canonical(
    x: Tensor, grid: tuple[int, int], bias: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """(B, N, C) and its bias to (B, C, H, W) and (B or 1, C or 1, H or 1, K or 1), as views."""
    try:
        height, width = (index(size) for size in grid)  # fixed for the compiler
    except (TypeError, ValueError):
        raise ValueError(f"grid must be two integers (H, W), not {grid!r}.") from None
    if x.ndim != 3 or height < 1 or width < 1 or x.shape[1] != height * width:
        raise ValueError(
            f"with grid=({height}, {width}), x must be (B, {height} * {width}, C), "
            f"not {tuple(x.shape)}."
        )
    _check_grid(height, width, x)
    if bias is not None:
        bias = _with_all_dimensions(bias, (x.shape[0], height, width // 2 + 1, x.shape[2]))
        bias = bias.permute(0, 3, 1, 2)
    return x.unflatten(1, (height, width)).permute(0, 3, 1, 2), bias


def _check_grid(height: int, width: int, x: Tensor) -> None:
    if not (1 <= height <= _LARGEST_SIZE and 1 <= width <= _LARGEST_SIZE):
        raise ValueError(
            f"H and W must be from 1 to {_LARGEST_SIZE}, not {height} x {width} "
            f"(x is {tuple(x.shape)})."
        )


def _with_all_dimensions(bias: Tensor, wanted: tuple[int, ...]) -> Tensor:
    """View ``bias`` with as many dimensions as ``wanted``, each of size 1 or as wanted."""
    missing = len(wanted) - bias.ndim
    if missing >= 0:
        bias = bias.reshape((1,) * missing + tuple(bias.shape))
    fits = missing >= 0 and all(
        size in (1, full) for size, full in zip(bias.shape, wanted, strict=True)
    )
    if not fits:
        raise ValueError(
            f"bias of shape {tuple(bias.shape)} must be broadcastable to {wanted} "
            "(K = W // 2 + 1 frequencies a row)."
        )
    return bias
