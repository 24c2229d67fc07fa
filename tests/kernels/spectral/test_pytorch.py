"""The PyTorch implementation over all sizes, layouts and broadcasts, in the budget of float32."""

import itertools

import pytest
import torch
from einops import rearrange

from dualwave.kernels.spectral import pytorch as implementation
from dualwave.kernels.spectral import spectral_attention

from .oracle import (
    as_token_bias,
    as_tokens,
    assert_within_budget,
    exact_results,
    make_problem,
    results_of,
)

SIZES = [1, 2, 3, 5, 7, 8, 9, 14, 16, 17, 31, 32, 37, 64]
LARGE_GRIDS = [(96, 128), (127, 131), (1, 4096), (4093, 2)]


def _planar(x, *, bias, temperature):
    return spectral_attention(x, bias=bias, temperature=temperature)


def _tokens(x, *, bias, temperature):
    height, width = x.shape[-2:]
    y = spectral_attention(
        as_tokens(x), grid=(height, width), bias=as_token_bias(bias), temperature=temperature
    )
    return rearrange(y, "b (h w) c -> b c h w", h=height)


@pytest.mark.parametrize("height", SIZES)
@pytest.mark.parametrize("layout", [_planar, _tokens])
def test_every_pair_of_sizes_is_within_the_budget(layout, height):
    for width in SIZES:
        problem = make_problem(height, width, temperature=0.1, dtype=torch.float32)
        ours = results_of(layout, problem.to(torch.float32))
        assert_within_budget(ours, problem, torch.float32)


@pytest.mark.parametrize("grid", LARGE_GRIDS, ids=str)
@pytest.mark.parametrize("layout", [_planar, _tokens])
def test_large_and_prime_grids_are_within_the_budget(layout, grid):
    problem = make_problem(*grid, batch=1, channels=2, temperature=0.1, dtype=torch.float32)
    ours = results_of(layout, problem.to(torch.float32))
    assert_within_budget(ours, problem, torch.float32)


@pytest.mark.parametrize("grid", [(7, 8), (16, 16), (33, 40)], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("layout", [_planar, _tokens])
def test_sixteen_bits_are_within_the_budget(layout, dtype, grid):
    problem = make_problem(*grid, temperature=0.1, dtype=dtype)
    assert_within_budget(results_of(layout, problem.to(dtype)), problem, dtype)


@pytest.mark.parametrize("mean", [3.0, 300.0])
@pytest.mark.parametrize("layout", [_planar, _tokens])
def test_a_mean_far_from_zero_is_within_the_budget(layout, mean):
    problem = make_problem(9, 14, mean=mean, dtype=torch.float32)
    ours = results_of(layout, problem.to(torch.float32))
    assert_within_budget(ours, problem, torch.float32)


@pytest.mark.parametrize("shape", list(itertools.product((1, 2), (1, 3), (1, 5))), ids=str)
@pytest.mark.parametrize("grid", [(5, 6), (5, 96)], ids=str)
@pytest.mark.parametrize("layout", [_planar, _tokens])
def test_a_bias_of_any_broadcast_gets_its_own_gradient(layout, grid, shape):
    problem = make_problem(*grid, bias_shape=shape)
    ours, exact = results_of(layout, problem), exact_results(problem)
    for name, value in ours.items():
        torch.testing.assert_close(value, exact[name], rtol=1e-11, atol=1e-11)


def test_blocks_of_the_batch_give_what_the_whole_batch_gives(monkeypatch):
    problem = make_problem(5, 6, batch=7)
    whole = results_of(_tokens, problem)
    monkeypatch.setattr(implementation, "BLOCK_BYTES", 2 * 5 * 6 * 3 * 4)
    assert len(implementation._blocks(problem.x)) == 4
    for name, value in results_of(_tokens, problem).items():
        torch.testing.assert_close(value, whole[name], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("wanted", list(itertools.product((True, False), repeat=3)), ids=str)
@pytest.mark.parametrize("grid", [(5, 6), (5, 96)], ids=str)
def test_only_the_wanted_gradients_are_computed(grid, wanted):
    problem = make_problem(*grid)
    x = problem.x.contiguous(memory_format=torch.channels_last)
    arguments = problem.grad_out, x, problem.bias, problem.temperature, 1.0
    by_products = implementation.uses_products(x)
    every = implementation.spectral_backward_pytorch(*arguments, (True, True, True), by_products)
    some = implementation.spectral_backward_pytorch(*arguments, wanted, by_products)
    for is_wanted, one, other in zip(wanted, every, some, strict=True):
        assert (other is not None) == is_wanted
        if is_wanted:
            torch.testing.assert_close(other, one, rtol=0, atol=0)


def test_a_form_is_chosen_by_layout_and_shape_alone():
    def tokens(height, width):
        return torch.empty(2, height, width, 3).permute(0, 3, 1, 2)

    assert implementation.uses_products(tokens(14, 14))
    assert implementation.uses_products(tokens(32, 32))
    assert not implementation.uses_products(tokens(64, 64))
    assert not implementation.uses_products(torch.empty(2, 3, 14, 14))


def test_the_compiler_gives_the_same_numbers():
    """The code that inductor makes, forward and backward."""
    problem = make_problem(6, 7, dtype=torch.float32).to(torch.float32)
    torch._dynamo.reset()
    compiled = results_of(torch.compile(_tokens, fullgraph=True), problem)
    for name, value in results_of(_tokens, problem).items():
        torch.testing.assert_close(compiled[name], value, rtol=1e-5, atol=1e-5)
