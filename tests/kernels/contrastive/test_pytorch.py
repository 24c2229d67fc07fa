"""The PyTorch implementation: values, blocks of a larger batch, and what it refuses."""

from typing import Any

import pytest
import torch

from dualwave.kernels.contrastive import contrastive_loss, pytorch

from .oracle import Problem, assert_within_budget, exact_results, make_problem, results_of

KINDS = ["softmax", "sigmoid"]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def check(problem: Problem, dtype: torch.dtype = torch.float64) -> None:
    results = results_of(contrastive_loss, problem, dtype, return_lse=problem.is_softmax)
    assert results["loss"].dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert_within_budget(results, problem, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("images", [1, 2, 31, 67])
def test_within_budget(images: int, kind: str, dtype: torch.dtype) -> None:
    check(make_problem(images, kind=kind, dtype=dtype), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1e-3, 30.0, 1e4])
@pytest.mark.parametrize("likeness", [0.0, 0.5])
def test_small_and_large_logits(
    likeness: float, scale: float, kind: str, dtype: torch.dtype
) -> None:
    """From all pairs alike to a trained model's certainty, with nothing overflowing."""
    check(make_problem(23, kind=kind, scale=scale, likeness=likeness, dtype=dtype), dtype)


@pytest.mark.parametrize("size", [1, 7, 64, 515])
@pytest.mark.parametrize("kind", KINDS)
def test_feature_sizes(kind: str, size: int) -> None:
    check(make_problem(11, kind=kind, size=size))
    check(make_problem(11, kind=kind, size=size, dtype=torch.float32), torch.float32)


@pytest.mark.parametrize("chunk", [1, 20, 50])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(
    ("images", "texts", "label_offset"),
    [(7, 7, 0), (5, 9, 2), (9, 5, -3), (5, 5, 5), (5, 5, -5), (5, 7, 10**12), (1, 6, 4)],
)
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_in_chunks_of_any_size(
    kind: str,
    images: int,
    texts: int,
    label_offset: int,
    reduction: str,
    chunk: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pytorch, "_LOGITS_IN_A_CHUNK", chunk)
    options = {"label_offset": label_offset, "reduction": reduction}
    check(make_problem(images, texts, kind=kind, **options))


