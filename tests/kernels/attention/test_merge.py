"""Parts of an attention merged, against the whole: outputs, LSE and all gradients."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from dualwave.kernels.attention import blockwise_attention, merge_attention

from .oracle import Problem, assert_within_budget, make_problem, results_of

LENGTH = 257
BORDERS = [0, 1, 40, 41, 100, 150, 151, 230, LENGTH]
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"window": (33, 20)},
    "causal window": {"causal": True, "window": (60, None)},
}


def merged(parts: int, **more: Any):
    """Attention in uneven parts of the keys, each with its offset; some see nothing."""

    def function(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        borders = [*BORDERS[:parts], LENGTH]
        found = [
            blockwise_attention(
                q,
                k[:, begin:end],
                v[:, begin:end],
                q_offset=0,
                k_offset=begin,
                return_lse=True,
                **options,
                **more,
            )
            for begin, end in itertools.pairwise(borders)
        ]
        outs, lses = zip(*found, strict=True)
        out, lse = merge_attention(outs, lses)
        return out.to(q.dtype), lse

    return function


def problem_of(name: str, dtype: torch.dtype) -> Problem:
    # Queries and keys are as many, so absolute positions and bottom right are the same.
    return make_problem(LENGTH, batch=1, size=4, dtype=dtype, **OPTIONS[name])


@pytest.mark.parametrize("parts", range(1, 9))
@pytest.mark.parametrize("name", OPTIONS)
def test_merging_equals_the_whole_in_float64(name: str, parts: int) -> None:
    problem = problem_of(name, torch.float64)
    assert_within_budget(results_of(merged(parts), problem, torch.float64), problem, torch.float64)


@pytest.mark.parametrize("parts", [1, 2, 8])
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_merging_stays_within_the_budget(dtype: torch.dtype, name: str, parts: int) -> None:
    """In 16 bits with float32 partial results, whose error does not grow with their number."""
    problem = problem_of(name, dtype)
    results = results_of(merged(parts, partial_dtype=torch.float32), problem, dtype)
    assert_within_budget(results, problem, dtype)


def test_lses_that_differ_by_100() -> None:
    generator = torch.Generator().manual_seed(0)
    outs = [torch.randn(1, 3, 2, 4, generator=generator, dtype=torch.float64) for _ in range(3)]
    lses = [torch.full((1, 2, 3), value, dtype=torch.float64) for value in (900.0, 1000.0, 800.0)]
    out, lse = merge_attention(outs, lses)
    torch.testing.assert_close(out, outs[1], rtol=0, atol=1e-14)
    torch.testing.assert_close(lse, lses[1], rtol=0, atol=1e-12)
    low = [lse - 2000 for lse in lses]
    torch.testing.assert_close(merge_attention(outs, low)[1], low[1], rtol=0, atol=1e-12)


def test_parts_that_see_nothing_count_for_nothing() -> None:
    outs = [torch.zeros(1, 2, 1, 3).requires_grad_(), torch.ones(1, 2, 1, 3).requires_grad_()]
    lses = [
        torch.full((1, 1, 2), -torch.inf).requires_grad_(),
        torch.tensor([[[0.5, -torch.inf]]]).requires_grad_(),
    ]
    out, lse = merge_attention(outs, lses)
    assert out[0, :, 0, 0].tolist() == [1.0, 0.0]
    assert lse.flatten().tolist() == [0.5, -torch.inf]
    grads = torch.autograd.grad(out.sum() + lse[..., 0].sum(), [*outs, *lses])
    assert all(bool(torch.isfinite(grad).all()) for grad in grads)
    assert torch.equal(grads[0], torch.zeros_like(outs[0]))
    assert grads[1][0, :, 0, 0].tolist() == [1.0, 0.0]


def test_gradcheck() -> None:
    generator = torch.Generator().manual_seed(1)
    outs = [torch.randn(1, 3, 2, 2, generator=generator, dtype=torch.float64) for _ in range(3)]
    lses = [torch.randn(1, 2, 3, generator=generator, dtype=torch.float64) for _ in range(3)]
    leaves = [t.requires_grad_() for t in (*outs, *lses)]
    assert torch.autograd.gradcheck(lambda *t: merge_attention(t[:3], t[3:]), leaves)


@pytest.mark.parametrize(
    ("outs", "lses"),
    [
        ([], []),
        ([torch.zeros(1, 2, 3, 4)], []),
        ([torch.zeros(1, 2, 3, 4)], [torch.zeros(1, 2, 3)]),
        ([torch.zeros(2, 3, 4)], [torch.zeros(1, 3, 2)]),
        ([[1.0]], [[1.0]]),
        (
            [torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4).half()],
            [torch.zeros(1, 3, 2), torch.zeros(1, 3, 2)],
        ),
        ([torch.zeros(1, 2, 3, 4)], [torch.zeros(1, 3, 2, device="meta")]),
        (None, [torch.zeros(1, 3, 2)]),
        ((out for out in [torch.zeros(1, 2, 3, 4)]), [torch.zeros(1, 3, 2)]),
    ],
)
def test_bad_input_is_one_sentence(outs: list[Tensor], lses: list[Tensor]) -> None:
    message = "merge_attention needs|each part must be|must be a tensor|have one dtype|move one to"
    with pytest.raises(ValueError, match=message):
        merge_attention(outs, lses)
