"""Tiles and warps of the attention kernels: pure functions of head size, precision and target.

Found by compiling ahead of time for each target with Triton 3.6, 3.7 and 3.9: the largest tiles at
which nothing spills in the default set of the compile gate. A bias takes registers, so calls with
one have tiles of their own in 16 bits. Sizes that spill in every tile have the one that spills
least: those above 128 in several pieces, and some in tf32 (`compile_cases.py`).
"""

from dataclasses import dataclass
from typing import Literal

from dualwave.kernels.device_functions import is_of_16_bits
from dualwave.kernels.targets import GFX942, SM_80, SM_90, SM_100, Target


@dataclass(frozen=True)
class Tile:
    """What one program holds at a time.

    Attributes:
        block_q: queries.
        block_k: keys.
        num_warps: warps.
        num_stages: depth of the software pipeline.
    """

    block_q: int
    block_k: int
    num_warps: int
    num_stages: int


Kernel = Literal["forward", "grad_query", "grad_key_value", "grad_bias"]
_Row = tuple[Tile, Tile, Tile, Tile, Tile, Tile]
"""Of heads up to 64, up to 128 and up to 256 that are a power of two when padded to a multiple of
16; then the same of those that are split into several pieces."""


def _row(*tiles: tuple[int, int, int, int]) -> _Row:
    one, two, three, four, five, six = (Tile(*tile) for tile in tiles)
    return one, two, three, four, five, six


