"""The Triton kernels as operations that torch knows: no Triton is imported until one runs.

The canonical form of every argument is described at `dualwave.kernels.spectral.plans.Call`;
``precision`` may also be ``"default"``, which is resolved when an operation runs: torch.compile
does not watch the setting that it depends on.
"""

import torch
from torch import Tensor

from dualwave.kernels.choices import resolve_precision

_library = torch.library.Library("dualwave", "FRAGMENT")
_library.define(
    "spectral_forward(Tensor x, Tensor? bias, Tensor? temperature, float temperature_value, "
    "str precision) -> Tensor"
)
_library.define(
    "spectral_backward(Tensor grad_out, Tensor x, Tensor? bias, Tensor? temperature, "
    "float temperature_value, str precision, bool[3] wanted) -> (Tensor, Tensor, Tensor)"
)


def _forward(
    x: Tensor,
    bias: Tensor | None,
    temperature: Tensor | None,
    temperature_value: float,
    precision: str,
) -> Tensor:
    from dualwave.kernels.spectral.planning import plan_forward
    from dualwave.kernels.spectral.plans import Call
    from dualwave.kernels.targets import target_of

    if x.numel() == 0:
        return torch.empty_like(x)
    precision = resolve_precision(precision, x, of_16_bits="fp16")
    call = Call(x, bias, temperature, temperature_value, precision, target_of(x.device))
    with torch.cuda.device_of(x):
        plan = plan_forward(call)
        for launch in plan.launches:
            launch.run()
    return plan.output


def _backward(
    grad_out: Tensor,
    x: Tensor,
    bias: Tensor | None,
    temperature: Tensor | None,
    temperature_value: float,
    precision: str,
    wanted: list[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    from dualwave.kernels.spectral.planning import plan_backward
    from dualwave.kernels.spectral.plans import Call
    from dualwave.kernels.targets import target_of

    grads = _empty_gradients(x, bias, temperature, wanted)
    if x.numel() == 0:
        return grads[0], grads[1].zero_(), grads[2].zero_()
    precision = resolve_precision(precision, x, of_16_bits="fp16")
    call = Call(x, bias, temperature, temperature_value, precision, target_of(x.device))
    with torch.cuda.device_of(x):
        plan = plan_backward(call, grad_out, (wanted[0], wanted[1], wanted[2]))
        for launch in plan.launches:
            launch.run()
        grad_x, grad_bias, grad_temperature = grads
        if plan.grad_x is not None:
            grad_x = plan.grad_x
        if plan.grad_bias_parts is not None and bias is not None:
            grad_bias.copy_(plan.grad_bias_parts.sum_to_size(bias.shape))
        if plan.grad_temperature_parts is not None:
            grad_temperature.copy_(plan.grad_temperature_parts.sum(dtype=torch.float64))
    return grad_x, grad_bias, grad_temperature


def _empty_gradients(
    x: Tensor, bias: Tensor | None, temperature: Tensor | None, wanted: list[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    """One gradient each for x, bias and temperature; those not wanted have no elements."""
    inputs = (x, bias, temperature)
    grads = [
        torch.empty_like(tensor) if is_wanted and tensor is not None else x.new_empty(0)
        for tensor, is_wanted in zip(inputs, wanted, strict=True)
    ]
    return grads[0], grads[1], grads[2]


def _fake_forward(
    x: Tensor,
    bias: Tensor | None,
    temperature: Tensor | None,
    temperature_value: float,
    precision: str,
) -> Tensor:
    return torch.empty_like(x)


def _fake_backward(
    grad_out: Tensor,
    x: Tensor,
    bias: Tensor | None,
    temperature: Tensor | None,
    temperature_value: float,
    precision: str,
    wanted: list[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    return _empty_gradients(x, bias, temperature, wanted)


for _device in ("CPU", "CUDA"):  # ROCm calls itself CUDA; on the CPU the kernels are interpreted
    _library.impl("spectral_forward", _forward, _device)
    _library.impl("spectral_backward", _backward, _device)
torch.library.register_fake("dualwave::spectral_forward", _fake_forward, lib=_library)
torch.library.register_fake("dualwave::spectral_backward", _fake_backward, lib=_library)
