"""The one-kernel token form, in Triton's interpreter, against the float64 definition."""

from dataclasses import replace

import pytest
import torch

from dualwave.kernels.targets import TARGETS

from .oracle import Problem, assert_within_budget, make_problem
from .small_tokens_runs import Inputs, run, token_inputs

# Every padding of either size, with and without empty places in it; H = 1; the 17 bins of W = 32.
GRIDS = [
    (1, 1), (1, 2), (2, 1), (1, 9), (1, 31), (1, 32), (3, 5), (5, 7), (8, 2), (9, 8), (14, 14),
    (16, 16), (7, 17), (14, 31), (2, 32), (16, 32), (17, 3), (31, 16), (32, 14), (17, 31), (31, 32),
    (32, 32),
]  # fmt: skip
SIZES = [1, 2, 3, 5, 7, 8, 9, 14, 16, 17, 31, 32]
SMALL_GRIDS = [grid for grid in GRIDS if max(grid) <= 16]
KINDS = [
    (torch.float32, "fp16"),
    (torch.float32, "tf32"),
    (torch.bfloat16, "fp16"),
    (torch.float16, "fp16"),
]
SIXTEEN_BITS = (torch.bfloat16, "fp16")


def check(problem: Problem, dtype: torch.dtype, precision: str, inputs: Inputs, **kwargs) -> None:
    results = run(inputs, precision, **kwargs)
    rounded = precision in ("fp16", "tf32")
    assert_within_budget(results, problem, dtype, rounded_products=rounded)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_output_and_gradients_equal_the_definition(grid):
    problem = make_problem(*grid, dtype=torch.bfloat16)
    check(problem, *SIXTEEN_BITS, token_inputs(problem, torch.bfloat16))


@pytest.mark.parametrize(("dtype", "precision"), KINDS, ids=str)
@pytest.mark.parametrize("grid", [(1, 9), (1, 32), (5, 7), (17, 31), (9, 32)], ids=str)
def test_every_dtype_and_precision(grid, dtype, precision):
    problem = make_problem(*grid, dtype=dtype)
    check(problem, dtype, precision, token_inputs(problem, dtype))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_configurations_of_every_target(target):
    """They differ in whether the last of 17 bins is kept apart."""
    problem = make_problem(17, 32, dtype=torch.float16)
    check(problem, torch.float16, "fp16", token_inputs(problem, torch.float16), target=target)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "precision"), KINDS, ids=str)
@pytest.mark.parametrize("width", SIZES)
@pytest.mark.parametrize("height", SIZES)
def test_every_pair_of_sizes(height, width, dtype, precision):
    problem = make_problem(height, width, channels=17, dtype=dtype)
    check(problem, dtype, precision, token_inputs(problem, dtype))


@pytest.mark.parametrize("precision", ["tf32x3", "ieee"])
@pytest.mark.parametrize("grid", SMALL_GRIDS, ids=str)
def test_strict_precisions_have_the_error_of_float32(grid, precision):
    problem = make_problem(*grid, dtype=torch.float32)
    check(problem, torch.float32, precision, token_inputs(problem, torch.float32))


@pytest.mark.parametrize("grid", [(14, 31), (2, 32), (31, 16), (17, 31), (32, 32)], ids=str)
def test_strict_precisions_go_up_to_32_x_32_forward(grid):
    problem = make_problem(*grid, dtype=torch.float32)
    inputs = token_inputs(problem, torch.float32)
    check(problem, torch.float32, "tf32x3", inputs, backward=False)


@pytest.mark.parametrize("channels", [2, 8, 17, 65])
@pytest.mark.parametrize("grid", [(1, 5), (3, 32)], ids=str)
def test_any_number_of_channels(grid, channels):
    problem = make_problem(*grid, channels=channels, dtype=torch.bfloat16)
    check(problem, *SIXTEEN_BITS, token_inputs(problem, torch.bfloat16))


@pytest.mark.parametrize("has_rows", [False, True])
@pytest.mark.parametrize("has_channels", [False, True])
@pytest.mark.parametrize("has_batch", [False, True])
@pytest.mark.parametrize("grid", [(5, 6), (3, 32)], ids=str)
def test_bias_is_broadcast_over_batch_channels_and_rows(grid, has_batch, has_channels, has_rows):
    shape = (2 if has_batch else 1, 3 if has_channels else 1, grid[0] if has_rows else 1)
    problem = make_problem(*grid, bias_shape=shape, dtype=torch.float32)
    check(problem, torch.float32, "tf32", token_inputs(problem, torch.float32))


def test_bias_broadcast_over_bins_changes_nothing():
    problem = make_problem(4, 6, dtype=torch.float32)
    problem = replace(problem, bias=problem.bias[..., :1])
    results = run(token_inputs(problem, torch.float32), "ieee")
    grad_bias = results.pop("dbias")
    assert_within_budget(results, problem, torch.float32)
    # Exactly it is zero: a sum over batch and bins of about ten rounded numbers below one.
    assert grad_bias.shape == problem.bias.shape
    assert grad_bias.abs().max() < 20 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("bias_dtype", [torch.bfloat16, torch.float16])
