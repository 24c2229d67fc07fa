"""The correctness gate of the spectral GPU benchmark: every kernel, dtype and precision.

The budgets are those of the tests (tests/kernels/spectral/oracle.py), which give explicit tf32 and
fp16 operands a bound of their own.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

ORACLE_FOLDER = Path(__file__).resolve().parent.parent / "tests" / "kernels" / "spectral"

# Of x and of the matrix products; tf32x3 exists on NVIDIA only.
PRECISIONS = (
    ("bfloat16", "fp16"),
    ("float16", "fp16"),
    ("float32", "tf32"),
    ("float32", "tf32x3"),
    ("float32", "ieee"),
)
# One kernel, factored columns and rows, and the direct form: in every dtype and precision.
SIZES_IN_EVERY_PRECISION = ((14, 14), (96, 128), (67, 131))
# Sizes whose tiles, stacks or launches differ: bfloat16, and float32 in tf32.
SIZES_IN_SOME = ((1, 5), (7, 9), (17, 31), (32, 32), (64, 64), (3, 2046))


@dataclass(frozen=True)
class Check:
    """One comparison with the float64 definition.

    Attributes:
        height: H.
        width: W.
        layout: ``"planar"`` or ``"tokens"``.
        dtype: of x.
        precision: of the matrix products.
        batch: B.
        channels: C.
        plain: no bias, a number as temperature: what is timed. Else all inputs and gradients.
    """

    height: int
    width: int
    layout: str
    dtype: str
    precision: str
    batch: int = 2
    channels: int = 3
    plain: bool = False

    def __str__(self) -> str:
        inputs = "x alone" if self.plain else "bias and temperature"
        return (
            f"{self.height}x{self.width} {self.layout} {self.dtype} {self.precision} with {inputs}"
        )


def all_checks(timed_grids: Sequence[tuple[int, int]], is_amd: bool) -> list[Check]:
    """Every kernel in every dtype and precision, and what is timed, in both layouts.

    Args:
        timed_grids: (H, W) of what is timed.
        is_amd: whether the device is AMD's, which has no tf32x3.
    """
    precisions = [pair for pair in PRECISIONS if not (is_amd and pair[1] == "tf32x3")]
    some = [pair for pair in precisions if pair in (("bfloat16", "fp16"), ("float32", "tf32"))]
    checks = []
    for layout in ("planar", "tokens"):
        for grids, pairs in ((SIZES_IN_EVERY_PRECISION, precisions), (SIZES_IN_SOME, some)):
            checks += [
                Check(*grid, layout, dtype, precision)
                for grid in grids
                for dtype, precision in pairs
            ]
        checks += [
            # As many channels as give strides with the same factors of 16 as those that are timed.
            Check(*grid, layout, dtype, precision, channels=48, plain=True)
            for grid in timed_grids
            for dtype, precision in timed_precisions(is_amd)
        ]
    return checks


def timed_precisions(is_amd: bool) -> list[tuple[str, str]]:
    """The dtypes that are timed, each in its default precision, and float32 in tf32 as well."""
    exact = "ieee" if is_amd else "tf32x3"
    return [("bfloat16", "fp16"), ("float32", "tf32"), ("float32", exact)]


def check_on_gpu(check: Check) -> str:
    """Compare the GPU's results with the definition in float64; what is wrong, or ""."""
    return compare(check, "cuda")


def compare(check: Check, device: str) -> str:
    """Compare the Triton kernels' results on a device with the definition in float64."""
    sys.path.insert(0, str(ORACLE_FOLDER))
    import oracle

    dtype = getattr(torch, check.dtype)
    problem = oracle.make_problem(
        check.height,
        check.width,
        batch=check.batch,
        channels=check.channels,
        # The model's bias is one for all rows of a grid.
        bias_shape=(check.batch, check.channels, 1),
        temperature=1.0 if check.plain else 0.7,
        dtype=dtype,
    )
    if check.plain:
        problem = oracle.Problem(
            problem.x, torch.zeros_like(problem.bias), problem.temperature, problem.grad_out
        )
    function = _function_on(device, check, dtype)
    first = oracle.results_of(function, problem)
    second = oracle.results_of(function, problem)
    if check.plain:
        # Bias and temperature did not take part.
        first, second = ({name: each[name] for name in ("y", "dx")} for each in (first, second))
    for name, values in first.items():
        if not torch.equal(values, second[name]):
            return f"{name} differs between two runs"
    try:
        oracle.assert_within_budget(
            first, problem, dtype, rounded_products=check.precision in ("fp16", "tf32")
        )
    except AssertionError as error:
        return str(error)
    return ""


def _function_on(device: str, check: Check, dtype: torch.dtype) -> Callable[..., Tensor]:
    """The public function of planar tensors on the CPU, in float64, that computes on a device."""
    import oracle

    from dualwave import spectral_attention

    grid = (check.height, check.width) if check.layout == "tokens" else None

    def function(x: Tensor, bias: Tensor, temperature: Tensor) -> Tensor:
        values, logits = x, bias
        if grid is not None:
            values, logits = oracle.as_tokens(x), oracle.as_token_bias(bias)
        y = spectral_attention(
            values.to(device, dtype),
            grid=grid,
            bias=None if check.plain else logits.to(device, torch.float32),
            temperature=1.0 if check.plain else temperature.to(device, torch.float32),
            precision=check.precision,
            implementation="triton",
        )
        if check.plain:
            # A zero gradient instead of none, which autograd would refuse.
            y = y + 0 * (bias.sum() + temperature).to(device, y.dtype)
        y = y.to("cpu", torch.float64)
        if grid is None:
            return y
        return y.unflatten(1, grid).permute(0, 3, 1, 2)

    return function
