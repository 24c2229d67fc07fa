"""The one-kernel form for planar images: those that fit on chip whole.

The kernels are right for any strides, but fast where neighbours in memory are neighbours along W.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dualwave.kernels.spectral.one_kernel import OneKernelForm
from dualwave.kernels.spectral.plans import Call
from dualwave.kernels.spectral.small_planar_configurations import (
    Configuration,
    backward_configuration,
    forward_configuration,
)
from dualwave.kernels.spectral.tables import (
    fourier_angles,
    half_spectrum_weights,
    operand_tables,
    zero_padded,
)
from dualwave.kernels.spectral.triton_kernels.planar_backward import planar_backward_kernel
from dualwave.kernels.spectral.triton_kernels.planar_forward import planar_forward_kernel


def _programs(call: Call, configuration: Configuration) -> int:
    images = call.x.shape[0] * call.x.shape[1]
    return -(-images // (configuration.rows // configuration.image_rows))


def _own_arguments(call: Call, configuration: Configuration) -> dict[str, Any]:
    batch, _, height, width = call.x.shape
    return {
        "tables": _tables(height, width, configuration, call.precision, call.x.device),
        "batches": batch,
        "ROWS": configuration.rows,
        "IMAGE_ROWS": configuration.image_rows,
        "COLUMNS": configuration.columns,
        "BINS": configuration.bins,
    }


def _empty_bias_parts(call: Call, rows: int) -> Tensor:
    batch, channels, _, width = call.x.shape
    shape = (batch, channels, rows, width // 2 + 1)
    return torch.empty(shape, dtype=torch.float32, device=call.x.device)


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
    parts = [zero_padded(table, columns, bins) for table in (cosines, sines)]
    parts += [zero_padded((table * weights).T, bins, columns) for table in (cosines, sines)]
    if height > 1:
        m = np.arange(height)
        angles = fourier_angles(m, m, height)
        images = np.eye(configuration.rows // configuration.image_rows)
        for function in (np.cos, np.sin):
            size = configuration.image_rows
            block = zero_padded(function(angles) / np.sqrt(height), size, size)
            parts.append(np.kron(images, block))
    return operand_tables(parts, precision, device)


FORM = OneKernelForm(
    planar_forward_kernel,
    planar_backward_kernel,
    forward_configuration,
    backward_configuration,
    _programs,
    _own_arguments,
    _empty_bias_parts,
)
