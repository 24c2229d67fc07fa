"""The GPU half of attention.py: the Triton kernels against every backend of torch's attention.

Values come first: no time is printed while a check is red. This file never ran on a GPU: it was
written and tested on a machine without one.

Backward alone is timed from a graph that is kept. Times are between two events around the call, the
same way for everybody, with the cache overwritten before.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from attention_cases import Case, Inputs, Operation
from attention_checks import all_checks, check_on_gpu
from gpu_checks import checked
from gpu_timing import queued_seconds
from torch.nn.attention import SDPBackend, sdpa_kernel

DEVICE = "cuda"
DTYPE = torch.bfloat16
# 16,384 tokens and 2,048 columns of all heads each, as the field does it.
TIMED_CASES = tuple(
    Case(16384 // length, length, 2048 // size, size, causal)
    for length in (512, 4096, 16384)
    for size in (64, 80, 128)
    for causal in (False, True)
)
# Each compilation takes tens of seconds.
FLEX_CASES = (Case(4, 4096, 16, 128, causal=True), Case(4, 4096, 32, 64))
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
SECONDS_FOR_FLEX = 100.0
# The part of the best backend's speed that is aimed at, on an H200 at D = 128.
GOALS = {"forward": 0.75, "backward": 0.70}
_BACKWARD_FLOPS = 2.5  # of the forward pass's: five products for two


@dataclass
class Timing:
    """Seconds and bytes by ``"direction side"``; None where a side can't do the case.

    Attributes:
        case: what was computed.
        seconds: of one call.
        peak_bytes: the most memory allocated during a forward and backward pass, by side, above
            that of the inputs.
        notes: why something was not measured.
    """

    case: Case
    seconds: dict[str, float | None] = field(default_factory=dict)
    peak_bytes: dict[str, int | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def share_of_best(self, direction: str) -> float | None:
        """Our speed as a part of that of torch's fastest backend."""
        ours = self.seconds.get(f"{direction} ours")
        others = [self.seconds.get(f"{direction} {name}") for name in BACKENDS]
        measured = [seconds for seconds in others if seconds is not None]
        return min(measured) / ours if ours is not None and measured else None

    def teraflops(self, direction: str, side: str) -> float | None:
        """By the field's convention; None where it was not measured."""
        seconds = self.seconds.get(f"{direction} {side}")
        factor = 1.0 if direction == "forward" else _BACKWARD_FLOPS
        if seconds is None:
            return None
        return factor * self.case.floating_point_operations / seconds / 1e12

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        shares = {direction: self.share_of_best(direction) for direction in GOALS}
        return {**asdict(self), "share_of_best_backend": shares}


def measure() -> dict[str, Any]:
    """Check everything, then print the table; return its figures.

    Raises:
        SystemExit: 1 where a check is red: then nothing is timed.
    """
    begin = time.perf_counter()
    outcomes = checked(all_checks(torch.version.hip is not None), check_on_gpu)
    print(f"{len(outcomes)} checks are green ({time.perf_counter() - begin:.0f} s)", flush=True)
    print(f"\n{DTYPE}, milliseconds and TFLOP/s; share: ours of torch's best; MiB of both passes")
    timings = []
    for case in TIMED_CASES:
        timings.append(_time(case))
        print(table_lines(timings[-1]), flush=True)
    flex_begin = time.perf_counter()
    flex_timings = []
    for case in FLEX_CASES:
        if time.perf_counter() - flex_begin > SECONDS_FOR_FLEX:
            print(f"{case}: FlexAttention was not measured: no time was left")
            continue
        flex_timings.append(_time_flex(case))
        print(table_lines(flex_timings[-1]), flush=True)
    print(verdict(timings), flush=True)
    return {
        "checks": [outcome.to_dict() for outcome in outcomes],
        "times": [timing.to_dict() for timing in timings],
        "flex_times": [timing.to_dict() for timing in flex_timings],
        "seconds": time.perf_counter() - begin,
    }


def table_lines(timing: Timing) -> str:
    """A case with one line for each direction."""
    lines = [f"{timing.case}:"]
    sides = list(timing.peak_bytes)
    for direction in GOALS:
        cells = [f"  {direction:9}"]
        for side in sides:
            seconds = timing.seconds[f"{direction} {side}"]
            rate = timing.teraflops(direction, side)
            cells.append(
                f"{side}: -"
                if seconds is None or rate is None
                else f"{side}: {seconds * 1e3:.3f} ms, {rate:.0f} TFLOP/s"
            )
        share = timing.share_of_best(direction)
        cells.append("" if share is None else f"share {share:.0%}")
        lines.append("   ".join(cells).rstrip())
    memory = ", ".join(
        f"{side} {'-' if peak is None else f'{peak / 2**20:.0f}'}"
        for side, peak in timing.peak_bytes.items()
    )
    return "\n".join([*lines, f"  MiB: {memory}", *(f"  {note}" for note in timing.notes)])


def verdict(timings: list[Timing]) -> str:
    """Whether the goals at D = 128 are reached, in words."""
    lines = []
    for direction, goal in GOALS.items():
        shares = [
            share
            for timing in timings
            if timing.case.size == 128 and (share := timing.share_of_best(direction)) is not None
        ]
        if not shares:
            lines.append(f"goal {direction}, D = 128: nothing to compare with")
            continue
        least = min(shares)
        word = "reached" if least >= goal else "not reached"
        lines.append(
            f"goal {direction}, D = 128: at least {goal:.0%} of torch's best backend: {word} "
            f"(the least is {least:.0%})"
        )
    return "\n".join(lines)


def _time(case: Case) -> Timing:
    timing = Timing(case)
    _measure_side(timing, "ours", case.ours)
    for name, backend in BACKENDS.items():
        with sdpa_kernel(backend):
            _measure_side(timing, name, case.torch_attention)
    return timing


def _time_flex(case: Case) -> Timing:
    from torch.nn.attention.flex_attention import flex_attention

    timing = Timing(case)
    _measure_side(timing, "ours", case.ours)
    torch.compiler.reset()
    _measure_side(timing, "flex", case.flex_attention(torch.compile(flex_attention)))
    return timing


def _measure_side(timing: Timing, side: str, operation: Operation) -> None:
    """What a side can't do is said, and the rest goes on; ours must do everything."""
    inputs = timing.case.inputs(DTYPE, DEVICE)
    timing.seconds |= {f"{direction} {side}": None for direction in GOALS}
    timing.peak_bytes[side] = None
    try:
        with torch.no_grad():
            forward = queued_seconds(partial(operation, *inputs[:3]))
        timing.seconds[f"forward {side}"] = forward
        with _peak_memory(timing.peak_bytes, side):
            out = operation(*inputs[:3])
            torch.autograd.grad(out, inputs[:3], inputs[3])
        timing.seconds[f"backward {side}"] = queued_seconds(_backward(operation, inputs))
    except RuntimeError as error:
        if side == "ours":
            raise
        timing.notes.append(f"{side} was not measured: {str(error).splitlines()[0]}")


def _backward(operation: Operation, inputs: Inputs) -> Callable[[], object]:
    out = operation(*inputs[:3])
    return lambda: torch.autograd.grad(out, inputs[:3], inputs[3], retain_graph=True)


@contextmanager
def _peak_memory(peaks: dict[str, int | None], side: str) -> Iterator[None]:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    yield
    torch.cuda.synchronize()
    peaks[side] = torch.cuda.max_memory_allocated() - before
