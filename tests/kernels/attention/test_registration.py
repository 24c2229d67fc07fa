"""The operation inside torch: registration, torch.compile, autocast, and what it refuses."""

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from torch import Tensor

from dualwave.kernels.attention import blockwise_attention

IMPLEMENTATIONS = ["torch", "triton"]
SMALL: dict[str, Any] = {"causal": True, "window": (3, None)}


def leaves_of(batch: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(batch)
    q = torch.randn(batch, 5, 4, 8, generator=generator)
    k, v = (torch.randn(batch, 6, 2, 8, generator=generator) for _ in range(2))
    bias = torch.randn(1, 4, 5, 6, generator=generator)
    return [t.to(dtype).requires_grad_() for t in (q, k, v, bias)]


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, implementation: str) -> Tensor:
    out, lse = blockwise_attention(
        q, k, v, bias=bias, return_lse=True, implementation=implementation, **SMALL
    )
    return out.square().sum() + lse.square().sum()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("with_bias", [False, True])
def test_opcheck_of_both_operations(
    with_bias: bool, dtype: torch.dtype, implementation: str
) -> None:
    q, k, v, bias = (t.detach() for t in leaves_of(2, dtype))
    shared = (q, k, v, bias if with_bias else None, None, None, None, None, 3, 0, None, None, 0.3)
    options = (torch.float32, "default", implementation)
    forward = torch.ops.dualwave.attention_forward.default
    backward = torch.ops.dualwave.attention_backward.default
    torch.library.opcheck(forward, (*shared, *options))
    out, _, normalisers = forward(*shared, *options)
    for wanted in ([True, True, True, with_bias], [True, False, False, False]):
        arguments = (torch.ones_like(out), None, out, normalisers, *shared, *options, dtype, wanted)
        torch.library.opcheck(backward, arguments)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_opcheck_of_packed_sequences(implementation: str) -> None:
    x = torch.randn(1, 6, 2, 8)
    marks = torch.tensor([0, 2, 6], dtype=torch.int32)
    shared = (x, x, x, None, marks, marks, 4, 4, None, None, None, None, 0.3)
    options = (torch.float32, "default", implementation)
    torch.library.opcheck(torch.ops.dualwave.attention_forward.default, (*shared, *options))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_compiles_as_one_graph_for_any_batch_forward_and_backward(implementation: str) -> None:
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(attend, fullgraph=True, dynamic=True, backend=counter)
    for batch in (7, 9, 3):
        leaves, again = leaves_of(batch), leaves_of(batch)
        expected, result = attend(*leaves, implementation), compiled(*again, implementation)
        torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)
        expected.backward()
        result.backward()
        for leaf, compiled_leaf in zip(leaves, again, strict=True):
            torch.testing.assert_close(compiled_leaf.grad, leaf.grad, rtol=1e-5, atol=1e-6)
    assert counter.frame_count == 1


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_positions_and_lengths_that_change_are_compiled_once(implementation: str) -> None:
    marks = torch.tensor([0, 5, 9], dtype=torch.int32)

    def part(x: Tensor, offset: int, left: int, longest: int) -> Tensor:
        out = blockwise_attention(
            x, x, x, causal=True, window=(left, None), q_offset=offset, k_offset=offset + 1,
            cu_seqlens_q=marks, cu_seqlens_k=marks, max_seqlen_q=longest, max_seqlen_k=longest,
            implementation=implementation,
        )  # fmt: skip
        assert isinstance(out, Tensor)
        return out

    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(part, fullgraph=True, dynamic=True, backend=counter)
    x = torch.randn(1, 9, 2, 8)
    for numbers in ((2, 3, 6), (3, 4, 7), (5, 6, 8)):
        torch.testing.assert_close(compiled(x, *numbers), part(x, *numbers))
    assert counter.frame_count == 1


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_autocast_attends_in_its_own_dtype(implementation: str) -> None:
    q, k, v, bias = leaves_of(2)
    with torch.autocast("cpu", dtype=torch.float16):
        out = blockwise_attention(q, k.half(), v, bias=bias, implementation=implementation)
    assert out.dtype == torch.float16
    expected = blockwise_attention(
        q.half(), k.half(), v.half(), bias=bias, implementation=implementation
    )
    assert torch.equal(out, expected)
    grads = torch.autograd.grad(out.sum(), (q, k, v, bias))
    assert all(grad.dtype == torch.float32 for grad in grads)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_second_derivative_is_refused_in_words(implementation: str) -> None:
    leaves = leaves_of(2)
    (gradient, *_) = torch.autograd.grad(attend(*leaves, implementation), leaves, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        gradient.sum().backward()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_vmap_is_refused_in_words(implementation: str) -> None:
    x = torch.randn(3, 1, 4, 2, 8)
    with pytest.raises(ValueError, match=r"does not go through torch\.vmap"):
        torch.vmap(lambda t: blockwise_attention(t, t, t, implementation=implementation))(x)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_the_same_input_gives_the_same_bits(implementation: str) -> None:
    def run() -> tuple[Tensor, ...]:
        leaves = leaves_of(3)
        return torch.autograd.grad(attend(*leaves, implementation), leaves)

    for first, second in zip(run(), run(), strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_only_wanted_gradients(implementation: str) -> None:
    leaves = leaves_of(2)
    everything = torch.autograd.grad(attend(*leaves, implementation), leaves)
    for index, expected in enumerate(everything):
        some = [leaf.detach().requires_grad_(i == index) for i, leaf in enumerate(leaves)]
        (grad,) = torch.autograd.grad(attend(*some, implementation), some[index])
        torch.testing.assert_close(grad, expected, rtol=1e-5, atol=1e-6)


def test_triton_without_a_gpu_is_refused_in_words() -> None:
    script = """
import torch, dualwave
x = torch.zeros(1, 2, 1, 4)
try:
    dualwave.blockwise_attention(x, x, x, implementation="triton")
except ValueError as error:
    print(error)
import sys
print("triton" in sys.modules)
"""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    result = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True
    )
    assert "needs a CUDA or ROCm tensor, and x is on cpu" in result.stdout
