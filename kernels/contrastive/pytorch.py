"""The contrastive losses in PyTorch operations, a chunk of rows of the logits at a time.

A chunk holds a fixed number of logits, so that extra memory grows with the batch and not with its
square. Forward computes every logit once, for rows and columns alike, and so does backward.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from dualwave.kernels.contrastive.plans import Call, Lse

_LOGITS_IN_A_CHUNK = 2**21  # 8 MiB in float32, of which two or three exist at a time


def contrastive_forward_pytorch(call: Call, lse: Lse | None) -> tuple[Tensor, Lse | None]:
    """The summed loss in float64, and for softmax the LSEs, unless they were given."""
    if call.kind == "sigmoid":
        return _sigmoid_loss(call), None
    if lse is not None:
        rows, columns = lse[0][call.labelled_images], lse[1][call.labelled_texts]
        return ((rows + columns) / 2 - _label_logits(call)).sum(dtype=torch.float64), None
    return _softmax_loss(call)


def contrastive_backward_pytorch(
    call: Call, lse: Lse | None, grad_loss: Tensor, wanted: tuple[bool, bool, bool, bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """The wanted gradients of image, text, scale and bias; None for the others.

    Args:
        call: the forward call.
        lse: what rows and columns are normalised by; None for sigmoid.
        grad_loss: of the summed loss, no dimensions.
        wanted: of the four; softmax does not give that of the bias.
    """
    text = call.text.to(call.scale.dtype)
    factor = grad_loss * call.scale
    grad_image = torch.empty_like(call.image, memory_format=torch.contiguous_format)
    grad_text = torch.zeros_like(text, memory_format=torch.contiguous_format) if wanted[1] else None
    grad_scale, grad_bias = (torch.zeros_like(call.scale, dtype=torch.float64) for _ in range(2))
    for rows in _chunks(call):
        image = call.image[rows].to(text.dtype)
        weights = _logit_gradients(call, rows, image, text, lse)
        if wanted[0] or wanted[2]:
            weighted = weights @ text
            grad_scale += (weighted * image).sum(dtype=torch.float64)
            grad_image[rows] = weighted * factor
        if grad_text is not None:
            grad_text.addmm_(weights.T, image)
        if wanted[3]:
            grad_bias += weights.sum(dtype=torch.float64)
    return (
        grad_image if wanted[0] else None,
        None if grad_text is None else grad_text.mul_(factor).to(call.text.dtype),
        (grad_scale * grad_loss).to(call.scale.dtype) if wanted[2] else None,
        (grad_bias * grad_loss).to(call.bias.dtype) if wanted[3] else None,
    )


def _softmax_loss(call: Call) -> tuple[Tensor, Lse]:
    text = call.text.to(call.scale.dtype)
    row_maxima, row_log_sums, labels = (text.new_empty(len(call.image)) for _ in range(3))
    column_maxima = text.new_full((len(text),), -torch.inf)
    column_sums = text.new_zeros(len(text))
    labels.zero_()
    for rows in _chunks(call):
        logits = _logits(call, rows, call.image[rows].to(text.dtype), text)
        maxima = logits.amax(dim=1)
        row_maxima[rows] = maxima
        row_log_sums[rows] = (logits - maxima.unsqueeze(1)).exp_().sum(dim=1).log_()
        diagonal = _label_diagonal(call, rows, logits)
        first = rows.start + max(0, -rows.start - call.label_offset)
        labels[first : first + len(diagonal)] = diagonal
        maxima = torch.maximum(column_maxima, logits.amax(dim=0))
        column_sums.mul_((column_maxima - maxima).exp_())
        column_sums.add_(logits.sub_(maxima).exp_().sum(dim=0))
        column_maxima = maxima
    column_log_sums = column_sums.log_()
    column_labels = torch.zeros_like(column_sums)
    column_labels[call.labelled_texts] = labels[call.labelled_images]
    # The maximum less the label's logit comes first: where they are the same, nothing is rounded.
    row_losses = (row_maxima - labels) + row_log_sums
    column_losses = (column_maxima - column_labels) + column_log_sums
    total = (row_losses.sum(dtype=torch.float64) + column_losses.sum(dtype=torch.float64)) / 2
    return total, (row_maxima + row_log_sums, column_maxima + column_log_sums)


def _sigmoid_loss(call: Call) -> Tensor:
    text = call.text.to(call.scale.dtype)
    total = text.new_zeros((), dtype=torch.float64)
    for rows in _chunks(call):
        logits = _logits(call, rows, call.image[rows].to(text.dtype), text)
        _label_diagonal(call, rows, logits).neg_()
        total += F.logsigmoid(logits.neg_()).neg_().sum(dtype=torch.float64)
    return total


def _logit_gradients(
    call: Call, rows: slice, image: Tensor, text: Tensor, lse: Lse | None
) -> Tensor:
    """Of the summed loss, (rows, N)."""
    logits = _logits(call, rows, image, text)
    if lse is None:
        # At a label sigmoid(x) - 1, of which -sigmoid(-x) is the exact form.
        _label_diagonal(call, rows, logits).neg_()
        weights = logits.sigmoid_()
        _label_diagonal(call, rows, weights).neg_()
        return weights
    weights = (logits - lse[0][rows].unsqueeze(1)).exp_()
    weights.add_(logits.sub_(lse[1]).exp_()).mul_(0.5)
    _label_diagonal(call, rows, weights).sub_(1.0)
    return weights


def _logits(call: Call, rows: slice, image: Tensor, text: Tensor) -> Tensor:
    """Of some rows, (rows, N), from their images and all texts in the dtype of the logits."""
    return (image @ text.T).mul_(call.scale).add_(call.bias)


def _label_diagonal(call: Call, rows: slice, logits: Tensor) -> Tensor:
    """A view of the logits of the labels, which are one diagonal of some rows."""
    return logits.diagonal(rows.start + call.label_offset)


def _label_logits(call: Call) -> Tensor:
    """Of the labelled images, without those of any other pair."""
    image, text = call.image[call.labelled_images], call.text[call.labelled_texts]
    rows = max(1, _LOGITS_IN_A_CHUNK // image.shape[1])
    products = [
        (images.to(call.scale.dtype) * texts).sum(dim=1)
        for images, texts in zip(image.split(rows), text.split(rows), strict=True)
    ]
    return torch.cat(products) * call.scale + call.bias


def _chunks(call: Call) -> Iterator[slice]:
    rows = max(1, _LOGITS_IN_A_CHUNK // len(call.text))
    for begin in range(0, len(call.image), rows):
        yield slice(begin, min(begin + rows, len(call.image)))
