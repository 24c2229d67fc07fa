"""The GPU half of spectral.py: the Triton kernels against torch.fft, its torch.compile, a roofline.

Values come first: no time is printed while a check is red. This file never ran on a GPU: it was
written and tested on a machine without one.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from command import require_gpu
from cufft_raw_product import compare_inverses
from gpu_checks import checked
from gpu_timing import device_seconds, measure_rates, queued_seconds
from roofline import Rates, Roofline, least_traffic, roofline
from spectral_checks import all_checks, check_on_gpu, timed_precisions
from torch import Tensor

# (B, C, H, W)
TIMED_SHAPES = (
    (8, 768, 14, 14),
    (8, 768, 32, 32),
    (8, 768, 64, 64),
    (4, 384, 128, 128),
    (2, 256, 256, 256),
)
# torch.compile of the chain takes seconds a case: cases that would begin later go without it.
SECONDS_FOR_COMPILED_CHAINS = 200.0

DEVICE = "cuda"

Clock = Callable[[Callable[[], object]], float]


@dataclass(frozen=True)
class TimedCase:
    """A call that is timed.

    Attributes:
        shape: (B, C, H, W), whatever the layout.
        layout: ``"planar"`` or ``"tokens"``.
        dtype: of x.
        precision: of our matrix products.
        with_backward: forward and backward, or forward alone.
    """

    shape: tuple[int, int, int, int]
    layout: str
    dtype: str
    precision: str
    with_backward: bool

    def __str__(self) -> str:
        direction = "forward+backward" if self.with_backward else "forward"
        return f"{self.shape} {self.layout} {self.dtype} {self.precision} {direction}"


@dataclass(frozen=True)
class Timing:
    """Seconds on the device; None where something was not measured, with the reason in notes."""

    case: TimedCase
    ours: float | None
    ours_queued: float
    chain: float | None
    chain_queued: float
    compiled_chain: float | None
    limits: Roofline
    notes: tuple[str, ...] = ()

    @property
    def share_of_roofline(self) -> float | None:
        """1 where ours is as fast as the device's measured rates allow."""
        return None if self.ours is None else self.limits.seconds / self.ours

    @property
    def speedup(self) -> float | None:
        """Over the eager chain, both on the device alone."""
        return None if self.ours is None or self.chain is None else self.chain / self.ours

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            **asdict(self),
            "roofline_seconds": self.limits.seconds,
            "limited_by": self.limits.limit,
            "share_of_roofline": self.share_of_roofline,
            "speedup_over_chain": self.speedup,
        }


def measure() -> dict[str, Any]:
    """Check everything, then print the tables; return their figures.

    Raises:
        SystemExit: 2 without a GPU, 1 where a check is red: then nothing is timed.
    """
    require_gpu()
    begin = time.perf_counter()
    is_amd = torch.version.hip is not None
    checks = all_checks([shape[2:] for shape in TIMED_SHAPES], is_amd)
    outcomes = checked(checks, check_on_gpu)
    print(f"{len(outcomes)} checks are green ({time.perf_counter() - begin:.0f} s)", flush=True)
    rates = measure_rates()
    print(rates_line(rates), flush=True)
    timings = []
    print("\n" + TABLE_HEAD)
    for case in timed_cases(is_amd):
        with_compiled = time.perf_counter() - begin < SECONDS_FOR_COMPILED_CHAINS
        timings.append(_time(case, rates, with_compiled))
        print(table_line(timings[-1]), flush=True)
    inverses = compare_inverses(DEVICE)
    print("\nirfft2 of the raw product on this device, relative distances (see cufft_raw_product):")
    for row in inverses:
        print("  " + ", ".join(f"{name} {value:.3g}" for name, value in row.items()))
    return {
        "triton": _triton_version(),
        "checks": [outcome.to_dict() for outcome in outcomes],
        "rates": asdict(rates),
        "times": [timing.to_dict() for timing in timings],
        "irfft2_of_the_raw_product": inverses,
        "seconds": time.perf_counter() - begin,
    }


def timed_cases(is_amd: bool) -> list[TimedCase]:
    """All of them, 16-bit tensors first: those have the most to show if time runs out."""
    return [
        TimedCase(shape, layout, dtype, precision, with_backward)
        for dtype, precision in timed_precisions(is_amd)
        for shape in TIMED_SHAPES
        for layout in ("planar", "tokens")
        for with_backward in (False, True)
    ]


TABLE_HEAD = (
    "Microseconds on the device (CUDA graph, cold cache); share: roofline / ours; in brackets with "
    "the host's work\n"
    f"{'':58}{'ours':>9}{'chain':>9}{'compiled':>9}{'faster':>8}{'share':>7}  limit"
)


