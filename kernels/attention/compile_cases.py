"""The calls of blockwise attention that the compile gate plans and compiles."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import torch

from dualwave.kernels.attention.planning import plan_backward, plan_forward
from dualwave.kernels.attention.plans import Call, Packing, Visibility
from dualwave.kernels.choices import STRICT_PRECISIONS
from dualwave.kernels.compile_gate_judgement import CompileCase
from dualwave.kernels.launch import Launch
from dualwave.kernels.targets import Target


@dataclass(frozen=True)
class _Variant:
    """What a call has beyond q, k and v."""

    name: str
    left: int | None = None
    right: int | None = None
    has_bias: bool = False
    is_packed: bool = False
    is_absolute: bool = False
    key_heads: int = 16
    has_grad_lse: bool = False


_PLAIN = _Variant("plain")
_VARIANTS = (
    _PLAIN,
    _Variant("causal", right=0),
    _Variant("window", left=512, right=512),
    _Variant("bias", has_bias=True),
    _Variant("packed", is_packed=True),
    _Variant("offsets", right=0, is_absolute=True),
    _Variant("grouped heads", key_heads=4),
    _Variant("gradient of the LSE", has_grad_lse=True),
    _Variant("all together", 512, 0, True, True, True, 4, True),
)
_SIZES = (64, 72, 80, 96, 128, 256)
_VARIED_SIZES = (64, 128)
_MORE_SIZES = (1, 8, 16, 32, 48, 72, 80, 96, 112, 160, 192, 240, 256)
_SIZES_IN_FLOAT32 = (64, 80, 128, 256)
_BATCH, _LENGTH, _HEADS = 4, 4096, 16
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_FLOAT32_SPILL_CEILING = 2048
"""Bytes that float32, which the full set alone compiles, may spill."""
_STRICT_SPILL_CEILINGS = {80: 4096, 256: 16384}
"""Likewise heads of these sizes in tf32x3 and ieee: 3508 and 12340 were seen."""
_SPLIT_SPILL_CEILING = 16384
"""Likewise heads above 128 in several pieces: 13 kB at 240 on sm_80, whose products take all of a
row from registers, 404 bytes elsewhere."""


def compile_cases(target: Target, full: bool) -> Iterator[CompileCase]:
    """Forward and backward of each call.

    Args:
        target: what to plan for.
        full: more head sizes, alone and with all variants together, and all precisions.
    """
    for size in _SIZES:
        for variant in _VARIANTS if size in _VARIED_SIZES else (_PLAIN,):
            yield from _cases(size, variant, "bf16", target)
    if not full:
        return
    ends = (_VARIANTS[0], _VARIANTS[-1])
    calls = [
        *product(_MORE_SIZES, ends, ("bf16",)),
        *product(_VARIED_SIZES, ends, ("fp16",)),
        *product(_SIZES_IN_FLOAT32, ends, ("tf32", *STRICT_PRECISIONS)),
    ]
    for size, variant, precision in calls:
        if target.backend == "cuda" or precision != "tf32x3":
            yield from _cases(size, variant, precision, target)


def _cases(size: int, variant: _Variant, precision: str, target: Target) -> Iterator[CompileCase]:
    dtype = _DTYPES.get(precision, torch.float32)
    batch = 1 if variant.is_packed else _BATCH
    q = torch.empty(batch, _LENGTH, _HEADS, size, dtype=dtype, device="meta")
    k = torch.empty(batch, _LENGTH, variant.key_heads, size, dtype=dtype, device="meta")
    bias = packing = None
    if variant.has_bias:
        bias = torch.empty(1, _HEADS, _LENGTH, _LENGTH, dtype=dtype, device="meta")
    if variant.is_packed:
        marks = torch.empty(9, dtype=torch.int32, device="meta")
        packing = Packing(marks, marks, _LENGTH, _LENGTH)
    visibility = Visibility(
        variant.left, variant.right, (_LENGTH, 0) if variant.is_absolute else None
    )
    call = Call(q, k, k, bias, packing, visibility, 0.125, dtype, precision, target)
    normalisers = torch.empty(2, batch, _HEADS, _LENGTH, device="meta")
    grad_lse = normalisers[0] if variant.has_grad_lse else None
    wanted = (True, True, True, variant.has_bias)
    partial = replace(call, out_dtype=torch.float32) if variant.has_grad_lse else call
    grad_out = torch.empty_like(q, dtype=partial.out_dtype)
    passes = {
        "forward": plan_forward(partial).launches,
        "backward": plan_backward(
            partial, grad_out, normalisers, grad_out, grad_lse, dtype, wanted
        ).launches,
    }
    for direction, launches in passes.items():
        for launch in launches:
            yield CompileCase(
                f"D={size} {precision} {direction}, {variant.name}",
                launch,
                _spill_ceiling(size, precision),
                needs_tensor_cores=_has_products(launch) and target.multiplies_in_units(precision),
            )


def _spill_ceiling(size: int, precision: str) -> int:
    if size > 128 and size not in _SIZES:
        return _SPLIT_SPILL_CEILING
    if precision in STRICT_PRECISIONS:
        return _STRICT_SPILL_CEILINGS.get(size, _FLOAT32_SPILL_CEILING)
    return 0 if precision in _DTYPES else _FLOAT32_SPILL_CEILING


def _has_products(launch: Launch) -> bool:
    """All kernels have some, but that of the row sums."""
    return "BLOCK_K" in launch.arguments
