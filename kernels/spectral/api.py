"""The public function of the spectral operation: checks its arguments and picks a form."""

from operator import index

import torch
from torch import Tensor

from dualwave.kernels.arguments import (
    check_floating_point,
    check_same_device,
    check_scalar,
    with_all_dimensions,
)
from dualwave.kernels.choices import (
    Implementation,
    Precision,
    choose_implementation,
    choose_precision,
)
from dualwave.kernels.spectral.autograd import SpectralAttention

_LARGEST_SIZE = 4096
_FREQUENCIES = "K = W // 2 + 1 frequencies a row"


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
    check_floating_point("x", x)
    chosen = choose_implementation(x, implementation)
    chosen_precision = choose_precision("spectral_attention", chosen, precision)
    compute_dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    temperature_value, temperature_tensor = _split_temperature(temperature, x, compute_dtype)
    if bias is not None:
        check_floating_point("bias", bias)
        check_same_device("bias", bias, "x", x)

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


def _split_temperature(
    temperature: float | Tensor, x: Tensor, compute_dtype: torch.dtype
) -> tuple[float, Tensor | None]:
    """The temperature as (value, None) or, if it is a tensor, as (unused, the tensor)."""
    check_scalar("temperature", temperature, "x", x)
    if not isinstance(temperature, Tensor):
        return float(temperature), None
    return 1.0, temperature.reshape(()).to(device=x.device, dtype=compute_dtype)


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
        bias = with_all_dimensions("bias", bias, (*leading, height, width // 2 + 1), _FREQUENCIES)
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
        bias = with_all_dimensions(
            "bias", bias, (x.shape[0], height, width // 2 + 1, x.shape[2]), _FREQUENCIES
        )
        bias = bias.permute(0, 3, 1, 2)
    return x.unflatten(1, (height, width)).permute(0, 3, 1, 2), bias


def _check_grid(height: int, width: int, x: Tensor) -> None:
    if not (1 <= height <= _LARGEST_SIZE and 1 <= width <= _LARGEST_SIZE):
        raise ValueError(
            f"H and W must be from 1 to {_LARGEST_SIZE}, not {height} x {width} "
            f"(x is {tuple(x.shape)})."
        )
