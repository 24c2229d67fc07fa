"""Which kernels a call runs: one where the grid fits on chip, three or more above."""

from torch import Tensor

from dualwave.kernels.spectral import large_grid, small_planar, small_tokens
from dualwave.kernels.spectral.plans import BackwardPlan, Call, ForwardPlan


def plan_forward(call: Call) -> ForwardPlan:
    """The launches of a forward pass and the tensor that they fill."""
    if call.layout == "tokens" and small_tokens.fits_forward(call):
        return small_tokens.plan_forward(call)
    if call.layout == "planar" and small_planar.fits_forward(call):
        return small_planar.plan_forward(call)
    return large_grid.plan_forward(call)


def plan_backward(call: Call, grad_out: Tensor, wanted: tuple[bool, bool, bool]) -> BackwardPlan:
    """The launches of a backward pass and the tensors that they fill.

    Args:
        call: the forward call.
        grad_out: (B, C, H, W), any strides.
        wanted: whether the gradients of x, bias and temperature are needed.
    """
    if call.layout == "tokens" and small_tokens.fits_backward(call):
        return small_tokens.plan_backward(call, grad_out, wanted)
    if call.layout == "planar" and small_planar.fits_backward(call):
        return small_planar.plan_backward(call, grad_out, wanted)
    return large_grid.plan_backward(call, grad_out, wanted)
