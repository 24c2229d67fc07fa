"""The calls of spectral attention that the compile gate plans and compiles."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal, get_args

import torch

from dualwave.kernels.compile_gate_judgement import CompileCase
from dualwave.kernels.launch import Launch
from dualwave.kernels.spectral.planning import plan_backward, plan_forward
from dualwave.kernels.spectral.plans import Call, Layout
from dualwave.kernels.targets import Target

Arguments = Literal["row bias", "full bias", "x alone"]
"""A bias for all rows, or of x's own shape, both with a temperature tensor and every gradient; or
neither, and the gradient of x alone."""

_BATCH = 8
_ROUNDED_PRECISIONS = ("fp16", "tf32")
_ALL_PRECISIONS = (*_ROUNDED_PRECISIONS, "tf32x3", "ieee")


@dataclass(frozen=True)
class _Sizes:
    """What is called: a grid in a layout, and in which precisions of the products."""

    height: int
    width: int
    layout: Layout
    precisions: tuple[str, ...] = _ROUNDED_PRECISIONS
    channels: int = 768
    arguments: Arguments = "row bias"


_DEFAULT = (
    _Sizes(14, 14, "planar", _ALL_PRECISIONS),
    _Sizes(14, 14, "tokens", _ALL_PRECISIONS),
    _Sizes(32, 32, "planar"),
    _Sizes(32, 32, "tokens"),
    _Sizes(64, 64, "planar"),
    _Sizes(64, 64, "tokens"),
    _Sizes(128, 128, "planar", channels=384),
    _Sizes(67, 67, "planar"),
    _Sizes(2, 4096, "planar"),
)
_MORE_GRIDS = (
    *((1, 31), (1, 33), (2, 63), (5, 64), (7, 14), (14, 33), (16, 16), (31, 32), (32, 63)),
    *((32, 32), (64, 64), (67, 67), (96, 128), (128, 128), (1, 4096), (4096, 1)),
)
_VARIED_GRIDS = ((1, 32), (14, 14), (32, 32), (64, 64))
_OTHER_ARGUMENTS: tuple[Arguments, ...] = ("full bias", "x alone")
_FULL = (
    *(
        _Sizes(height, width, layout, _ALL_PRECISIONS)
        for (height, width), layout in product(_MORE_GRIDS, get_args(Layout))
    ),
    *(
        _Sizes(height, width, layout, arguments=arguments)
        for (height, width), layout, arguments in product(
            _VARIED_GRIDS, get_args(Layout), _OTHER_ARGUMENTS
        )
    ),
)

_STRICT_SPILL_CEILINGS = {False: 0, True: 2048}
"""Bytes that tf32x3 and ieee may spill in the default set, and in the full one.

Measured with Triton 3.7.1: the most is 2032, of the forward pass on 32x32 tokens in ieee on sm_100.
"""


def compile_cases(target: Target, full: bool) -> Iterator[CompileCase]:
    """Forward and backward of each call.

    Args:
        target: what to plan for.
        full: more sizes in every precision, and some with other arguments than a bias for all rows
            and all gradients.
    """
    strict_ceiling = _STRICT_SPILL_CEILINGS[full]
    for sizes in (*_DEFAULT, *(_FULL if full else ())):
        for precision in sizes.precisions:
            if target.backend == "hip" and precision == "tf32x3":
                continue
            ceiling = 0 if precision in _ROUNDED_PRECISIONS else strict_ceiling
            yield from _cases(sizes, precision, target, ceiling)


def _cases(
    sizes: _Sizes, precision: str, target: Target, spill_ceiling: int
) -> Iterator[CompileCase]:
    dtype = torch.bfloat16 if precision == "fp16" else torch.float32
    x = _meta(sizes, (sizes.height, sizes.width), dtype)
    bias = temperature = None
    if sizes.arguments != "x alone":
        rows = 1 if sizes.arguments == "row bias" else sizes.height
        bias = _meta(sizes, (rows, sizes.width // 2 + 1), torch.float32)
        temperature = torch.empty((), device="meta")
    call = Call(x, bias, temperature, 1.0, precision, target)
    wanted = (True, bias is not None, temperature is not None)
    passes = {
        "forward": plan_forward(call).launches,
        "backward": plan_backward(call, torch.empty_like(x), wanted).launches,
    }
    for direction, launches in passes.items():
        config = f"{sizes.height}x{sizes.width} {sizes.layout} {precision} {direction}"
        if sizes.arguments != "row bias":
            config += f", {sizes.arguments}"
        for launch in launches:
            yield CompileCase(
                config,
                launch,
                spill_ceiling,
                needs_tensor_cores=_has_products(launch) and target.multiplies_in_units(precision),
            )


def _meta(sizes: _Sizes, grid: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor (B, C, *grid) in a layout, without data."""
    if sizes.layout == "planar":
        return torch.empty(_BATCH, sizes.channels, *grid, dtype=dtype, device="meta")
    tokens = torch.empty(_BATCH, *grid, sizes.channels, dtype=dtype, device="meta")
    return tokens.permute(0, 3, 1, 2)


def _has_products(launch: Launch) -> bool:
    """All kernels have some, but a filter of rows that are transformed already."""
    return bool(launch.arguments.get("TRANSFORM", True))
