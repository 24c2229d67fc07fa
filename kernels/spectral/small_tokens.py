"""The one-kernel form for tokens: grids of which some channels fit on chip at once.

The kernels are right for any strides, but fast where neighbours in memory are channels.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dualwave.kernels.spectral.one_kernel import OneKernelForm
from dualwave.kernels.spectral.plans import Call
from dualwave.kernels.spectral.small_tokens_configurations import (
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
from dualwave.kernels.spectral.triton_kernels.tokens_backward import tokens_backward_kernel
from dualwave.kernels.spectral.triton_kernels.tokens_forward import tokens_forward_kernel


def _programs(call: Call, configuration: Configuration) -> int:
    batch, channels = call.x.shape[:2]
    return batch * -(-channels // configuration.block_c)


def _own_arguments(call: Call, configuration: Configuration) -> dict[str, Any]:
    height, width = call.x.shape[2:]
    return {
        "tables": _tables(height, width, configuration, call.precision, call.x.device),
        "ROWS": configuration.rows,
        "COLUMNS": configuration.columns,
        "BINS": configuration.bins,
        "BLOCK_C": configuration.block_c,
    }


def _empty_bias_parts(call: Call, rows: int) -> Tensor:
    """Channels are neighbours in memory, as they are in the tiles."""
    batch, channels, _, width = call.x.shape
    shape = (batch, rows, width // 2 + 1, channels)
    return torch.empty(shape, dtype=torch.float32, device=call.x.device).permute(0, 3, 1, 2)


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
        zero_padded(np.cos(column_angles) / np.sqrt(height), rows, rows),
        zero_padded(np.sin(column_angles) / np.sqrt(height), rows, rows),
        zero_padded(row_cos / np.sqrt(width), columns, bins),
        zero_padded(row_sin / np.sqrt(width), columns, bins),
        zero_padded((row_cos * weights / np.sqrt(width)).T, bins, columns),
        zero_padded((row_sin * weights / np.sqrt(width)).T, bins, columns),
    ]
    return operand_tables(tables, precision, device)


FORM = OneKernelForm(
    tokens_forward_kernel,
    tokens_backward_kernel,
    forward_configuration,
    backward_configuration,
    _programs,
    _own_arguments,
    _empty_bias_parts,
)