# fmt: off
_OF_16_BITS: dict[Kernel, dict[Target, _Row]] = {
    "forward": {
        SM_80: _row((128, 128, 8, 3), (128, 32, 8, 2), (64, 64, 8, 2),
                    (128, 128, 8, 3), (128, 32, 8, 2), (128, 32, 8, 2)),
        SM_90: _row((128, 128, 8, 3), (128, 64, 8, 3), (128, 32, 8, 2),
                    (128, 128, 8, 3), (128, 128, 8, 2), (128, 64, 8, 2)),
        SM_100: _row((128, 32, 8, 3), (128, 128, 8, 2), (64, 64, 8, 2),
                     (128, 64, 8, 3), (128, 64, 8, 3), (64, 64, 8, 2)),
        GFX942: _row((128, 64, 8, 2), (128, 32, 8, 2), (64, 32, 8, 2),
                     (128, 64, 8, 3), (128, 32, 8, 2), (64, 32, 4, 2)),
    },
    "grad_query": {
        SM_80: _row((128, 64, 8, 3), (128, 32, 8, 2), (64, 64, 8, 2),
                    (128, 128, 8, 3), (128, 32, 8, 2), (128, 32, 8, 2)),
        SM_90: _row((128, 128, 8, 3), (128, 128, 8, 2), (64, 64, 8, 2),
                    (128, 128, 8, 3), (128, 128, 8, 2), (128, 32, 8, 2)),
        SM_100: _row((128, 64, 8, 3), (128, 32, 8, 2), (64, 64, 8, 2),
                     (128, 64, 8, 3), (64, 64, 8, 2), (64, 32, 8, 2)),
        GFX942: _row((128, 64, 8, 3), (128, 32, 8, 2), (64, 32, 4, 2),
                     (128, 64, 8, 3), (128, 32, 8, 2), (64, 32, 4, 2)),
    },
    "grad_key_value": {
        SM_80: _row((32, 128, 8, 2), (32, 64, 8, 2), (32, 32, 8, 2),
                    (64, 128, 8, 2), (16, 64, 8, 1), (32, 32, 8, 2)),
        SM_90: _row((64, 128, 8, 2), (32, 128, 8, 2), (32, 32, 8, 2),
                    (64, 128, 8, 2), (32, 128, 8, 2), (16, 64, 8, 2)),
        SM_100: _row((64, 64, 8, 2), (64, 64, 8, 1), (32, 64, 8, 2),
                     (32, 64, 4, 2), (32, 64, 8, 2), (16, 64, 8, 2)),
        GFX942: _row((32, 64, 4, 2), (16, 64, 8, 1), (16, 32, 8, 1),
                     (64, 64, 4, 2), (32, 64, 4, 1), (16, 32, 4, 1)),
    },
}
_OF_16_BITS_WITH_BIAS: dict[Kernel, dict[Target, _Row]] = {
    "forward": {
        SM_80: _row((128, 64, 8, 3), (128, 32, 8, 2), (64, 32, 8, 2),
                    (64, 32, 4, 2), (128, 32, 8, 2), (16, 16, 8, 1)),
        SM_90: _row((128, 64, 8, 3), (128, 32, 8, 2), (64, 32, 8, 2),
                    (64, 32, 4, 2), (128, 64, 8, 3), (128, 32, 8, 2)),
        SM_100: _row((64, 64, 4, 3), (64, 32, 8, 2), (64, 32, 8, 2),
                     (64, 32, 4, 2), (128, 64, 8, 2), (64, 32, 8, 2)),
        GFX942: _row((128, 64, 8, 3), (128, 32, 8, 2), (64, 32, 4, 2),
                     (64, 64, 4, 3), (128, 32, 8, 2), (64, 32, 4, 2)),
    },
    "grad_query": {
        SM_80: _row((64, 32, 4, 2), (64, 64, 8, 2), (32, 32, 8, 1),
                    (64, 32, 4, 2), (16, 32, 4, 1), (16, 16, 4, 1)),
        SM_90: _row((128, 64, 8, 3), (64, 64, 8, 2), (32, 32, 8, 1),
                    (128, 64, 8, 3), (128, 64, 8, 2), (128, 32, 8, 2)),
        SM_100: _row((128, 64, 8, 3), (128, 32, 8, 2), (64, 32, 8, 2),
                     (64, 32, 4, 2), (128, 32, 8, 2), (64, 32, 8, 2)),
        GFX942: _row((128, 64, 4, 3), (64, 32, 4, 2), (64, 16, 8, 1),
                     (128, 64, 4, 3), (128, 32, 8, 2), (64, 32, 4, 2)),
    },
    "grad_key_value": {
        SM_80: _row((32, 32, 4, 2), (16, 64, 8, 1), (16, 16, 8, 1),
                    (16, 32, 4, 1), (16, 16, 4, 1), (16, 16, 8, 1)),
        SM_90: _row((32, 64, 4, 2), (16, 64, 8, 1), (32, 16, 8, 1),
                    (32, 64, 4, 2), (16, 64, 8, 1), (16, 64, 8, 1)),
        SM_100: _row((32, 64, 8, 2), (16, 64, 8, 2), (32, 16, 8, 1),
                     (32, 64, 8, 2), (32, 64, 4, 1), (16, 64, 8, 1)),
        GFX942: _row((32, 64, 4, 2), (16, 64, 8, 1), (16, 32, 4, 1),
                     (32, 64, 4, 2), (32, 64, 4, 1), (16, 32, 4, 1)),
    },
    "grad_bias": {
        SM_80: _row((64, 32, 4, 1), (32, 64, 4, 1), (16, 32, 4, 1),
                    (32, 32, 4, 1), (32, 64, 4, 1), (16, 32, 4, 1)),
        SM_90: _row((128, 64, 8, 2), (128, 64, 8, 2), (64, 64, 8, 1),
                    (128, 64, 8, 2), (64, 64, 8, 2), (64, 32, 8, 1)),
        SM_100: _row((128, 64, 8, 2), (64, 64, 8, 2), (64, 64, 8, 1),
                     (64, 64, 8, 1), (64, 64, 8, 2), (16, 32, 4, 1)),
        GFX942: _row((128, 64, 8, 2), (64, 64, 8, 1), (64, 32, 4, 1),
                     (128, 64, 8, 2), (64, 64, 8, 2), (64, 32, 4, 1)),
    },
}
_OF_32_BITS: dict[Kernel, dict[Target, _Row]] = {
    "forward": {
        SM_80: _row((128, 64, 8, 3), (128, 64, 8, 2), (64, 32, 8, 2),
                    (128, 64, 8, 3), (128, 64, 8, 2), (64, 32, 8, 2)),
        SM_90: _row((128, 64, 8, 3), (128, 32, 8, 2), (16, 16, 8, 1),
                    (128, 64, 8, 3), (128, 32, 8, 2), (64, 16, 8, 1)),
        SM_100: _row((64, 32, 4, 1), (64, 16, 8, 1), (64, 16, 8, 1),
                     (64, 16, 4, 1), (128, 32, 8, 1), (64, 16, 8, 1)),
        GFX942: _row((128, 32, 8, 1), (128, 16, 8, 1), (64, 16, 4, 1),
                     (64, 32, 4, 1), (128, 16, 8, 1), (64, 16, 4, 1)),
    },
    "grad_query": {
        SM_80: _row((32, 32, 4, 2), (64, 32, 8, 2), (32, 32, 8, 1),
                    (32, 32, 4, 2), (16, 16, 4, 1), (16, 16, 8, 1)),
        SM_90: _row((64, 32, 4, 2), (16, 32, 4, 1), (32, 16, 8, 1),
                    (64, 32, 4, 2), (128, 32, 8, 2), (64, 16, 8, 1)),
        SM_100: _row((128, 32, 8, 1), (128, 16, 8, 1), (64, 16, 8, 1),
                     (64, 16, 4, 1), (128, 16, 8, 1), (64, 16, 8, 1)),
        GFX942: _row((128, 32, 4, 1), (64, 16, 4, 1), (64, 16, 8, 1),
                     (128, 32, 4, 1), (128, 16, 8, 1), (64, 16, 4, 1)),
    },
    "grad_key_value": {
        SM_80: _row((32, 32, 4, 2), (16, 64, 8, 1), (16, 16, 8, 1),
                    (16, 32, 4, 1), (16, 16, 4, 1), (16, 16, 8, 1)),
        SM_90: _row((32, 64, 4, 1), (32, 32, 8, 1), (32, 16, 8, 1),
                    (32, 64, 8, 2), (16, 64, 8, 1), (16, 64, 8, 1)),
        SM_100: _row((32, 32, 8, 1), (16, 32, 8, 1), (32, 16, 8, 1),
                     (32, 32, 8, 1), (32, 32, 4, 1), (16, 32, 8, 1)),
        GFX942: _row((32, 32, 4, 1), (16, 32, 8, 1), (16, 16, 4, 1),
                     (32, 32, 4, 1), (32, 32, 4, 1), (16, 16, 4, 1)),
    },
    "grad_bias": {
        SM_80: _row((64, 16, 4, 1), (32, 32, 4, 1), (16, 16, 4, 1),
                    (32, 16, 4, 1), (32, 32, 4, 1), (16, 16, 4, 1)),
        SM_90: _row((16, 32, 4, 1), (64, 32, 4, 1), (16, 32, 4, 1),
                    (64, 64, 8, 1), (16, 32, 4, 1), (16, 16, 4, 1)),
        SM_100: _row((128, 32, 8, 1), (64, 32, 8, 1), (64, 32, 8, 1),
                     (64, 32, 8, 1), (64, 32, 8, 1), (16, 16, 4, 1)),
        GFX942: _row((128, 32, 8, 1), (64, 32, 8, 1), (64, 16, 4, 1),
                     (128, 32, 8, 1), (64, 32, 8, 1), (64, 16, 4, 1)),
    },
}
# fmt: on


def tile_of(kernel: Kernel, size: int, precision: str, has_bias: bool, target: Target) -> Tile:
    """The tile of a kernel.

    Args:
        kernel: which of them.
        size: D of a head.
        precision: of the matrix products.
        has_bias: whether the call has a bias.
        target: what the kernel runs on.
    """
    table = _OF_32_BITS
    if is_of_16_bits(precision):
        table = _OF_16_BITS_WITH_BIAS if has_bias else _OF_16_BITS
    padded = -(-size // 16) * 16
    is_split = padded & (padded - 1) != 0
    column = (padded > 64) + (padded > 128) + 3 * is_split
    return table[kernel][target][column]
