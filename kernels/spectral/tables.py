"""Cosines and sines of discrete Fourier transforms, exact to the last bit of float64."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def fourier_angles(rows: np.ndarray, columns: np.ndarray, size: int) -> np.ndarray:
    """The angles 2 pi rows[i] columns[j] / size, reduced to one turn in integers first.

    Args:
        rows: integers, (R,).
        columns: integers, (C,).
        size: length of the transform.

    Returns:
        float64, (R, C), in [0, 2 pi).
    """
    turns = np.outer(rows.astype(np.int64), columns.astype(np.int64)) % size
    return 2 * math.pi * turns / size


def half_spectrum_weights(width: int) -> np.ndarray:
    """c_k: how many bins of the full spectrum each bin of the half spectrum stands for.

    Returns:
        float64, (width // 2 + 1,): 1 for k = 0 and, for even widths, k = width / 2; else 2.
    """
    weights = np.full(width // 2 + 1, 2.0)
    weights[0] = 1.0
    if width % 2 == 0:
        weights[-1] = 1.0
    return weights


def rounded_to_tf32(values: np.ndarray) -> np.ndarray:
    """Values with the 11 significant bits that tf32 keeps, rounded to nearest.

    Args:
        values: float64, any shape, in the range of float32.

    Returns:
        float64, the same shape.
    """
    significand, exponent = np.frexp(values)
    return np.ldexp(np.rint(significand * 2**11), exponent - 11)


def to_table(values: np.ndarray, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A contiguous constant tensor from float64 values; callers keep it in an ``lru_cache``."""
    # A table made under inference_mode could never be used in training again.
    with torch.inference_mode(False):
        return torch.as_tensor(np.ascontiguousarray(values)).to(device=device, dtype=dtype)


def operand_tables(tables: Sequence[np.ndarray], precision: str, device: torch.device) -> Tensor:
    """Operands of matrix products, one after the other in one tensor.

    Args:
        tables: float64, any shapes.
        precision: of the products: ``"fp16"`` takes float16 and the others float32, rounded to tf32
            for ``"tf32"``.
        device: of the result.
    """
    values = np.concatenate([table.ravel() for table in tables])
    if precision == "tf32":
        values = rounded_to_tf32(values)
    return to_table(values, torch.float16 if precision == "fp16" else torch.float32, device)


def zero_padded(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """(rows, columns), zero beyond ``values``; what of them lies outside is left out."""
    values = values[:rows, :columns]
    return np.pad(values, ((0, rows - values.shape[0]), (0, columns - values.shape[1])))
