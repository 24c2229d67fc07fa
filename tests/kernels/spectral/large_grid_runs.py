"""Runs the kernels for large grids through their plans, in Triton's interpreter."""

from typing import Any

import torch
from torch import Tensor

from dualwave.kernels.spectral import large_grid
from dualwave.kernels.spectral.plans import Call
from dualwave.kernels.targets import SM_90, Target

from ..guarded_buffers import poisoned_and_guarded
from .oracle import Problem, Results

ALL = (True, True, True)


def call_of(
    x: Tensor,
    bias: Tensor | None = None,
    temperature: Tensor | float = 1.0,
    precision: str = "ieee",
    target: Target = SM_90,
) -> Call:
    """A call with a number or a tensor as its temperature."""
    if isinstance(temperature, Tensor):
        return Call(x, bias, temperature, 1.0, precision, target)
    return Call(x, bias, None, temperature, precision, target)


def run_forward(call: Call) -> Tensor:
    """The output."""
    with poisoned_and_guarded():
        plan = large_grid.plan_forward(call)
        for launch in plan.launches:
            launch.run()
    return plan.output


def run_backward(
    call: Call, grad_out: Tensor, wanted: tuple[bool, bool, bool] = ALL
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """dx, dbias (in the bias's shape) and dtemperature."""
    with poisoned_and_guarded():
        plan = large_grid.plan_backward(call, grad_out, wanted)
        for launch in plan.launches:
            launch.run()
    grad_bias = grad_temperature = None
    if plan.grad_bias_parts is not None:
        assert call.bias is not None
        grad_bias = plan.grad_bias_parts.sum_to_size(call.bias.shape)
    if plan.grad_temperature_parts is not None:
        grad_temperature = plan.grad_temperature_parts.sum()
    return plan.grad_x, grad_bias, grad_temperature


def as_token_layout(planar: Tensor) -> Tensor:
    """The same (B, C, H, W) with adjacent channels, as a view of tokens has."""
    return planar.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


def run_problem(
    problem: Problem,
    dtype: torch.dtype,
    precision: str,
    *,
    layout: str = "planar",
    target: Target = SM_90,
) -> Results:
    """Output and all gradients."""
    inputs = problem.to(dtype)
    x, grad_out = inputs.x, inputs.grad_out
    if layout == "tokens":
        x, grad_out = as_token_layout(x), as_token_layout(grad_out)
    call = call_of(x, inputs.bias, inputs.temperature, precision, target)
    results: dict[str, Any] = {"y": run_forward(call)}
    results["dx"], results["dbias"], results["dtemperature"] = run_backward(call, grad_out)
    return results
