"""The definition against the formulas of CLIP and SigLIP, and against numbers by hand."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dualwave.kernels.contrastive import contrastive_loss
from dualwave.kernels.contrastive.reference import contrastive_loss_reference

from .oracle import make_problem


def clip_loss(image: Tensor, text: Tensor, scale: Tensor) -> Tensor:
    """As open_clip's ClipLoss has it: the mean of the cross entropies of both directions."""
    of_images, of_texts = scale * image @ text.T, scale * text @ image.T
    labels = torch.arange(len(image))
    return (F.cross_entropy(of_images, labels) + F.cross_entropy(of_texts, labels)) / 2


def siglip_loss(image: Tensor, text: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """As open_clip's SigLipLoss has it: every pair a decision, the sum divided by the images."""
    logits = scale * image @ text.T + bias
    signs = 2 * torch.eye(len(image), dtype=logits.dtype) - torch.ones_like(logits)
    return -F.logsigmoid(signs * logits).sum() / len(image)


@pytest.mark.parametrize("function", ["reference", "ours"])
@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_equals_open_clip(kind: str, function: str) -> None:
    problem = make_problem(13, kind=kind)
    image, text, scale, bias = (
        tensor.requires_grad_()
        for tensor in (problem.image, problem.text, problem.scale, problem.bias)
    )
    arguments = {"scale": scale, "kind": kind, "bias": bias if kind == "sigmoid" else None}
    if function == "reference":
        loss, _ = contrastive_loss_reference(image, text, **arguments)
    else:
        loss = contrastive_loss(image, text, **arguments)
    expected, leaves = clip_loss(image, text, scale), [image, text, scale]
    if kind == "sigmoid":
        expected, leaves = siglip_loss(image, text, scale, bias), [image, text, scale, bias]
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-13)
    for ours, theirs in zip(
        torch.autograd.grad(loss, leaves), torch.autograd.grad(expected, leaves), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)


def test_two_pairs_by_hand() -> None:
    """Logits [[2, 0], [0, 2]] + 1: rows and columns are right with probability 1 / (1 + e^-2)."""
    features = torch.eye(2, dtype=torch.float64)
    arguments = {"scale": 2.0, "bias": 1.0}
    for function in (contrastive_loss, lambda *a, **k: contrastive_loss_reference(*a, **k)[0]):
        softmax = function(features, features, kind="softmax", reduction="sum", **arguments)
        assert float(softmax) == pytest.approx(2 * math.log1p(math.exp(-2.0)), abs=1e-15)
        sigmoid = function(features, features, kind="sigmoid", **arguments)
        expected = math.log1p(math.exp(-3.0)) + math.log1p(math.exp(1.0))
        assert float(sigmoid) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("offset", [-2, 1])
def test_labels_that_lie_elsewhere_by_hand(offset: int) -> None:
    """Three images, three texts: -2 labels only the last image, 1 all but it."""
    problem = make_problem(3)
    logits = 5.0 * problem.image @ problem.text.T
    pairs = [(2, 0)] if offset == -2 else [(0, 1), (1, 2)]
    expected = sum(float(F.softplus(logits[i, j])) for i in range(3) for j in range(3))
    expected -= sum(float(logits[pair]) for pair in pairs)
    loss = contrastive_loss(
        problem.image,
        problem.text,
        scale=5.0,
        kind="sigmoid",
        label_offset=offset,
        reduction="sum",
    )
    assert float(loss) == pytest.approx(expected, abs=1e-13)
