"""The kernels for grids of any size: arguments, layouts, isolation of images and arithmetic."""

import itertools

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from dualwave.kernels.spectral.triton_kernels.columns import line_offsets
from dualwave.kernels.spectral.triton_kernels.rows_tiles import bias_offsets

from .large_grid_runs import ALL, as_token_layout, call_of, run_backward, run_forward
from .oracle import Problem, assert_within_budget, exact_results, largest_logit, make_problem

# Two factors along H and one along W; a definition along H and along W.
SIZES = [(66, 4), (3, 67), (67, 2)]


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("bias_shape", list(itertools.product((1, 2), (1, 2), (1, 5))))
def test_biases_of_every_broadcast_shape(bias_shape: tuple[int, int, int]) -> None:
    problem = make_problem(5, 6, batch=2, channels=2, bias_shape=bias_shape, dtype=torch.float32)
    inputs = problem.to(torch.float32)
    call = call_of(inputs.x, inputs.bias, inputs.temperature)
    dx, dbias, dtemperature = run_backward(call, inputs.grad_out)
    assert dx is not None
    assert dbias is not None
    assert dtemperature is not None
    results = {"y": run_forward(call), "dx": dx, "dbias": dbias, "dtemperature": dtemperature}
    assert_within_budget(results, problem, torch.float32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_biases_of_every_dtype_and_any_strides(dtype: torch.dtype) -> None:
    x = random(2, 2, 5, 6)
    bias = random(4, 5, 2, 2, seed=1, dtype=dtype).permute(3, 2, 1, 0)
    full = call_of(x, bias.float().contiguous(), 0.5)
    assert torch.equal(run_forward(call_of(x, bias, 0.5)), run_forward(full))


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_without_a_bias_and_with_a_number_as_temperature(height: int, width: int) -> None:
    problem = make_problem(height, width, batch=1, channels=2, dtype=torch.float32)
    problem = Problem(problem.x, problem.bias * 0, problem.temperature, problem.grad_out)
    inputs = problem.to(torch.float32)
    call = call_of(inputs.x, None, float(inputs.temperature))
    dx, _, _ = run_backward(call, inputs.grad_out, (True, False, False))
    assert dx is not None
    assert_within_budget({"y": run_forward(call), "dx": dx}, problem, torch.float32)


@pytest.mark.parametrize(
    ("wanted", "height", "width"),
    [
        *((wanted, 6, 5) for wanted in itertools.product((True, False), repeat=3)),
        ((False, True, False), 2, 67),
        ((True, False, True), 2, 67),
    ],
)
def test_each_combination_of_gradients_has_the_same_bits(
    wanted: tuple[bool, bool, bool], height: int, width: int
) -> None:
    x, grad_out = random(1, 2, height, width), random(1, 2, height, width, seed=1)
    bias = random(1, 2, height, width // 2 + 1, seed=2)
    call = call_of(x, bias, torch.tensor(0.7))
    everything = run_backward(call, grad_out, ALL)
    results = run_backward(call, grad_out, wanted)
    for result, full, is_wanted in zip(results, everything, wanted, strict=True):
        assert (result is not None) == is_wanted
        if result is not None:
            assert full is not None
            assert torch.equal(result, full)


@pytest.mark.parametrize(("height", "width"), [(66, 2), (67, 2)])
def test_inputs_and_gradients_of_any_strides_have_the_bits_of_contiguous_ones(
    height: int, width: int
) -> None:
    views = {
        "a part of every other column": random(1, 2, height, 2 * width + 1)[..., 1::2],
        "transposed": random(1, 2, width, height).transpose(2, 3),
        "one number": random(1, 1, 1, 1).expand(1, 2, height, width),
        "one row": random(1, 2, 1, width).expand(1, 2, height, width),
    }
    plain = call_of(random(1, 2, height, width, seed=3))
    for name, view in views.items():
        copy = view.contiguous()
        assert torch.equal(run_forward(call_of(view)), run_forward(call_of(copy))), name
        of_view = run_backward(plain, view, (True, False, False))[0]
        of_copy = run_backward(plain, copy, (True, False, False))[0]
        assert of_view is not None
        assert of_copy is not None
        assert torch.equal(of_view, of_copy), name


@pytest.mark.parametrize(
    ("height", "width", "precision"),
    [(66, 4, "fp16"), (67, 2, "fp16"), (2, 67, "fp16"), (3, 5, "ieee"), (3, 5, "fp16")],
)
def test_batched_equals_unbatched_bit_by_bit(height: int, width: int, precision: str) -> None:
    x, grad_out = random(2, 2, height, width), random(2, 2, height, width, seed=1)
    x[1] *= 1000  # a neighbour's scale must not matter
    for arrange in (torch.Tensor.contiguous, as_token_layout):
        together = call_of(arrange(x), precision=precision)
        y = run_forward(together)
        dx, _, _ = run_backward(together, arrange(grad_out), (True, False, False))
        assert dx is not None
        for index in range(2):
            one = slice(index, index + 1)
            alone = call_of(arrange(x[one]), precision=precision)
            assert torch.equal(run_forward(alone), y[one])
            alone_dx, _, _ = run_backward(alone, arrange(grad_out[one]), (True, False, False))
            assert alone_dx is not None
            assert torch.equal(alone_dx, dx[one])


@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:All-NaN slice")
@pytest.mark.parametrize(
    ("height", "width", "precision", "value"),
    [
        (66, 4, "fp16", float("nan")),
        (67, 2, "fp16", float("nan")),
        (2, 67, "fp16", float("nan")),
        (3, 5, "ieee", float("nan")),
        (3, 5, "fp16", float("inf")),
        (2, 67, "ieee", float("inf")),
    ],
)
def test_a_broken_image_breaks_no_other(
    height: int, width: int, precision: str, value: float
) -> None:
    x, grad_out = random(2, 2, height, width), random(2, 2, height, width, seed=1)
    x = as_token_layout(x)
    whole = call_of(x.clone(memory_format=torch.preserve_format), precision=precision)
    expected = run_forward(whole)
    expected_dx, _, _ = run_backward(whole, grad_out, (True, False, False))
    x[0, 1, height // 2, width // 2] = value
    broken = call_of(x, precision=precision)
    y = run_forward(broken)
    dx, _, _ = run_backward(broken, grad_out, (True, False, False))
    assert dx is not None
    assert expected_dx is not None
    assert y[0, 1].isnan().any()
    assert dx[0, 1].isnan().any()
    for batch, channel in [(0, 0), (1, 0), (1, 1)]:
        assert torch.equal(y[batch, channel], expected[batch, channel])
        assert torch.equal(dx[batch, channel], expected_dx[batch, channel])


@pytest.mark.parametrize("precision", ["fp16", "ieee"])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_a_mean_far_from_zero_picks_the_constant_frequency(
    height: int, width: int, precision: str
) -> None:
    """|X|^2 of about 1e6 H W: no overflow; row 0 is one-hot, so the mean comes through."""
    problem = make_problem(height, width, batch=1, channels=1, mean=1000.0, dtype=torch.float32)
    inputs = problem.to(torch.float32)
    assert largest_logit(problem) > 1e6
    call = call_of(inputs.x, inputs.bias, inputs.temperature, precision)
    y = run_forward(call)
    assert torch.isfinite(y).all()
    assert float(y.mean()) == pytest.approx(float(inputs.x.mean()), rel=2e-3)
    dx, dbias, dtemperature = run_backward(call, inputs.grad_out)
    for gradient in (dx, dbias, dtemperature):
        assert gradient is not None
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("scale", [0.0, 2.0**-60, 2.0**40])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_images_of_any_magnitude(height: int, width: int, scale: float) -> None:
    """Powers of two change neither the weights (at temperature 0) nor the rounding of fp16."""
    x, grad_out = random(1, 1, height, width), random(1, 1, height, width, seed=1)
    plain = call_of(x, temperature=0.0, precision="fp16")
    scaled = call_of(x * scale, temperature=0.0, precision="fp16")
    assert torch.equal(run_forward(scaled), run_forward(plain) * scale)
    dx, _, _ = run_backward(scaled, grad_out * scale, (True, False, False))
    expected, _, _ = run_backward(plain, grad_out, (True, False, False))
    assert dx is not None
    assert expected is not None
    assert torch.equal(dx, expected * scale)


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_a_shift_of_the_input_shifts_the_output(height: int, width: int) -> None:
    problem = make_problem(height, width, batch=1, channels=1, dtype=torch.float32)
    shift = (height // 3, 1)
    shifted = Problem(
        problem.x.roll(shift, dims=(2, 3)), problem.bias, problem.temperature, problem.grad_out
    )
    inputs = shifted.to(torch.float32)
    y = run_forward(call_of(inputs.x, inputs.bias, inputs.temperature))
    expected = exact_results(problem)["y"].roll(shift, dims=(2, 3))
    assert_within_budget({"y": y}, shifted, torch.float32)
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("grid_size", [(5, 6), (3, 67)])
def test_the_same_input_has_the_same_bits(grid_size: tuple[int, int]) -> None:
    x = random(2, 3, *grid_size)
    assert torch.equal(run_forward(call_of(x)), run_forward(call_of(x)))


@triton.jit
def _write_line_offsets(result_ptr, batch, stride):
    """Offsets of channels 0 and 1 and lines 0 .. 3, all three strides being huge."""
    offsets = line_offsets(batch, tl.arange(0, 2), tl.arange(0, 4), stride, stride, stride)
    places = tl.arange(0, 2)[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(result_ptr + places, offsets)


@triton.jit
def _write_bias_offsets(result_ptr, stride):
    """Offsets of two rows (batches 0 and 1, channel 2, row 3) at the frequencies 0 .. 3."""
    row = tl.arange(0, 2)
    bin = tl.arange(0, 4)[None, :]
    offsets = bias_offsets(row, row * 0 + 2, row * 0 + 3, bin, stride, stride, stride, stride)
    places = tl.arange(0, 2)[None, :, None] * 4 + bin[:, None, :]
    tl.store(result_ptr + places, offsets)


def test_offsets_beyond_two_to_the_31() -> None:
    stride = 2**31 - 1
    result = torch.zeros(8, dtype=torch.int64)
    _write_line_offsets[(1,)](result, 3, stride)
    expected = [(3 + channel + line) * stride for channel in range(2) for line in range(4)]
    assert result.tolist() == expected
    _write_bias_offsets[(1,)](result, stride)
    expected = [(row + 2 + 3 + bin) * stride for row in range(2) for bin in range(4)]
    assert result.tolist() == expected
