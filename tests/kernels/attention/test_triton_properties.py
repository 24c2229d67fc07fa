"""The Triton kernels: strides, independence of parts, precision, determinism, long grids."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dualwave.kernels.attention.planning import plan_backward, plan_forward
from dualwave.kernels.attention.plans import Call, Visibility
from dualwave.kernels.choices import resolve_precision
from dualwave.kernels.targets import SM_90

from .oracle import assert_within_budget, exact_results, make_problem, plain_results
from .triton_runs import attend, check, run, tiles_of

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def _fused(tensor: Tensor) -> Tensor:
    """One of three in a projection's output, (B, S, 3, H, D)."""
    return torch.stack([tensor.detach()] * 3, dim=2)[:, :, 1]


def _heads_first(tensor: Tensor) -> Tensor:
    return tensor.detach().transpose(1, 2).contiguous().transpose(1, 2)


def _columns_apart(tensor: Tensor) -> Tensor:
    return torch.stack([tensor.detach()] * 2, dim=-1)[..., 0]


def _backwards_in_memory(tensor: Tensor) -> Tensor:
    return tensor.detach().permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)


@pytest.mark.parametrize("view", [_fused, _heads_first, _columns_apart, _backwards_in_memory])
def test_strided_tensors_are_read_where_they_lie(view: Callable[[Tensor], Tensor]) -> None:
    problem = make_problem(18, 21, size=5, dtype=torch.float32, causal=True)
    tensors = [t.float() for t in (problem.q, problem.k, problem.v)]
    grad_out = problem.grad_out.float()

    def results(change: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
        leaves = [change(t).requires_grad_() for t in tensors]
        with tiles_of(16, 16):
            out, lse = attend(*leaves, causal=True)
            return out, lse, *torch.autograd.grad(out, leaves, change(grad_out))

    for one, other in zip(results(view), results(torch.Tensor.contiguous), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (3,), (0, 1, 2, 3)])
def test_an_expanded_gradient(dims: tuple[int, ...]) -> None:
    problem = make_problem(18, 21, dtype=torch.float32)
    narrow = problem.grad_out.float()
    for dim in dims:
        narrow = narrow.narrow(dim, 0, 1)
    expanded = narrow.expand(problem.grad_out.shape)
    leaves = [t.float().requires_grad_() for t in (problem.q, problem.k, problem.v)]
    with tiles_of(16, 16):
        out, _ = attend(*leaves)
        grads = torch.autograd.grad(out, leaves, expanded, retain_graph=True)
        expected = torch.autograd.grad(out, leaves, expanded.contiguous())
    for grad, other in zip(grads, expected, strict=True):
        assert torch.equal(grad, other)


def test_expanded_inputs() -> None:
    problem = make_problem(18, dtype=torch.float32)
    q, k, v = (t.float()[:1, :, :1] for t in (problem.q, problem.k, problem.v))
    with tiles_of(16, 16):
        out, _ = attend(q.expand(3, 18, 4, 8), k.expand(3, 18, 2, 8), v.expand(3, 18, 2, 8))
        expected, _ = attend(q, k, v)
    assert torch.equal(out, expected.expand(out.shape))


@pytest.mark.parametrize("options", [{"causal": True}, {"window": (5, 2)}])
def test_batch_elements_and_heads_do_not_depend_on_each_other(options: dict[str, Any]) -> None:
    problem = make_problem(19, 35, heads=4, key_heads=2, dtype=torch.float32, **options)
    together = run(problem, torch.float32)
    for batch, key_head in itertools.product(range(2), range(2)):
        heads = slice(2 * key_head, 2 * key_head + 2)
        at, key_at = (
            (slice(batch, batch + 1), slice(None), which)
            for which in (heads, slice(key_head, key_head + 1))
        )
        alone = make_problem(19, 35, heads=2, key_heads=1, dtype=torch.float32, **options)
        pieces = {
            "q": problem.q[at],
            "k": problem.k[key_at],
            "v": problem.v[key_at],
            "grad_out": problem.grad_out[at],
            "grad_lse": problem.grad_lse[batch : batch + 1, heads],
        }
        results = run(type(alone)(bias=None, options=options, **pieces), torch.float32)
        for name, where in (("out", at), ("dq", at), ("dk", key_at), ("dv", key_at)):
            assert torch.equal(results[name], together[name][where]), name


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_packed_sequence_is_what_it_is_alone(dtype: torch.dtype) -> None:
    lengths = [(19, 35), (1, 1), (40, 22)]
    problem = make_problem(60, 58, batch=1, dtype=dtype)
    tensors = [t.to(dtype) for t in (problem.q, problem.k, problem.v)]
    marks = [torch.tensor([0, *itertools.accumulate(side)]) for side in zip(*lengths, strict=True)]
    with tiles_of(16, 16):
        out, lse = attend(*tensors, causal=True, cu_seqlens_q=marks[0], cu_seqlens_k=marks[1])
        for s in range(3):
            queries, keys = (slice(int(side[s]), int(side[s + 1])) for side in marks)
            alone, alone_lse = attend(
                tensors[0][:, queries], tensors[1][:, keys], tensors[2][:, keys], causal=True
            )
            assert torch.equal(out[:, queries], alone)
            assert torch.equal(lse[..., queries], alone_lse)


