"""The spectral operation for autograd: forward and closed-form backward, whichever implements them.

Only x, the bias and a tensor temperature are saved; backward computes the spectrum again. Every
tensor is in the canonical form of `dualwave.kernels.spectral.plans.Call`, except that the PyTorch
implementation takes float64 as well.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

import torch
from torch import Tensor

import dualwave.kernels.spectral.ops  # noqa: F401  (registers torch.ops.dualwave.spectral_*)
from dualwave.kernels.spectral.pytorch import (
    spectral_backward_pytorch,
    spectral_forward_pytorch,
    uses_products,
)


def _refuse_vmap(*_: Any) -> NoReturn:
    raise ValueError(
        "spectral_attention does not go through torch.vmap: put the mapped dimension into x "
        "instead, planar x takes any number of leading dimensions."
    )


def _without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    if not torch.amp.is_autocast_available(x.device.type):  # the meta device
        return nullcontext()
    return torch.autocast(x.device.type, enabled=False)


class SpectralAttention(torch.autograd.Function):
    """y from (x, bias, temperature, temperature_value, precision, implementation)."""

    vmap = staticmethod(_refuse_vmap)

    @staticmethod
    def forward(
        x: Tensor,
        bias: Tensor | None,
        temperature: Tensor | None,
        temperature_value: float,
        precision: str,
        implementation: str,
    ) -> Tensor:
        """Filter."""
        if implementation == "torch":
            with _without_autocast(x):
                return spectral_forward_pytorch(x, bias, temperature, temperature_value)
        return torch.ops.dualwave.spectral_forward(
            x, bias, temperature, temperature_value, precision
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what backward needs."""
        x, bias, temperature, *ctx.choices = inputs
        ctx.by_products = uses_products(x)
        ctx.save_for_backward(x, bias, temperature)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of x, bias and temperature, where they are needed."""
        wanted = tuple(ctx.needs_input_grad[:3])
        grads = _SpectralAttentionBackward.apply(
            grad_out, *ctx.saved_tensors, *ctx.choices, wanted, ctx.by_products
        )
        return (*grads, None, None, None)


class _SpectralAttentionBackward(torch.autograd.Function):
    """A function of its own only to say clearly that there is no second derivative."""

    vmap = staticmethod(_refuse_vmap)

    @staticmethod
    def forward(
        grad_out: Tensor,
        x: Tensor,
        bias: Tensor | None,
        temperature: Tensor | None,
        temperature_value: float,
        precision: str,
        implementation: str,
        wanted: tuple[bool, bool, bool],
        by_products: bool,
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        if implementation == "torch":
            with _without_autocast(x):
                return spectral_backward_pytorch(
                    grad_out, x, bias, temperature, temperature_value, wanted, by_products
                )
        grads = torch.ops.dualwave.spectral_backward(
            grad_out, x, bias, temperature, temperature_value, precision, wanted
        )
        grad_x, grad_bias, grad_temperature = (
            grad if is_wanted else None for grad, is_wanted in zip(grads, wanted, strict=True)
        )
        return grad_x, grad_bias, grad_temperature

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> NoReturn:
        raise RuntimeError(
            "spectral_attention has no second derivative: a gradient of its gradient "
            "(create_graph=True) cannot be taken."
        )
