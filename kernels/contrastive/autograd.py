"""The contrastive loss for autograd: forward, and the exact backward that computes logits again.

Saved are image, text, scale, bias and the normalisers of the softmax. Every tensor is in the
canonical form of `dualwave.kernels.contrastive.ops`.
"""

from typing import Any, NoReturn

import torch
from torch import Tensor

import dualwave.kernels.contrastive.ops  # noqa: F401  (registers torch.ops.dualwave.contrastive_*)


def _refuse_vmap(*_: Any) -> NoReturn:
    raise ValueError(
        "contrastive_loss does not go through torch.vmap: call it once for each batch of pairs."
    )


class ContrastiveLoss(torch.autograd.Function):
    """Summed loss and normalisers from (image, text, scale, bias, normalisers, options).

    Normalisers are those of rows and columns, each None where they were not given; they have no
    gradient. ``options`` are the other arguments of ``dualwave::contrastive_forward``.
    """

    vmap = staticmethod(_refuse_vmap)

    @staticmethod
    def forward(
        image: Tensor,
        text: Tensor,
        scale: Tensor,
        bias: Tensor,
        of_rows: Tensor | None,
        of_columns: Tensor | None,
        options: tuple[Any, ...],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compare all pairs."""
        return torch.ops.dualwave.contrastive_forward(
            of_rows, of_columns, image, text, scale, bias, *options
        )

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        """Keep what backward needs."""
        image, text, scale, bias, of_rows, of_columns, ctx.options = inputs
        _, *found = output
        ctx.mark_non_differentiable(*found)
        ctx.is_block_alone = ctx.options[0] == "softmax" and of_rows is None
        if ctx.is_block_alone:
            of_rows, of_columns = found
        ctx.save_for_backward(of_rows, of_columns, image, text, scale, bias)

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of image, text, scale and bias, where they are needed."""
        image_is, text_is, scale_is, bias_is = ctx.needs_input_grad[:4]
        is_softmax = ctx.options[0] == "softmax"
        wanted = (image_is, text_is, scale_is, bias_is and not is_softmax)
        grads: tuple[Tensor | None, ...] = (None,) * 4
        if any(wanted):
            grads = _ContrastiveLossBackward.apply(
                grad_loss, *ctx.saved_tensors, ctx.options, wanted
            )
        grad_bias = grads[3]
        if is_softmax and bias_is:
            # Softmax does not change when the same is added to all logits.
            grad_bias = torch.zeros_like(grad_loss)
            if ctx.is_block_alone:
                image, text = ctx.saved_tensors[2:4]
                grad_bias = grad_loss * (_rows_without_label(image, text, ctx.options[1]) / 2)
        return (*grads[:3], grad_bias, None, None, None)


def _rows_without_label(image: Tensor, text: Tensor, label_offset: int) -> int:
    """How many rows and columns of the logits have no label among them."""
    images, texts = image.shape[0], text.shape[0]
    if images == 0 or texts == 0 or (label_offset == 0 and images == texts):
        return 0
    return images + texts - 2 * max(0, min(images, texts - label_offset) - max(0, -label_offset))


class _ContrastiveLossBackward(torch.autograd.Function):
    """A function of its own only to say clearly that there is no second derivative."""

    vmap = staticmethod(_refuse_vmap)

    @staticmethod
    def forward(
        grad_loss: Tensor,
        of_rows: Tensor | None,
        of_columns: Tensor | None,
        image: Tensor,
        text: Tensor,
        scale: Tensor,
        bias: Tensor,
        options: tuple[Any, ...],
        wanted: tuple[bool, bool, bool, bool],
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
        grads = torch.ops.dualwave.contrastive_backward(
            grad_loss, of_rows, of_columns, image, text, scale, bias, *options, wanted
        )
        grad_image, grad_text, grad_scale, grad_bias = (
            grad if is_wanted else None for grad, is_wanted in zip(grads, wanted, strict=True)
        )
        return grad_image, grad_text, grad_scale, grad_bias

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> NoReturn:
        raise RuntimeError(
            "contrastive_loss has no second derivative: a gradient of its gradient "
            "(create_graph=True) cannot be taken."
        )
