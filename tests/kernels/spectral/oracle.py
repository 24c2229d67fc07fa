"""What every implementation of the spectral operation is measured against.

The exact answer is the float64 full-complex definition. The yardstick for rounding is the same
definition in plain PyTorch operations in float32, on the same (16-bit) inputs, its results rounded
to the inputs' dtype. An implementation may err at most twice as much, plus four eps.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor

from dualwave.kernels.spectral.reference import spectral_attention_reference

Results = dict[str, Tensor]
"""Output and gradients by name: y, dx, dbias, dtemperature."""


@dataclass(frozen=True)
class Problem:
    """Planar inputs (B, C, H, W), a bias, a temperature and the gradient of the output."""

    x: Tensor
    bias: Tensor
    temperature: Tensor
    grad_out: Tensor

    def to(self, dtype: torch.dtype) -> "Problem":
        """The same numbers rounded to ``dtype``; temperature stays in at least float32."""
        small = dtype if dtype == torch.float64 else torch.float32
        return Problem(
            self.x.to(dtype),
            self.bias.to(small),
            self.temperature.to(small),
            self.grad_out.to(dtype),
        )


def make_problem(
    height: int,
    width: int,
    *,
    batch: int = 2,
    channels: int = 3,
    bias_shape: tuple[int, int, int] | None = None,
    mean: float = 0.1,
    scale: float = 1.0,
    temperature: float = 0.7,
    dtype: torch.dtype = torch.float64,
) -> Problem:
    """Random inputs, the same for the same arguments.

    Args:
        height: H.
        width: W.
        batch: B.
        channels: C.
        bias_shape: the bias's first three dimensions, each 1 or that of (B, C, H); (1, C, H) by
            default.
        mean: of x.
        scale: standard deviation of x.
        temperature: of the softmax.
        dtype: everything is rounded to it, then kept in float64, so that the exact answer is that
            of the rounded inputs.
    """
    generator = torch.Generator().manual_seed(height * 10_007 + width)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x = normal(batch, channels, height, width) * scale + mean
    bias = normal(*(bias_shape or (1, channels, height)), width // 2 + 1)
    grad_out = normal(batch, channels, height, width)
    exact = Problem(x, bias, torch.tensor(temperature, dtype=torch.float64), grad_out)
    rounded = exact.to(dtype)
    return Problem(
        rounded.x.double(),
        rounded.bias.double(),
        rounded.temperature.double(),
        rounded.grad_out.double(),
    )


def results_of(function: Callable[..., Tensor], problem: Problem) -> Results:
    """Run ``function(x, bias=..., temperature=...)`` forward and backward."""
    leaves = [
        t.detach().clone().requires_grad_() for t in (problem.x, problem.bias, problem.temperature)
    ]
    y = function(leaves[0], bias=leaves[1], temperature=leaves[2])
    dx, dbias, dtemperature = torch.autograd.grad(y, leaves, problem.grad_out)
    return {"y": y.detach(), "dx": dx, "dbias": dbias, "dtemperature": dtemperature}


def exact_results(problem: Problem) -> Results:
    """The definition in float64."""
    return results_of(spectral_attention_reference, problem.to(torch.float64))


def plain_results(problem: Problem, dtype: torch.dtype) -> Results:
    """The definition in plain PyTorch in float32, the results rounded to ``dtype``."""
    results = results_of(spectral_attention_reference, problem.to(dtype).to(torch.float32))
    return {
        name: value.to(dtype) if name in ("y", "dx") else value for name, value in results.items()
    }


def largest_logit(problem: Problem) -> float:
    """Max |temperature |X|^2|."""
    power = torch.fft.rfft2(problem.x.double(), norm="ortho").abs().square()
    return float((problem.temperature.double() * power).abs().max())


def temperature_gradient_scale(problem: Problem) -> float:
    """What the rounding of dtemperature is measured by, since its terms cancel.

    It is the sum of dlogits |X|^2 over everything. Each row's terms share their errors (of one
    softmax), those of different rows are independent: the root of the sum over rows of
    (sum_k |dlogits |X|^2|)^2.
    """
    exact = problem.to(torch.float64)
    power = torch.fft.rfft2(exact.x, norm="ortho").abs().square()
    bias = exact.bias.expand(power.shape).clone().requires_grad_()
    y = spectral_attention_reference(exact.x, bias=bias, temperature=exact.temperature)
    (grad_logits,) = torch.autograd.grad(y, bias, exact.grad_out)
    return float((grad_logits * power).abs().sum(dim=-1).square().sum().sqrt())


def assert_within_budget(
    ours: Results,
    problem: Problem,
    dtype: torch.dtype,
    *,
    rounded_products: bool = False,
) -> None:
    """Compare with the exact answer, in the largest error of each result.

    The budget of a result is twice the plain chain's error plus 4 eps times the result's scale:
    its largest absolute value, for dtemperature `temperature_gradient_scale`. eps is that of
    ``dtype``, for ``rounded_products`` (fp16 or tf32 operands, 11 significant bits) at least 2^-10.
    A logit is known to its own rounding only, and carries that into its softmax: above a largest
    logit of 10 the budget grows by 16 times that logit times the products' unit of rounding, which
    is 2^-11 for ``rounded_products`` and float32's eps otherwise; at most by an eighth of the
    scale, since a budget of the scale itself would be met by zeros.

    Args:
        ours: what an implementation gave for ``problem``.
        problem: the inputs.
        dtype: of x and of the results.
        rounded_products: whether matrix products had operands of 11 significant bits.
    """
    exact, plain = exact_results(problem), plain_results(problem, dtype)
    logit = largest_logit(problem)
    unit = 2.0**-11 if rounded_products else torch.finfo(torch.float32).eps
    eps = max(torch.finfo(dtype).eps, 2.0**-10 if rounded_products else 0.0)
    for name, value in ours.items():
        scale = float(exact[name].abs().max())
        if name == "dtemperature":
            scale = max(scale, temperature_gradient_scale(problem))
        budget = 2 * float((plain[name].double() - exact[name]).abs().max()) + 4 * eps * scale
        if logit > 10:
            budget += min(16 * unit * logit, 1 / 8) * scale
        error = float((value.double() - exact[name]).abs().max())
        assert torch.isfinite(value).all(), name
        assert value.shape == exact[name].shape, name
        assert error <= budget, f"{name}: error {error:.3g} over the budget of {budget:.3g}"


def as_tokens(planar: Tensor) -> Tensor:
    """(B, C, H, W) to contiguous (B, H * W, C)."""
    return rearrange(planar, "b c h w -> b (h w) c").contiguous()


def as_token_bias(bias: Tensor) -> Tensor:
    """(B, C, H, K) to (B, H, K, C)."""
    return rearrange(bias, "b c h k -> b h k c")
