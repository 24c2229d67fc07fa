"""Which kernels a call runs: one where the grid fits on chip, three or more above."""

from typing import Any

from torch import Tensor

from dualwave.kernels.spectral import large_grid, small_planar, small_tokens
from dualwave.kernels.spectral.one_kernel import OneKernelForm
from dualwave.kernels.spectral.plans import BackwardPlan, Call, ForwardPlan

_ONE_KERNEL_FORMS: dict[str, OneKernelForm[Any]] = {
    "planar": small_planar.FORM,
    "tokens": small_tokens.FORM,
}


def plan_forward(call: Call) -> ForwardPlan:
    """The launches of a forward pass and the tensor that they fill."""
    form = _ONE_KERNEL_FORMS[call.layout]
    return form.plan_forward(call) if form.fits_forward(call) else large_grid.plan_forward(call)


def plan_backward(call: Call, grad_out: Tensor, wanted: tuple[bool, bool, bool]) -> BackwardPlan:
    """The launches of a backward pass and the tensors that they fill.

    Args:
        call: the forward call.
        grad_out: (B, C, H, W), any strides.
        wanted: whether the gradients of x, bias and temperature are needed.
    """
    form = _ONE_KERNEL_FORMS[call.layout]
    if form.fits_backward(call):
        return form.plan_backward(call, grad_out, wanted)
    return large_grid.plan_backward(call, grad_out, wanted)
