"""What rounded operands do to the whole operation, by an emulation with rounded mantissas.

Triton's interpreter gives tf32, tf32x3 and ieee the same bits, so it cannot show what tensor cores
do. Here the chain of matrix products is written out in float32 with every operand of a product
rounded first: to 11 significant bits (tf32; fp16 after a power-of-two scaling of each image), or,
for tf32x3, split into two such parts. The GPU script checks the same bounds on real hardware.
"""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from .oracle import assert_within_budget, largest_logit, make_problem


def _keep_11_bits(values: Tensor, *, cut_off: bool = False) -> Tensor:
    bits = values.contiguous().view(torch.int32)
    if not cut_off:
        bits = bits + 0x1000  # half a place: to nearest, ties away from zero
    return (bits & ~0x1FFF).view(torch.float32)


def _power_of_two(values: Tensor) -> Tensor:
    """Per image, (..., 1, 1): the power of two that brings the largest value into [1, 2)."""
    largest = values.abs().amax(dim=(-2, -1), keepdim=True)
    return torch.exp2(-torch.floor(torch.log2(largest.clamp(min=2.0**-100))))


def _as_operand(values: Tensor, precision: str) -> tuple[Tensor, Tensor | float]:
    """The rounded values and the factor that undoes their scaling."""
    if precision == "fp16":
        scale = _power_of_two(values) if values.ndim > 2 else torch.tensor(1.0)
        return (values * scale).half().float(), 1 / scale
    return _keep_11_bits(values, cut_off=precision == "tf32 cut off"), 1.0


def _product(left: Tensor, right: Tensor, precision: str) -> Tensor:
    if precision == "tf32x3":
        left_big, right_big = (_keep_11_bits(v) for v in (left, right))
        left_small, right_small = left - left_big, right - right_big
        small = left_small @ right_big + left_big @ right_small
        return small + left_big @ right_big
    (left, left_unit), (right, right_unit) = (_as_operand(v, precision) for v in (left, right))
    return (left @ right) * left_unit * right_unit


def _complex_product(left, right, precision):
    (left_re, left_im), (right_re, right_im) = left, right
    re = _product(left_re, right_re, precision) - _product(left_im, right_im, precision)
    im = _product(left_re, right_im, precision) + _product(left_im, right_re, precision)
    return re, im


def _fourier(size: int, bins: int) -> tuple[Tensor, Tensor]:
    """exp(-2 pi i n k / size) / sqrt(size), (size, bins)."""
    angles = 2 * math.pi * (np.outer(np.arange(size), np.arange(bins)) % size) / size
    return tuple(
        torch.tensor(f(angles) / math.sqrt(size), dtype=torch.float32)
        for f in (np.cos, lambda a: -np.sin(a))
    )


def _spectrum(x: Tensor, precision: str):
    height, width = x.shape[-2:]
    row_re, row_im = _fourier(width, width // 2 + 1)
    rows = _product(x, row_re, precision), _product(x, row_im, precision)
    return _complex_product(_fourier(height, height), rows, precision)


def _inverse(spectrum, twins: Tensor, width: int, precision: str) -> Tensor:
    re, im = spectrum
    height = re.shape[-2]
    column_re, column_im = _fourier(height, height)
    re, im = _complex_product((column_re, -column_im), (re, im), precision)
    row_re, row_im = _fourier(width, width // 2 + 1)
    # Re((a + ib)(cos + i sin)): row_im is minus the sine
    return _product(re * twins, row_re.T, precision) + _product(im * twins, row_im.T, precision)


def _emulated_results(problem, precision: str):
    x, bias, grad = problem.x.float(), problem.bias.float(), problem.grad_out.float()
    temperature = problem.temperature.float()
    width = x.shape[-1]
    half = width // 2 + 1
    twins = torch.full((half,), 2.0)
    twins[0] = 1
    if width % 2 == 0:
        twins[-1] = 1
    re, im = _spectrum(x, precision)
    power = re.square() + im.square()
    weights = torch.softmax(temperature * power + bias, dim=-1)
    y = _inverse((re * weights, im * weights), twins, width, precision)
    grad_re, grad_im = _spectrum(grad, precision)
    product = twins * (re * grad_re + im * grad_im)
    dlogits = weights * (product - (weights * product).sum(dim=-1, keepdim=True))
    back = 2 * temperature * dlogits / twins
    filtered = weights * grad_re + back * re, weights * grad_im + back * im
    return {
        "y": y,
        "dx": _inverse(filtered, twins, width, precision),
        "dbias": dlogits.sum_to_size(bias.shape),
        "dtemperature": (dlogits * power).sum(),
    }


@pytest.mark.parametrize("grid", [(8, 8), (14, 14), (17, 31), (64, 64)], ids=str)
@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        ("tf32", torch.float32),
        ("fp16", torch.bfloat16),
        ("fp16", torch.float16),
    ],
)
@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_emulated_rounded_operands_stay_within_the_stated_bound(grid, precision, dtype, scale):
    problem = make_problem(*grid, scale=scale, temperature=0.5, dtype=dtype)
    results = _emulated_results(problem, precision)
    results |= {name: results[name].to(dtype) for name in ("y", "dx")}
    assert_within_budget(results, problem, dtype, rounded_products=True)


@pytest.mark.parametrize("grid", [(8, 8), (14, 14), (17, 31)], ids=str)
def test_emulated_tf32x3_stays_within_the_budget_of_float32(grid):
    problem = make_problem(*grid, temperature=0.1, dtype=torch.float32)
    assert largest_logit(problem) <= 10
    assert_within_budget(_emulated_results(problem, "tf32x3"), problem, torch.float32)


def test_operands_that_are_cut_off_would_not_stay_within_it():
    """What tensor cores do to float32 operands that the kernels have not rounded before."""
    problem = make_problem(14, 14, temperature=0.5, dtype=torch.float32)
    results = _emulated_results(problem, "tf32 cut off")
    with pytest.raises(AssertionError, match="over the budget"):
        assert_within_budget(results, problem, torch.float32, rounded_products=True)


def test_the_emulation_is_not_exact():
    """Otherwise the bound above would say nothing about rounded operands."""
    problem = make_problem(14, 14, dtype=torch.float32)
    with pytest.raises(AssertionError, match="over the budget"):
        assert_within_budget(_emulated_results(problem, "tf32"), problem, torch.float32)
