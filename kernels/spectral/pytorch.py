"""Spectral-power softmax attention in PyTorch operations; gradients by autograd.

Two exact forms of the same transform. A grid of at most `LARGEST_DENSE_GRID` tokens goes through
two real matrix products with the dense two-dimensional DFT (O(n^2) arithmetic for n tokens, but
no complex numbers and one product a side, which is faster there); a larger one goes through
`torch.fft` (O(n log n)).
"""

import math
from functools import lru_cache

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

LARGEST_DENSE_GRID = 256


def spectral_attention_pytorch(
    x: Tensor, grid: tuple[int, int], temperature: float | Tensor, bias: Tensor | None
) -> Tensor:
    """Filter token grids; see `dualwave.kernels.spectral.spectral_attention`.

    Args:
        x: (B, N, C) with N = H * W, float32 or float64.
        grid: (H, W).
        temperature: a number or a scalar tensor.
        bias: broadcastable to (B, H, K, C) with K = W // 2 + 1, or None.

    Returns:
        (B, N, C), the dtype of ``x``.
    """
    height, width = grid
    if x.numel() == 0:
        return x.clone()  # some FFT libraries refuse an empty batch
    if height * width <= LARGEST_DENSE_GRID:
        return _by_dense_dft(x, height, width, temperature, bias)
    return _by_fft(x, height, width, temperature, bias)


def _row_softmax(power: Tensor, temperature: float | Tensor, bias: Tensor | None) -> Tensor:
    """Softmax over the K frequencies of each row; ``power`` is (B, H, K, C)."""
    logits = power * temperature
    if bias is not None:
        logits = logits + bias
    return torch.softmax(logits, dim=2)


def _by_dense_dft(
    x: Tensor, height: int, width: int, temperature: float | Tensor, bias: Tensor | None
) -> Tensor:
    half_width = width // 2 + 1
    analysis, synthesis = _dense_dft_tables(height, width, x.dtype, x.device)
    # (2 * H * K, N) @ (B, N, C): first all real parts, then all imaginary parts
    spectrum = rearrange(
        analysis @ x, "b (part h k) c -> part b h k c", part=2, h=height, k=half_width
    )
    weights = _row_softmax(spectrum.square().sum(dim=0), temperature, bias)
    filtered = rearrange(spectrum * weights, "part b h k c -> b (part h k) c")
    return synthesis @ filtered


@lru_cache(maxsize=64)
def _dense_dft_tables(
    height: int, width: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The half spectrum of a grid as a real matrix, and the way back.

    The way back takes only the real part of the last transform, which averages the rows m and -m
    in the columns k = 0 and W / 2 by itself. Built in float64, kept for the life of the process.

    Returns:
        analysis (2 * H * K, H * W) and synthesis (H * W, 2 * H * K).
    """
    half_width = width // 2 + 1
    rows, columns = np.arange(height), np.arange(width)
    # phase[m, k, h, w] = 2 pi (m h / H + k w / W), reduced to one turn in integers first
    row_turns = (np.outer(rows, rows) % height) / height
    column_turns = (np.outer(columns[:half_width], columns) % width) / width
    phase = 2 * math.pi * (row_turns[:, None, :, None] + column_turns[None, :, None, :])
    phase = rearrange(phase, "m k h w -> (m k) (h w)")
    scale = 1 / math.sqrt(height * width)
    cosine, sine = np.cos(phase) * scale, np.sin(phase) * scale

    twins = np.full(half_width, 2.0)
    twins[0] = 1.0
    if width % 2 == 0:
        twins[-1] = 1.0
    twins_of_bin = np.tile(twins, height)[:, None]

    analysis = np.concatenate([cosine, -sine])
    synthesis = np.concatenate([cosine * twins_of_bin, -sine * twins_of_bin]).T
    # A table made under inference_mode could never be used in training again.
    with torch.inference_mode(False):
        return (
            torch.as_tensor(analysis, dtype=dtype, device=device),
            torch.as_tensor(np.ascontiguousarray(synthesis), dtype=dtype, device=device),
        )


def _by_fft(
    x: Tensor, height: int, width: int, temperature: float | Tensor, bias: Tensor | None
) -> Tensor:
    half_width = width // 2 + 1
    grids = rearrange(x, "b (h w) c -> b h w c", h=height, w=width)
    spectrum = torch.fft.rfft2(grids, dim=(1, 2), norm="ortho")
    power = spectrum.real.square() + spectrum.imag.square()
    weights = _row_softmax(power, temperature, bias)
    # irfft2 of a spectrum that is not Hermitian differs between backends, so make it Hermitian.
    self_mirrored = [0, half_width - 1] if width % 2 == 0 and width > 1 else [0]
    is_self_mirrored = torch.zeros(half_width, 1, dtype=torch.bool, device=x.device)
    is_self_mirrored[self_mirrored] = True
    of_negative_rows = torch.roll(torch.flip(weights, dims=(1,)), shifts=1, dims=1)
    weights = torch.where(is_self_mirrored, (weights + of_negative_rows) / 2, weights)
    filtered = torch.fft.irfft2(spectrum * weights, s=(height, width), dim=(1, 2), norm="ortho")
    return rearrange(filtered, "b h w c -> b (h w) c")


def spectral_forward_pytorch(
    x: Tensor, bias: Tensor | None, temperature: Tensor | None, temperature_value: float
) -> Tensor:
    """Interim form of the canonical forward pass, until the closed form replaces it."""
    height, width = x.shape[2:]
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    tokens = rearrange(x.to(dtype), "b c h w -> b (h w) c")
    token_bias = None if bias is None else rearrange(bias.to(dtype), "b c h k -> b h k c")
    scale = temperature_value if temperature is None else temperature
    filtered = spectral_attention_pytorch(tokens, (height, width), scale, token_bias)
    return rearrange(filtered, "b (h w) c -> b c h w", h=height).to(x.dtype)


def spectral_backward_pytorch(
    grad_out: Tensor,
    x: Tensor,
    bias: Tensor | None,
    temperature: Tensor | None,
    temperature_value: float,
    wanted: tuple[bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Interim form of the canonical backward pass, until the closed form replaces it."""
    with torch.enable_grad():
        leaves = [
            None if t is None else t.detach().requires_grad_(w)
            for t, w in zip((x, bias, temperature), wanted, strict=True)
        ]
        y = spectral_forward_pytorch(leaves[0], leaves[1], leaves[2], temperature_value)
        needed = [leaf for leaf, w in zip(leaves, wanted, strict=True) if w]
        found = iter(torch.autograd.grad(y, needed, grad_out))
    return tuple(next(found) if w else None for w in wanted)
