"""The CPU half of spectral.py: our PyTorch implementation, eager and compiled.

Results are left in the memory order that each side gives: torch.fft's grids are adjacent in memory,
ours only where we use torch.fft too. No copy into token order is timed on either side.

The chain is timed in two spellings of |X|^2, because the usual one takes a square root only to
square it: ours is held to its targets against each.
"""

import statistics
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from timing import growth_exponent, interleaved_times, speedup
from torch import Tensor
from verdicts import Verdict, summary, target_of

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
        return spectral_attention(x, grid=(self.height, self.width), implementation="torch")

    def chain(self, x: Tensor) -> Tensor:
        """The operation as one would write it with torch.fft."""
        return self._filtered(x, lambda spectrum: spectrum.abs() ** 2)

    def chain_without_abs(self, x: Tensor) -> Tensor:
        """The same with re^2 + im^2, which spares a square root and its gradient."""
        return self._filtered(x, lambda spectrum: spectrum.real**2 + spectrum.imag**2)

    def _filtered(self, x: Tensor, power: Operation) -> Tensor:
        grids = x.unflatten(1, (self.height, self.width))
        spectrum = torch.fft.rfft2(grids, dim=(1, 2), norm="ortho")
        weights = torch.softmax(power(spectrum), dim=2)
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
    times, verdicts = [], []
    for case in CASES:
        figures, found = _measure_case(case)
        times.append(figures)
        verdicts += found
    print(summary(verdicts), flush=True)
    return {
        "rounds": ROUNDS,
        "times": times,
        "targets": summary(verdicts),
        "growth": _measure_growth(),
    }


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


def _measure_case(case: Case) -> tuple[dict[str, Any], list[Verdict]]:
    x, grad_out = case.inputs()
    chains = {"chain": case.chain, "chain without abs": case.chain_without_abs}
    forms: dict[str, Callable[[Operation], Operation]] = {
        "eager": lambda operation: operation,
        "compiled": torch.compile,
    }
    functions: dict[str, Callable[[], object]] = {}
    for form, prepare in forms.items():
        for owner, operation in {**chains, "ours": case.ours}.items():
            prepared = prepare(operation)
            functions[f"{form} forward {owner}"] = _forward_of(prepared, x)
            functions[f"{form} forward+backward {owner}"] = _both_of(prepared, x, grad_out)
    times = interleaved_times(functions, rounds=ROUNDS)
    torch.compiler.reset()
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    print(f"{case}:")
    comparisons, verdicts = [], []
    for form, direction, chain in product(forms, ("forward", "forward+backward"), chains):
        baseline, ours = f"{form} {direction} {chain}", f"{form} {direction} ours"
        found = speedup(times[baseline], times[ours])
        verdict = Verdict(target_of(form, direction, case.height), found.median)
        verdicts.append(verdict)
        comparisons.append(
            {
                "baseline": baseline,
                **asdict(found),
                "target": verdict.target,
                "reached": verdict.reached,
            }
        )
        print(
            f"  {baseline:43}{medians[baseline] * 1e3:8.2f} /{medians[ours] * 1e3:8.2f} = "
            f"{found!s:24}{verdict}",
            flush=True,
        )
    return {
        "case": asdict(case),
        "median_seconds": medians,
        "speedups": comparisons,
    }, verdicts


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
