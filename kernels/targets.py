"""The accelerators that kernels are built for, and which one a tensor lies on.

Kernel configurations are pure functions of a shape, a dtype and one of these targets, so they can
be computed (and their kernels compiled) on a machine without any accelerator.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch


@dataclass(frozen=True)
class Target:
    """One kind of accelerator.

    Attributes:
        name: as its makers call it.
        backend: Triton's name of the compiler back end, ``"cuda"`` or ``"hip"``.
        architecture: Triton's name of the architecture: 90 or ``"gfx942"``.
        warp_size: threads in a warp.
        shared_memory_limit: bytes of shared memory that one program may use.
        tensor_memory_limit: columns of tensor memory that one program may use; 0 where there is
            none.
    """

    name: str
    backend: str
    architecture: int | str
    warp_size: int
    shared_memory_limit: int
    tensor_memory_limit: int = 0

    @property
    def has_tensor_descriptors(self) -> bool:
        """Whether one instruction loads a tile of a described tensor (TMA)."""
        return self.backend == "cuda" and self.architecture in (90, 100)

    def multiplies_in_units(self, precision: str) -> bool:
        """Whether matrix units do products in a precision; NVIDIA's round float32 operands."""
        return self.backend == "hip" or precision != "ieee"


SM_80 = Target("sm_80", "cuda", 80, 32, 163 * 1024)
SM_90 = Target("sm_90", "cuda", 90, 32, 227 * 1024)
SM_100 = Target("sm_100", "cuda", 100, 32, 227 * 1024, tensor_memory_limit=512)
GFX942 = Target("gfx942", "hip", "gfx942", 64, 64 * 1024)
TARGETS = (SM_80, SM_90, SM_100, GFX942)


def target_of(device: torch.device) -> Target:
    """The target whose configurations serve a device.

    A device that is not in the table takes the nearest entry's configurations: compute capability
    8.x and 12.x those of sm_80, 10.x those of sm_100, any AMD accelerator those of gfx942. The CPU
    (Triton's interpreter) takes those of sm_90.

    Raises:
        ValueError: a GPU older than compute capability 8.0, which the kernels do not serve.
    """
    if device.type == "cpu":
        return SM_90
    index = torch.cuda.current_device() if device.index is None else device.index
    return _target_of_gpu(index)


@lru_cache
def _target_of_gpu(index: int) -> Target:
    if torch.version.hip is not None:
        return GFX942
    major, minor = torch.cuda.get_device_capability(index)
    if major < 8:
        raise ValueError(
            f"cuda:{index} has compute capability {major}.{minor}, but the Triton kernels need 8.0 "
            'or newer: use implementation="torch".'
        )
    return {9: SM_90, 10: SM_100}.get(major, SM_80)
