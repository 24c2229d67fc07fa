"""The spectral operation as real matrix products along rows and columns, channels adjacent.

Two products a transform, without a copy between them: along a row, cosines above sines,
(2 K, W) @ (W, C); then along the columns of all (row, part) pairs, (2 H, 2 H) @ (2 H, K C), by
(cos - i sin)(re + i im) = (cos re + sin im) + i (cos im - sin re).
"""

from collections.abc import Sequence
from functools import lru_cache
from operator import index
from typing import NamedTuple

import numpy as np
import torch
from einops import rearrange
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from dualwave.kernels.spectral.tables import fourier_angles, half_spectrum_weights, to_table


class ProductTables(NamedTuple):
    """Constant matrices of one grid; every transform is ``norm="ortho"``.

    Attributes:
        rows: (2 K, W), real parts above imaginary parts.
        columns: (2 H, 2 H), from (row, part) pairs to (part, frequency) pairs.
        columns_back: (2 H, 2 H), from (part, frequency) pairs to (row, part) pairs.
        rows_back: (W, 2 K), weighted by the bins of the full spectrum that k stands for. It takes
            the real part only, which averages the rows m and -m of the columns k = 0 and W / 2.
        twins: (K, 1), those weights.
    """

    rows: Tensor
    columns: Tensor
    columns_back: Tensor
    rows_back: Tensor
    twins: Tensor


def _make_tables(
    height: int, width: int, dtype: torch.dtype, device: torch.device
) -> ProductTables:
    frequencies = np.arange(width // 2 + 1)
    angles = fourier_angles(frequencies, np.arange(width), width)
    rows = np.concatenate([np.cos(angles), -np.sin(angles)]) / np.sqrt(width)
    angles = fourier_angles(np.arange(height), np.arange(height), height)
    cosine, sine = np.cos(angles), np.sin(angles)
    by_parts = np.block([[cosine, sine], [-sine, cosine]]) / np.sqrt(height)
    columns = rearrange(by_parts, "out (part row) -> out (row part)", part=2)
    twins = half_spectrum_weights(width)[:, None]
    tables = (rows, columns, columns.T, (rows * np.concatenate([twins, twins])).T, twins)
    return ProductTables(*(to_table(table, dtype, device) for table in tables))


_cached_tables = lru_cache(maxsize=64)(_make_tables)


def product_tables(
    height: int, width: int, dtype: torch.dtype, device: torch.device
) -> ProductTables:
    """The tables of a grid, made once a process; constants to torch.compile.

    So are the sizes: `operator.index` of one that the compiler took for variable fixes it.
    What is made under a mode of torch (fake tensors, tracing) belongs to that mode and is not kept.
    """
    if is_in_torch_dispatch_mode():
        return _make_tables(height, width, dtype, device)
    return _cached_tables(height, width, dtype, device)


# What torch.compiler.assume_constant_result does, which imports the whole compiler first (seconds).
product_tables._dynamo_marked_constant = True  # type: ignore[attr-defined]


def product_forward(x: Tensor, bias: Tensor | None, temperature: float | Tensor) -> Tensor:
    """Filter grids with adjacent channels.

    Args:
        x: (B, H, W, C), float32 or float64.
        bias: broadcastable to (B, H, K, C), the dtype of ``x``, or None.
        temperature: a number or a tensor of no dimensions.

    Returns:
        (B, H, W, C), contiguous.
    """
    tables = product_tables(index(x.shape[1]), index(x.shape[2]), x.dtype, x.device)
    spectrum = _spectrum(x, tables)
    weights = _softmax_of_rows(_power(spectrum), bias, temperature)
    return _inverse(spectrum.mul_(weights[:, None]), tables)


def product_backward(
    grad_out: Tensor,
    x: Tensor,
    bias: Tensor | None,
    temperature: float | Tensor,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of x, bias (summed to its shape) and temperature, by the closed form.

    Args:
        grad_out: (B, H, W, C), the dtype of ``x``.
        x: as forward.
        bias: as forward.
        temperature: as forward.
        wanted: whether each gradient is needed; None is returned for the others.
    """
    tables = product_tables(index(x.shape[1]), index(x.shape[2]), x.dtype, x.device)
    twins = tables.twins
    spectrum, grad_spectrum = _spectrum(x, tables), _spectrum(grad_out, tables)
    power = _power(spectrum)
    weights = _softmax_of_rows(power, bias, temperature)
    # The gradient of the logits, divided by the bins that each stands for.
    grad_logits = spectrum[:, 0] * grad_spectrum[:, 0]
    grad_logits.addcmul_(spectrum[:, 1], grad_spectrum[:, 1]).mul_(weights)
    row_sums = twins.T @ grad_logits
    grad_logits.addcmul_(weights, row_sums / twins, value=-1)
    grad_x = grad_bias = grad_temperature = None
    if wanted[1] and bias is not None:
        grad_bias = (grad_logits * twins).sum_to_size(bias.shape)
    if wanted[2]:
        grad_temperature = (grad_logits * twins).mul_(power).sum()
    if wanted[0]:
        grad_logits.mul_(2 * temperature)
        grad_spectrum.mul_(weights[:, None]).addcmul_(spectrum, grad_logits[:, None])
        grad_x = _inverse(grad_spectrum, tables)
    return grad_x, grad_bias, grad_temperature


def _spectrum(x: Tensor, tables: ProductTables) -> Tensor:
    """The half spectrum, (B, 2, H, K, C): real parts, then imaginary parts."""
    batch, height, width, channels = x.shape
    rows = tables.rows @ x
    stacked = tables.columns @ rows.reshape(batch, 2 * height, -1)
    return stacked.reshape(batch, 2, height, width // 2 + 1, channels)


def _inverse(spectrum: Tensor, tables: ProductTables) -> Tensor:
    """The grids of a half spectrum, (B, H, W, C)."""
    batch, _, height, half_width, channels = spectrum.shape
    stacked = tables.columns_back @ spectrum.reshape(batch, 2 * height, -1)
    return tables.rows_back @ stacked.reshape(batch, height, 2 * half_width, channels)


def _power(spectrum: Tensor) -> Tensor:
    real, imag = spectrum[:, 0], spectrum[:, 1]
    return real.square().addcmul_(imag, imag)


def _softmax_of_rows(power: Tensor, bias: Tensor | None, temperature: float | Tensor) -> Tensor:
    """Softmax over the K frequencies of each row of (B, H, K, C)."""
    logits = power * temperature
    if bias is not None:
        logits += bias
    return torch.softmax(logits, dim=2)
