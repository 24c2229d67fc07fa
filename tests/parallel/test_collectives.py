"""Gathered rows and their gradients on 2 and 3 gloo ranks, against one process."""

import time

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from dualwave.parallel.collectives import all_gather_with_grad, gather_row_counts
from dualwave.parallel.process_group import choose_device, process_group_from_environment


def _rows_of(rank: int, counts: list[int]) -> slice:
    return slice(sum(counts[:rank]), sum(counts[: rank + 1]))


def _loss(own: torch.Tensor, everything: torch.Tensor, rank: int) -> torch.Tensor:
    # Each rank's loss differs, and uses the rows of all ranks in a way that tells them apart.
    weight = torch.arange(1.0, 1 + everything.numel(), dtype=torch.float64).view_as(everything)
    return ((rank + 1) * weight * everything.sin()).sum() + (own**3).sum()


def _check_rank(rank: int, counts: list[int], rendezvous: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=len(counts)
    )
    group = dist.group.WORLD
    whole = torch.randn(sum(counts), 3, dtype=torch.float64, generator=torch.manual_seed(0))
    own = whole[_rows_of(rank, counts)].clone().requires_grad_()
    assert gather_row_counts(own, group) == counts
    gathered = all_gather_with_grad(own, group)
    torch.testing.assert_close(gathered, whole, rtol=0, atol=0)
    _loss(own, gathered, rank).backward()

    reference = whole.clone().requires_grad_()
    total = sum(
        (_loss(reference[_rows_of(r, counts)], reference, r) for r in range(len(counts))),
        start=torch.zeros((), dtype=torch.float64),
    )
    total.backward()
    torch.testing.assert_close(own.grad, reference.grad[_rows_of(rank, counts)], rtol=1e-12, atol=0)
    dist.destroy_process_group()


@pytest.mark.parametrize("counts", [[2, 2], [4, 0, 1]])
def test_gather_has_the_gradient_of_the_summed_losses(tmp_path, counts):
    context = mp.spawn(
        _check_rank, (counts, str(tmp_path / "rendezvous")), nprocs=len(counts), join=False
    )
    deadline = time.monotonic() + 60
    # join comes back whenever some ranks have ended, and raises what a rank raised.
    while not context.join(timeout=5, grace_period=1):
        assert time.monotonic() < deadline, "the ranks wait for each other"


def test_without_a_group_the_tensor_is_returned_as_it_is():
    rows = torch.ones(2, 3)
    assert all_gather_with_grad(rows, None) is rows
    assert gather_row_counts(rows, None) == [2]


def test_a_process_without_torchrun_is_alone(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with process_group_from_environment("cpu") as world:
        assert (world.rank, world.size, world.group) == (0, 1, None)
        world.barrier()


def test_torchruns_variables_open_a_group_and_it_is_closed_again(monkeypatch):
    for name, value in {
        "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    with process_group_from_environment("cpu") as world:
        assert world.group is not None
        assert dist.get_backend() == "gloo"
        with process_group_from_environment("cpu") as inner:
            assert inner.group is world.group
        assert dist.is_initialized()
    assert not dist.is_initialized()


def test_asking_for_cuda_without_a_gpu_is_one_sentence(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="torch sees no GPU"):
        choose_device("cuda")
