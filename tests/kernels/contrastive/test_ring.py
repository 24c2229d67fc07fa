"""Blocks of a larger batch, as the ranks of a ring see them, add up to the whole."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest
import torch

from dualwave.kernels.contrastive import contrastive_loss

from .oracle import Problem, Results, assert_within_budget, exact_results, make_problem

IMPLEMENTATIONS = ["torch", "triton"]


def ring_results(
    problem: Problem,
    image_shards: Sequence[int],
    text_shards: Sequence[int],
    dtype: torch.dtype,
    **more: Any,
) -> Results:
    """The sums over all blocks of images and texts; LSEs are merged first, as a ring would."""
    small = dtype if dtype == torch.float64 else torch.float32
    leaves = [
        tensor.to(to).requires_grad_()
        for tensor, to in (
            (problem.image, dtype),
            (problem.text, dtype),
            (problem.scale, small),
            (problem.bias, small),
        )
    ]
    images, texts = (
        list(leaf.split(sizes))
        for leaf, sizes in zip(leaves[:2], (image_shards, text_shards), strict=True)
    )
    begins = [[0, *accumulate(sizes)][:-1] for sizes in (image_shards, text_shards)]
    more = {"scale": leaves[2], "bias": leaves[3], "kind": problem.options["kind"], **more}
    blocks = [
        (a, b, begins[0][a] - begins[1][b]) for a in range(len(images)) for b in range(len(texts))
    ]
    merged: Any = None
    if problem.is_softmax:
        own = {
            (a, b): contrastive_loss(
                images[a], texts[b], label_offset=offset, reduction="sum", return_lse=True, **more
            )[1]
            for a, b, offset in blocks
        }
        merged = (
            [
                torch.stack([own[a, b][0] for b in range(len(texts))]).logsumexp(0)
                for a in range(len(images))
            ],
            [
                torch.stack([own[a, b][1] for a in range(len(images))]).logsumexp(0)
                for b in range(len(texts))
            ],
        )
    losses = [
        contrastive_loss(
            images[a],
            texts[b],
            label_offset=offset,
            reduction="sum",
            lse=None if merged is None else (merged[0][a], merged[1][b]),
            **more,
        )
        for a, b, offset in blocks
    ]
    loss = torch.stack(losses).sum() / len(problem.image)
    grads = torch.autograd.grad(loss, leaves, problem.grad_loss.to(loss.dtype))
    return {
        "loss": loss.detach(),
        **dict(zip(("dimage", "dtext", "dscale", "dbias"), grads, strict=True)),
    }


@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
@pytest.mark.parametrize(
    ("image_shards", "text_shards"),
    [
        ((7, 7, 7, 7), (7, 7, 7, 7)),
        ((1, 13, 5, 9), (6, 2, 19, 1)),
        ((28,), (3, 11, 14)),
        ((0, 20, 8), (15, 0, 13)),
    ],
)
def test_blocks_add_up_to_the_whole(
    image_shards: Sequence[int], text_shards: Sequence[int], kind: str
) -> None:
    problem = make_problem(28, kind=kind)
    exact = exact_results(problem)
    for name, value in ring_results(problem, image_shards, text_shards, torch.float64).items():
        torch.testing.assert_close(value, exact[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_within_budget(kind: str, dtype: torch.dtype, implementation: str) -> None:
    """16-bit gradients of shards are summed in 16 bits by autograd, which is not ours to judge."""
    problem = make_problem(14, kind=kind, dtype=dtype)
    results = ring_results(problem, (9, 5), (4, 10), dtype, implementation=implementation)
    if dtype != torch.float32:
        results = {name: results[name] for name in ("loss", "dscale", "dbias")}
    assert_within_budget(results, problem, dtype, has_merged_lse=problem.is_softmax)


def test_the_value_of_a_block_is_its_labels_share() -> None:
    """Rows without label count in the block that holds their label."""
    problem = make_problem(6)
    image, text = problem.image, problem.text
    _, lse = contrastive_loss(image, text, scale=problem.scale, bias=problem.bias, return_lse=True)
    arguments = {"scale": problem.scale, "bias": problem.bias, "reduction": "sum"}
    elsewhere = contrastive_loss(
        image[:3], text[3:], lse=(lse[0][:3], lse[1][3:]), label_offset=-3, **arguments
    )
    assert elsewhere == 0
    assert elsewhere.requires_grad is False
    logits = problem.scale * (image * text).sum(dim=1) + problem.bias
    here = contrastive_loss(image[:3], text[:3], lse=(lse[0][:3], lse[1][:3]), **arguments)
    expected = ((lse[0] + lse[1]) / 2 - logits)[:3].sum()
    torch.testing.assert_close(here, expected, rtol=0, atol=1e-13)
