"""The Triton implementation in the interpreter against the float64 definition."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from dualwave.kernels.contrastive import contrastive_loss
from dualwave.kernels.contrastive.planning import plan_backward, plan_forward
from dualwave.kernels.contrastive.plans import Call
from dualwave.kernels.targets import SM_90

from .oracle import exact_results, make_problem
from .triton_runs import SMALL, check, configured, run

KINDS = ["softmax", "sigmoid"]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
NAMES = ("dimage", "dtext", "dscale", "dbias")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("images", [1, 2, 16, 37])
def test_within_budget(images: int, kind: str, dtype: torch.dtype) -> None:
    check(make_problem(images, kind=kind, dtype=dtype), dtype)


@pytest.mark.parametrize("size", [1, 3, 16, 17, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_feature_sizes_of_one_and_of_several_slices(kind: str, size: int) -> None:
    check(make_problem(19, size=size, kind=kind, dtype=torch.float32))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(
    ("images", "texts", "label_offset"),
    [(5, 19, 2), (19, 5, -3), (5, 5, 5), (5, 5, -5), (5, 7, 10**12), (1, 18, 4)],
)
@pytest.mark.parametrize("kind", KINDS)
def test_blocks(kind: str, images: int, texts: int, label_offset: int, reduction: str) -> None:
    options = {"label_offset": label_offset, "reduction": reduction}
    check(make_problem(images, texts, kind=kind, dtype=torch.float32, **options))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("scale", "likeness"), [(1e-3, 0.5), (100.0, 0.0), (1e3, 0.5)])
def test_small_and_large_logits(
    scale: float, likeness: float, kind: str, dtype: torch.dtype
) -> None:
    check(make_problem(21, kind=kind, scale=scale, likeness=likeness, dtype=dtype), dtype)


@pytest.mark.parametrize("precision", ["ieee", "tf32x3", "tf32"])
@pytest.mark.parametrize("kind", KINDS)
def test_precisions_of_float32(kind: str, precision: str) -> None:
    """The kernel rounds tf32's operands itself, so that the interpreter emulates tensor cores."""
    problem = make_problem(21, size=24, kind=kind, dtype=torch.float32)
    check(problem, precision=precision, rounded_products=precision == "tf32")


@pytest.mark.parametrize("kind", KINDS)
def test_tf32_is_not_float32(kind: str) -> None:
    """Otherwise its bound would say nothing."""
    problem = make_problem(21, size=24, kind=kind, dtype=torch.float32)
    with pytest.raises(AssertionError, match="over the budget"):
        check(problem, precision="tf32")


@pytest.mark.parametrize(
    "configuration",
    [
        SMALL,
        replace(SMALL, block_rows=32),
        replace(SMALL, block_columns=32),
        replace(SMALL, block_size=32),
        replace(SMALL, block_slice=64),
    ],
    ids=lambda c: f"{c.block_rows} {c.block_columns} {c.block_size} {c.block_slice}",
)
@pytest.mark.parametrize("kind", KINDS)
def test_tiles_of_other_shapes(kind: str, configuration: Any) -> None:
    check(make_problem(35, size=33, kind=kind, dtype=torch.float32), configuration=configuration)


def _columns_first(tensor: Tensor) -> Tensor:
    return tensor.T.contiguous().T


def _interleaved(tensor: Tensor) -> Tensor:
    return torch.stack([tensor] * 2, dim=2)[..., 0]


def _backwards(tensor: Tensor) -> Tensor:
    return torch.cat([tensor, tensor], dim=1)[:, : tensor.shape[1]]