def table_line(timing: Timing) -> str:
    """A row under `TABLE_HEAD`; "-" where something was not measured."""
    faster, share = timing.speedup, timing.share_of_roofline
    return (
        f"{timing.case!s:58}{_microseconds(timing.ours):>9}{_microseconds(timing.chain):>9}"
        f"{_microseconds(timing.compiled_chain):>9}"
        f"{'-' if faster is None else f'{faster:.2f}x':>8}"
        f"{'-' if share is None else f'{share:.0%}':>7}"
        f"  {timing.limits.limit} ({_microseconds(timing.ours_queued)} to "
        f"{_microseconds(timing.chain_queued)})" + "".join(f"\n    {note}" for note in timing.notes)
    )


def rates_line(rates: Rates) -> str:
    """What was measured of the device, in words."""
    products = ", ".join(f"{name} {rate / 1e12:.0f} TFLOP/s" for name, rate in rates.flops.items())
    return f"measured: copy {rates.bytes_per_second / 1e9:.0f} GB/s, {products}"


def _microseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:.1f}"


def _time(case: TimedCase, rates: Rates, with_compiled: bool) -> Timing:
    x, grad_out = _inputs(case, DEVICE)
    notes: list[str] = []

    def attempt(name: str, clock: Clock, function: Callable[[], object]) -> float | None:
        """What can't be captured is said, and the rest goes on."""
        try:
            return clock(function)
        except RuntimeError as error:
            torch.cuda.synchronize()
            notes.append(f"{name} was not measured: {str(error).splitlines()[0]}")
            return None

    ours = _call(partial(_ours, case), case, x, grad_out)
    chain = _call(partial(_chain, case), case, x, grad_out)
    compiled_seconds = None
    if with_compiled:
        torch.compiler.reset()
        compiled = _call(torch.compile(partial(_chain, case)), case, x, grad_out)
        compiled_seconds = attempt("the compiled chain", device_seconds, compiled)
    else:
        notes.append("the compiled chain was not measured: no time was left")
    return Timing(
        case=case,
        ours=attempt("ours", device_seconds, ours),
        ours_queued=queued_seconds(ours),
        chain=attempt("the chain", device_seconds, chain),
        chain_queued=queued_seconds(chain),
        compiled_chain=compiled_seconds,
        limits=limits_of(case, rates),
        notes=tuple(notes),
    )


def limits_of(case: TimedCase, rates: Rates) -> Roofline:
    """The roofline of a case, with the products of the plan that the device runs."""
    from spectral_products import multiply_adds

    from dualwave.kernels.spectral.planning import plan_backward, plan_forward
    from dualwave.kernels.spectral.plans import Call
    from dualwave.kernels.targets import target_of

    x, _ = _inputs(case, "meta")
    batch, channels, height, width = case.shape
    if case.layout == "tokens":
        x = x.unflatten(1, (height, width)).permute(0, 3, 1, 2)
    call = Call(x, None, None, 1.0, case.precision, target_of(torch.device(DEVICE)))
    launches = list(plan_forward(call).launches)
    if case.with_backward:
        launches += plan_backward(call, torch.empty_like(x), (True, False, False)).launches
    traffic = least_traffic(batch * channels * height * width, x.itemsize, case.with_backward)
    return roofline(traffic, multiply_adds(launches), case.precision, rates)


def _inputs(case: TimedCase, device: str) -> tuple[Tensor, Tensor]:
    """x and the gradient of the output, in the layout."""
    batch, channels, height, width = case.shape
    shape = case.shape if case.layout == "planar" else (batch, height * width, channels)
    dtype = getattr(torch, case.dtype)
    x, grad_out = (torch.randn(shape, device=device).to(dtype) for _ in range(2))
    return x.requires_grad_(case.with_backward), grad_out


def _call(
    operation: Callable[[Tensor], Tensor], case: TimedCase, x: Tensor, grad_out: Tensor
) -> Callable[[], object]:
    if case.with_backward:
        return lambda: torch.autograd.grad(operation(x), x, grad_out)
    return lambda: operation(x)


def _ours(case: TimedCase, x: Tensor) -> Tensor:
    from dualwave import spectral_attention

    grid = case.shape[2:] if case.layout == "tokens" else None
    return spectral_attention(x, grid=grid, precision=case.precision, implementation="triton")


def _chain(case: TimedCase, x: Tensor) -> Tensor:
    """As one would write it with torch.fft, which takes float32 for sizes like 14."""
    height, width = case.shape[2:]
    grids = x.float()
    dimensions = (-2, -1)
    if case.layout == "tokens":
        grids = grids.unflatten(1, (height, width))
        dimensions = (1, 2)
    spectrum = torch.fft.rfft2(grids, dim=dimensions, norm="ortho")
    weights = torch.softmax(spectrum.abs() ** 2, dim=dimensions[1])
    y = torch.fft.irfft2(spectrum * weights, s=(height, width), dim=dimensions, norm="ortho")
    return (y.flatten(1, 2) if case.layout == "tokens" else y).to(x.dtype)


def _triton_version() -> str:
    import triton

    return str(triton.__version__)
