"""The public function of the spectral operation: checks its arguments and picks a form."""

from typing import Literal

import torch
from einops import rearrange
from torch import Tensor

from dualwave.kernels.spectral.pytorch import spectral_attention_pytorch

Precision = Literal["ieee", "tf32x3", "tf32", "fp16"]
Implementation = Literal["triton", "torch"]


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
    k = 0 and, for even W, k = W / 2). All transforms use ``norm="ortho"``. Any H and W from 1 on.
    The operation has no parameters and shrinks its input (give it a learned gain); it prefers the
    constant (k = 0) frequency as soon as the mean is not zero; it is not causal and does not know
    of padding: use it on image grids and sequences of a fixed length.

    Args:
        x: planar (..., H, W) when ``grid`` is None; tokens (B, N, C) with N = H * W otherwise.
            float32, float64, bfloat16 or float16. 16-bit input is computed in float32.
        grid: (H, W) of the tokens. A sequence of length N is ``(1, N)``.
        temperature: a number or a scalar tensor (differentiable).
        bias: added to the logits (differentiable); broadcastable to (..., H, K) for planar input,
            to (B, H, K, C) for tokens.
        precision: of the matrix products; None follows the input. The PyTorch form computes in
            full precision only: None or ``"ieee"``.
        implementation: ``"torch"``, or None for the best that there is for the input's device.

    Returns:
        The shape and dtype of ``x``. An empty batch gives an empty result.

    Raises:
        ValueError: shapes that do not fit, an integer or complex ``x``, or a precision or
            implementation that cannot be honoured.

    Source: the definition is this project's (ARCHITECTURE.md, "Spectral-power softmax attention").
    """
    _check_choices(precision, implementation)
    if not x.dtype.is_floating_point:
        raise ValueError(
            f"spectral_attention needs a floating-point x, not {x.dtype}: convert it first, "
            "for example with x.float()."
        )
    if isinstance(temperature, Tensor) and temperature.numel() != 1:
        raise ValueError(
            f"temperature must be a number or a tensor of one element, not a tensor of shape "
            f"{tuple(temperature.shape)}: express anything finer through bias."
        )
    # Sixteen bits hold neither |X|^2 nor the softmax's sums.
    compute_dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    if isinstance(temperature, Tensor):
        temperature = temperature.reshape(()).to(compute_dtype)
    values = x.to(compute_dtype)
    bias = None if bias is None else bias.to(compute_dtype)
    with torch.autocast(x.device.type, enabled=False):
        if grid is None:
            result = _planar(values, temperature, bias)
        else:
            result = _tokens(values, grid, temperature, bias)
    return result.to(x.dtype)


def _check_choices(precision: str | None, implementation: str | None) -> None:
    if implementation not in (None, "torch"):
        raise ValueError(
            f"implementation={implementation!r} is not available for spectral_attention: "
            'use "torch" or None.'
        )
    if precision not in (None, "ieee"):
        raise ValueError(
            f"precision={precision!r} is not available in the PyTorch form of spectral_attention: "
            'use "ieee" or None.'
        )


def _planar(x: Tensor, temperature: float | Tensor, bias: Tensor | None) -> Tensor:
    if x.ndim < 2 or x.shape[-2] < 1 or x.shape[-1] < 1:
        raise ValueError(
            f"planar x must be (..., H, W) with H and W of at least 1, not {tuple(x.shape)}."
        )
    height, width = x.shape[-2:]
    wanted = (*x.shape[:-1], width // 2 + 1)
    if bias is not None:
        bias = _expanded_bias(bias, wanted)
        bias = rearrange(bias.reshape(-1, *wanted[-2:]), "n h k -> 1 h k n")
    tokens = rearrange(x.reshape(-1, height, width), "n h w -> 1 (h w) n")
    filtered = spectral_attention_pytorch(tokens, (height, width), temperature, bias)
    return rearrange(filtered, "1 (h w) n -> n h w", h=height).reshape(x.shape)


def _tokens(
    x: Tensor, grid: tuple[int, int], temperature: float | Tensor, bias: Tensor | None
) -> Tensor:
    height, width = grid
    if x.ndim != 3 or height < 1 or width < 1 or x.shape[1] != height * width:
        raise ValueError(
            f"with grid=({height}, {width}), x must be (B, {height} * {width}, C), "
            f"not {tuple(x.shape)}."
        )
    if bias is not None:
        _expanded_bias(bias, (x.shape[0], height, width // 2 + 1, x.shape[2]))
    return spectral_attention_pytorch(x, (height, width), temperature, bias)


def _expanded_bias(bias: Tensor, wanted: tuple[int, ...]) -> Tensor:
    try:
        return bias.expand(wanted)
    except RuntimeError:
        raise ValueError(
            f"bias of shape {tuple(bias.shape)} cannot be broadcast to {wanted} "
            "(K = W // 2 + 1 frequencies a row)."
        ) from None
