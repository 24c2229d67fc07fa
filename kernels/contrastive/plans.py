"""What a call of the contrastive operation is, and what a planned one of its kernels consists of."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from dualwave.kernels.launch import Launch
from dualwave.kernels.targets import Target

Kind = Literal["softmax", "sigmoid"]
Lse = tuple[Tensor, Tensor]
"""Of the rows (M,) and of the columns (N,) of the logits, contiguous: natural logarithms of sums of
exponentials in float32, in float64 for float64 images."""


@dataclass(frozen=True)
class Call:
    """The arguments of one call, in the form that all implementations share.

    Attributes:
        image: (M, D), any strides; float32, bfloat16 or float16, and float64 for the PyTorch
            implementation. No dimension is 0.
        text: (N, D), any strides, image's dtype.
        scale: no dimensions; float32, float64 for float64 images.
        bias: likewise.
        kind: ``"softmax"`` or ``"sigmoid"``.
        label_offset: the label of image i is text i + label_offset, if there is one; from -M to N.
        precision: of the matrix products: ``"ieee"``, ``"tf32x3"``, ``"tf32"``, ``"fp16"`` or
            ``"bf16"``.
        target: what the kernels are configured for.
    """

    image: Tensor
    text: Tensor
    scale: Tensor
    bias: Tensor
    kind: Kind
    label_offset: int
    precision: str
    target: Target

    @property
    def labelled_images(self) -> slice:
        """The images that have a label."""
        return slice(
            max(0, -self.label_offset), min(len(self.image), len(self.text) - self.label_offset)
        )

    @property
    def labelled_texts(self) -> slice:
        """The texts that are labels, in the order of their images."""
        images = self.labelled_images
        return slice(images.start + self.label_offset, images.stop + self.label_offset)


@dataclass(frozen=True)
class ForwardPlan:
    """Launches in order, and what they fill, all of it float32 and contiguous.

    Attributes:
        launches: in order.
        losses: one dimension each; the sum over all of them is the loss.
        lse: what they found; None for sigmoid, and where LSEs were given.
    """

    launches: list[Launch]
    losses: tuple[Tensor, ...]
    lse: Lse | None


@dataclass(frozen=True)
class BackwardPlan:
    """Launches in order, and what they fill; None where it was not wanted.

    Attributes:
        launches: in order.
        grad_image: (M, D), contiguous, image's dtype.
        grad_text: (N, D), contiguous, image's dtype.
        grad_scale_parts: float32, one dimension; grad_loss times its sum is the gradient.
        grad_bias_parts: likewise; None for softmax.
    """

    launches: list[Launch]
    grad_image: Tensor | None
    grad_text: Tensor | None
    grad_scale_parts: Tensor | None
    grad_bias_parts: Tensor | None
