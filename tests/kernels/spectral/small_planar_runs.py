"""Runs the one-kernel planar form through its plans, in Triton's interpreter."""

import torch
from torch import Tensor

from dualwave.kernels.spectral import small_planar
from dualwave.kernels.spectral.plans import Call
from dualwave.kernels.targets import SM_90, Target

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
    """The output of the forward kernel."""
    assert small_planar.FORM.fits_forward(call)
    plan = small_planar.FORM.plan_forward(call)
    for launch in plan.launches:
        launch.run()
    return plan.output


def run_backward(
    call: Call, grad_out: Tensor, wanted: tuple[bool, bool, bool] = ALL
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """dx, dbias (in the bias's shape) and dtemperature of the backward kernel."""
    assert small_planar.FORM.fits_backward(call)
    plan = small_planar.FORM.plan_backward(call, grad_out, wanted)
    for launch in plan.launches:
        launch.run()
    grad_bias = grad_temperature = None
    if plan.grad_bias_parts is not None:
        assert call.bias is not None
        grad_bias = plan.grad_bias_parts.sum_to_size(call.bias.shape)
    if plan.grad_temperature_parts is not None:
        grad_temperature = plan.grad_temperature_parts.sum()
    return plan.grad_x, grad_bias, grad_temperature


def run_problem(problem: Problem, dtype: torch.dtype, precision: str) -> Results:
    """Output, and gradients where the backward kernel serves this size and precision."""
    inputs = problem.to(dtype)
    call = call_of(inputs.x, inputs.bias, inputs.temperature, precision)
    results = {"y": run_forward(call)}
    if small_planar.FORM.fits_backward(call):
        grads = run_backward(call, inputs.grad_out)
        for name, grad in zip(("dx", "dbias", "dtemperature"), grads, strict=True):
            assert grad is not None
            results[name] = grad
    return results
