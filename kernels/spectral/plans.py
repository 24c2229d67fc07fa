"""What a planned call of the spectral kernels consists of."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from dualwave.kernels.launch import Launch
from dualwave.kernels.targets import Target

Layout = Literal["planar", "tokens"]


@dataclass(frozen=True)
class Call:
    """The arguments of one forward call, in the form that all kernels share.

    Attributes:
        x: (B, C, H, W), any strides; float32, bfloat16 or float16.
        bias: each dimension 1 or that of (B, C, H, K), K = W // 2 + 1; any strides; float32,
            bfloat16 or float16; or None.
        temperature: float32 tensor of no dimensions on x's device, or None.
        temperature_value: the temperature if ``temperature`` is None.
        precision: of the matrix products: ``"ieee"``, ``"tf32x3"``, ``"tf32"`` or ``"fp16"``.
        target: what the kernels are configured for.
    """

    x: Tensor
    bias: Tensor | None
    temperature: Tensor | None
    temperature_value: float
    precision: str
    target: Target

    @property
    def layout(self) -> Layout:
        """``"tokens"`` where neighbours in memory are channels, ``"planar"`` where they are W."""
        channels, width = self.x.shape[1], self.x.shape[3]
        adjacent_channels = channels > 1 and self.x.stride(1) == 1
        return "tokens" if adjacent_channels and (width == 1 or self.x.stride(3) != 1) else "planar"


@dataclass(frozen=True)
class ForwardPlan:
    """Launches in order, and the output that they fill: ``torch.empty_like(x)``."""

    launches: list[Launch]
    output: Tensor


@dataclass(frozen=True)
class BackwardPlan:
    """Launches in order, and what they fill; None where it was not wanted.

    Attributes:
        launches: in order.
        grad_x: ``torch.empty_like(x)``.
        grad_bias_parts: float32 (B, C, H, K) or, where the bias is broadcast over H, also
            (B, C, 1, K); summing it over the bias's broadcast dimensions gives the gradient.
        grad_temperature_parts: float32, any shape; its sum is the gradient.
    """

    launches: list[Launch]
    grad_x: Tensor | None
    grad_bias_parts: Tensor | None
    grad_temperature_parts: Tensor | None