def test_the_same_bits_every_time() -> None:
    problem = make_problem(
        35, 35, heads=4, key_heads=2, bias_shape=(1, 1, 35, 35), dtype=torch.float16, causal=True
    )
    one, other = run(problem, torch.float16), run(problem, torch.float16)
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


@pytest.mark.parametrize("wanted", [["q"], ["k"], ["v"], ["bias"], ["q", "v"], ["k", "bias"]])
def test_only_the_gradients_that_are_wanted(wanted: list[str]) -> None:
    problem = make_problem(18, 21, bias_shape=(1, 2, 18, 21), dtype=torch.float32)
    everything = run(problem, torch.float32, with_lse=False)
    leaves = {name: getattr(problem, name).float() for name in ("q", "k", "v", "bias")}
    for name in wanted:
        leaves[name].requires_grad_()
    with tiles_of(16, 16):
        out, _ = attend(leaves["q"], leaves["k"], leaves["v"], bias=leaves["bias"])
        out.backward(problem.grad_out.float())
    for name, leaf in leaves.items():
        if name in wanted:
            assert torch.equal(leaf.grad, everything[f"d{name}"]), name
        else:
            assert leaf.grad is None, name


def test_the_gradient_of_the_lse_alone() -> None:
    problem = make_problem(18, 21, dtype=torch.float32, causal=True)
    zero_out = type(problem)(
        problem.q, problem.k, problem.v, None, torch.zeros_like(problem.grad_out),
        problem.grad_lse, problem.options,
    )  # fmt: skip
    expected = exact_results(zero_out)
    leaves = [t.float().requires_grad_() for t in (problem.q, problem.k, problem.v)]
    with tiles_of(16, 16):
        _, lse = attend(*leaves, causal=True)
        grads = torch.autograd.grad(lse, leaves[:2], problem.grad_lse.float())
    for name, grad in zip(("dq", "dk"), grads, strict=True):
        plain = plain_results(zero_out, torch.float32)[name].double()
        budget = 2 * (plain - expected[name]).abs().max()
        budget += 4 * torch.finfo(torch.float32).eps * expected[name].abs().max()
        assert (grad.double() - expected[name]).abs().max() <= budget


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_partial_results_are_not_rounded(dtype: torch.dtype) -> None:
    """Results of float32 have float32's budget, but for the operands of the second product."""
    problem = make_problem(19, 35, size=16, dtype=dtype)
    leaves = [t.to(dtype).requires_grad_() for t in (problem.q, problem.k, problem.v)]
    with tiles_of(16, 16):
        partial, _ = attend(*leaves, partial_dtype=torch.float32)
        rounded, _ = attend(*leaves)
        grads = torch.autograd.grad(partial, leaves, problem.grad_out.float())
    assert partial.dtype == torch.float32
    # The interpreter cuts off what does not fit into bfloat16.
    ulps = 1 if dtype == torch.bfloat16 else 0
    rtol = ulps * torch.finfo(dtype).eps
    torch.testing.assert_close(partial.to(dtype), rounded, rtol=rtol, atol=0)
    assert not torch.equal(partial, rounded.float())
    exact = exact_results(problem, with_lse=False)
    plain = plain_results(problem, dtype, with_lse=False)
    for name, grad in zip(("dq", "dk", "dv"), grads, strict=True):
        assert grad.dtype == dtype
        budget = 2 * (plain[name].double() - exact[name]).abs().max()
        budget += 4 * torch.finfo(dtype).eps * exact[name].abs().max()
        assert (grad.double() - exact[name]).abs().max() <= budget, name


