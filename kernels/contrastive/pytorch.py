"""The contrastive losses in PyTorch operations, a chunk of rows of the logits at a time.

A chunk holds a fixed number of logits, so that extra memory grows with the batch and not with its
square. Forward computes every logit once, for rows and columns alike, and so does backward.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from dualwave.kernels.contrastive.plans import Call, Normalisers

_LOGITS_IN_A_CHUNK = 2**21  # 8 MiB in float32, of which two or three exist at a time


def contrastive_forward_pytorch(
    call: Call, given: Normalisers | None
) -> tuple[Tensor, Normalisers | None]:
    """The summed loss in float64, and for softmax the normalisers, unless they were given."""
    if call.kind == "sigmoid":
        return _sigmoid_loss(call), None
    if given is None:
        return _softmax_loss(call)
    row_lse, column_lse = (maxima + sums.log() for maxima, sums in given)
    lse = (row_lse[call.labelled_images] + column_lse[call.labelled_texts]) / 2
    return (lse - _label_logits(call)).sum(dtype=torch.float64), None


def contrastive_backward_pytorch(
    call: Call,
    normalisers: Normalisers | None,
    grad_loss: Tensor,
    wanted: tuple[bool, bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """The wanted gradients of image, text, scale and bias; None for the others.

    Args:
        call: the forward call.
        normalisers: of the softmax; None for sigmoid.
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
        weights = _logit_gradients(call, rows, image, text, normalisers)
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


def _softmax_loss(call: Call) -> tuple[Tensor, Normalisers]:
    text = call.text.to(call.scale.dtype)
    of_rows, of_columns = (text.new_empty(2, len(side)) for side in (call.image, call.text))
    of_columns[0], of_columns[1] = -torch.inf, 0.0
    row_labels, column_labels = (text.new_zeros(len(side)) for side in (call.image, call.text))
    for rows in _chunks(call):
        logits = _logits(call, rows, call.image[rows].to(text.dtype), text)
        diagonal = _label_diagonal(call, rows, logits)
        first = max(rows.start, -call.label_offset)
        row_labels[first : first + len(diagonal)] = diagonal
        maxima = logits.amax(dim=1)
        of_rows[0, rows] = maxima
        of_rows[1, rows] = (logits - maxima.unsqueeze(1)).exp_().sum(dim=1)
        maxima = torch.maximum(of_columns[0], logits.amax(dim=0))
        of_columns[1] *= (of_columns[0] - maxima).exp_()
        of_columns[1] += logits.sub_(maxima).exp_().sum(dim=0)
        of_columns[0] = maxima
    column_labels[call.labelled_texts] = row_labels[call.labelled_images]
    # The maximum less the label's logit comes first: where they are the same, nothing is rounded.
    losses = [
        (maxima - labels) + sums.log()
        for (maxima, sums), labels in ((of_rows, row_labels), (of_columns, column_labels))
    ]
    total = sum(side.sum(dtype=torch.float64) for side in losses) / 2
    return total, (of_rows, of_columns)


def _sigmoid_loss(call: Call) -> Tensor:
    text = call.text.to(call.scale.dtype)
    total = text.new_zeros((), dtype=torch.float64)
    for rows in _chunks(call):
        logits = _logits(call, rows, call.image[rows].to(text.dtype), text)
        _label_diagonal(call, rows, logits).neg_()
        total += F.logsigmoid(logits.neg_()).neg_().sum(dtype=torch.float64)
    return total


def _logit_gradients(
    call: Call, rows: slice, image: Tensor, text: Tensor, normalisers: Normalisers | None
) -> Tensor:
    """Of the summed loss, (rows, N)."""
    logits = _logits(call, rows, image, text)
    if normalisers is None:
        # At a label sigmoid(x) - 1, of which -sigmoid(-x) is the exact form.
        _label_diagonal(call, rows, logits).neg_()
        weights = logits.sigmoid_()
        _label_diagonal(call, rows, weights).neg_()
        return weights
    row_maxima, row_sums = normalisers[0][:, rows].unsqueeze(2)
    column_maxima, column_sums = normalisers[1]
    weights = (logits - row_maxima).exp_().mul_(0.5 / row_sums)
    weights.addcmul_(logits.sub_(column_maxima).exp_(), 0.5 / column_sums)
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
