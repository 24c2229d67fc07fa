"""The CPU half of spectral.py: our PyTorch implementation, eager and compiled.

Results are left in the memory order that each side gives: torch.fft's grids are adjacent in memory,
ours only where we use torch.fft too. No copy into token order is timed on either side.
"""

import statistics
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from timing import Speedup, growth_exponent, interleaved_times, speedup
from torch import Tensor

from dualwave import spectral_attention
from dualwave.kernels.spectral.reference import spectral_attention_reference

ROUNDS = 21
GROWTH_ROUNDS = 3
GROWTH_SIZES = (8, 16, 32, 64, 128, 256)
# Attention over 256 x 256 tokens takes minutes.
ATTENTION_SIZES = GROWTH_SIZES[:-1]
GROWTH_CHANNELS, GROWTH_HEADS = 256, 4

Operation = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """Tokens (batch, height * width, channels)."""

    batch: int
    height: int
    width: int
    channels: int

    def __str__(self) -> str:
        return f"{self.height}x{self.width}x{self.channels}, batch {self.batch}"

    def ours(self, x: Tensor) -> Tensor:
        """The public function."""
        return spectral_attention(x, grid=(self.height, self.width))

    def chain(self, x: Tensor) -> Tensor:
        """The operation as one would write it with torch.fft."""
        grids = x.unflatten(1, (self.height, self.width))
        spectrum = torch.fft.rfft2(grids, dim=(1, 2), norm="ortho")
        weights = torch.softmax(spectrum.abs() ** 2, dim=2)
        filtered = torch.fft.irfft2(
            spectrum * weights, s=(self.height, self.width), dim=(1, 2), norm="ortho"
        )
        return filtered.flatten(1, 2)

    def definition(self, x: Tensor) -> Tensor:
        """The float64 definition, which is planar."""
        planar = x.double().unflatten(1, (self.height, self.width)).permute(0, 3, 1, 2)
        return spectral_attention_reference(planar).permute(0, 2, 3, 1).flatten(1, 2)

    def inputs(self, batch: int | None = None) -> tuple[Tensor, Tensor]:
        """x, which needs a gradient, and the gradient of the output."""
        generator = torch.Generator().manual_seed(0)
        shape = (batch or self.batch, self.height * self.width, self.channels)
        x = torch.randn(shape, generator=generator)
        return x.requires_grad_(), torch.randn(shape, generator=generator)


CASES = (
    Case(batch=32, height=14, width=14, channels=384),
    Case(batch=16, height=16, width=16, channels=768),
    Case(batch=8, height=32, width=32, channels=384),
    Case(batch=2, height=64, width=64, channels=256),
)


def measure() -> dict[str, Any]:
    """Print the tables of this device; return their figures."""
    warnings.filterwarnings("ignore", message="Torchinductor does not support code generation")
    for case in CASES:
        _check(case, case.ours, "ours")
        _check(case, torch.compile(case.ours, fullgraph=True), "ours, compiled")
        torch.compiler.reset()
    print("\nMilliseconds, the torch.fft chain / ours = how many times faster (middle half):")
    times = [_measure_case(case) for case in CASES]
    return {"rounds": ROUNDS, "times": times, "growth": _measure_growth()}


def _check(case: Case, operation: Operation, name: str) -> None:
    """Value and gradient may err at most twice as much as the chain's, plus four eps."""
    x, grad_out = case.inputs(batch=1)
    exact, chain, ours = (
        _with_gradient(function, x, grad_out)
        for function in (case.definition, case.chain, operation)
    )
    for what, right, plain, value in zip(("y", "dx"), exact, chain, ours, strict=True):
        budget = 2 * (plain - right).abs().max() + 4 * torch.finfo().eps * right.abs().max()
        error = (value - right).abs().max()
        if not error <= budget:
            raise SystemExit(f"{case}: {what} of {name} is wrong by {error:.3g}; nothing is timed.")


def _with_gradient(function: Operation, x: Tensor, grad_out: Tensor) -> tuple[Tensor, Tensor]:
    y = function(x)
    (grad_x,) = torch.autograd.grad(y, x, grad_out.to(y.dtype))
    return y.detach(), grad_x


def _measure_case(case: Case) -> dict[str, Any]:
    x, grad_out = case.inputs()
    functions: dict[str, Callable[[], object]] = {}
    forms: list[tuple[str, Callable[[Operation], Operation]]] = [
        ("eager", lambda operation: operation),
        ("compiled", torch.compile),
    ]
    for form, prepare in forms:
        for owner, operation in (("chain", case.chain), ("ours", case.ours)):
            prepared = prepare(operation)
            functions[f"{form} forward {owner}"] = _forward_of(prepared, x)
            functions[f"{form} forward+backward {owner}"] = _both_of(prepared, x, grad_out)
    times = interleaved_times(functions, rounds=ROUNDS)
    torch.compiler.reset()
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    print(f"{case}:")
    speedups: dict[str, Speedup] = {}
    for form, _ in forms:
        for direction in ("forward", "forward+backward"):
            chain, ours = f"{form} {direction} chain", f"{form} {direction} ours"
            found = speedup(times[chain], times[ours])
            speedups[f"{form} {direction}"] = found
            print(
                f"  {form + ' ' + direction:26}{medians[chain] * 1e3:8.2f} /"
                f"{medians[ours] * 1e3:8.2f} = {found}",
                flush=True,
            )
    return {
        "case": asdict(case),
        "median_seconds": medians,
        "speedups": {name: asdict(found) for name, found in speedups.items()},
    }


def _forward_of(operation: Operation, x: Tensor) -> Callable[[], object]:
    def run() -> None:
        with torch.no_grad():
            operation(x)

    return run


def _both_of(operation: Operation, x: Tensor, grad_out: Tensor) -> Callable[[], object]:
    def run() -> None:
        torch.autograd.grad(operation(x), x, grad_out)

    return run


def _measure_growth() -> dict[str, Any]:
    """Forward times of one batch element over the number of tokens, beside attention's."""

    def of_ours(size: int) -> Callable[[], object]:
        case = Case(batch=1, height=size, width=size, channels=GROWTH_CHANNELS)
        x, _ = case.inputs()
        return _forward_of(case.ours, x)

    def of_attention(size: int) -> Callable[[], object]:
        shape = (1, GROWTH_HEADS, size * size, GROWTH_CHANNELS // GROWTH_HEADS)
        return _forward_of(lambda x: F.scaled_dot_product_attention(x, x, x), torch.randn(shape))

    print(f"\nGrowth, forward, batch 1, {GROWTH_CHANNELS} channels ({GROWTH_HEADS} heads):")
    growth: dict[str, Any] = {}
    for name, sizes, make in (
        ("ours", GROWTH_SIZES, of_ours),
        ("scaled_dot_product_attention", ATTENTION_SIZES, of_attention),
    ):
        functions = {f"{size}x{size}": make(size) for size in sizes}
        times = interleaved_times(functions, rounds=GROWTH_ROUNDS, warm_up_rounds=1)
        medians = {size: statistics.median(seconds) for size, seconds in times.items()}
        tokens = [size * size for size in sizes]
        exponent = growth_exponent(tokens, list(medians.values()))
        growth[name] = {"median_seconds": medians, "exponent_of_tokens": exponent}
        milliseconds = ", ".join(f"{size} {value * 1e3:.2f}" for size, value in medians.items())
        print(f"  {name}: time ~ tokens^{exponent:.2f} (milliseconds: {milliseconds})", flush=True)
    return growth
