"""A kernel launch as a value: planned once, then run on a device or compiled without one."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Launch:
    """One launch of a Triton kernel.

    Planning a launch touches no data, so it also works with tensors on the ``meta`` device; the
    compile gate plans that way and compiles what real calls would run.

    Attributes:
        kernel: the ``@triton.jit`` function.
        grid: programs along each axis; the first axis is the long one (the others stop at 65,535).
        arguments: every argument of the kernel by name; constants that the kernel is compiled for
            (``tl.constexpr``) included.
        num_warps: warps a program.
        num_stages: depth of the software pipeline.
    """

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]
    num_warps: int
    num_stages: int

    def run(self) -> None:
        """Queue the launch on the current device and stream; an empty grid is no launch."""
        if 0 not in self.grid:
            self.kernel[self.grid](
                **self.arguments, num_warps=self.num_warps, num_stages=self.num_stages
            )
