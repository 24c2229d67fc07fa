"""The one-kernel token form: what must hold exactly, whatever the numbers are."""

from dataclasses import replace

import pytest
import torch
import triton
import triton.language as tl

from dualwave.kernels.device_functions import offset
from dualwave.kernels.spectral import small_tokens
from dualwave.kernels.spectral.triton_kernels.tokens_tiles import tile_offsets
from dualwave.kernels.targets import GFX942, SM_80, SM_90, SM_100, TARGETS

from .oracle import make_problem
from .small_tokens_runs import Inputs, make_call, run, token_inputs

KINDS = [(torch.float32, "tf32"), (torch.bfloat16, "fp16"), (torch.float16, "fp16")]


@pytest.mark.parametrize(("dtype", "precision"), KINDS, ids=str)
@pytest.mark.parametrize("grid", [(1, 9), (3, 32)], ids=str)
def test_batched_equals_unbatched_bit_by_bit(grid, dtype, precision):
    problem = make_problem(*grid, batch=3, bias_shape=(3, 3, grid[0]), dtype=dtype)
    # One batch element is much larger: a scale shared between them would show.
    sizes = torch.tensor([1.0, 1e3, 1.0]).reshape(3, 1, 1, 1)
    inputs = token_inputs(replace(problem, x=problem.x * sizes), dtype)
    together = run(inputs, precision)
    for b in range(3):
        one = slice(b, b + 1)
        alone = Inputs(
            inputs.x[one].clone(), inputs.bias[one], inputs.temperature, inputs.grad_out[one]
        )
        results = run(alone, precision)
        for name in ("y", "dx", "dbias"):
            assert torch.equal(results[name][0], together[name][b]), name


def test_the_same_input_gives_the_same_bits():
    inputs = token_inputs(make_problem(5, 32), torch.bfloat16)
    first, second = run(inputs, "fp16"), run(inputs, "fp16")
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["x", "grad_out"])
@pytest.mark.parametrize(("dtype", "precision"), KINDS, ids=str)
@pytest.mark.parametrize("grid", [(1, 9), (3, 32)], ids=str)
def test_what_is_not_finite_in_one_channel_stays_in_it(grid, dtype, precision, where, poison):
    inputs = token_inputs(make_problem(*grid), dtype)
    clean = run(inputs, precision)
    poisoned = getattr(inputs, where).clone(memory_format=torch.preserve_format)
    poisoned[1, 1, 0, 2] = poison
    results = run(replace(inputs, **{where: poisoned}), precision)
    for name in ("y", "dx"):
        others = torch.ones_like(clean[name], dtype=torch.bool)
        others[1, 1] = False
        assert torch.equal(results[name][others], clean[name][others]), name
    assert results["dx"][1, 1].isnan().all()
    assert results["y"][1, 1].isnan().all() == (where == "x")


@pytest.mark.parametrize("grid", [(5, 6), (1, 9), (3, 32)], ids=str)
def test_an_image_of_zeros_gives_zeros(grid):
    inputs = token_inputs(make_problem(*grid), torch.bfloat16)
    inputs = replace(inputs, x=torch.zeros_like(inputs.x))
    results = run(inputs, "fp16")
    assert (results["y"] == 0).all()
    assert results["dx"].isfinite().all()
    assert results["dtemperature"] == 0


@pytest.mark.parametrize("power", [-60, -20, 20, 60])
@pytest.mark.parametrize("grid", [(5, 6), (1, 9), (3, 32)], ids=str)
def test_scaling_by_a_power_of_two_is_exact_in_fp16(grid, power):
    inputs = token_inputs(make_problem(*grid), torch.float32)
    factor = 2.0**power
    # temperature |X|^2 stays what it is; the gradient of the output is tiny where x is huge.
    scaled = Inputs(
        inputs.x * factor,
        inputs.bias,
        inputs.temperature / factor / factor,
        inputs.grad_out / factor,
    )
    expected, results = run(inputs, "fp16"), run(scaled, "fp16")
    assert torch.equal(results["y"], expected["y"] * factor)
    assert torch.equal(results["dx"], expected["dx"] / factor)
    assert torch.equal(results["dbias"], expected["dbias"])


@pytest.mark.parametrize("grid", [(5, 6), (1, 9), (3, 32), (14, 14)], ids=str)
def test_a_shift_of_the_input_shifts_the_output(grid):
    inputs = token_inputs(make_problem(*grid, bias_shape=(1, 3, grid[0])), torch.float32)
    shifts = (grid[0] // 2, 3)

    def shifted(tensor):
        return torch.roll(tensor, shifts, dims=(2, 3))

    expected = run(inputs, "ieee", backward=False)["y"]
    result = run(replace(inputs, x=shifted(inputs.x)), "ieee", backward=False)["y"]
    # Rounding of the same numbers in another order.
    torch.testing.assert_close(result, shifted(expected), rtol=0, atol=2e-6)


@triton.jit
def _offsets_kernel(output, stride_b, stride_c, stride_h, stride_w):
    index = tl.arange(0, 4)
    offsets = offset(tl.program_id(0) + 3, stride_b)
    offsets += tile_offsets(index, index, index, stride_c, stride_h, stride_w)
    where = index[:, None, None] * 16 + index[None, :, None] * 4 + index[None, None, :]
    tl.store(output + where, offsets)


def test_offsets_hold_beyond_32_bits():
    strides = [2**31 + 7, 2**30 + 3, 2**30 + 1, 2**30 - 1]
    output = torch.zeros(4, 4, 4, dtype=torch.int64)
    _offsets_kernel[(1,)](output, *strides)
    i = torch.arange(4)
    expected = 3 * strides[0] + i[:, None, None] * strides[1]
    expected = expected + i[:, None] * strides[2] + i * strides[3]
    assert torch.equal(output, expected)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_plans_touch_no_data_and_share_their_tables(target):
    x = torch.empty(2, 14 * 14, 768, device="meta").unflatten(1, (14, 14)).permute(0, 3, 1, 2)
    call = make_call(Inputs(x, None, 1.0, x), "tf32", target)
    first = small_tokens.FORM.plan_forward(call).launches[0]
    again = small_tokens.FORM.plan_backward(call, x, (True, False, False)).launches[0]
    assert first.arguments["tables"].device == x.device
    third = small_tokens.FORM.plan_forward(call).launches[0]
    assert third.arguments["tables"] is first.arguments["tables"]
    assert again.grid == (2 * 768 // again.arguments["BLOCK_C"],)


@pytest.mark.parametrize(
    ("grid", "precision", "target", "forward", "backward"),
    [
        ((32, 32), "fp16", SM_90, True, True),
        ((33, 32), "fp16", SM_90, False, False),
        ((1, 33), "tf32", SM_100, False, False),
        ((32, 32), "tf32", SM_90, True, True),
        ((32, 32), "tf32", SM_80, True, False),
        ((31, 31), "tf32", SM_80, True, True),
        ((32, 32), "ieee", GFX942, True, False),
        ((16, 16), "tf32x3", SM_80, True, True),
        ((17, 16), "tf32x3", SM_80, True, False),
    ],
)
def test_which_calls_fit(grid, precision, target, forward, backward):
    x = torch.empty(1, 8, *grid, device="meta")
    call = make_call(Inputs(x, None, 1.0, x), precision, target)
    assert small_tokens.FORM.fits_forward(call) == forward
    assert small_tokens.FORM.fits_backward(call) == backward