def test_bias_in_sixteen_bits(bias_dtype):
    problem = make_problem(4, 6, dtype=torch.float32)
    problem = replace(problem, bias=problem.bias.to(bias_dtype).double())
    check(problem, torch.float32, "ieee", token_inputs(problem, torch.float32, bias_dtype))


def test_planar_bias_with_strides_of_its_own():
    problem = make_problem(4, 6, dtype=torch.float32)
    wide = torch.full((1, 3, 4, 12), float("nan"))
    wide[..., ::3] = problem.bias.float()
    inputs = replace(token_inputs(problem, torch.float32), bias=wide[..., ::3])
    check(problem, torch.float32, "ieee", inputs)


@pytest.mark.parametrize("grid", [(5, 6), (1, 32)], ids=str)
def test_without_bias_and_with_a_number_as_temperature(grid):
    problem = make_problem(*grid, dtype=torch.float32)
    problem = replace(problem, bias=torch.zeros_like(problem.bias))
    inputs = token_inputs(problem, torch.float32)
    inputs = replace(inputs, bias=None, temperature=float(problem.temperature))
    results = run(inputs, "tf32")
    assert set(results) == {"y", "dx"}
    assert_within_budget(results, problem, torch.float32, rounded_products=True)


@pytest.mark.parametrize("grid", [(5, 6), (3, 32)], ids=str)
def test_only_wanted_gradients_are_computed_and_they_have_the_same_bits(grid):
    problem = make_problem(*grid, dtype=torch.bfloat16)
    inputs = token_inputs(problem, torch.bfloat16)
    everything = run(inputs, "fp16")
    names = ("dx", "dbias", "dtemperature")
    for code in range(8):
        wanted = tuple(bool(code >> bit & 1) for bit in range(3))
        results = run(inputs, "fp16", wanted=wanted)
        expected = [name for name, is_wanted in zip(names, wanted, strict=True) if is_wanted]
        assert list(results) == ["y", *expected]
        for name, value in results.items():
            assert torch.equal(value, everything[name]), name


@pytest.mark.parametrize("grid", [(5, 6), (1, 9), (3, 32)], ids=str)
def test_grad_out_with_strides_of_its_own(grid):
    problem = make_problem(*grid, dtype=torch.bfloat16)
    inputs = token_inputs(problem, torch.bfloat16)
    wide = torch.full((2, 5, grid[0], 2 * grid[1]), float("nan"), dtype=torch.bfloat16)
    grad_out = wide[:, 1:4, :, ::2]
    grad_out.copy_(inputs.grad_out)
    check(problem, *SIXTEEN_BITS, replace(inputs, grad_out=grad_out))


def test_expanded_grad_out():
    problem = make_problem(5, 6, dtype=torch.float32)
    problem = replace(problem, grad_out=torch.ones_like(problem.grad_out))
    inputs = token_inputs(problem, torch.float32)
    inputs = replace(inputs, grad_out=torch.ones(()).expand(problem.x.shape))
    check(problem, torch.float32, "ieee", inputs)


@pytest.mark.parametrize("grid", [(5, 6), (1, 9), (3, 32)], ids=str)
def test_x_as_a_slice_of_wider_tokens(grid):
    problem = make_problem(*grid, dtype=torch.bfloat16)
    inputs = token_inputs(problem, torch.bfloat16)
    wide = torch.full((2, grid[0] * grid[1] + 1, 8), float("nan"), dtype=torch.bfloat16)
    x = wide[:, 1:, 2:5].unflatten(1, grid).permute(0, 3, 1, 2)
    x.copy_(inputs.x)
    check(problem, *SIXTEEN_BITS, replace(inputs, x=x))


def test_x_expanded_over_the_batch():
    problem = make_problem(5, 6, dtype=torch.float32)
    problem = replace(problem, x=problem.x[:1].expand(2, -1, -1, -1))
    inputs = token_inputs(problem, torch.float32)
    inputs = replace(inputs, x=inputs.x[:1].expand(2, -1, -1, -1))
    check(problem, torch.float32, "ieee", inputs)


@pytest.mark.parametrize("grid", [(5, 7), (9, 32)], ids=str)
@pytest.mark.parametrize(("dtype", "precision"), KINDS, ids=str)
def test_a_mean_far_from_zero_gives_one_hot_rows_and_no_overflow(grid, dtype, precision):
    problem = make_problem(*grid, mean=30.0, dtype=dtype)
    problem = replace(problem, bias=torch.zeros_like(problem.bias))
    check(problem, dtype, precision, token_inputs(problem, dtype))
