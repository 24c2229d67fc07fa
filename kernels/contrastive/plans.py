"""What a call of the contrastive operation is, and what its kernels do for one."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from dualwave.kernels.launch import Launch
from dualwave.kernels.targets import Target

Kind = Literal["softmax", "sigmoid"]
Lse = tuple[Tensor, Tensor]
"""Natural logarithms of the sums of exponentials of the rows (M,) and of the columns (N,)."""
Normalisers = tuple[Tensor, Tensor]
"""Of the rows (2, M) and of the columns (2, N) of the logits, contiguous float32, float64 for
float64 images: ``[0]`` the largest logit, or any number near it, and ``[1]`` the sum of the
exponentials of the logits less that number. The LSE is ``[0] + log([1])``, but it is rounded to its
own size: a softmax from it would be as much worse as the logits are large."""


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
        normalisers: what they found; None for sigmoid, and where they were given.
    """

    launches: list[Launch]
    losses: tuple[Tensor, ...]
    normalisers: Normalisers | None


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