@pytest.mark.parametrize("kind", KINDS)
def test_strided_and_expanded_features(kind: str) -> None:
    problem = make_problem(9, kind=kind)
    exact = exact_results(problem)
    wide = torch.stack([problem.image, problem.text], dim=2).requires_grad_()
    loss = contrastive_loss(
        wide[..., 0], wide[..., 1], scale=problem.scale, bias=problem.bias, kind=kind
    )
    (grad,) = torch.autograd.grad(loss, wide, problem.grad_loss)
    torch.testing.assert_close(grad[..., 0], exact["dimage"], rtol=0, atol=1e-13)
    torch.testing.assert_close(grad[..., 1], exact["dtext"], rtol=0, atol=1e-13)

    one = problem.image[:1].detach().clone().requires_grad_()
    many = one.detach().repeat(9, 1).requires_grad_()
    text = problem.text
    arguments = {"scale": problem.scale, "bias": problem.bias, "kind": kind}
    expanded = contrastive_loss(one.expand(9, -1), text.T.contiguous().T, **arguments)
    repeated = contrastive_loss(many, text, **arguments)
    torch.testing.assert_close(expanded, repeated, rtol=0, atol=1e-13)
    (of_one,), (of_many,) = (
        torch.autograd.grad(loss, leaf) for loss, leaf in ((expanded, one), (repeated, many))
    )
    torch.testing.assert_close(of_one, of_many.sum(dim=0, keepdim=True), rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_an_expanded_gradient_of_the_loss(kind: str) -> None:
    problem = make_problem(6, kind=kind)
    image = problem.image.requires_grad_()
    losses = torch.stack(
        [contrastive_loss(image, problem.text, scale=s, kind=kind) for s in (3.0, 3.0)]
    )
    (summed,) = torch.autograd.grad(losses.sum(), image)
    (one,) = torch.autograd.grad(
        contrastive_loss(image, problem.text, scale=3.0, kind=kind),
        image,
        torch.tensor(2.0).double(),
    )
    torch.testing.assert_close(summed, one, rtol=0, atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck(kind: str) -> None:
    problem = make_problem(4, size=3, kind=kind)
    leaves = [problem.image, problem.text, problem.scale, problem.bias]

    def function(image, text, scale, bias):
        return contrastive_loss(image, text, scale=scale, bias=bias, kind=kind)

    assert torch.autograd.gradcheck(function, [leaf.requires_grad_() for leaf in leaves])


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_block_adds_nothing(kind: str) -> None:
    for images, texts in ((0, 0), (0, 3), (3, 0)):
        problem = make_problem(images, texts, kind=kind, reduction="sum")
        results = results_of(
            contrastive_loss, problem, torch.float64, return_lse=problem.is_softmax
        )
        for name in ("loss", "dimage", "dtext", "dscale", "dbias"):
            assert (results[name] == 0).all(), name
        if problem.is_softmax:
            assert results["row_lse"].tolist() == [-torch.inf] * images
            assert results["column_lse"].tolist() == [-torch.inf] * texts


def test_numbers_and_tensors_of_one_element() -> None:
    problem = make_problem(5, kind="sigmoid")
    image, text = problem.image.float(), problem.text.float()
    plain = contrastive_loss(image, text, scale=10.0, bias=-3.0, kind="sigmoid")
    scale = torch.full((1, 1), 10.0, dtype=torch.bfloat16, requires_grad=True)
    bias = torch.full((1,), -3.0, dtype=torch.float64, requires_grad=True)
    loss = contrastive_loss(image, text, scale=scale, bias=bias, kind="sigmoid")
    assert torch.equal(loss, plain)
    loss.backward()
    for leaf in (scale, bias):
        assert leaf.grad.shape == leaf.shape
        assert leaf.grad.dtype == leaf.dtype


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image": torch.zeros(4, 5, 6)}, r"image must be \(M, D\)"),
        ({"image": torch.zeros(4, 5)}, r"image must be \(M, D\)"),
        ({"image": torch.zeros(4, 0), "text": torch.zeros(4, 0)}, "D of at least 1"),
        ({"image": torch.zeros(4, 6).half()}, "must have one dtype"),
        ({"text": torch.zeros(4, 6, device="meta")}, "image is on cpu and text on meta"),
        ({"image": torch.zeros(3, 6)}, "block of a larger softmax loss"),
        ({"label_offset": 1}, "block of a larger softmax loss"),
        ({"label_offset": 1.5}, "label_offset must be an integer, not 1.5"),
        ({"lse": torch.zeros(2, 4)}, "lse must be that of the rows and that of the columns"),
        ({"lse": (None, None)}, "lse of the rows must be a tensor, not NoneType"),
        ({"kind": "triplet"}, 'kind must be "softmax" or "sigmoid"'),
        ({"reduction": "none"}, 'reduction must be "mean" or "sum"'),
        ({"image": torch.zeros(0, 6), "kind": "sigmoid"}, "mean over no image"),
        ({"scale": torch.zeros(2)}, "scale must be a number or a real tensor"),
        ({"bias": torch.zeros(4, 4)}, "bias must be a number or a real tensor"),
        ({"kind": "sigmoid", "return_lse": True}, "the sigmoid loss has no LSE"),
        ({"lse": (torch.zeros(4), torch.zeros(3))}, "lse must be that of the rows"),
        ({"lse": (torch.zeros(4), torch.zeros(4)), "return_lse": True}, "cannot go with lse"),
        ({"lse": (torch.zeros(4), torch.zeros(4, device="meta"))}, "move one to the other"),
        ({"precision": "tf32"}, "not available in the PyTorch form"),
        ({"implementation": "cuda"}, 'implementation must be "triton"'),
    ],
)
def test_bad_input_is_one_sentence(change: dict[str, Any], message: str) -> None:
    arguments = {"image": torch.zeros(4, 6), "text": torch.zeros(4, 6), "scale": 1.0}
    with pytest.raises(ValueError, match=message):
        contrastive_loss(**(arguments | change))
