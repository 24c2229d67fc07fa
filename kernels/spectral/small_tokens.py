"""Plans of the one-kernel form for tokens: grids of which some channels fit on chip at once.

The kernels read x (and dy) once and write y (or dx) once. They are right for any strides, but fast
where neighbours in memory are channels.
"""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from dualwave.kernels.launch import Launch
from dualwave.kernels.spectral.plans import BackwardPlan, Call, ForwardPlan
from dualwave.kernels.spectral.small_tokens_configurations import (
    Configuration,
    backward_configuration,
    forward_configuration,
)
from dualwave.kernels.spectral.tables import (
    fourier_angles,
    half_spectrum_weights,
    rounded_to_tf32,
    to_table,
)
from dualwave.kernels.spectral.triton_kernels.tokens_backward import tokens_backward_kernel
from dualwave.kernels.spectral.triton_kernels.tokens_forward import tokens_forward_kernel


def fits_forward(call: Call) -> bool:
    """Whether one kernel serves the forward pass of this call."""
    return _forward_configuration(call) is not None


def fits_backward(call: Call) -> bool:
    """Whether one kernel serves the backward pass of this call."""
    return _backward_configuration(call) is not None


def plan_forward(call: Call) -> ForwardPlan:
    """The launch of the forward pass."""
    configuration = _forward_configuration(call)
    assert configuration is not None
    y = torch.empty_like(call.x)
    arguments = {
        **_shared_arguments(call, configuration),
        "y": y,
        **_strides("y", y),
    }
    return ForwardPlan([_launch(tokens_forward_kernel, call, configuration, arguments)], y)


def plan_backward(call: Call, grad_out: Tensor, wanted: tuple[bool, bool, bool]) -> BackwardPlan:
    """The launch of the backward pass.

    Args:
        call: the forward call.
        grad_out: (B, C, H, W), any strides.
        wanted: whether the gradients of x, bias and temperature are needed.
    """
    configuration = _backward_configuration(call)
    assert configuration is not None
    x, bias = call.x, call.bias
    batch, channels, height, width = x.shape
    wants_x = wanted[0]
    wants_bias = wanted[1] and bias is not None
    wants_temperature = wanted[2] and call.temperature is not None
    sums_over_rows = wants_bias and bias is not None and bias.shape[2] == 1
    grad_x = torch.empty_like(x) if wants_x else None
    parts = None
    if wants_bias:
        rows = 1 if sums_over_rows else height
        # Channels are neighbours in memory, as they are in the tiles.
        storage = torch.empty(
            (batch, rows, width // 2 + 1, channels), dtype=torch.float32, device=x.device
        )
        parts = storage.permute(0, 3, 1, 2)
    temperature_parts = None
    if wants_temperature:
        temperature_parts = torch.empty(
            _programs(call, configuration), dtype=torch.float32, device=x.device
        )
    arguments = {
        **_shared_arguments(call, configuration),
        "grad_out": grad_out,
        **_strides("grad_out", grad_out),
        "grad_x": grad_x,
        **_strides("grad_x", grad_x),
        "grad_bias_parts": parts,
        **_strides("parts", parts, "bchk"),
        "grad_temperature_parts": temperature_parts,
        "WANTS_X_GRADIENT": wants_x,
        "WANTS_BIAS_GRADIENT": wants_bias,
        "SUMS_BIAS_OVER_ROWS": sums_over_rows,
        "WANTS_TEMPERATURE_GRADIENT": wants_temperature,
    }
    launch = _launch(tokens_backward_kernel, call, configuration, arguments)
    return BackwardPlan([launch], grad_x, parts, temperature_parts)


def _forward_configuration(call: Call) -> Configuration | None:
    height, width = call.x.shape[2:]
    return forward_configuration(height, width, call.precision, call.target)


def _backward_configuration(call: Call) -> Configuration | None:
    height, width = call.x.shape[2:]
    return backward_configuration(height, width, call.precision, call.target)


def _programs(call: Call, configuration: Configuration) -> int:
    batch, channels = call.x.shape[:2]
    return batch * -(-channels // configuration.block_c)


def _launch(
    kernel: object, call: Call, configuration: Configuration, arguments: dict[str, object]
) -> Launch:
    grid = (_programs(call, configuration),)
    return Launch(kernel, grid, arguments, configuration.num_warps, configuration.num_stages)


def _shared_arguments(call: Call, configuration: Configuration) -> dict[str, object]:
    """What forward and backward take alike."""
    x = call.x
    height, width = x.shape[2:]
    return {
        "x": x,
        **_strides("x", x),
        "bias": call.bias,
        **_strides("bias", call.bias, "bchk"),
        "temperature": call.temperature,
        "temperature_value": call.temperature_value,
        "tables": _tables(height, width, configuration, call.precision, x.device),
        "channels": x.shape[1],
        "HEIGHT": height,
        "WIDTH": width,
        "ROWS": configuration.rows,
        "COLUMNS": configuration.columns,
        "BINS": configuration.bins,
        "BLOCK_C": configuration.block_c,
        "HAS_BIAS": call.bias is not None,
        "HAS_TEMPERATURE": call.temperature is not None,
        "PRECISION": call.precision,
    }


def _strides(name: str, tensor: Tensor | None, dimensions: str = "bchw") -> dict[str, int]:
    """Strides by the kernels' names for them; 0 along a dimension of size 1, which broadcasts."""
    sizes = (1,) * 4 if tensor is None else tensor.shape
    strides = (0,) * 4 if tensor is None else tensor.stride()
    return {
        f"{name}_stride_{dimension}": stride if size > 1 else 0
        for dimension, size, stride in zip(dimensions, sizes, strides, strict=True)
    }


@lru_cache(maxsize=256)
def _tables(
    height: int, width: int, configuration: Configuration, precision: str, device: torch.device
) -> Tensor:
    """The tables that `load_tables` reads, one after the other, padded with zeros.

    Cosines and sines of the column transform, (rows, rows) each; of the row transform,
    (columns, bins); of the inverse row transform, (bins, columns), times the number of bins of the
    full spectrum that each bin of the half spectrum stands for. All with ``norm="ortho"``.
    """
    rows, columns, bins = configuration.rows, configuration.columns, configuration.bins
    m, w, k = np.arange(height), np.arange(width), np.arange(width // 2 + 1)
    column_angles = fourier_angles(m, m, height)
    row_angles = fourier_angles(w, k, width)
    row_cos, row_sin = np.cos(row_angles), np.sin(row_angles)
    if len(k) > bins:
        # The imaginary part of bin k = 0 is zero: it carries bin k = W / 2 (`tokens_spectrum.py`).
        row_sin[:, 0] = -row_cos[:, -1]
    weights = half_spectrum_weights(width)
    tables = [
        _fitted(np.cos(column_angles) / np.sqrt(height), rows, rows),
        _fitted(np.sin(column_angles) / np.sqrt(height), rows, rows),
        _fitted(row_cos / np.sqrt(width), columns, bins),
        _fitted(row_sin / np.sqrt(width), columns, bins),
        _fitted((row_cos * weights / np.sqrt(width)).T, bins, columns),
        _fitted((row_sin * weights / np.sqrt(width)).T, bins, columns),
    ]
    values = np.concatenate([table.ravel() for table in tables])
    if precision == "tf32":
        values = rounded_to_tf32(values)
    return to_table(values, torch.float16 if precision == "fp16" else torch.float32, device)


def _fitted(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Padded with zeros, or without the last bin where the kernels treat that one apart."""
    values = values[:rows, :columns]
    return np.pad(values, ((0, rows - values.shape[0]), (0, columns - values.shape[1])))
