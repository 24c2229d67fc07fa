"""Tiles and warps of the contrastive kernels: pure functions of size, precision and target."""

from dataclasses import dataclass

from dualwave.kernels.targets import Target


@dataclass(frozen=True)
class Configuration:
    """What one program owns, and how it is run.

    Attributes:
        block_rows: rows of the logits.
        block_columns: columns of the logits at a time.
        block_size: features that are multiplied at a time.
        block_slice: features of the gradient; 0 forward.
        num_warps: warps.
        num_stages: depth of the software pipeline.
    """

    block_rows: int
    block_columns: int
    block_size: int
    block_slice: int
    num_warps: int
    num_stages: int


LABEL_LOSSES = Configuration(16, 0, 256, 0, num_warps=4, num_stages=2)
"""Of the kernel of given normalisers, which has no products of matrices."""

_SMALLEST = 16  # matrix units contract at least 16 numbers


def forward_configuration(size: int, precision: str, target: Target) -> Configuration:
    """For features of ``size`` places."""
    return Configuration(128, 128, min(64, _padded(size)), 0, 8, 3)


def backward_configuration(size: int, precision: str, target: Target) -> Configuration:
    """For features of ``size`` places."""
    return Configuration(128, 64, min(64, _padded(size)), min(256, _padded(size)), 8, 3)


def _padded(size: int) -> int:
    return max(_SMALLEST, 1 << (size - 1).bit_length())
