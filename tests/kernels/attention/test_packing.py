"""Marks of packed sequences: what is refused, and marks of more than 32 bits."""

from typing import Any

import pytest
import torch

from dualwave.kernels.attention import blockwise_attention
from dualwave.kernels.attention.packing import read_packing

IMPLEMENTATIONS = ["torch", "triton"]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cu_seqlens_q": [0, 4, 3]}, "cu_seqlens_q must rise, but it falls from 4 to 3 at 2"),
        ({"cu_seqlens_k": [0, 4, 3]}, "cu_seqlens_k must rise, but it falls from 4 to 3 at 2"),
        ({"cu_seqlens_q": [1, 4, 5]}, "cu_seqlens_q must rise from 0, but it starts with 1"),
        ({"cu_seqlens_k": [-2, 4, 5]}, "cu_seqlens_k must rise from 0, but it starts with -2"),
        ({"cu_seqlens_q": [0, 4, 9]}, "cu_seqlens_q ends at 9, but there are only 5 rows"),
        ({"cu_seqlens_k": [0, 4, 2**33]}, "cu_seqlens_k ends at 8589934592, but"),
        ({"max_seqlen_q": 2}, "max_seqlen_q is 2, but the longest sequence has 3 rows"),
        ({"max_seqlen_k": -1}, "max_seqlen_k is -1, but the longest sequence has 3 rows"),
        ({"cu_seqlens_q": [0, 5]}, "the same number of sequences, not 1 and 2"),
    ],
)
def test_bad_packing_is_one_sentence(
    change: dict[str, Any], message: str, implementation: str
) -> None:
    x = torch.zeros(1, 5, 2, 8)
    marks = {"cu_seqlens_q": [0, 3, 5], "cu_seqlens_k": [0, 3, 5]}
    arguments = {
        name: torch.tensor(value) if isinstance(value, list) else value
        for name, value in (marks | change).items()
    }
    with pytest.raises(ValueError, match=message):
        blockwise_attention(x, x, x, implementation=implementation, **arguments)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("causal", [False, True])
def test_a_part_of_a_row_beyond_32_bits(causal: bool, implementation: str) -> None:
    far = 2**33
    q, k = torch.randn(1, 9, 2, 8), torch.randn(1, 11, 2, 8)
    marks = torch.tensor([0, 4, 4, 7, 20])

    def attend(marks: torch.Tensor, q_offset: int, k_offset: int) -> list[torch.Tensor]:
        leaves = [t.clone().requires_grad_() for t in (q, k)]
        out, lse = blockwise_attention(
            leaves[0], leaves[1], leaves[1], cu_seqlens_q=marks, cu_seqlens_k=marks,
            q_offset=q_offset, k_offset=k_offset, causal=causal, return_lse=True,
            implementation=implementation,
        )  # fmt: skip
        grads = torch.autograd.grad(out.square().sum() + lse.exp().sum(), leaves)
        return [out, lse, *grads]

    near = attend(marks, 3, 1)
    moved = torch.cat([marks[:1], marks[1:] + far])  # the first sequence fills all that is before
    for result, expected in zip(attend(moved, far + 3, far + 1), near, strict=True):
        assert torch.equal(result, expected)
    assert bool(near[0].abs().sum(dim=(0, 2, 3)).gt(0).all())


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_marks_that_are_not_contiguous(implementation: str) -> None:
    x = torch.randn(1, 9, 2, 8)
    marks = torch.tensor([[0, 5], [4, 1], [9, 7]], dtype=torch.int32)[:, 0]
    results = [
        blockwise_attention(
            x, x, x, cu_seqlens_q=some, cu_seqlens_k=some, implementation=implementation
        )
        for some in (marks, marks.contiguous())
    ]
    assert torch.equal(results[0], results[1])


def test_marks_elsewhere_are_read_only_where_that_is_asked_for() -> None:
    """The meta device has no values to read, and a GPU's would be waited for."""
    marks = torch.empty(3, dtype=torch.int32, device="meta")
    packing = read_packing((marks, marks), (4, 5), None, (9, 9), always_reads=False)
    assert (packing.max_seqlen_q, packing.max_seqlen_k) == (4, 5)
    for lengths, always_reads in (((4, None), False), ((4, 5), True)):
        with pytest.raises(NotImplementedError):
            read_packing((marks, marks), lengths, None, (9, 9), always_reads)
