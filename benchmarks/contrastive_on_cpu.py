"""The CPU half of contrastive.py: our PyTorch implementation, times and peak extra memory."""

import statistics
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from contrastive_cases import Case, Inputs, Loss, check
from memory import peak_extra_bytes
from timing import growth_exponent, interleaved_times, speedup

ROUNDS = 7
BATCHES = (1024, 2048, 4096, 8192)
KINDS = ("softmax", "sigmoid")
DIRECTIONS = ("forward", "forward+backward")


def measure() -> dict[str, Any]:
    """Print the tables of this device; return their figures."""
    for kind in KINDS:
        check(Case(kind, 97, 48), torch.float32, "cpu")  # type: ignore[arg-type]
    print("\nMilliseconds, theirs / ours = how many times faster (middle half); MiB at the peak:")
    cases = [Case(kind, batch) for kind in KINDS for batch in BATCHES]  # type: ignore[arg-type]
    measured = [_measure_case(case) for case in cases]
    growth = _growth_of_memory(measured)
    print(f"peak extra memory of forward+backward grows with the batch to the power of {growth}")
    return {"rounds": ROUNDS, "times": measured, "growth_of_memory": growth}


def _measure_case(case: Case) -> dict[str, Any]:
    inputs = case.inputs(torch.float32)
    sides = case.sides()
    functions: dict[str, Callable[[], object]] = {}
    for name, loss in sides.items():
        functions[f"forward {name}"] = partial(_forward, loss, inputs)
        functions[f"forward+backward {name}"] = partial(_both, loss, inputs)
    times = interleaved_times(functions, rounds=ROUNDS, warm_up_rounds=1)
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    memory = {
        f"{direction} {name}": peak_extra_bytes(partial(_prepare, case, name, direction))
        for direction in DIRECTIONS
        for name in sides
    }
    print(f"{case}:")
    comparisons = []
    for direction in DIRECTIONS:
        for other in list(sides)[1:]:
            theirs, ours = f"{direction} {other}", f"{direction} ours"
            found = speedup(times[theirs], times[ours])
            comparisons.append({"baseline": theirs, **asdict(found)})
            print(
                f"  {theirs:28}{medians[theirs] * 1e3:9.2f} /{medians[ours] * 1e3:9.2f} = "
                f"{found!s:24} MiB {memory[theirs] / 2**20:9.1f}{memory[ours] / 2**20:9.1f}",
                flush=True,
            )
    return {
        "case": asdict(case),
        "median_seconds": medians,
        "speedups": comparisons,
        "peak_extra_bytes": memory,
    }


def _growth_of_memory(measured: list[dict[str, Any]]) -> dict[str, float]:
    found = {}
    for kind in KINDS:
        rows = [row for row in measured if row["case"]["kind"] == kind]
        batches = [row["case"]["batch"] for row in rows]
        for name in ("ours", "open_clip"):
            peaks = [row["peak_extra_bytes"][f"forward+backward {name}"] for row in rows]
            found[f"{kind} {name}"] = round(growth_exponent(batches, peaks), 2)
    return found


def _forward(loss: Loss, inputs: Inputs) -> None:
    with torch.no_grad():
        loss(*inputs)


def _both(loss: Loss, inputs: Inputs) -> None:
    torch.autograd.grad(loss(*inputs), inputs, allow_unused=True)


def _prepare(case: Case, name: str, direction: str) -> Callable[[], object]:
    """In a process of its own: the call whose memory is measured, after a small one."""
    for each in (Case(case.kind, 16, case.size), case):
        call = partial(
            _forward if direction == "forward" else _both,
            each.sides()[name],
            each.inputs(torch.float32),
        )
        if each is not case:
            call()
    return call
