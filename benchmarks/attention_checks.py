"""The correctness gate of the attention benchmark: every kernel and variant, before any time.

The budgets are those of the tests (tests/kernels/attention/oracle.py), which give explicit tf32 a
bound of its own.
"""

import importlib.util
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

ORACLE = Path(__file__).resolve().parent.parent / "tests" / "kernels" / "attention" / "oracle.py"
PRECISIONS = (
    ("bfloat16", None),
    ("float16", None),
    ("float32", "tf32"),
    ("float32", "tf32x3"),
    ("float32", "ieee"),
)
SIZES = (64, 72, 80, 96, 128, 256)
VARIED_SIZES = (64, 128)
LENGTHS = (200, 333)
_CU_SEQLENS = (0, 0, 77, 78, 200)
# Options of make_problem, and of the public function.
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"window": (50, 20)},
    "bias": {"bias_shape": (1, 4, *LENGTHS)},
    "grouped heads": {"key_heads": 2},
    "offsets": {"causal": True, "q_offset": 133, "k_offset": 20},
    "packed": {"batch": 1, "keys": 200, "packed": True, "causal": True},
    "all together": {
        "batch": 1,
        "keys": 200,
        "packed": True,
        "bias_shape": (1, 4, 200, 200),
        "key_heads": 2,
        "window": (50, 20),
        "q_offset": 0,
    },
}


@dataclass(frozen=True)
class Check:
    """One comparison with the float64 definition.

    Attributes:
        size: D.
        dtype: of q, k and v.
        precision: of float32's matrix products; None for 16 bits.
        variant: a name in `VARIANTS`.
    """

    size: int
    dtype: str
    precision: str | None
    variant: str

    def __str__(self) -> str:
        precision = "" if self.precision is None else f" {self.precision}"
        return f"attention D={self.size} {self.dtype}{precision} {self.variant}"


def all_checks(is_amd: bool) -> list[Check]:
    """Every head size that the gate compiles in bfloat16, and every variant and precision at two.

    Args:
        is_amd: whether the device is AMD's, which has no tf32x3.
    """
    checks = [Check(size, "bfloat16", None, "plain") for size in SIZES]
    for dtype, precision in PRECISIONS:
        if is_amd and precision == "tf32x3":
            continue
        variants = VARIANTS if dtype == "bfloat16" else ("plain", "all together")
        checks += [
            Check(size, dtype, precision, variant) for size in VARIED_SIZES for variant in variants
        ]
    return list(dict.fromkeys(checks))


def check_on_gpu(check: Check) -> str:
    """Compare the GPU's results with the definition in float64; what is wrong, or ""."""
    return compare(check, "cuda")


def compare(check: Check, device: str, lengths: tuple[int, int] = LENGTHS) -> str:
    """Compare the Triton kernels' results on a device with the definition in float64."""
    oracle = _oracle()
    options = dict(VARIANTS[check.variant])
    if options.pop("packed", False):
        options["cu_seqlens_q"] = options["cu_seqlens_k"] = torch.tensor(_CU_SEQLENS)
    dtype = getattr(torch, check.dtype)
    queries, keys = lengths
    problem = oracle.make_problem(
        queries,
        options.pop("keys", keys),
        heads=4,
        size=check.size,
        dtype=dtype,
        **options,
    )

    def function(*tensors: Tensor, bias: Tensor | None = None, **more: Any) -> Any:
        from dualwave import blockwise_attention

        on_device = {
            name: value.to(device) if isinstance(value, Tensor) else value
            for name, value in more.items()
        }
        out, lse = blockwise_attention(
            *(tensor.to(device) for tensor in tensors),
            bias=None if bias is None else bias.to(device),
            return_lse=True,
            precision=check.precision,
            implementation="triton",
            **on_device,
        )
        return out.cpu(), lse.cpu()

    first, second = (oracle.results_of(function, problem, dtype) for _ in range(2))
    for name, values in first.items():
        if not torch.equal(values, second[name]):
            return f"{name} differs between two runs"
    try:
        oracle.assert_within_budget(
            first, problem, dtype, rounded_products=check.precision == "tf32"
        )
    except AssertionError as error:
        return str(error)
    return ""


@lru_cache
def _oracle() -> ModuleType:
    """The tests' module under a name of its own: that of the spectral operation is alike."""
    name = "attention_oracle"
    specification = importlib.util.spec_from_file_location(name, ORACLE)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module
