"""The correctness gate of the contrastive benchmark: both losses, every dtype and precision."""

from dataclasses import dataclass
from typing import Any

import torch
from contrastive_cases import Case, check, results_of

BATCHES = (1, 300, 1025)
SIZES = (72, 512, 768)
PRECISIONS = (
    ("bfloat16", None),
    ("float16", None),
    ("float32", "tf32x3"),
    ("float32", "ieee"),
)


@dataclass(frozen=True)
class Check:
    """One comparison with the float64 definition.

    Attributes:
        kind: of the loss.
        batch: B.
        size: D.
        dtype: of the features.
        precision: of float32's products; None for 16 bits.
    """

    kind: Any
    batch: int
    size: int
    dtype: str
    precision: str | None

    def __str__(self) -> str:
        return f"contrastive {self.kind} B={self.batch} D={self.size} {self.dtype} {self.precision}"


def all_checks(is_amd: bool) -> list[Check]:
    """Both losses, every size, dtype and precision; AMD has no tf32x3."""
    return [
        Check(kind, batch, size, dtype, precision)
        for kind in ("softmax", "sigmoid")
        for dtype, precision in PRECISIONS
        if not (is_amd and precision == "tf32x3")
        for batch, size in zip(BATCHES, SIZES, strict=True)
    ]


def check_on_gpu(one: Check) -> str:
    """Compare the GPU's results with the definition in float64; what is wrong, or ""."""
    return compare(one, "cuda")


def compare(one: Check, device: str) -> str:
    """Compare the results on a device with the definition in float64, and with a second run."""
    case, dtype = Case(one.kind, one.batch, one.size), getattr(torch, one.dtype)
    try:
        check(case, dtype, device, precision=one.precision)
    except SystemExit as wrong:
        return str(wrong)
    inputs = case.inputs(dtype, device)
    first, second = (results_of(case.ours, inputs) for _ in range(2))
    same = all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    return "" if same else "it differs between two runs"
