"""Which launches are compiled, and what a report must say for the gate to be green.

An operation takes part by a file ``kernels/NAME/compile_cases.py`` with a function
``compile_cases(target, full)`` that returns `CompileCase` values; nothing else has to know it.
"""

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dualwave.kernels.compile_gate import CompileReport, Specialisation, specialise
from dualwave.kernels.launch import Launch
from dualwave.kernels.targets import Target

_ROWS_OF_WARP_GROUP_PRODUCTS = 64
"""The instructions of sm_90 and sm_100 take at least this many rows."""


@dataclass(frozen=True)
class CompileCase:
    """One launch that is compiled, and what is demanded of it.

    Attributes:
        config: what the launch belongs to, in words: sizes, dtype, precision, layout, direction.
        launch: planned for the target, on meta tensors.
        spill_ceiling: bytes that may be spilled; 0 but where a measured ceiling is written down.
        needs_tensor_cores: whether the kernel's products must run on matrix units; False for
            kernels without products, and for precisions that no matrix unit has.
    """

    config: str
    launch: Launch
    spill_ceiling: int = 0
    needs_tensor_cores: bool = True


@dataclass(frozen=True)
class Compilation:
    """One specialisation to compile, with the strictest demands of the cases that share it."""

    kernel: str
    config: str
    specialisation: Specialisation
    key: str
    spill_ceiling: int
    needs_tensor_cores: bool


def discover_cases(target: Target, full: bool) -> list[CompileCase]:
    """The cases of all operations, in order of their folders.

    Args:
        target: what to plan for.
        full: more sizes, precisions and arguments than the default set.
    """
    cases: list[CompileCase] = []
    for file in sorted(Path(__file__).parent.glob("*/compile_cases.py")):
        module = importlib.import_module(f"dualwave.kernels.{file.parent.name}.compile_cases")
        cases.extend(module.compile_cases(target, full))
    return cases


def compilations_of(cases: Iterable[CompileCase], target: Target) -> list[Compilation]:
    """The distinct compilations that cases come down to, each named by its first case."""
    distinct: dict[str, Compilation] = {}
    for case in cases:
        specialisation = specialise(case.launch, target)
        key = specialisation.key
        ceiling, needs_tensor_cores = case.spill_ceiling, case.needs_tensor_cores
        config = case.config
        if key in distinct:
            config = distinct[key].config
            ceiling = min(ceiling, distinct[key].spill_ceiling)
            needs_tensor_cores = needs_tensor_cores or distinct[key].needs_tensor_cores
        distinct[key] = Compilation(
            specialisation.name, config, specialisation, key, ceiling, needs_tensor_cores
        )
    return list(distinct.values())


def failures_of(compilation: Compilation, report: CompileReport) -> list[str]:
    """What is wrong with a compiled kernel, one clause each; empty where the gate is green."""
    target = compilation.specialisation.target
    failures = []
    if report.spill_bytes > compilation.spill_ceiling:
        failures.append(
            f"spills {report.spill_bytes} bytes, {compilation.spill_ceiling} are allowed"
        )
    if report.shared_bytes > target.shared_memory_limit:
        failures.append(
            f"takes {report.shared_bytes} bytes of shared memory, "
            f"{target.shared_memory_limit} are there"
        )
    if report.tensor_memory_columns > target.tensor_memory_limit:
        failures.append(
            f"takes {report.tensor_memory_columns} columns of tensor memory, "
            f"{target.tensor_memory_limit} are there"
        )
    if compilation.needs_tensor_cores:
        expected = expected_instruction(target, report.product_rows)
        if report.tensor_core != expected:
            found = report.tensor_core or "no matrix instruction"
            failures.append(f"compiles to {found} instead of {expected}")
    return failures


def expected_instruction(target: Target, product_rows: int) -> str:
    """The matrix instruction for products whose tiles have that many rows at most."""
    if target.backend == "hip":
        return "mfma"
    if product_rows < _ROWS_OF_WARP_GROUP_PRODUCTS:
        return "mma"
    return {"sm_90": "wgmma", "sm_100": "tcgen05"}.get(target.name, "mma")
