"""The one-kernel planar form: values, gradients and every path of the kernels."""

import dataclasses
import itertools

import pytest
import torch

from dualwave.kernels.spectral import small_planar
from dualwave.kernels.spectral.small_planar_configurations import (
    backward_configuration,
    forward_configuration,
)
from dualwave.kernels.targets import SM_80, SM_90, TARGETS

from .oracle import assert_within_budget, exact_results, make_problem
from .small_planar_runs import call_of, run_backward, run_forward, run_problem

ROUNDED = ("fp16", "tf32")
STRICT = ("tf32x3", "ieee")
SIZES = (1, 2, 3, 5, 7, 8, 9, 14, 16, 17, 31, 32, 37, 64)

# One image a program or several, with and without the column transform, with the last bin apart
# (W = 32, 64) or not, odd and even, padded and not.
PATHS = [
    (1, 1), (1, 2), (1, 17), (1, 32), (1, 64), (2, 1), (3, 5), (7, 9), (8, 32), (9, 37),
    (14, 14), (16, 16), (17, 31), (31, 64), (37, 8), (64, 1), (64, 32), (64, 64),
]  # fmt: skip


@pytest.mark.parametrize(("height", "width"), PATHS)
def test_fp16_products_of_16_bit_images(height: int, width: int) -> None:
    dtype = torch.bfloat16 if (height + width) % 2 else torch.float16
    problem = make_problem(height, width, dtype=dtype)
    results = run_problem(problem, dtype, "fp16")
    assert len(results) == 4
    assert_within_budget(results, problem, dtype, rounded_products=True)


@pytest.mark.parametrize(("height", "width"), [(1, 64), (5, 3), (14, 14), (32, 32), (37, 64)])
def test_tf32_products_of_float32_images(height: int, width: int) -> None:
    problem = make_problem(height, width, dtype=torch.float32)
    results = run_problem(problem, torch.float32, "tf32")
    assert len(results) == 4
    assert_within_budget(results, problem, torch.float32, rounded_products=True)


@pytest.mark.parametrize("precision", STRICT)
@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 16), (5, 7), (14, 14), (16, 2)])
def test_full_precision_products(height: int, width: int, precision: str) -> None:
    problem = make_problem(height, width, dtype=torch.float32)
    results = run_problem(problem, torch.float32, precision)
    assert len(results) == 4
    assert_within_budget(results, problem, torch.float32)


