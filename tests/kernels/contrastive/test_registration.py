"""The operation inside torch: registration, torch.compile, autocast, and what it refuses."""

from typing import Any

import pytest
import torch
import torch._dynamo.testing
import torch.nn.functional as F
from torch import Tensor

from dualwave.kernels.contrastive import contrastive_loss

IMPLEMENTATIONS = ["torch", "triton"]
KINDS = ["softmax", "sigmoid"]


def leaves_of(batch: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Image, text, scale and bias."""
    generator = torch.Generator().manual_seed(batch)
    features = torch.randn(2, batch, 8, generator=generator)
    image, text = F.normalize(features, dim=2).to(dtype).unbind(0)
    scalars = [torch.tensor(value) for value in (5.0, -2.0)]
    return [t.clone().requires_grad_() for t in (image, text, *scalars)]


def loss_of(
    image: Tensor, text: Tensor, scale: Tensor, bias: Tensor, kind: Any, implementation: Any
) -> Tensor:
    return contrastive_loss(
        image, text, scale=scale, bias=bias, kind=kind, implementation=implementation
    )


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_opcheck_of_both_operations(kind: str, dtype: torch.dtype, implementation: str) -> None:
    tensors = [t.detach() for t in leaves_of(3, dtype)]
    forward = torch.ops.dualwave.contrastive_forward.default
    backward = torch.ops.dualwave.contrastive_backward.default
    options = (*tensors, kind, 0, "default", implementation)
    torch.library.opcheck(forward, (None, None, *options))
    _, of_rows, of_columns = forward(None, None, *options)
    given = (of_rows, of_columns) if kind == "softmax" else (None, None)
    if kind == "softmax":
        torch.library.opcheck(forward, (*given, *options))
    for wanted in ([True, True, True, kind == "sigmoid"], [False, True, False, False]):
        torch.library.opcheck(backward, (torch.tensor(1.5), *given, *options, wanted))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_compiles_as_one_graph_for_any_batch_forward_and_backward(
    kind: str, implementation: str
) -> None:
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(loss_of, fullgraph=True, dynamic=True, backend=counter)
    for batch in (7, 9, 3):
        leaves, again = leaves_of(batch), leaves_of(batch)
        expected = loss_of(*leaves, kind, implementation)
        result = compiled(*again, kind, implementation)
        torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)
        expected.backward()
        result.backward()
        for leaf, compiled_leaf in zip(leaves, again, strict=True):
            torch.testing.assert_close(compiled_leaf.grad, leaf.grad, rtol=1e-5, atol=1e-6)
    assert counter.frame_count == 1


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_autocast_compares_in_its_own_dtype(kind: str, implementation: str) -> None:
    image, text, scale, bias = leaves_of(5)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = loss_of(image, text.half(), scale, bias, kind, implementation)
    assert loss.dtype == torch.float32
    expected = loss_of(image.half(), text.half(), scale, bias, kind, implementation)
    assert torch.equal(loss, expected)
    grads = torch.autograd.grad(loss, (image, text, scale, bias))
    assert all(grad.dtype == torch.float32 for grad in grads)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_second_derivative_is_refused_in_words(kind: str, implementation: str) -> None:
    leaves = leaves_of(3)
    loss = loss_of(*leaves, kind, implementation)
    (gradient, *_) = torch.autograd.grad(loss, leaves, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        gradient.sum().backward()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_vmap_is_refused_in_words(implementation: Any) -> None:
    features = torch.randn(3, 4, 8)
    with pytest.raises(ValueError, match=r"does not go through torch\.vmap"):
        torch.vmap(lambda t: contrastive_loss(t, t, scale=1.0, implementation=implementation))(
            features
        )
