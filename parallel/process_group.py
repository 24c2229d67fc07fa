"""The process group that `torchrun` describes in the environment: opened and closed here."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist

DeviceChoice = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True)
class World:
    """This process' place among all processes of the run.

    Attributes:
        rank: index of this process, 0 ... size - 1.
        size: number of processes.
        device: where this process computes.
        group: the group of all processes; None when the process runs alone.
    """

    rank: int
    size: int
    device: torch.device
    group: dist.ProcessGroup | None

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, the one that prints and writes files."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait until every process has come here."""
        if self.group is not None:
            dist.barrier(group=self.group)


def choose_device(choice: DeviceChoice, local_rank: int = 0) -> torch.device:
    """Turn a config's device into a torch device.

    Args:
        choice: `cpu`, `cuda`, or `auto` (CUDA when there is a device, else the CPU).
        local_rank: index of this process on its machine; process i uses GPU i.

    Raises:
        ValueError: `cuda` was asked for and there is no such device, or there are more
            processes on this machine than GPUs.
    """
    if choice == "cpu" or (choice == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ValueError("device 'cuda' was asked for, but torch sees no GPU; use 'cpu' or 'auto'.")
    if local_rank >= torch.cuda.device_count():
        raise ValueError(
            f"process {local_rank} of this machine has no GPU of its own: torch sees "
            f"{torch.cuda.device_count()}; start at most that many processes a machine."
        )
    return torch.device("cuda", local_rank)


@contextmanager
def process_group_from_environment(
    device: DeviceChoice = "auto", timeout: timedelta = timedelta(minutes=10)
) -> Iterator[World]:
    """Open the group that `torchrun` describes (gloo on the CPU, NCCL on CUDA), and close it.

    Without torchrun's variables (`RANK`, `WORLD_SIZE`) the process is alone: no group is opened. A
    default group that the caller has opened before is used, and left open.

    Args:
        device: see `choose_device`.
        timeout: how long a collective may wait for the other processes.

    Yields:
        The place of this process.
    """
    if dist.is_initialized():
        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        yield World(
            dist.get_rank(),
            dist.get_world_size(),
            choose_device(device, local_rank),
            dist.group.WORLD,
        )
        return
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield World(0, 1, choose_device(device), None)
        return
    chosen = choose_device(device, int(os.environ.get("LOCAL_RANK", "0")))
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
        dist.init_process_group("nccl", timeout=timeout, device_id=chosen)
    else:
        dist.init_process_group("gloo", timeout=timeout)
    try:
        yield World(dist.get_rank(), dist.get_world_size(), chosen, dist.group.WORLD)
    finally:
        dist.destroy_process_group()
