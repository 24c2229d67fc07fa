"""How lengths are split into factors, and the tables of cosines and sines that kernels read."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from dualwave.kernels.spectral.tables import fourier_angles, rounded_to_tf32, to_table

LARGEST_FACTOR = 64


@dataclass(frozen=True)
class Factors:
    """A length as first * second, both at most 64; first is 1 for lengths up to 64."""

    first: int
    second: int

    @property
    def first_padded(self) -> int:
        """Rows of a tile: 1, or a size that matrix products take."""
        return 1 if self.first == 1 else padded(self.first)

    @property
    def second_padded(self) -> int:
        """Columns of a tile."""
        return padded(self.second)

    @property
    def second_bins(self) -> int:
        """Columns of a tile that hold half a spectrum: k2 up to second // 2, padded."""
        return padded(self.second // 2 + 1)


def padded(size: int) -> int:
    """The next size that a matrix product takes: a power of two, at least 16."""
    return max(16, power_of_two_above(size))


def power_of_two_above(size: int) -> int:
    """The smallest power of two that is at least ``size``."""
    return 1 << (size - 1).bit_length()


@lru_cache
def factors_of(size: int) -> Factors | None:
    """The split of a length that needs the least padding, or None if it has none.

    Lengths have none when a prime factor, or each split into two factors, exceeds 64: they are
    transformed by the definition.
    """
    if size <= LARGEST_FACTOR:
        return Factors(1, size)
    splits = [
        Factors(first, size // first)
        for first in range(2, LARGEST_FACTOR + 1)
        if size % first == 0 and size // first <= LARGEST_FACTOR
    ]
    # Of equal ones the most even: both products are as long as the sum of the padded factors.
    return min(
        splits,
        key=lambda split: (
            split.first_padded * split.second_padded,
            split.first_padded + split.second_padded,
            split.first,
        ),
        default=None,
    )


@dataclass(frozen=True)
class TableNumbers:
    """What the tables of a precision hold: "fp16" float16, others float32, "tf32" rounded to it."""

    dtype: torch.dtype
    is_rounded: bool

    @classmethod
    def of(cls, precision: str) -> "TableNumbers":
        """The numbers for a precision of matrix products."""
        dtype = torch.float16 if precision == "fp16" else torch.float32
        return cls(dtype, precision == "tf32")


@lru_cache(maxsize=64)
def factored_tables(
    factors: Factors, numbers: TableNumbers, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Rotations of the first factor, between the two, and of the second factor.

    Args:
        factors: of the length.
        numbers: of the first and last table, the operands of matrix products. The other is always
            float32.
        device: of all.

    Returns:
        (2, A, A), (2, A, B), (2, B, B): cosines, then sines, with A and B the padded factors; zero
        in the padding.
    """
    first, second = np.arange(factors.first), np.arange(factors.second)
    padded_first, padded_second = factors.first_padded, factors.second_padded
    return (
        _rotations(
            fourier_angles(first, first, factors.first),
            (padded_first, padded_first),
            numbers,
            device,
        ),
        _rotations(
            fourier_angles(first, second, factors.first * factors.second),
            (padded_first, padded_second),
            TableNumbers(torch.float32, is_rounded=False),
            device,
        ),
        _rotations(
            fourier_angles(second, second, factors.second),
            (padded_second, padded_second),
            numbers,
            device,
        ),
    )


@lru_cache(maxsize=8)  # one of length 4093 is 67 MB in float32
def direct_table(size: int, numbers: TableNumbers, device: torch.device) -> Tensor:
    """(2, size // 2 + 1, size): cosines, then sines of 2 pi k n / size."""
    angles = fourier_angles(np.arange(size // 2 + 1), np.arange(size), size)
    return _rotations(angles, angles.shape, numbers, device)


def _rotations(
    angles: np.ndarray, shape: tuple[int, ...], numbers: TableNumbers, device: torch.device
) -> Tensor:
    values = np.zeros((2, *shape))
    values[:, : angles.shape[0], : angles.shape[1]] = np.cos(angles), np.sin(angles)
    if numbers.is_rounded:
        values = rounded_to_tf32(values)
    return to_table(values, numbers.dtype, device)
