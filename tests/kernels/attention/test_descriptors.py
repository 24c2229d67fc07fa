"""Loads by tensor descriptors: which tensors take them, and that they change no bit."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from dualwave.kernels.attention import planning
from dualwave.kernels.attention.descriptors import descriptors_of
from dualwave.kernels.targets import GFX942, SM_80, SM_90, SM_100, Target

from .oracle import Problem, assert_within_budget, make_problem
from .triton_runs import run


def _uses_descriptors(problem: Problem, dtype: torch.dtype, **more: Any) -> tuple[Any, list[bool]]:
    """The results, and of each launch whether its tiles were loaded by descriptors."""
    choices = []

    def recording(*arguments: Any) -> Any:
        described = descriptors_of(*arguments)
        choices.append(described is not None)
        return described

    with mock.patch.object(planning, "descriptors_of", recording):
        results = run(problem, dtype, **more)
    return results, choices


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"window": (5, 9)}, {"bias_shape": (1, 2, 18, 21)}],
    ids=["plain", "causal", "window", "bias"],
)
def test_the_same_bits_as_through_pointers(options: dict[str, Any], dtype: torch.dtype) -> None:
    problem = make_problem(18, 21, heads=2, key_heads=1, size=16, dtype=dtype, **options)
    described, choices = _uses_descriptors(problem, dtype)
    assert len(choices) == (4 if "bias_shape" in options else 3)
    assert all(choices)
    assert_within_budget(described, problem, dtype)
    with mock.patch.object(planning, "descriptors_of", return_value=None):
        pointed = run(problem, dtype)
    assert described.keys() == pointed.keys()
    for name, value in described.items():
        assert torch.equal(value, pointed[name]), name


def test_packed_sequences_and_odd_head_sizes_take_pointers() -> None:
    cu_seqlens = torch.tensor([0, 5, 18])
    packed = make_problem(
        18, batch=1, size=16, dtype=torch.float32, cu_seqlens_q=cu_seqlens, cu_seqlens_k=cu_seqlens
    )
    assert _uses_descriptors(packed, torch.float32)[1] == []
    odd = make_problem(5, size=24, dtype=torch.float32)
    assert not any(_uses_descriptors(odd, torch.float32)[1])


def _described(tensor: Tensor, target: Target = SM_90) -> bool:
    return descriptors_of({"q": tensor}, {"q": 16}, target) is not None


def _tensor(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.bfloat16)


@pytest.mark.parametrize("target", [SM_90, SM_100])
def test_views_that_are_described(target: Target) -> None:
    fused = _tensor(2, 7, 3, 4, 64)
    for tensor in (
        fused[:, :, 0],
        fused[:, :, 2],
        fused[:1, :1, 1, :1],
        _tensor(2, 7, 1, 16),
        _tensor(1, 7, 4, 64)[:, ::2],
    ):
        assert _described(tensor, target)


@pytest.mark.parametrize(
    "make",
    [
        lambda: _tensor(2, 4, 7, 64).transpose(1, 2),  # heads before rows
        lambda: _tensor(2, 7, 4, 80),
        lambda: _tensor(2, 7, 4, 8),
        lambda: _tensor(2, 7, 4, 128)[..., ::2],
        lambda: _tensor(2 * 7 * 4 * 64 + 1)[1:].view(2, 7, 4, 64),  # not aligned
        lambda: _tensor(2, 7, 4 * 64 + 4)[..., :256].unflatten(2, (4, 64)),  # rows not aligned
        lambda: _tensor(1, 7, 4, 64).expand(2, 7, 4, 64),
        lambda: _tensor(2, 1, 4, 64).expand(2, 7, 4, 64),
        lambda: _tensor(2, 7, 4, 64)[:0],
        lambda: _tensor(2, 9, 64).as_strided((2, 7, 4, 64), (7 * 64, 64, 64, 1)),  # overlapping
    ],
)
def test_views_that_are_not(make: Callable[[], Tensor]) -> None:
    assert not _described(make())


def test_targets_without_them() -> None:
    assert not _described(_tensor(2, 7, 4, 64), SM_80)
    assert not _described(_tensor(2, 7, 4, 64), GFX942)
