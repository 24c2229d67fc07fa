"""The calls of the contrastive operation that the compile gate plans and compiles."""

from collections.abc import Iterator
from itertools import product

import torch

from dualwave.kernels.choices import STRICT_PRECISIONS
from dualwave.kernels.compile_gate_judgement import CompileCase
from dualwave.kernels.contrastive.planning import plan_backward, plan_forward
from dualwave.kernels.contrastive.plans import Call, Kind
from dualwave.kernels.launch import Launch
from dualwave.kernels.targets import Target

_BATCH = 8192
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_STRICT_SPILL_CEILING = 2048
"""Bytes that tf32x3 and ieee, which the full set alone compiles, may spill."""
_DEFAULT_CALLS: tuple[tuple[int, Kind, str], ...] = (
    (512, "softmax", "bf16"),
    (768, "sigmoid", "bf16"),
    (512, "softmax", "tf32"),
)
_KINDS: tuple[Kind, ...] = ("softmax", "sigmoid")
_SIZES = (1, 16, 24, 64, 96, 512, 768, 1024, 1152)
_SIZES_IN_EVERY_PRECISION = (64, 768)


def compile_cases(target: Target, full: bool) -> Iterator[CompileCase]:
    """Forward and backward of each call, and the losses of given normalisers.

    Args:
        target: what to plan for.
        full: both kinds at more sizes of features, and all precisions.
    """
    calls = list(_DEFAULT_CALLS)
    if full:
        calls += product(_SIZES, _KINDS, ("bf16",))
        calls += product(_SIZES_IN_EVERY_PRECISION, _KINDS, ("fp16", "tf32", "tf32x3", "ieee"))
    for size, kind, precision in calls:
        if target.backend == "cuda" or precision != "tf32x3":
            yield from _cases(size, kind, precision, target)


def _cases(size: int, kind: Kind, precision: str, target: Target) -> Iterator[CompileCase]:
    features = torch.empty(_BATCH, size, dtype=_DTYPES.get(precision, torch.float32), device="meta")
    scalar = torch.empty((), device="meta")
    call = Call(features, features, scalar, scalar, kind, 0, precision, target)
    normalisers = None
    if kind == "softmax":
        normalisers = torch.empty(2, _BATCH, device="meta"), torch.empty(2, _BATCH, device="meta")
    everything = (True, True, True, kind == "sigmoid")
    only_sums = (False, False, True, kind == "sigmoid")
    passes = {
        "forward": plan_forward(call, None).launches,
        "backward": plan_backward(call, normalisers, scalar, everything).launches,
        "backward of the scale alone": plan_backward(call, normalisers, scalar, only_sums).launches,
    }
    if normalisers is not None:
        passes["forward, given LSEs"] = plan_forward(call, normalisers).launches
    for direction, launches in passes.items():
        for launch in launches:
            yield CompileCase(
                f"D={size} {precision} {direction}, {kind}",
                launch,
                _STRICT_SPILL_CEILING if precision in STRICT_PRECISIONS else 0,
                needs_tensor_cores=_has_products(launch) and target.multiplies_in_units(precision),
            )


def _has_products(launch: Launch) -> bool:
    """All kernels have some, but that of the labels' losses."""
    return "BLOCK_COLUMNS" in launch.arguments
