"""The one-kernel planar form: memory, independence of images, extreme values, determinism."""

from collections.abc import Callable

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from dualwave.kernels.spectral import small_planar
from dualwave.kernels.spectral.triton_kernels.planar_tiles import stack_rows, tile_offsets

from .oracle import assert_within_budget, exact_results, make_problem
from .small_planar_runs import call_of, run_backward, run_forward, run_problem

GUARD = 12345.0


class GuardedBuffers:
    """Stands in for torch.empty and torch.empty_like: NaN inside, guard values around."""

    def __init__(self) -> None:
        self.buffers: list[tuple[Tensor, int]] = []

    def empty(
        self, *size: int | tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """A contiguous tensor between guards."""
        shape = torch.Size(size[0] if isinstance(size[0], tuple) else size)
        buffer = torch.full((shape.numel() + 128,), GUARD, dtype=dtype, device=device)
        buffer[64:-64] = float("nan")
        self.buffers.append((buffer, shape.numel()))
        return buffer[64:-64].view(shape)

    def empty_like(self, tensor: Tensor) -> Tensor:
        """A contiguous tensor of the same shape between guards."""
        return self.empty(tuple(tensor.shape), dtype=tensor.dtype, device=tensor.device)

    def assert_filled(self, count: int) -> None:
        """Every element was written, and nothing around them."""
        assert len(self.buffers) == count
        for buffer, elements in self.buffers:
            assert bool(torch.isfinite(buffer[64 : 64 + elements]).all())
            assert bool((buffer[:64] == GUARD).all())
            assert bool((buffer[-64:] == GUARD).all())


@pytest.mark.parametrize("rows_of_bias", ["one", "all"])
@pytest.mark.parametrize(
    ("height", "width"), [(1, 1), (1, 32), (3, 5), (7, 14), (17, 32), (37, 31)]
)
def test_outputs_are_written_whole_and_nothing_else_is(
    height: int, width: int, rows_of_bias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bias_shape = (1, 3, 1 if rows_of_bias == "one" else height)
    inputs = make_problem(height, width, bias_shape=bias_shape).to(torch.bfloat16)
    call = call_of(inputs.x, inputs.bias, inputs.temperature, "fp16")
    guarded = GuardedBuffers()
    monkeypatch.setattr(small_planar.torch, "empty", guarded.empty)
    monkeypatch.setattr(small_planar.torch, "empty_like", guarded.empty_like)
    plans = [
        small_planar.FORM.plan_forward(call),
        small_planar.FORM.plan_backward(call, inputs.grad_out, (True, True, True)),
    ]
    monkeypatch.undo()
    for plan in plans:
        for launch in plan.launches:
            launch.run()
    guarded.assert_filled(4)


def _sliced(tensor: Tensor) -> Tensor:
    wider = torch.full((*tensor.shape[:-2], tensor.shape[-2] * 2, tensor.shape[-1] + 3), GUARD)
    wider = wider.to(tensor.dtype)
    view = wider[..., ::2, 1:-2]
    view.copy_(tensor)
    return view


def _permuted(tensor: Tensor) -> Tensor:
    return tensor.permute(3, 0, 2, 1).contiguous().permute(1, 3, 2, 0)


def _expanded_batch(tensor: Tensor) -> Tensor:
    return tensor[:1].expand(tensor.shape)


def _expanded_images(tensor: Tensor) -> Tensor:
    return tensor[..., :1, :1].expand(tensor.shape)


VIEWS = [_sliced, _permuted, _expanded_batch, _expanded_images]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("height", "width"), [(5, 32), (17, 6)])
def test_strided_and_expanded_tensors(
    view: Callable[[Tensor], Tensor], height: int, width: int
) -> None:
    inputs = make_problem(height, width).to(torch.float32)
    x, grad_out, bias = view(inputs.x), view(inputs.grad_out), _sliced(inputs.bias)
    call = call_of(x, bias, inputs.temperature, "tf32")
    plain = call_of(x.contiguous(), bias.contiguous(), inputs.temperature, "tf32")
    assert torch.equal(run_forward(call), run_forward(plain))
    grads = run_backward(call, grad_out)
    expected = run_backward(plain, grad_out.contiguous())
    for grad, other in zip(grads, expected, strict=True):
        assert grad is not None
        assert other is not None
        assert torch.equal(grad, other)


@pytest.mark.parametrize(
    ("height", "width", "precision"),
    [(1, 9, "fp16"), (3, 5, "fp16"), (3, 5, "tf32"), (14, 14, "fp16"), (14, 14, "ieee")],
)
def test_images_do_not_depend_on_each_other(height: int, width: int, precision: str) -> None:
    inputs = make_problem(height, width, batch=2, channels=2).to(torch.float32)
    # Different ranges in one program.
    x = inputs.x * torch.tensor([1.0, 2.0**-30])[None, :, None, None]
    batched = call_of(x, inputs.bias, 0.3, precision)
    y = run_forward(batched)
    dx, _, _ = run_backward(batched, inputs.grad_out)
    assert dx is not None
    for b, c in [(0, 1), (1, 0)]:
        at = (slice(b, b + 1), slice(c, c + 1))
        alone = call_of(x[at], inputs.bias[:, at[1]], 0.3, precision)
        assert torch.equal(run_forward(alone), y[at])
        alone_dx, _, _ = run_backward(alone, inputs.grad_out[at])
        assert alone_dx is not None
        assert torch.equal(alone_dx, dx[at])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, in the interpreter
@pytest.mark.parametrize("where", ["x", "grad_out", "bias"])
@pytest.mark.parametrize(
    ("height", "width", "precision", "value"),
    [
        (6, 7, "fp16", float("nan")),
        (6, 7, "fp16", -float("inf")),
        (6, 7, "fp16", 1e30),
        (6, 7, "tf32", float("nan")),
        (6, 7, "tf32", float("inf")),
        (6, 7, "tf32", 1e30),
        (5, 32, "fp16", float("nan")),
        (1, 5, "fp16", float("nan")),
        (17, 31, "tf32", float("nan")),
    ],
)
def test_values_that_are_not_finite_stay_in_their_image(
    height: int, width: int, precision: str, where: str, value: float
) -> None:
    inputs = make_problem(height, width, batch=1, bias_shape=(1, 3, height)).to(torch.float32)
    tensors = {"x": inputs.x, "grad_out": inputs.grad_out, "bias": inputs.bias}
    clean = call_of(inputs.x, inputs.bias, inputs.temperature, precision)
    clean_results = (run_forward(clean), *run_backward(clean, inputs.grad_out)[:2])
    tensors[where] = tensors[where].clone()
    tensors[where][0, 1, height // 2, width // 4] = value
    call = call_of(tensors["x"], tensors["bias"], inputs.temperature, precision)
    results = (run_forward(call), *run_backward(call, tensors["grad_out"])[:2])
    for result, expected in zip(results, clean_results, strict=True):
        assert result is not None
        assert expected is not None
        assert torch.equal(result[:, 0::2], expected[:, 0::2])
    if where == "x":  # 1e30 squared is beyond float32
        assert results[0].isnan().all(dim=-1)[0, 1].any()
        assert results[1] is not None
        assert results[1].isnan().all(dim=-1)[0, 1].any()
    if where == "grad_out" and value != 1e30:
        assert results[1] is not None
        assert results[1][0, 1].isnan().all()
    if where == "bias" and value in (float("inf"), float("nan")):
        assert results[0][0, 1].isnan().all()


def test_a_bias_of_minus_infinity_removes_a_bin() -> None:
    inputs = make_problem(4, 6).to(torch.float32)
    bias = torch.zeros(1, 1, 1, 4)
    bias[..., 1:] = -float("inf")
    y = run_forward(call_of(inputs.x, bias, 1.0))
    row_means = inputs.x.mean(dim=-1, keepdim=True)
    torch.testing.assert_close(y, row_means.expand_as(y), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("precision", ["fp16", "tf32", "ieee"])
def test_an_image_of_zeros_gives_zeros_and_finite_gradients(precision: str) -> None:
    inputs = make_problem(5, 6).to(torch.float32)
    x = torch.zeros_like(inputs.x)
    call = call_of(x, inputs.bias, inputs.temperature, precision)
    assert torch.equal(run_forward(call), x)
    for grad in run_backward(call, inputs.grad_out):
        assert grad is not None
        assert torch.isfinite(grad).all()


@pytest.mark.parametrize(
    ("dtype", "precision"), [(torch.bfloat16, "fp16"), (torch.float32, "tf32")]
)
@pytest.mark.parametrize(("height", "width"), [(14, 14), (64, 64)])
def test_a_mean_far_from_zero(height: int, width: int, dtype: torch.dtype, precision: str) -> None:
    problem = make_problem(height, width, batch=1, channels=2, mean=20.0, dtype=dtype)
    results = run_problem(problem, dtype, precision)
    assert_within_budget(results, problem, dtype, rounded_products=True)
    # Row 0 of the spectrum keeps nothing but the constant.
    exact = exact_results(problem)["y"]
    assert abs(float(exact.mean()) - float(problem.x.mean())) < 1e-3
    assert abs(float(results["y"].double().mean()) - float(exact.mean())) < 0.1


@pytest.mark.parametrize("scale", [2.0**-60, 2.0**40])
def test_fp16_products_follow_the_scale_of_the_images(scale: float) -> None:
    problem = make_problem(14, 14).to(torch.float32)
    temperature = float(problem.temperature)
    usual = call_of(problem.x, problem.bias, temperature, "fp16")
    scaled = call_of(problem.x * scale, problem.bias, temperature / scale**2, "fp16")
    assert torch.equal(run_forward(scaled), run_forward(usual) * scale)
    dx, dbias, _ = run_backward(usual, problem.grad_out)
    scaled_dx, scaled_dbias, _ = run_backward(scaled, problem.grad_out * scale)
    assert dx is not None
    assert dbias is not None
    assert scaled_dx is not None
    assert scaled_dbias is not None
    torch.testing.assert_close(scaled_dx, dx * scale, rtol=1e-5, atol=0)
    torch.testing.assert_close(scaled_dbias, dbias * scale**2, rtol=1e-5, atol=0)


def test_shifting_the_input_shifts_the_output() -> None:
    x = make_problem(9, 14).to(torch.float32).x
    shifted = run_forward(call_of(x.roll((2, 5), (2, 3)), None, 0.5))
    expected = run_forward(call_of(x, None, 0.5)).roll((2, 5), (2, 3))
    torch.testing.assert_close(shifted, expected, rtol=1e-5, atol=1e-5)


def test_the_same_input_gives_the_same_bits() -> None:
    inputs = make_problem(14, 14).to(torch.bfloat16)
    call = call_of(inputs.x, inputs.bias, inputs.temperature, "fp16")
    first = (run_forward(call), *run_backward(call, inputs.grad_out))
    second = (run_forward(call), *run_backward(call, inputs.grad_out))
    for one, other in zip(first, second, strict=True):
        assert one is not None
        assert other is not None
        assert torch.equal(one, other)


@triton.jit
def _write_offsets(out, program, channels, stride_b, stride_c, stride_h, stride_w):
    batch, channel, h = stack_rows(program, channels, 4, 2)
    column = tl.arange(0, 2)
    offsets = tile_offsets(batch, channel, h, column, stride_b, stride_c, stride_h, stride_w)
    tl.store(out + tl.arange(0, 4)[:, None] * 2 + column[None, :], offsets)


@pytest.mark.parametrize(
    ("program", "strides"),
    [
        (1, (2**33, 2**31, 2**32, 2**34)),  # strides beyond 32 bits
        (2**30 + 1, (7, 5, 3, 2)),  # an image index beyond 32 bits
        (5, (2**30, 2**30 + 1, 2**31 - 1, 2**31 - 1)),  # products beyond 32 bits
    ],
)
def test_offsets_beyond_two_to_the_31(program: int, strides: tuple[int, ...]) -> None:
    channels = 3
    out = torch.empty(4, 2, dtype=torch.int64)
    _write_offsets[(1,)](out, program, channels, *strides)
    for row in range(4):
        image = program * 2 + row // 2
        indices = (image // channels, image % channels, row % 2)
        for column in range(2):
            steps = zip((*indices, column), strides, strict=True)
            assert int(out[row, column]) == sum(index * stride for index, stride in steps)
