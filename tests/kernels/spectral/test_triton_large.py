"""The kernels for grids of any size: values and gradients on every path."""

import itertools

import pytest
import torch

from dualwave.kernels.spectral import large_grid
from dualwave.kernels.spectral.large_grid_configurations import row_tile
from dualwave.kernels.spectral.large_grid_tables import factors_of
from dualwave.kernels.targets import GFX942, SM_80, SM_90, SM_100, TARGETS, Target

from .large_grid_runs import call_of, run_problem
from .oracle import assert_within_budget, make_problem

ROUNDED = ("fp16", "tf32")

# Columns and rows each without a transform worth the name (1), by one factor, by two, by definition
# (a prime factor above 64); odd and even; the blocks of 16 once and several times.
PATHS = [
    (1, 1), (1, 2), (2, 1), (1, 14), (14, 1), (5, 7), (8, 9), (16, 16), (17, 31), (32, 32),
    (37, 64), (1, 128), (128, 1), (2, 130), (66, 3), (3, 66), (67, 9), (9, 67), (1, 221), (221, 2),
]  # fmt: skip


def check(
    height: int,
    width: int,
    dtype: torch.dtype,
    precision: str,
    layout: str = "planar",
    target: Target = SM_90,
) -> None:
    problem = make_problem(height, width, batch=1, channels=2, dtype=dtype)
    results = run_problem(problem, dtype, precision, layout=layout, target=target)
    assert len(results) == 4
    assert_within_budget(results, problem, dtype, rounded_products=precision in ROUNDED)


@pytest.mark.parametrize(("height", "width"), PATHS[::3])
def test_full_precision(height: int, width: int) -> None:
    layout = "tokens" if (height + width) % 2 else "planar"
    check(height, width, torch.float32, "ieee" if width % 2 else "tf32x3", layout)


@pytest.mark.parametrize(("height", "width"), PATHS)
def test_fp16_products_of_16_bit_images(height: int, width: int) -> None:
    layout = "planar" if (height + width) % 2 else "tokens"
    check(height, width, torch.bfloat16 if width % 3 else torch.float16, "fp16", layout)


@pytest.mark.parametrize(("height", "width"), [(5, 7), (66, 3), (1, 128), (67, 2)])
def test_tf32_products_of_float32_images(height: int, width: int) -> None:
    check(height, width, torch.float32, "tf32")


@pytest.mark.parametrize("target", [SM_80, GFX942], ids=lambda target: target.name)
@pytest.mark.parametrize("precision", ["fp16", "tf32"])
def test_configurations_of_other_targets(target: Target, precision: str) -> None:
    dtype = torch.float16 if precision == "fp16" else torch.float32
    for height, width in [(16, 6), (72, 5), (4, 80)]:
        check(height, width, dtype, precision, "tokens", target)


@pytest.mark.parametrize(
    ("height", "width", "precision"), [(3, 6, "tf32"), (3, 6, "fp16"), (2, 70, "fp16")]
)
def test_rows_transformed_apart_from_their_filter(
    height: int, width: int, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As widths above 2048 are, whose rows and gradients do not fit into registers together."""
    monkeypatch.setattr(large_grid, "row_tile", lambda *_: None)
    check(height, width, torch.float16 if precision == "fp16" else torch.float32, precision)


def test_columns_beyond_the_tensor_memory_are_transformed_by_the_definition() -> None:
    """Those of tf32x3 on sm_100, whose accumulators are more than its 512 columns hold."""
    check(272, 1, torch.float32, "tf32x3", target=SM_100)
    x = torch.empty(1, 1, 272, 1, device="meta")
    for target, precision, kernel in [
        (SM_100, "tf32x3", "direct_forward"),
        (SM_100, "tf32", "columns_forward"),
        (SM_90, "tf32x3", "columns_forward"),
    ]:
        call = call_of(x, precision=precision, target=target)
        assert large_grid.plan_forward(call).launches[0].kernel.__name__ == kernel


def test_which_rows_are_transformed_apart_from_their_filter() -> None:
    for width in range(1, 1025):
        factors = factors_of(width)
        for target, is_backward in itertools.product(TARGETS, (True, False)):
            assert factors is None or row_tile(factors, is_backward, "fp16", target) is not None
    longest = factors_of(4096)
    assert longest is not None
    assert row_tile(longest, False, "fp16", SM_90) is not None
    assert row_tile(longest, True, "fp16", SM_90) is None
    x = torch.empty(1, 1, 2, 4096, device="meta")
    names = [
        launch.kernel.__name__
        for launch in large_grid.plan_backward(call_of(x), x, (True, False, False)).launches
    ]
    assert names == [
        "columns_forward",
        "columns_forward",
        "rows_transform",
        "rows_transform",
        "rows_backward",
        "rows_transform",
        "columns_inverse",
    ]


def test_lengths_with_three_factors_use_the_definition() -> None:
    assert factors_of(13**3) is None
    assert factors_of(67 * 2) is None
    factors = factors_of(13 * 17)
    assert factors is not None
    assert {factors.first, factors.second} == {13, 17}


def test_factors_multiply_to_the_length() -> None:
    for size in range(1, 4097):
        factors = factors_of(size)
        has_split = any(size % a == 0 and size // a <= 64 for a in range(1, 65))
        assert (factors is not None) == has_split, size
        if factors is not None:
            assert factors.first * factors.second == size
            assert max(factors.first, factors.second) <= 64


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["planar", "tokens"])
@pytest.mark.parametrize("precision", ["fp16", "tf32", "tf32x3", "ieee"])
@pytest.mark.parametrize(("height", "width"), [(66, 70), (96, 128), (127, 131)])
def test_medium_grids(height: int, width: int, precision: str, layout: str) -> None:
    dtype = torch.bfloat16 if precision == "fp16" else torch.float32
    check(height, width, dtype, precision, layout)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp16", "ieee"])
@pytest.mark.parametrize(("height", "width"), [(1, 4096), (4096, 2), (1, 2197), (4093, 2)])
def test_longest_lines(height: int, width: int, precision: str) -> None:
    check(height, width, torch.float16 if precision == "fp16" else torch.float32, precision)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("height", "width"),
    list(itertools.product((1, 2, 3, 5, 7, 8, 9, 14, 16, 17, 31, 32, 37, 64), repeat=2)),
)
def test_small_grids(height: int, width: int) -> None:
    check(height, width, torch.float32, "ieee", "planar" if width % 2 else "tokens")
