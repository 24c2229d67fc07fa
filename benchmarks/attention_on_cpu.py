"""The CPU half of attention.py: our PyTorch implementation.

Without a window it calls the operator that torch's own attention calls, so a ratio of 1 is what can
be had there; with a window torch's attention takes a mask and computes everything. FlexAttention
has no backward pass on CPUs.
"""

import statistics
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from attention_cases import Case, Inputs, Operation, check
from memory import peak_extra_bytes
from timing import interleaved_times, speedup

ROUNDS = 11
CASES = (
    Case(16, 256, 12, 64),
    Case(4, 1024, 8, 64, causal=True),
    Case(2, 1024, 8, 72),
    Case(2, 1024, 8, 80, causal=True),
    Case(2, 1024, 8, 128),
    Case(1, 4096, 4, 64, causal=True),
    Case(1, 4096, 4, 64, window=(128, 128)),
)


def measure() -> dict[str, Any]:
    """Print the tables of this device; return their figures."""
    for case in CASES:
        small = Case(1, min(case.length, 160), 2, case.size, case.causal, case.window and (16, 16))
        check(small, small.ours, "ours", torch.float32, "cpu")
    print("\nMilliseconds, theirs / ours = how many times faster (middle half); MiB at the peak:")
    return {"rounds": ROUNDS, "times": [_measure_case(case) for case in CASES]}


def _measure_case(case: Case) -> dict[str, Any]:
    inputs = case.inputs(torch.float32)
    operations: dict[str, Operation] = {"ours": case.ours, "torch": case.torch_attention}
    functions: dict[str, Callable[[], object]] = {}
    for name, operation in operations.items():
        functions[f"forward {name}"] = partial(_forward, operation, inputs)
        functions[f"forward+backward {name}"] = partial(_both, operation, inputs)
    from torch.nn.attention.flex_attention import flex_attention

    torch.compiler.reset()
    flex = case.flex_attention(torch.compile(flex_attention))
    functions["forward flex"] = partial(_forward, flex, inputs)
    times = interleaved_times(functions, rounds=ROUNDS)
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    memory = {
        f"{direction} {name}": peak_extra_bytes(partial(_prepare, case, name, direction))
        for direction in ("forward", "forward+backward")
        for name in operations
    }
    print(f"{case}:")
    comparisons = []
    for direction, other in (
        ("forward", "torch"),
        ("forward", "flex"),
        ("forward+backward", "torch"),
    ):
        theirs, ours = f"{direction} {other}", f"{direction} ours"
        found = speedup(times[theirs], times[ours])
        comparisons.append({"baseline": theirs, **asdict(found)})
        mebibytes = "".join(
            f"{memory[name] / 2**20:9.1f}" if name in memory else f"{'':9}"
            for name in (theirs, ours)
        )
        print(
            f"  {theirs:24}{medians[theirs] * 1e3:9.2f} /{medians[ours] * 1e3:9.2f} = "
            f"{found!s:24} MiB {mebibytes}",
            flush=True,
        )
    return {
        "case": asdict(case),
        "median_seconds": medians,
        "speedups": comparisons,
        "peak_extra_bytes": memory,
    }


def _forward(operation: Operation, inputs: Inputs) -> None:
    with torch.no_grad():
        operation(*inputs[:3])


def _both(operation: Operation, inputs: Inputs) -> None:
    torch.autograd.grad(operation(*inputs[:3]), inputs[:3], inputs[3])


def _prepare(case: Case, name: str, direction: str) -> Callable[[], object]:
    """In a process of its own: the call whose memory is measured, after a small one."""
    for each in (Case(1, 32, 1, case.size, case.causal, case.window and (4, 4)), case):
        inputs = each.inputs(torch.float32)
        operation = each.ours if name == "ours" else each.torch_attention
        call = partial(_forward if direction == "forward" else _both, operation, inputs)
        if each is not case:
            call()
    return call
