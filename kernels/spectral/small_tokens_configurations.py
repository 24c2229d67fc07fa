"""Tiles and warps of the one-kernel form for tokens: pure functions of sizes, precision and target.

Found by compiling ahead of time for each target, with the oldest and the newest Triton: the most
channels a program, up to 16 (16-bit) or 8 (32-bit) neighbours that fill a sector of 32 bytes, at
which nothing spills in fp16 and tf32. More programs of fewer registers would be the next thing to
try where there is hardware to measure on.
"""

from dataclasses import dataclass

from dualwave.kernels.targets import GFX942, SM_80, Target

_LARGEST_SIZE = 32
_LARGEST_SIZE_OF_STRICT_BACKWARD = 16

# Channels a program, by padded (rows, columns): for fp16, tf32, and tf32x3 or ieee.
_Channels = dict[tuple[int, int], tuple[int, int, int]]
_FORWARD: _Channels = {
    (1, 16): (64, 64, 64),
    (1, 32): (64, 64, 64),
    (16, 16): (16, 16, 8),
    (16, 32): (16, 16, 8),
    (32, 16): (16, 16, 8),
    (32, 32): (8, 8, 4),
}
_BACKWARD: _Channels = {
    (1, 16): (64, 64, 32),
    (1, 32): (64, 64, 32),
    (16, 16): (16, 16, 8),
    (16, 32): (8, 8, 4),
    (32, 16): (8, 8, 4),
    (32, 32): (8, 4, 2),
}


@dataclass(frozen=True)
class Configuration:
    """What one program owns.

    Attributes:
        rows: H padded, 1 where no transform along the columns is needed.
        columns: W padded.
        bins: the bins of the half spectrum padded, or one less than them (`tokens_spectrum.py`).
        block_c: channels.
        num_warps: warps.
        num_stages: depth of the software pipeline; there is no loop to pipeline.
    """

    rows: int
    columns: int
    bins: int
    block_c: int
    num_warps: int
    num_stages: int = 1


def forward_configuration(
    height: int, width: int, precision: str, target: Target
) -> Configuration | None:
    """The configuration of the forward kernel, None where it does not serve."""
    if max(height, width) > _LARGEST_SIZE:
        return None
    return _configuration(height, width, 16, _channels(_FORWARD, height, width, precision))


def backward_configuration(
    height: int, width: int, precision: str, target: Target
) -> Configuration | None:
    """The configuration of the backward kernel, None where it does not serve."""
    is_strict = precision not in ("fp16", "tf32")
    if max(height, width) > (_LARGEST_SIZE_OF_STRICT_BACKWARD if is_strict else _LARGEST_SIZE):
        return None
    has_17_bins = width == _LARGEST_SIZE and height > 16
    if has_17_bins and precision == "tf32" and target == SM_80:
        return None  # Triton 3.9 spills however few the channels: three kernels don't
    channels = _channels(_BACKWARD, height, width, precision)
    # Here the reductions that keep the last of 17 bins apart cost more registers than padding.
    bins = 32 if has_17_bins and target == GFX942 else 16
    return _configuration(height, width, bins, channels)


def _channels(table: _Channels, height: int, width: int, precision: str) -> int:
    of_fp16, of_tf32, of_strict = table[_padded_rows(height), _padded(width)]
    return {"fp16": of_fp16, "tf32": of_tf32}.get(precision, of_strict)


def _configuration(height: int, width: int, bins: int, channels: int) -> Configuration:
    rows = _padded_rows(height)
    return Configuration(rows, _padded(width), bins, channels, num_warps=4 if rows == 1 else 8)


def _padded_rows(height: int) -> int:
    return 1 if height == 1 else _padded(height)


def _padded(size: int) -> int:
    """16 or 32: tensor cores contract at least 16 numbers."""
    return 16 if size <= 16 else 32
