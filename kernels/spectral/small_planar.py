"""Plans of the one-kernel form for planar images: those that fit on chip whole.

The kernels read x (and dy) once and write y (or dx) once. They are right for any strides, but fast
where neighbours in memory are neighbours along W.
"""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from dualwave.kernels.launch import Launch
from dualwave.kernels.spectral.plans import BackwardPlan, Call, ForwardPlan
from dualwave.kernels.spectral.small_planar_configurations import (
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
from dualwave.kernels.spectral.triton_kernels.planar_backward import planar_backward_kernel
from dualwave.kernels.spectral.triton_kernels.planar_forward import planar_forward_kernel


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
    arguments = {**_shared_arguments(call, configuration), "y": y, **_strides("y", y)}
    return ForwardPlan([_launch(planar_forward_kernel, call, configuration, arguments)], y)


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
    grad_x = torch.empty_like(x) if wants_x else None
    parts = temperature_parts = None
    sums_over_rows = False
    if wants_bias:
        assert bias is not None
        sums_over_rows = bias.shape[2] == 1
        shape = (batch, channels, 1 if sums_over_rows else height, width // 2 + 1)
        parts = torch.empty(shape, dtype=torch.float32, device=x.device)
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
    launch = _launch(planar_backward_kernel, call, configuration, arguments)
    return BackwardPlan([launch], grad_x, parts, temperature_parts)


def _forward_configuration(call: Call) -> Configuration | None:
    height, width = call.x.shape[2:]
    return forward_configuration(height, width, call.precision, call.target)


def _backward_configuration(call: Call) -> Configuration | None:
    height, width = call.x.shape[2:]
    return backward_configuration(height, width, call.precision, call.target)


def _programs(call: Call, configuration: Configuration) -> int:
    images = call.x.shape[0] * call.x.shape[1]
    return -(-images // (configuration.rows // configuration.image_rows))


def _launch(
    kernel: object, call: Call, configuration: Configuration, arguments: dict[str, object]
) -> Launch:
    grid = (_programs(call, configuration),)
    return Launch(kernel, grid, arguments, configuration.num_warps, configuration.num_stages)


def _shared_arguments(call: Call, configuration: Configuration) -> dict[str, object]:
    """What forward and backward take alike."""
    x = call.x
    batch, channels, height, width = x.shape
    return {
        "x": x,
        **_strides("x", x),
        "bias": call.bias,
        **_strides("bias", call.bias, "bchk"),
        "temperature": call.temperature,
        "temperature_value": call.temperature_value,
        "tables": _tables(height, width, configuration, call.precision, x.device),
        "batches": batch,
        "channels": channels,
        "HEIGHT": height,
        "WIDTH": width,
        "ROWS": configuration.rows,
        "IMAGE_ROWS": configuration.image_rows,
        "COLUMNS": configuration.columns,
        "BINS": configuration.bins,
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

    Cosines and minus sines of the row transform, (columns, bins) each; of the inverse row
    transform, (bins, columns), times the number of bins of the full spectrum that each bin of the
    half spectrum stands for; and cosines and sines of the column transform, (rows, rows), with a
    block for each image of the stack. All with ``norm="ortho"``. Where the last bin is packed, the
    row of sines of bin 0, which are zero, holds the cosines of that bin.
    """
    columns, bins = configuration.columns, configuration.bins
    w, k = np.arange(width), np.arange(width // 2 + 1)
    angles = fourier_angles(w, k, width)
    cosines, sines = np.cos(angles) / np.sqrt(width), -np.sin(angles) / np.sqrt(width)
    if len(k) > bins:
        sines[:, 0] = cosines[:, -1]
    weights = half_spectrum_weights(width)
    parts = [_padded(table, columns, bins) for table in (cosines, sines)]
    parts += [_padded((table * weights).T, bins, columns) for table in (cosines, sines)]
    if height > 1:
        m = np.arange(height)
        angles = fourier_angles(m, m, height)
        images = np.eye(configuration.rows // configuration.image_rows)
        for function in (np.cos, np.sin):
            size = configuration.image_rows
            block = _padded(function(angles) / np.sqrt(height), size, size)
            parts.append(np.kron(images, block))
    values = np.concatenate([part.ravel() for part in parts])
    if precision == "tf32":
        values = rounded_to_tf32(values)
    return to_table(values, torch.float16 if precision == "fp16" else torch.float32, device)


def _padded(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Padded with zeros; without a packed last bin."""
    values = values[:rows, :columns]
    return np.pad(values, ((0, rows - values.shape[0]), (0, columns - values.shape[1])))
