"""How many multiply-adds the matrix products of a planned call execute, padding included.

Counted from the constants that each kernel is compiled for, product by product in the order of its
source. A test counts the products that the interpreter runs and compares.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dualwave.kernels.launch import Launch

Constants = Mapping[str, Any]


def multiply_adds(launches: Iterable[Launch]) -> int:
    """M * N * K, summed over all matrix products of all programs."""
    return sum(
        launch.grid[0] * _OF_A_PROGRAM[launch.kernel.fn.__name__](launch.arguments)
        for launch in launches
    )


def _planar_transform(constants: Constants) -> int:
    """The half spectrum of a stack of images, or its inverse."""
    rows, columns, bins = constants["ROWS"], constants["COLUMNS"], constants["BINS"]
    columns_transform = 4 * rows * rows * bins if constants["HEIGHT"] > 1 else 0
    return 2 * rows * columns * bins + columns_transform


def _tokens_transform(constants: Constants) -> int:
    """The half spectra of a block of channels, or their inverse."""
    rows, columns, bins = constants["ROWS"], constants["COLUMNS"], constants["BINS"]
    columns_transform = 4 * bins * rows * rows if rows > 1 else 0
    return constants["BLOCK_C"] * (2 * rows * columns * bins + columns_transform)


def _backward_transforms(constants: Constants) -> int:
    """x and the output's gradient there, and x's gradient back where it is wanted."""
    return 3 if constants["WANTS_X_GRADIENT"] else 2


def _factored_columns(constants: Constants) -> int:
    """Real columns of two factors (or one), there or back, block by block of the other side."""
    lines = constants["BLOCK_C"] * constants["BLOCK_W"]
    first, first_block = constants["FIRST_PADDED"], constants["FIRST_BLOCK"]
    second_block = constants["SECOND_BLOCK"]
    has_two_factors = first > 1
    from_left = 2 * first_block * first * lines * second_block if has_two_factors else 0
    from_right = first_block * lines * second_block * constants["SECOND_BINS"]
    return from_left + (4 if has_two_factors else 2) * from_right


def _columns_forward(constants: Constants) -> int:
    blocks = constants["SECOND_PADDED"] // constants["SECOND_BLOCK"]
    return blocks * _factored_columns(constants)


def _columns_inverse(constants: Constants) -> int:
    blocks = constants["FIRST_PADDED"] // constants["FIRST_BLOCK"]
    return blocks * _factored_columns(constants)


def _factored_rows(constants: Constants) -> int:
    """Complex rows of two factors (or one), there or back."""
    rows, first, second = constants["ROWS"], constants["FIRST_PADDED"], constants["SECOND_PADDED"]
    from_left = 4 * first * first * rows * second if first > 1 else 0
    return from_left + 4 * first * rows * second * second


def _filter_rows(transforms: int, constants: Constants) -> int:
    return transforms * _factored_rows(constants) if constants["TRANSFORM"] else 0


def _direct(length: int, block: int, constants: Constants) -> int:
    """Lines of any length against blocks of the table, along ``length`` in steps of ``block``."""
    lines = constants["BLOCK_C"] * constants["BLOCK_LINES"]
    tile = lines * constants["BLOCK_BINS"] * constants["BLOCK_SAMPLES"]
    return -(-length // block) * (2 if constants["IS_REAL"] else 4) * tile


_OF_A_PROGRAM: dict[str, Callable[[Constants], int]] = {
    "planar_forward_kernel": lambda c: 2 * _planar_transform(c),
    "planar_backward_kernel": lambda c: _backward_transforms(c) * _planar_transform(c),
    "tokens_forward_kernel": lambda c: 2 * _tokens_transform(c),
    "tokens_backward_kernel": lambda c: _backward_transforms(c) * _tokens_transform(c),
    "columns_forward": _columns_forward,
    "columns_inverse": _columns_inverse,
    "rows_forward": lambda c: _filter_rows(2, c),
    "rows_backward": lambda c: _filter_rows(_backward_transforms(c), c),
    "rows_transform": _factored_rows,
    "direct_forward": lambda c: _direct(c["SIZE"], c["BLOCK_SAMPLES"], c),
    "direct_inverse": lambda c: _direct(c["SIZE"] // 2 + 1, c["BLOCK_BINS"], c),
}
