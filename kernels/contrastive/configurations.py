"""Tiles and warps of the contrastive kernels: pure functions of size, precision and target.

Found by compiling ahead of time for each target: the largest tiles at which nothing spills in 16
bits and tf32. A wide slice saves more than large tiles do, since every slice of the gradient
computes all logits again.
"""

from dataclasses import dataclass, replace

from dualwave.kernels.choices import STRICT_PRECISIONS
from dualwave.kernels.device_functions import is_of_16_bits
from dualwave.kernels.targets import GFX942, SM_80, SM_90, SM_100, Target


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


LABEL_LOSSES = Configuration(16, 0, 128, 0, num_warps=4, num_stages=2)
"""Of the kernel of given normalisers, which has no products of matrices."""

_SMALLEST = 16  # matrix units contract at least 16 numbers
_FORWARD_OF_16_BITS = dict.fromkeys(
    (SM_80, SM_90, SM_100, GFX942), Configuration(128, 128, 64, 0, 8, 3)
)
_FORWARD_OF_32_BITS = {
    SM_80: Configuration(128, 128, 32, 0, 8, 3),
    SM_90: Configuration(128, 128, 64, 0, 8, 3),
    SM_100: Configuration(128, 128, 64, 0, 8, 3),
    GFX942: Configuration(128, 128, 64, 0, 8, 2),
}
_BACKWARD_OF_16_BITS = {
    SM_80: Configuration(64, 64, 64, 256, 8, 3),
    SM_90: Configuration(64, 64, 64, 256, 8, 3),
    SM_100: Configuration(64, 64, 64, 512, 8, 3),
    GFX942: Configuration(64, 64, 64, 512, 8, 3),
}
_NARROW_BACKWARD_OF_16_BITS = dict.fromkeys((SM_100, GFX942), Configuration(64, 32, 64, 64, 8, 3))
"""Where features of at most 64 places spill in the tiles of wide ones."""
_BACKWARD_OF_32_BITS = {
    SM_80: Configuration(64, 64, 32, 256, 8, 2),
    SM_90: Configuration(64, 64, 64, 256, 8, 3),
    SM_100: Configuration(64, 64, 64, 512, 8, 3),
    GFX942: Configuration(64, 64, 64, 256, 8, 3),
}


_STRICT_FORWARD = {SM_100: Configuration(128, 128, 32, 0, 8, 2)}
"""Where tf32x3 and ieee, whose products take more registers, need others."""
_STRICT_BACKWARD = {
    SM_80: Configuration(64, 64, 32, 128, 8, 2),
    SM_100: Configuration(64, 64, 32, 128, 8, 1),
}


def forward_configuration(size: int, precision: str, target: Target) -> Configuration:
    """For features of ``size`` places."""
    table = _FORWARD_OF_16_BITS if is_of_16_bits(precision) else _FORWARD_OF_32_BITS
    if precision in STRICT_PRECISIONS:
        table = table | _STRICT_FORWARD
    return _narrowed(table[target], size)


def backward_configuration(size: int, precision: str, target: Target) -> Configuration:
    """For features of ``size`` places."""
    table = _BACKWARD_OF_16_BITS if is_of_16_bits(precision) else _BACKWARD_OF_32_BITS
    if precision in STRICT_PRECISIONS:
        table = table | _STRICT_BACKWARD
    elif is_of_16_bits(precision) and size <= 64:
        table = table | _NARROW_BACKWARD_OF_16_BITS
    return _narrowed(table[target], size)


def _narrowed(configuration: Configuration, size: int) -> Configuration:
    """Without places that no feature has."""
    padded = max(_SMALLEST, 1 << (size - 1).bit_length())
    return replace(
        configuration,
        block_size=min(configuration.block_size, padded),
        block_slice=min(configuration.block_slice, padded),
    )