@pytest.mark.parametrize("view", [_columns_first, _interleaved, _backwards])
@pytest.mark.parametrize("kind", KINDS)
def test_strided_features_are_read_where_they_lie(
    kind: str, view: Callable[[Tensor], Tensor]
) -> None:
    problem = make_problem(19, kind=kind, dtype=torch.float32)

    def results(change: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
        leaves = [change(t.float()).requires_grad_() for t in (problem.image, problem.text)]
        with configured(SMALL):
            loss = contrastive_loss(*leaves, scale=9.0, kind=kind, implementation="triton")
            return loss, *torch.autograd.grad(loss, leaves)

    for one, other in zip(results(view), results(Tensor.contiguous), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_expanded_features(kind: str) -> None:
    one = make_problem(19, kind=kind, dtype=torch.float32).image.float()[:1]
    text = make_problem(19, kind=kind, dtype=torch.float32).text.float()
    with configured(SMALL):
        losses = [
            contrastive_loss(image, text, scale=9.0, kind=kind, implementation="triton")
            for image in (one.expand(19, -1), one.repeat(19, 1))
        ]
    assert torch.equal(*losses)


@pytest.mark.parametrize("kind", KINDS)
def test_each_gradient_alone_and_the_same_bits_every_time(kind: str) -> None:
    problem = make_problem(19, size=20, kind=kind, dtype=torch.float32)
    together = run(problem, torch.float32)
    again = run(problem, torch.float32)
    assert all(torch.equal(value, again[name]) for name, value in together.items())
    values = [t.float() for t in (problem.image, problem.text, problem.scale, problem.bias)]
    for index, name in enumerate(NAMES):
        leaves = [t.clone().requires_grad_(i == index) for i, t in enumerate(values)]
        image, text, scale, bias = leaves
        with configured(SMALL):
            loss = contrastive_loss(
                image, text, scale=scale, bias=bias, kind=kind, implementation="triton"
            )
            (grad,) = torch.autograd.grad(loss, leaves[index], problem.grad_loss.float())
        if name in ("dimage", "dtext"):
            assert torch.equal(grad, together[name])
        else:  # from the pass over the other side it is summed in another order
            torch.testing.assert_close(grad, together[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_given_normalisers_and_labels_in_another_block(dtype: torch.dtype) -> None:
    """The parts of a block, and what the whole loss gives for its rows."""
    whole = make_problem(20, kind="softmax", dtype=dtype, reduction="sum")
    exact = exact_results(whole)
    lse = exact["row_lse"].float(), exact["column_lse"].float()
    image, text = (t.to(dtype).requires_grad_() for t in (whole.image, whole.text))
    grads, losses = [], []
    for first in (0, 13):
        rows = slice(first, 13 if first == 0 else 20)
        with configured(SMALL):
            loss = contrastive_loss(
                image[rows],
                text,
                scale=whole.scale.float(),
                bias=whole.bias.float(),
                label_offset=first,
                reduction="sum",
                lse=(lse[0][rows], lse[1]),
                implementation="triton",
            )
            grads.append(torch.autograd.grad(loss, image)[0])
        losses.append(loss.detach())
    eps = torch.finfo(torch.float32).eps
    of_lse = float(exact["row_lse"].abs().max())
    assert abs(float(sum(losses) - exact["loss"])) <= 20 * 4 * eps * of_lse + 4 * (
        float(torch.finfo(dtype).eps) if dtype != torch.float32 else 0.0
    ) * float(exact["loss"].abs())
    exact_grad = exact["dimage"] / float(whole.grad_loss)
    error = float((sum(grads).double() - exact_grad).abs().max())
    assert error <= 8 * torch.finfo(dtype).eps * max(1.0, float(exact_grad.abs().max()))


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_block_adds_nothing(kind: str) -> None:
    for images, texts in ((0, 0), (0, 3), (3, 0)):
        problem = make_problem(images, texts, kind=kind, reduction="sum", dtype=torch.float32)
        image, text = (t.float().requires_grad_() for t in (problem.image, problem.text))
        loss = contrastive_loss(
            image,
            text,
            scale=2.0,
            kind=kind,
            reduction="sum",
            implementation="triton",
            lse=(torch.zeros(images), torch.zeros(texts)) if kind == "softmax" else None,
        )
        grads = torch.autograd.grad(loss, (image, text))
        assert loss == 0
        assert all((grad == 0).all() for grad in grads)


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_beyond_32_bits(kind: str) -> None:
    """Rows so far apart that their places need 64 bits; memory that nobody touches is not there."""
    size, stride = 5, 2**31 // 3
    storage = torch.empty(4 * stride, dtype=torch.float16)
    far = storage.as_strided((4, size), (stride, 1))
    near = torch.randn(4, size).half()
    far.copy_(near)
    results = []
    for leaf in (far.requires_grad_(), near.clone().requires_grad_()):
        with configured(SMALL):
            loss = contrastive_loss(leaf, near, scale=3.0, kind=kind, implementation="triton")
            results.append((loss, *torch.autograd.grad(loss, leaf)))
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_memory_grows_with_the_batch(kind: Any) -> None:
    """All that a plan allocates, forward and backward, beside the gradients themselves."""

    def elements(batch: int) -> int:
        features = torch.empty(batch, 512, dtype=torch.bfloat16, device="meta")
        scalar = torch.empty((), device="meta")
        call = Call(features, features, scalar, scalar, kind, 0, "bf16", SM_90)
        forward = plan_forward(call, None)
        backward = plan_backward(
            call, forward.normalisers, scalar, (True, True, True, kind == "sigmoid")
        )
        found = [*forward.losses, *(forward.normalisers or ())]
        found += [backward.grad_scale_parts, backward.grad_bias_parts]
        return sum(tensor.numel() for tensor in found if tensor is not None)

    assert elements(65536) == 2 * elements(32768)
    assert elements(65536) <= 7 * 65536