@pytest.mark.parametrize(("height", "width"), [(1, 32), (17, 31), (32, 32)])
def test_full_precision_forward_above_the_sizes_of_backward(height: int, width: int) -> None:
    problem = make_problem(height, width, dtype=torch.float32)
    results = run_problem(problem, torch.float32, "ieee")
    assert list(results) == ["y"]
    assert_within_budget(results, problem, torch.float32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("precision", [*ROUNDED, *STRICT])
def test_every_dtype_with_every_precision(dtype: torch.dtype, precision: str) -> None:
    problem = make_problem(6, 10, dtype=dtype)
    results = run_problem(problem, dtype, precision)
    assert_within_budget(results, problem, dtype, rounded_products=precision in ROUNDED)


@pytest.mark.slow
@pytest.mark.parametrize(("height", "width"), list(itertools.product(SIZES, SIZES)))
def test_every_pair_of_sizes(height: int, width: int) -> None:
    for dtype, precision in [(torch.bfloat16, "fp16"), (torch.float32, "tf32")]:
        problem = make_problem(height, width, dtype=dtype)
        results = run_problem(problem, dtype, precision)
        assert_within_budget(results, problem, dtype, rounded_products=True)
    if max(height, width) <= 32:
        problem = make_problem(height, width, dtype=torch.float32)
        results = run_problem(problem, torch.float32, "ieee")
        assert_within_budget(results, problem, torch.float32)


@pytest.mark.parametrize("full", list(itertools.product((False, True), repeat=3)))
@pytest.mark.parametrize(("height", "width"), [(5, 6), (3, 32)])
def test_bias_that_is_broadcast(height: int, width: int, full: tuple[bool, bool, bool]) -> None:
    sizes = [size if is_full else 1 for size, is_full in zip((2, 3, height), full, strict=True)]
    problem = make_problem(height, width, bias_shape=(sizes[0], sizes[1], sizes[2]))
    problem = dataclasses.replace(problem.to(torch.float32))
    results = run_problem(problem, torch.float32, "tf32")
    assert_within_budget(results, problem, torch.float32, rounded_products=True)


def test_bias_that_is_broadcast_over_the_bins() -> None:
    problem = make_problem(5, 6, dtype=torch.float32)
    problem = dataclasses.replace(problem, bias=problem.bias[..., :1])
    inputs = problem.to(torch.float32)
    call = call_of(inputs.x, inputs.bias, inputs.temperature)
    _, grad_bias, _ = run_backward(call, inputs.grad_out)
    assert grad_bias is not None
    assert grad_bias.shape == inputs.bias.shape
    # A softmax does not feel what is added to all of its logits.
    assert grad_bias.abs().max() < 1e-5
    exact = exact_results(problem)
    torch.testing.assert_close(run_forward(call).double(), exact["y"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bias_dtype", [torch.bfloat16, torch.float16])
def test_bias_of_16_bits(bias_dtype: torch.dtype) -> None:
    problem = make_problem(4, 8, dtype=torch.float32)
    bias = problem.bias.to(bias_dtype)
    problem = dataclasses.replace(problem, bias=bias.double())
    inputs = problem.to(torch.float32)
    call = call_of(inputs.x, bias, inputs.temperature)
    dx, dbias, dtemperature = run_backward(call, inputs.grad_out)
    assert dx is not None
    assert dbias is not None
    assert dtemperature is not None
    results = {"y": run_forward(call), "dx": dx, "dbias": dbias, "dtemperature": dtemperature}
    assert_within_budget(results, problem, torch.float32)


@pytest.mark.parametrize("width", [6, 32])
def test_without_bias_and_with_a_number_as_temperature(width: int) -> None:
    problem = make_problem(4, width, dtype=torch.float32)
    problem = dataclasses.replace(problem, bias=torch.zeros_like(problem.bias))
    inputs = problem.to(torch.float32)
    call = call_of(inputs.x, None, float(inputs.temperature), "tf32")
    dx, dbias, dtemperature = run_backward(call, inputs.grad_out)
    assert dx is not None
    assert dbias is None
    assert dtemperature is None
    results = {"y": run_forward(call), "dx": dx}
    assert_within_budget(results, problem, torch.float32, rounded_products=True)


@pytest.mark.parametrize(
    "wanted", [w for w in itertools.product((False, True), repeat=3) if any(w)]
)
@pytest.mark.parametrize("width", [5, 32])
def test_only_the_wanted_gradients(wanted: tuple[bool, bool, bool], width: int) -> None:
    inputs = make_problem(3, width).to(torch.float32)
    call = call_of(inputs.x, inputs.bias, inputs.temperature, "tf32")
    complete = run_backward(call, inputs.grad_out)
    for is_wanted, grad, expected in zip(
        wanted, run_backward(call, inputs.grad_out, wanted), complete, strict=True
    ):
        assert (grad is not None) == is_wanted
        if grad is not None:
            assert expected is not None
            assert torch.equal(grad, expected)


def test_which_calls_fit() -> None:
    for target in TARGETS:
        for precision in ROUNDED:
            assert forward_configuration(64, 64, precision, target)
            assert not forward_configuration(65, 1, precision, target)
            assert not backward_configuration(1, 65, precision, target)
        for precision in STRICT:
            assert forward_configuration(32, 32, precision, target)
            assert not forward_configuration(33, 1, precision, target)
            assert backward_configuration(16, 16, precision, target)
            assert not backward_configuration(1, 17, precision, target)
        assert backward_configuration(64, 64, "fp16", target)
    assert backward_configuration(64, 64, "tf32", SM_90)
    assert not backward_configuration(64, 64, "tf32", SM_80)


def test_a_plan_touches_no_data() -> None:
    x = torch.empty(2, 3, 64, 64, device="meta", dtype=torch.bfloat16)
    call = call_of(x, None, torch.empty((), device="meta"), "fp16")
    assert small_planar.FORM.plan_forward(call).output.shape == x.shape
    plan = small_planar.FORM.plan_backward(call, x, (True, True, True))
    assert plan.grad_bias_parts is None
    assert plan.grad_temperature_parts is not None
    assert plan.grad_temperature_parts.shape == (6,)