@pytest.mark.parametrize("bias_dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_bias_of_another_dtype(bias_dtype: torch.dtype) -> None:
    problem = make_problem(18, 21, bias_shape=(1, 2, 1, 21), dtype=torch.float32)
    bias = problem.bias.to(bias_dtype).requires_grad_()
    tensors = [t.float() for t in (problem.q, problem.k, problem.v)]
    same = bias.detach().float().requires_grad_()
    with tiles_of(16, 16):
        out, _ = attend(*tensors, bias=bias)
        expected, _ = attend(*tensors, bias=same)
        out.backward(problem.grad_out.float())
        expected.backward(problem.grad_out.float())
    assert torch.equal(out, expected)
    assert bias.grad.dtype == bias_dtype
    assert torch.equal(bias.grad, same.grad.to(bias_dtype))


@pytest.mark.parametrize(
    "options", [{"causal": True}, {"window": (5, 2)}, {"bias_shape": (1, 2, 21, 19)}]
)
def test_tf32_emulated_stays_within_its_own_bound(options: dict[str, Any]) -> None:
    """The kernels round tf32's operands themselves, so that the interpreter emulates the units."""
    problem = make_problem(21, 19, size=24, dtype=torch.float32, **options)
    results = run(problem, torch.float32, precision="tf32")
    assert_within_budget(results, problem, torch.float32, rounded_products=True)
    with pytest.raises(AssertionError, match="over the budget"):  # else the bound would say nothing
        assert_within_budget(results, problem, torch.float32)


@pytest.mark.parametrize("precision", ["ieee", "tf32x3"])
def test_precisions_without_rounding_in_the_interpreter(precision: str) -> None:
    check(make_problem(19, 35, size=20, dtype=torch.float32), precision=precision)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_precision_is_for_float32(dtype: torch.dtype) -> None:
    x = torch.zeros(1, 4, 1, 8, dtype=dtype)
    with pytest.raises(ValueError, match="leave it None"):
        attend(x, x, x, precision="tf32")


def test_the_default_precisions() -> None:
    def on_meta(dtype: torch.dtype) -> Tensor:
        return torch.empty(1, dtype=dtype, device="meta")

    assert resolve_precision("default", on_meta(torch.bfloat16), "bf16") == "bf16"
    assert resolve_precision("default", torch.empty(1, dtype=torch.bfloat16), "bf16") == "ieee"
    assert resolve_precision("default", on_meta(torch.float32), "fp16") == "tf32x3"


def test_strides_beyond_two_to_the_31() -> None:
    """Rows, heads and batch elements gigabytes apart; only what is touched takes memory."""
    far = 2**30 + 24
    problem = make_problem(3, 3, heads=2, size=8, dtype=torch.float16, causal=True)
    views = []
    for tensor in (problem.q, problem.k, problem.v, problem.grad_out):
        buffer = torch.empty(4 * far + 100, dtype=torch.float16)
        view = buffer.as_strided(tensor.shape, (far + 16, far, 8, 1))
        view.copy_(tensor)
        views.append(view)
    near = [view.contiguous() for view in views]
    results = []
    for q, k, v, grad_out in (views, near):
        leaves = [t.detach().requires_grad_() for t in (q, k, v)]
        out, _ = attend(*leaves, causal=True)
        results.append((out, *torch.autograd.grad(out, leaves, grad_out)))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_grids_are_long_on_the_first_axis_alone() -> None:
    """The others stop at 65,535 programs."""
    x = torch.empty(1100, 5, 64, 8, dtype=torch.float16, device="meta")
    bias = torch.empty(1100, 64, 5, 5, device="meta")
    call = Call(x, x, x, bias, None, Visibility(None, 0, None), 0.3, x.dtype, "fp16", SM_90)
    normalisers = torch.empty(2, 1100, 64, 5, device="meta")
    plans = [
        plan_forward(call),
        plan_backward(call, x, normalisers, x, None, x.dtype, (True, True, True, True)),
    ]
    launches = [launch for plan in plans for launch in plan.launches]
    assert len(launches) == 5
    for launch in launches:
        assert launch.grid == (1100 * 64,)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_query_that_sees_one_key_has_no_gradient_of_partial_results(dtype: torch.dtype) -> None:
    """Delta and the gradient of the weight are of the same numbers, and cancel."""
    q, k, v = (torch.randn(1, 16, 1, 16).to(dtype).requires_grad_() for _ in range(3))
    with tiles_of(16, 16):
        out, _ = attend(q, k, v, window=(0, 0), partial_dtype=torch.float32)
    grads = torch.autograd.grad(out, (q, k), torch.randn_like(out))
    assert all(float(grad.abs().max()) < 1e-5 for grad in grads)
