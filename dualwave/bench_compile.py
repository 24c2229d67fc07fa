"""Compile every kernel for every target on this machine; for ``dualwave bench compile``."""

import json
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from dualwave.kernels.compile_gate import CompileReport, Specialisation
from dualwave.kernels.compile_gate_judgement import (
    Compilation,
    CompileCase,
    compilations_of,
    discover_cases,
    failures_of,
)
from dualwave.kernels.targets import TARGETS, Target

_PROCESSES = 2
_WIDTH_OF_A_FILE = 120


@dataclass(frozen=True)
class CompiledRow:
    """One compiled kernel.

    Attributes:
        compilation: what was compiled, and what is demanded of it.
        report: what came out; None where the compiler failed.
        failures: what is wrong, one clause each.
    """

    compilation: Compilation
    report: CompileReport | None
    failures: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        report = self.report
        return {
            "kernel": self.compilation.kernel,
            "config": self.compilation.config,
            "target": self.compilation.specialisation.target.name,
            "registers": None if report is None else report.registers,
            "spill_bytes": None if report is None else report.spill_bytes,
            "spill_ceiling": self.compilation.spill_ceiling,
            "sgpr_spills": None if report is None else report.sgpr_spills,
            "shared_bytes": None if report is None else report.shared_bytes,
            "tensor_memory_columns": None if report is None else report.tensor_memory_columns,
            "tensor_core": None if report is None else report.tensor_core,
            "failures": list(self.failures),
        }


def bench_compile(names: Sequence[str], full: bool, json_file: Path | None) -> bool:
    """Compile, print a table and one sentence for each failure; whether all is well.

    Args:
        names: of the targets; all of them if empty.
        full: more sizes, precisions and arguments than the default set.
        json_file: where the rows are written as well.

    Raises:
        ValueError: a target that is not known, or TRITON_INTERPRET=1.
    """
    known = {target.name: target for target in TARGETS}
    for name in names:
        if name not in known:
            raise ValueError(f"target must be one of {', '.join(known)}, not {name!r}.")
    targets = [known[name] for name in dict.fromkeys(names)] or list(TARGETS)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_OF_A_FILE)
    cases = [(target, discover_cases(target, full)) for target in targets]
    rows = compile_cases(cases, console)
    console.print(_table(rows))
    for row in rows:
        compilation = row.compilation
        for failure in row.failures:
            console.print(
                f"error: {compilation.kernel} ({compilation.config}) "
                f"on {compilation.specialisation.target.name} {failure}.",
                style="red",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
    if json_file is not None:
        _write_atomically([row.to_dict() for row in rows], json_file)
    return not any(row.failures for row in rows)


def compile_cases(
    cases: Sequence[tuple[Target, Sequence[CompileCase]]], console: Console
) -> list[CompiledRow]:
    """Compile cases in processes of their own, but those that a cached report answers."""
    compilations = [
        compilation for target, group in cases for compilation in compilations_of(group, target)
    ]
    rows: dict[str, CompiledRow] = {}
    for compilation in compilations:
        report = _read_cached(compilation.key)
        if report is not None:
            failures = tuple(failures_of(compilation, report))
            rows[compilation.key] = CompiledRow(compilation, report, failures)
    missing = [compilation for compilation in compilations if compilation.key not in rows]
    console.print(f"{len(compilations)} compilations, {len(rows)} of them from the cache")
    columns = (TextColumn("compiling"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(missing))
        for row in _compile_in_processes(missing):
            rows[row.compilation.key] = row
            progress.advance(task)
    return [rows[compilation.key] for compilation in compilations]


def _compile_in_processes(compilations: Sequence[Compilation]) -> Iterator[CompiledRow]:
    if not compilations:
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(_PROCESSES, mp_context=context) as pool:
        futures = {
            pool.submit(_report_or_error, compilation.specialisation): compilation
            for compilation in compilations
        }
        for future in as_completed(futures):
            compilation, outcome = futures[future], future.result()
            if isinstance(outcome, str):
                yield CompiledRow(compilation, None, (f"does not compile: {outcome}",))
            else:
                _write_atomically(asdict(outcome), _cache_file(compilation.key))
                failures = tuple(failures_of(compilation, outcome))
                yield CompiledRow(compilation, outcome, failures)


def _report_or_error(specialisation: Specialisation) -> CompileReport | str:
    """Runs in a process of the pool. Whatever the compiler raises is the kernel's failure."""
    try:
        return specialisation.compile()
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:  # the fault is in the innermost device function
            cause = cause.__cause__
        return " ".join(str(cause).split()) or type(cause).__name__


def _cache_file(key: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dualwave" / "compile_gate" / f"{key}.json"


def _read_cached(key: str) -> CompileReport | None:
    """A report of an earlier run; None if there is none, or if it was damaged."""
    try:
        return CompileReport(**json.loads(_cache_file(key).read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _write_atomically(values: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    partial.replace(path)


def _table(rows: Sequence[CompiledRow]) -> Table:
    table = Table(title="Kernels, compiled ahead of time")
    for name in ("kernel", "config", "target"):
        table.add_column(name)
    for name in ("registers", "spilled", "shared"):
        table.add_column(name, justify="right")
    table.add_column("matrix units")
    for row in rows:
        report = row.report
        numbers = ["", "", "", ""]
        if report is not None:
            numbers = [str(report.registers), str(report.spill_bytes), str(report.shared_bytes)]
            numbers.append(report.tensor_core or "none")
        compilation = row.compilation
        target = compilation.specialisation.target.name
        style = "red" if row.failures else None
        table.add_row(compilation.kernel, compilation.config, target, *numbers, style=style)
    return table
