"""Tiles, warps and stages of the kernels for large grids: pure functions of sizes and target."""

from dataclasses import dataclass

from dualwave.kernels.spectral.large_grid_tables import Factors, padded, power_of_two_above
from dualwave.kernels.spectral.plans import Layout
from dualwave.kernels.targets import Target


@dataclass(frozen=True)
class ColumnTile:
    """What a program of the column kernels owns (see triton_kernels/columns.py)."""

    first_block: int
    second_block: int
    block_c: int
    block_w: int
    num_warps: int
    num_stages: int = 1


@dataclass(frozen=True)
class RowTile:
    """How many rows a program of the row kernels owns, and its blocks of the second factor."""

    rows: int
    second_block: int
    num_warps: int
    num_stages: int = 1


@dataclass(frozen=True)
class DirectTile:
    """What a program of the direct kernels owns (see triton_kernels/direct.py)."""

    block_c: int
    block_lines: int
    block_bins: int
    block_samples: int
    num_warps: int
    num_stages: int = 1


# How many numbers a program of the column kernels may hold at once, forward and inverse, found by
# compiling ahead of time: with columns of one channel only, and with those of several.
COLUMN_BUDGETS = {
    "sm_80": ((2048, 2048), (2048, 1024)),
    "sm_90": ((8192, 8192), (8192, 8192)),
    "sm_100": ((8192, 8192), (8192, 8192)),
    "gfx942": ((4096, 2048), (2048, 2048)),
}


def _doubles_tensor_memory(precision: str, target: Target) -> bool:
    """tf32x3 keeps an accumulator for each of its three products, on sm_100 in tensor memory."""
    return precision == "tf32x3" and target.tensor_memory_limit > 0


def columns_fit(factors: Factors, precision: str, target: Target) -> bool:
    """Whether `columns_forward` and `columns_inverse` have enough tensor memory for a length."""
    size = factors.first_padded * factors.second_padded
    return size <= 256 or not _doubles_tensor_memory(precision, target)


def column_tile(
    factors: Factors,
    channels: int,
    width: int,
    layout: Layout,
    is_inverse: bool,
    precision: str,
    target: Target,
) -> ColumnTile:
    """The tile of `columns_forward`, or of `columns_inverse`."""
    first, second = factors.first_padded, factors.second_padded
    first_block = min(first, 16)
    second_block = second if first == 1 else 16
    # Samples and bins that a program holds for each of its lines.
    held = max(first * second_block, first_block * factors.second_bins)
    most_lines = 64
    # No matrix unit takes these products: a thread holds its part of both operands.
    if precision == "ieee" and target.backend == "cuda" and first == 1:
        most_lines = 64 if is_inverse and target.name == "sm_100" else 16
    of_one_channel, of_several = COLUMN_BUDGETS[target.name]
    lines = _lines_within(of_one_channel[is_inverse], held, first, most_lines)
    block_c, block_w = split_lines(lines, channels, width, layout)
    if block_c > 1:
        budget = of_several[is_inverse]
        if is_inverse and first > 32:
            budget = min(budget, 4096)
        lines = _lines_within(budget, held, first, most_lines)
        block_c, block_w = split_lines(lines, channels, width, layout)
    return ColumnTile(first_block, second_block, block_c, block_w, 8)


def _lines_within(budget: int, held: int, first: int, most_lines: int) -> int:
    """Lines of a tile; without a first factor a product needs 16."""
    return min(most_lines, max(16 if first == 1 else 1, budget // held))


def row_tile(factors: Factors, is_backward: bool, precision: str, target: Target) -> RowTile | None:
    """The tile of `rows_forward` or `rows_backward`; None where every tile would spill."""
    size = factors.first_padded * factors.second_padded
    if is_backward and size > 2048 and target.backend == "cuda":
        return None
    budget = 1024 if is_backward else 2048
    rows = max(16 if factors.first == 1 else 1, budget // size)
    rows = min(rows, 64)
    if size > 2048 and _doubles_tensor_memory(precision, target):
        return RowTile(rows, 64, 8)
    if size > 2048 and target.name == "sm_100" and precision != "ieee":
        # Eight warps spill 8 bytes in fp16, four 256 bytes in tf32.
        return RowTile(rows, 32, 4 if precision == "fp16" else 8)
    needs_many_warps = is_backward and factors.first == 1 and target.name == "sm_80"
    return RowTile(rows, 16, 8 if rows * size > 1024 or needs_many_warps else 4)


def row_transform_tile(factors: Factors, precision: str, target: Target) -> RowTile:
    """The tile of `rows_transform`."""
    size = factors.first_padded * factors.second_padded
    rows = max(16 if factors.first == 1 else 1, 4096 // size)
    block = 64 if size > 2048 and _doubles_tensor_memory(precision, target) else 16
    return RowTile(min(rows, 64), block, 8)


def filter_tile(width: int, is_backward: bool) -> RowTile:
    """The tile of `rows_forward` or `rows_backward` on rows that are transformed already."""
    budget = 2048 if is_backward else 4096
    return RowTile(max(1, budget // padded(width)), padded(width), 8)


def direct_tile(
    channels: int,
    lines: int,
    layout: Layout,
    is_inverse: bool,
    precision: str,
    target: Target,
) -> DirectTile:
    """The tile of `direct_forward`, or of `direct_inverse`."""
    block_c, block_lines = split_lines(64, channels, lines, layout)
    bins, samples = (32, 64) if is_inverse else (32, 32)
    if target.name == "sm_80":
        samples = 32 if is_inverse else 16
    elif target.name == "sm_100" and not is_inverse and precision != "tf32x3":
        bins, samples = 64, 16
    return DirectTile(block_c, block_lines, bins, samples, 8)


def split_lines(count: int, channels: int, lines: int, layout: Layout) -> tuple[int, int]:
    """How a tile's lines are spread over channels and their neighbours along w (or rows).

    Tokens take as many channels as lines along w, so that neither x (channels adjacent) nor
    the transform (w adjacent) is read or written one number at a time.
    """
    channels_padded, lines_padded = power_of_two_above(channels), power_of_two_above(lines)
    wanted = count
    if layout == "tokens":
        wanted = 1 << (count.bit_length() // 2)
    block_lines = min(wanted, lines_padded)
    block_c = min(count // block_lines, channels_padded)
    return block_c, count // block_c
