"""The PyTorch implementation against the float64 definition: outputs, LSE and all gradients."""

import itertools
import math
from typing import Any

import pytest
import torch

from dualwave.kernels.attention import blockwise_attention, pytorch_chunked
from dualwave.kernels.attention.reference import blockwise_attention_reference, visible_pairs

from .cases import CU_SEQLENS, OPTIONS
from .oracle import assert_within_budget, exact_results, make_problem, results_of

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def check(problem, dtype=torch.float64, **more: Any) -> None:
    def ours(*tensors, **options):
        return blockwise_attention(*tensors, return_lse=True, **options)

    assert_within_budget(results_of(ours, problem, dtype, **more), problem, dtype)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(("queries", "keys"), [(7, 7), (5, 11), (11, 5), (1, 1), (1, 6), (6, 1)])
def test_masks_and_lengths(queries: int, keys: int, name: str) -> None:
    check(make_problem(queries, keys, **OPTIONS[name]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["plain", "causal", "window", "offsets"])
def test_dtypes(name: str, dtype: torch.dtype) -> None:
    check(make_problem(17, 17, size=16, dtype=dtype, **OPTIONS[name]), dtype)


@pytest.mark.parametrize("size", [1, 5, 72, 80, 96, 100, 256])
@pytest.mark.parametrize("name", ["plain", "window"])
def test_head_sizes(name: str, size: int) -> None:
    check(make_problem(5, 7, size=size, dtype=torch.float32, **OPTIONS[name]), torch.float32)


@pytest.mark.parametrize("name", ["plain", "causal", "window"])
@pytest.mark.parametrize(("heads", "key_heads"), [(6, 2), (4, 1)])
def test_grouped_heads(heads: int, key_heads: int, name: str) -> None:
    check(make_problem(6, 6, heads=heads, key_heads=key_heads, **OPTIONS[name]))


@pytest.mark.parametrize("name", ["plain", "causal", "window"])
@pytest.mark.parametrize("full", list(itertools.product((False, True), repeat=4)))
def test_bias_broadcast_over_any_dimension(full: tuple[bool, ...], name: str) -> None:
    shape = tuple(n if is_full else 1 for n, is_full in zip((2, 4, 5, 7), full, strict=True))
    check(make_problem(5, 7, heads=4, key_heads=2, bias_shape=shape, **OPTIONS[name]))


@pytest.mark.parametrize("needs_gradient", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_a_bias_of_minus_infinity_hides_keys(dtype: torch.dtype, needs_gradient: bool) -> None:
    problem = make_problem(5, 7, bias_shape=(2, 1, 1, 7), dtype=dtype)
    assert problem.bias is not None
    problem.bias[0, ..., 3:] = -torch.inf
    problem.bias[1] = -torch.inf

    def ours(q, k, v, bias):
        bias = bias if needs_gradient else bias.detach()
        return blockwise_attention(q, k, v, bias=bias, return_lse=True)

    results = results_of(ours, problem, dtype)
    if not needs_gradient:
        del results["dbias"]
    assert_within_budget(results, problem, dtype)
    assert bool(torch.isneginf(results["lse"][1]).all())


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("with_bias", [False, True])
def test_packed_sequences(name: str, with_bias: bool) -> None:
    """With an empty one, one of length 1, and two rows behind the last."""
    packing = {"cu_seqlens_q": CU_SEQLENS, "cu_seqlens_k": torch.tensor([0, 2, 2, 7, 9])}
    shape = (1, 1, 13, 10) if with_bias else None
    check(make_problem(13, 10, batch=1, bias_shape=shape, **packing, **OPTIONS[name]))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("begins", [(0, 0), (2, 5), (4, 4), (9, 0)])
def test_parts_of_a_packed_row(begins: tuple[int, int], causal: bool) -> None:
    options = {"causal": causal, "q_offset": begins[0], "k_offset": begins[1]}
    packing = {"cu_seqlens_q": CU_SEQLENS, "cu_seqlens_k": CU_SEQLENS}
    check(make_problem(4, 6, batch=1, **packing, **options))


@pytest.mark.parametrize("shape", [(0, 5, 5), (2, 0, 5), (2, 5, 0), (2, 0, 0)])
@pytest.mark.parametrize("name", ["plain", "causal", "window"])
def test_nothing_at_all(shape: tuple[int, int, int], name: str) -> None:
    batch, queries, keys = shape
    check(make_problem(queries, keys, batch=batch, **OPTIONS[name]))


@pytest.mark.parametrize("name", ["plain", "causal", "window"])
def test_chunks_of_any_length(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytorch_chunked, "_LOGITS_IN_A_CHUNK", 100)
    check(make_problem(29, 23, bias_shape=(1, 2, 29, 23), **OPTIONS[name]))


@pytest.mark.parametrize("name", ["plain", "window"])
def test_strided_inputs_and_gradients(name: str) -> None:
    problem = make_problem(5, 5, **OPTIONS[name])
    exact = exact_results(problem, with_lse=False)
    fused = torch.stack([problem.q, problem.k, problem.v], dim=2).requires_grad_()
    out = blockwise_attention(*fused.unbind(2), **problem.options)
    wide = torch.stack([problem.grad_out, problem.grad_out], dim=-1)[..., 0]
    assert not wide.is_contiguous()
    (grads,) = torch.autograd.grad(out, fused, wide, retain_graph=True)
    for index, grad_name in enumerate(("dq", "dk", "dv")):
        torch.testing.assert_close(grads[:, :, index], exact[grad_name], rtol=0, atol=1e-14)
    (summed,) = torch.autograd.grad(out.sum(), fused, retain_graph=True)
    (ones,) = torch.autograd.grad(out, fused, torch.ones_like(out))
    torch.testing.assert_close(summed, ones, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["plain", "causal", "window"])
def test_inputs_and_gradients_that_are_not_contiguous_along_a_head(
    name: str, dtype: torch.dtype
) -> None:
    """torch's fused operator reads beyond the end of such tensors."""
    problem = make_problem(16, 16, size=40, dtype=dtype, **OPTIONS[name])
    leaves = [t.to(dtype).requires_grad_() for t in (problem.q, problem.k, problem.v)]
    grad_out = problem.grad_out.to(dtype)

    def results(*tensors, grad_out):
        out = blockwise_attention(*tensors, **problem.options)
        return out, *torch.autograd.grad(out, leaves, grad_out)

    def moved(tensor):
        return tensor.transpose(1, 3).contiguous().transpose(1, 3)

    def spread(tensor):
        return torch.stack([tensor, torch.full_like(tensor, torch.nan)], dim=-1)[..., 0]

    expected = results(*leaves, grad_out=grad_out)
    for change in (moved, spread):
        found = results(*(change(leaf) for leaf in leaves), grad_out=change(grad_out))
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("scale", [-0.3, 0.0])
@pytest.mark.parametrize("name", ["plain", "causal", "window"])
def test_a_scale_that_is_not_positive(name: str, scale: float) -> None:
    check(make_problem(7, 7, scale=scale, **OPTIONS[name]))


@pytest.mark.parametrize("name", ["plain", "window"])
def test_autocast_does_not_reach_the_products(name: str) -> None:
    problem = make_problem(17, 17, size=16, dtype=torch.bfloat16, **OPTIONS[name])
    inputs = [t.bfloat16().requires_grad_() for t in (problem.q, problem.k, problem.v)]
    results = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            out = blockwise_attention(*inputs, partial_dtype=torch.float32, **problem.options)
            results.append((out, *torch.autograd.grad(out, inputs, problem.grad_out.float())))
    for inside, outside in zip(*results, strict=True):
        torch.testing.assert_close(inside, outside, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_partial_results_are_not_rounded(dtype: torch.dtype) -> None:
    problem = make_problem(9, 9, size=16, dtype=dtype)
    out = blockwise_attention(
        *(t.to(dtype) for t in (problem.q, problem.k, problem.v)), partial_dtype=torch.float32
    )
    assert out.dtype == torch.float32
    plain, _ = blockwise_attention_reference(
        *(t.float() for t in (problem.q, problem.k, problem.v))
    )
    exact = exact_results(problem)["out"]
    budget = (
        2 * (plain - exact).abs().max() + 4 * torch.finfo(torch.float32).eps * exact.abs().max()
    )
    assert (out - exact).abs().max() <= budget


def test_gradcheck() -> None:
    problem = make_problem(3, 4, batch=1, size=2, bias_shape=(1, 2, 3, 4))
    leaves = [t.requires_grad_() for t in (problem.q, problem.k, problem.v, problem.bias)]

    def function(q, k, v, bias):
        return blockwise_attention(q, k, v, bias=bias, window=(1, 1), return_lse=True)

    assert torch.autograd.gradcheck(function, leaves)


def test_a_window_of_its_own_place_gives_the_value_itself() -> None:
    problem = make_problem(6)
    out = blockwise_attention(problem.q, problem.k, problem.v, window=(0, 0))
    assert torch.equal(out, problem.v)


def test_the_definition_of_visible() -> None:
    """Written out by hand: bottom right, both ways."""
    visible = visible_pairs(2, 4, True, None, None, None, None, None)
    assert visible.tolist() == [[True, True, True, False], [True, True, True, True]]
    visible = visible_pairs(4, 2, True, None, None, None, None, None)
    assert visible.tolist() == [[False, False], [False, False], [True, False], [True, True]]
    visible = visible_pairs(3, 3, False, (1, 0), None, None, 1, None)
    assert visible.tolist() == [[True, True, False], [False, True, True], [False, False, True]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": torch.zeros(2, 5, 3, 8)}, "multiple of k's and v's heads"),
        ({"q": torch.zeros(2, 5, 2, 7)}, "same B and D"),
        ({"q": torch.zeros(5, 2, 8)}, r"must be \(B, Sq, Hq, D\)"),
        ({"k": torch.zeros(2, 5, 2, 8).half()}, "must have one dtype"),
        ({"q": torch.zeros(2, 5, 2, 8).to_sparse()}, "q must be dense, not torch.sparse_coo"),
        ({"causal": "no"}, "causal must be True or False, not 'no'"),
        ({"window": 3}, r"window must be \(left, right\)"),
        ({"window": (-1, 0)}, "must not be negative"),
        ({"window": (1.5, 0)}, "window's bound must be an integer, not 1.5"),
        ({"window": (0, 2**63 - 1)}, "between -2\\*\\*61 and 2\\*\\*61"),
        ({"q_offset": 1.5}, "q_offset must be an integer"),
        ({"k_offset": -(2**63)}, "between -2\\*\\*61 and 2\\*\\*61"),
        ({"bias": torch.zeros(3, 1, 5, 5)}, "broadcastable"),
        ({"bias": torch.zeros(5, 5, dtype=torch.bool)}, "floating-point"),
        ({"cu_seqlens_q": torch.tensor([0, 5])}, "given together"),
        (
            {"q": torch.zeros(1, 5, 2, 8), "k": torch.zeros(1, 5, 2, 8)}
            | {"v": torch.zeros(1, 5, 2, 8), "cu_seqlens_q": [0, 5], "cu_seqlens_k": [0, 5]},
            "cu_seqlens_q must be a tensor, not list",
        ),
        ({"max_seqlen_q": 5}, "need cu_seqlens_q"),
        ({"partial_dtype": torch.float16}, "partial_dtype must be torch.float32"),
        ({"precision": "tf32"}, "not available in the PyTorch form"),
        ({"implementation": "cuda"}, 'implementation must be "triton"'),
        ({"cu_seqlens_q": CU_SEQLENS, "cu_seqlens_k": CU_SEQLENS}, "lie in one row"),
    ],
)
def test_bad_input_is_one_sentence(change: dict[str, Any], message: str) -> None:
    arguments = {name: torch.zeros(2, 5, 2, 8) for name in ("q", "k", "v")}
    with pytest.raises(ValueError, match=message):
        blockwise_attention(**(arguments | change))


@pytest.mark.parametrize("keys", [1, 2, 15, 16, 600])
def test_not_a_number_is_not_hidden(keys: int) -> None:
    q = torch.randn(1, 5, 1, 8, requires_grad=True)
    k = torch.randn(1, keys, 1, 8, requires_grad=True)
    with torch.no_grad():
        q[0, ::2] = torch.nan
    out, lse = blockwise_attention(q, k, k.detach(), return_lse=True)
    assert out[0, ::2].isnan().all()
    assert lse[0, 0, ::2].isnan().all()
    assert not out[0, 1::2].isnan().any()
    grads = torch.autograd.grad(out.square().sum() + lse.sum(), (q, k))
    assert grads[0][0, ::2].isnan().all()
    assert not grads[0][0, 1::2].isnan().any()
    assert grads[1].isnan().all()
    assert blockwise_attention(k, k, k, scale=math.nan).isnan().all()


def test_the_meta_device_gives_shapes() -> None:
    q, k = torch.empty(2, 5, 4, 8, device="meta"), torch.empty(2, 7, 2, 8, device="meta")
    out, lse = blockwise_attention(q, k, k, return_lse=True)
    assert (out.shape, lse.shape, out.device.type) == (q.shape, (2, 4, 5), "meta")
