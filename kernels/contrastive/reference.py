"""The definition of the contrastive losses, in plain PyTorch operations: it stores every logit.

It shares no code with the implementations. Meant for float64 and small batches.
"""

import torch
from torch import Tensor


def contrastive_loss_reference(
    image: Tensor,
    text: Tensor,
    *,
    scale: float | Tensor,
    bias: float | Tensor | None = None,
    kind: str = "softmax",
    label_offset: int = 0,
    reduction: str = "mean",
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Compare every image with every text.

        logits = scale * image @ text.T + bias
        softmax: sum_i row_lse[i] / 2 + sum_j column_lse[j] / 2 - sum of the labels' logits
        sigmoid: -sum_ij logsigmoid(z[i, j] * logits[i, j]), z = 1 at labels and -1 elsewhere

    The label of image i is text i + label_offset, if there is one. Where each row and each column
    has its label, the first is the cross entropy of the rows and of the columns, halved and summed.

    Args:
        image: (M, D).
        text: (N, D).
        scale: factor of the products.
        bias: added to all of them, or None.
        kind: ``"softmax"`` or ``"sigmoid"``.
        label_offset: of the labels.
        reduction: ``"sum"``, or ``"mean"`` for the sum divided by M.

    Returns:
        The loss, and the natural logarithms of the sums of exponentials of the rows (M,) and of the
        columns (N,); differentiable by autograd, in whatever dtype the arguments have.
    """
    logits = scale * (image @ text.T)
    if bias is not None:
        logits = logits + bias
    labels = torch.arange(len(image)) + label_offset
    is_label = (labels[:, None] == torch.arange(len(text))).to(logits.device)
    lse = torch.logsumexp(logits, dim=1), torch.logsumexp(logits, dim=0)
    if kind == "softmax":
        loss = lse[0].sum() / 2 + lse[1].sum() / 2 - logits[is_label].sum()
    else:
        signs = torch.where(is_label, 1.0, -1.0).to(logits.dtype)
        loss = -torch.nn.functional.logsigmoid(signs * logits).sum()
    return (loss / len(image) if reduction == "mean" else loss), lse
