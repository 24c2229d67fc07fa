"""Runs of the one-kernel token form with poisoned and guarded outputs."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dualwave.kernels.spectral import small_tokens
from dualwave.kernels.spectral.plans import Call
from dualwave.kernels.targets import SM_90, Target

from ..guarded_buffers import poisoned_and_guarded
from .oracle import Problem, Results, as_token_bias, as_tokens


@dataclass(frozen=True)
class Inputs:
    """Tensors in the canonical form, as views of tokens."""

    x: Tensor
    bias: Tensor | None
    temperature: Tensor | float
    grad_out: Tensor


def token_view(planar: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, C, H, W) with the strides of tokens."""
    tokens = as_tokens(planar).to(dtype)
    return tokens.unflatten(1, planar.shape[2:]).permute(0, 3, 1, 2)


def token_inputs(
    problem: Problem, dtype: torch.dtype, bias_dtype: torch.dtype = torch.float32
) -> Inputs:
    """A problem's numbers as the public function would pass them on."""
    bias = as_token_bias(problem.bias).to(bias_dtype).contiguous().permute(0, 3, 1, 2)
    return Inputs(
        token_view(problem.x, dtype),
        bias,
        problem.temperature.float(),
        token_view(problem.grad_out, dtype),
    )


def make_call(inputs: Inputs, precision: str, target: Target = SM_90) -> Call:
    """The call of some inputs."""
    is_tensor = isinstance(inputs.temperature, Tensor)
    temperature = inputs.temperature if is_tensor else None
    value = 1.0 if is_tensor else inputs.temperature
    return Call(inputs.x, inputs.bias, temperature, value, precision, target)


def run(
    inputs: Inputs,
    precision: str,
    *,
    backward: bool = True,
    wanted: tuple[bool, bool, bool] = (True, True, True),
    target: Target = SM_90,
) -> Results:
    """Output and wanted gradients; everything allocated is poisoned and guarded."""
    call = make_call(inputs, precision, target)
    with poisoned_and_guarded():
        assert small_tokens.FORM.fits_forward(call)
        forward = small_tokens.FORM.plan_forward(call)
        launches = list(forward.launches)
        if backward:
            assert small_tokens.FORM.fits_backward(call)
            gradients = small_tokens.FORM.plan_backward(call, inputs.grad_out, wanted)
            launches += gradients.launches
        for launch in launches:
            launch.run()
    results = {"y": forward.output}
    if backward and gradients.grad_x is not None:
        results["dx"] = gradients.grad_x
    if backward and gradients.grad_bias_parts is not None:
        results["dbias"] = gradients.grad_bias_parts.sum_to_size(inputs.bias.shape)
    if backward and gradients.grad_temperature_parts is not None:
        results["dtemperature"] = gradients.grad_temperature_parts.sum()
    return results
