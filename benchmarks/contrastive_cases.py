"""What the contrastive benchmark computes, by each side."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from dualwave import contrastive_loss
from dualwave.kernels.contrastive.reference import contrastive_loss_reference

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """Features (batch, size) of unit length, as many texts as images.

    Attributes:
        kind: ``"softmax"`` (CLIP) or ``"sigmoid"`` (SigLIP).
        batch: B.
        size: D.
    """

    kind: Literal["softmax", "sigmoid"]
    batch: int
    size: int = 512

    def __str__(self) -> str:
        return f"{self.kind}, B {self.batch}, D {self.size}"

    def inputs(self, dtype: torch.dtype, device: str = "cpu") -> Inputs:
        """Image, text, scale and bias, all of which want a gradient."""
        generator = torch.Generator(device).manual_seed(0)
        features = torch.randn(2, self.batch, self.size, generator=generator, device=device)
        image, text = F.normalize(features, dim=2).to(dtype).unbind(0)
        scale, bias = (14.3, 0.0) if self.kind == "softmax" else (10.0, -10.0)
        scalars = [torch.tensor(value, device=device) for value in (scale, bias)]
        image, text, scale, bias = (t.detach().requires_grad_() for t in (image, text, *scalars))
        return image, text, scale, bias

    def ours(
        self, image: Tensor, text: Tensor, scale: Tensor, bias: Tensor, precision: Any = None
    ) -> Tensor:
        """The public function."""
        return contrastive_loss(
            image, text, scale=scale, bias=bias, kind=self.kind, precision=precision
        )

    def open_clip(self, image: Tensor, text: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        """What open_clip's ClipLoss and SigLipLoss compute in one process; themselves, if they can.

        ClipLoss multiplies once for each direction (its second matrix is the first one's transpose
        here), SigLipLoss multiplies the matrix by a matrix of labels.
        """
        if find_spec("open_clip") is not None:
            import open_clip

            if self.kind == "softmax":
                return open_clip.ClipLoss()(image, text, scale, bias)
            return open_clip.SigLipLoss()(image, text, scale, bias)
        if self.kind == "softmax":
            labels = torch.arange(self.batch, device=image.device)
            by_image = scale * image @ text.T + bias
            by_text = scale * text @ image.T + bias
            return (F.cross_entropy(by_image, labels) + F.cross_entropy(by_text, labels)) / 2
        logits = scale * image @ text.T + bias
        signs = -torch.ones(self.batch, self.batch, dtype=image.dtype, device=image.device)
        signs = 2 * torch.eye(self.batch, dtype=image.dtype, device=image.device) + signs
        return -F.logsigmoid(signs * logits).sum() / self.batch

    def naive(self, image: Tensor, text: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        """Plain PyTorch operations, storing every logit and more."""
        found = contrastive_loss_reference(image, text, scale=scale, bias=bias, kind=self.kind)
        return found[0]

    def sides(self) -> dict[str, Loss]:
        """By name; the first is ours."""
        return {"ours": self.ours, "open_clip": self.open_clip, "naive": self.naive}


def results_of(loss: Loss, inputs: Inputs) -> list[Tensor]:
    """The loss and the gradients of image, text, scale and bias."""
    value = loss(*inputs)
    grads = torch.autograd.grad(value, inputs, allow_unused=True)
    return [
        value.detach(),
        *(
            torch.zeros_like(leaf) if grad is None else grad
            for grad, leaf in zip(grads, inputs, strict=True)
        ),
    ]


def check(case: Case, dtype: torch.dtype, device: str, precision: Any = None) -> None:
    """Ours may err at most twice as much as the naive loss in the same dtype, plus four eps.

    The gradients of scale and bias are sums that cancel: they count as at least 1, what their terms
    add up to at most.

    Raises:
        SystemExit: ours errs more: nothing is timed then.
    """
    inputs = case.inputs(dtype, device)
    exact_inputs: Any = tuple(t.detach().double().requires_grad_() for t in inputs)
    ours = results_of(partial(case.ours, precision=precision), inputs)
    naive = results_of(case.naive, inputs)
    exact = results_of(case.naive, exact_inputs)
    names = ("loss", "dimage", "dtext", "dscale", "dbias")
    for name, value, usual, right in zip(names, ours, naive, exact, strict=True):
        size = right.abs().max()
        if name in ("dscale", "dbias"):
            size = size.clamp(min=1.0)
        budget = 2 * (usual - right).abs().max() + 4 * torch.finfo(value.dtype).eps * size
        error = (value - right).abs().max()
        if not error <= budget:
            raise SystemExit(f"{case}: {name} of ours is wrong by {error:.3g}; nothing is timed.")
