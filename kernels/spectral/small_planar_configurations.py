"""Tiles and warps of the one-kernel form for planar images, as functions of shapes and target."""

from dataclasses import dataclass

from dualwave.kernels.targets import Target

_LARGEST_SIZE = 64
_LARGEST_FULL_PRECISION_FORWARD = 32
_LARGEST_FULL_PRECISION_BACKWARD = 16
_ROUNDED_PRECISIONS = ("fp16", "tf32")

# Warps for tiles of 16, 32 and 64 rows. Chosen by compiling: fewer warps where both are free of
# spills.
_FORWARD_WARPS = {
    "sm_80": {16: 2, 32: 4, 64: 8},
    "sm_90": {16: 4, 32: 4, 64: 4},
    "sm_100": {16: 4, 32: 4, 64: 4},
    "gfx942": {16: 1, 32: 2, 64: 4},
}
_BACKWARD_WARPS = {
    "sm_80": {16: 4, 32: 4, 64: 8},
    "sm_90": {16: 4, 32: 4, 64: 4},
    "sm_100": {16: 4, 32: 4, 64: 8},
    "gfx942": {16: 2, 32: 2, 64: 4},
}
# Spills 450 bytes in tf32 with 64 rows of more than 32 columns: that takes three kernels.
_SPILLING_BACKWARD = {("sm_80", "tf32", 64, 64)}


@dataclass(frozen=True)
class Configuration:
    """How one launch is cut.

    Attributes:
        rows: of a tile; ``rows // image_rows`` images are on top of each other.
        image_rows: H, padded to a power of two.
        columns: W, padded to a power of two of at least 16.
        bins: of the half spectrum, padded to a power of two of at least 16; one less than there
            are where the last one is packed into the first.
        num_warps: warps a program.
        num_stages: depth of the software pipeline; there is no loop to pipeline.
    """

    rows: int
    image_rows: int
    columns: int
    bins: int
    num_warps: int
    num_stages: int = 1


def forward_configuration(
    height: int, width: int, precision: str, target: Target
) -> Configuration | None:
    """The configuration of the forward kernel, or None where it does not fit."""
    rounded = precision in _ROUNDED_PRECISIONS
    largest = _LARGEST_SIZE if rounded else _LARGEST_FULL_PRECISION_FORWARD
    if max(height, width) > largest:
        return None
    return _configuration(height, width, _FORWARD_WARPS[target.name])


def backward_configuration(
    height: int, width: int, precision: str, target: Target
) -> Configuration | None:
    """The configuration of the backward kernel, or None where it does not fit."""
    rounded = precision in _ROUNDED_PRECISIONS
    largest = _LARGEST_SIZE if rounded else _LARGEST_FULL_PRECISION_BACKWARD
    if max(height, width) > largest:
        return None
    configuration = _configuration(height, width, _BACKWARD_WARPS[target.name])
    tile = (target.name, precision, configuration.image_rows, configuration.columns)
    return None if tile in _SPILLING_BACKWARD else configuration


def _configuration(height: int, width: int, warps: dict[int, int]) -> Configuration:
    image_rows = _power_of_two(height, at_least=1)
    columns = _power_of_two(width, at_least=16)
    # Few rows waste few products on the zeros between the blocks of the column transform. Wide
    # stacks of many images need many registers for their offsets.
    if image_rows > 32:
        rows = 64
    elif columns == 64:
        rows = 16 if 1 < image_rows <= 16 else 32
    else:
        rows = 64 if image_rows == 1 else 32
    bins = _power_of_two(width // 2, at_least=16)
    if width % 2 == 1 and width // 2 + 1 > bins:
        bins *= 2
    return Configuration(rows, image_rows, columns, bins, warps[rows])


def _power_of_two(size: int, at_least: int) -> int:
    return max(at_least, 1 << max(size - 1, 0).bit_length())
