"""The public function of the contrastive losses: checks its arguments and picks a form."""

from typing import Literal, get_args, overload

import torch
from torch import Tensor

from dualwave.kernels.arguments import (
    check_floating_point,
    check_position,
    check_same_device,
    check_scalar,
)
from dualwave.kernels.choices import (
    Implementation,
    Precision,
    choose_implementation,
    choose_precision,
    under_autocast,
)
from dualwave.kernels.contrastive.autograd import ContrastiveLoss
from dualwave.kernels.contrastive.plans import Kind, Lse, Normalisers

Reduction = Literal["mean", "sum"]


@overload
def contrastive_loss(
    image: Tensor,
    text: Tensor,
    *,
    scale: float | Tensor,
    bias: float | Tensor | None = None,
    kind: Kind = "softmax",
    label_offset: int = 0,
    reduction: Reduction = "mean",
    return_lse: Literal[False] = False,
    lse: Lse | None = None,
    precision: Precision | None = None,
    implementation: Implementation | None = None,
) -> Tensor: ...


@overload
def contrastive_loss(
    image: Tensor,
    text: Tensor,
    *,
    scale: float | Tensor,
    bias: float | Tensor | None = None,
    kind: Kind = "softmax",
    label_offset: int = 0,
    reduction: Reduction = "mean",
    return_lse: Literal[True],
    lse: None = None,
    precision: Precision | None = None,
    implementation: Implementation | None = None,
) -> tuple[Tensor, Lse]: ...


def contrastive_loss(
    image: Tensor,
    text: Tensor,
    *,
    scale: float | Tensor,
    bias: float | Tensor | None = None,
    kind: Kind = "softmax",
    label_offset: int = 0,
    reduction: Reduction = "mean",
    return_lse: bool = False,
    lse: Lse | None = None,
    precision: Precision | None = None,
    implementation: Implementation | None = None,
) -> Tensor | tuple[Tensor, Lse]:
    """The loss of CLIP or SigLIP, computed tile by tile: no matrix of logits is ever stored.

        logits = scale * image @ text.T + bias
        softmax: sum_i (row_lse[i] - logits[i, label]) / 2 + sum_j (column_lse[j] - ...) / 2
        sigmoid: -sum_ij logsigmoid(z[i, j] * logits[i, j]), z = 1 at labels and -1 elsewhere

    The label of image i is text i + label_offset; the LSEs are the logarithms of the sums of the
    exponentials of a row and of a column. Memory beyond inputs and gradients grows with M + N,
    forward and backward. The gradients are exact and the same bits every time; that of a softmax
    loss for the bias is exactly 0. There is no second derivative, and no torch.vmap; torch.compile
    takes the call whole (but refuses a tensor that is given twice where gradients are needed: give
    a view of it). Features are read where they lie, strided and expanded ones included.

    A block of a larger batch, as each rank of a ring sees it: the sigmoid losses and gradients of
    all blocks, each with its label_offset and reduction "sum", add up to those of the whole. For
    softmax, call each block with ``return_lse=True``, merge the LSEs of the blocks of a row (of a
    column) with `torch.logsumexp`, and call each block again with the merged ``lse``: then losses
    and gradients add up, since each label is counted by the block that holds it, and with it the
    LSEs of its row and column. Such a loss is a difference from LSEs that were rounded to their own
    size, and errs by as much.

    Args:
        image: (M, D), float32, bfloat16 or float16, float64 with PyTorch only. Under autocast,
            image and text are first cast to its dtype.
        text: (N, D), image's dtype. M and N are the same for softmax, unless lse is given or
            returned.
        scale: a number or a tensor of one element (differentiable).
        bias: likewise, or None for 0. SigLIP starts at -10.
        kind: ``"softmax"`` for CLIP, ``"sigmoid"`` for SigLIP.
        label_offset: an image whose label is no row of ``text`` has its label in another block.
            0 for softmax, unless lse is given or returned.
        reduction: ``"mean"`` divides by M, ``"sum"`` by nothing.
        return_lse: return also what to merge; softmax only. The loss is then that of the block
            alone, in which a row or column without label counts its LSE.
        lse: the merged LSEs of the rows (M,) and of the columns (N,), which are taken as constants:
            a gradient through them is part of each block's gradient already.
        precision: of the Triton kernels' products for float32 inputs, as in `spectral_attention`
            (``"fp16"`` does not scale features, which have to be in its range); 16-bit inputs are
            multiplied as they are, with float32 sums, so None for them.
        implementation: ``"triton"``, ``"torch"`` or None, as in `spectral_attention`.

    Returns:
        The loss, no dimensions, float32 (float64 for float64 inputs); with ``return_lse``
        ``(loss, (row_lse, column_lse))``, natural logarithms in the loss's dtype, (M,) and (N,),
        without gradient. An empty block has a sum of 0, LSEs of -inf and gradients of 0.

    Raises:
        ValueError: shapes, dtypes or devices that do not fit, a mean over no image, an LSE of
            sigmoid, a block of softmax without ``lse``, or a precision or implementation that
            cannot be honoured.
        RuntimeError: a second derivative is asked for.

    Source: Radford et al., CLIP (arXiv 2103.00020); Zhai et al., SigLIP (arXiv 2303.15343); the
    reductions are those of open_clip's ClipLoss and SigLipLoss.
    """
    check_floating_point("image", image)
    check_floating_point("text", text)
    image, text = under_autocast(image, text)
    _check_features(image, text)
    if kind not in get_args(Kind):
        raise ValueError(f'kind must be "softmax" or "sigmoid", not {kind!r}.')
    if reduction not in get_args(Reduction):
        raise ValueError(f'reduction must be "mean" or "sum", not {reduction!r}.')
    if reduction == "mean" and len(image) == 0:
        raise ValueError('the mean over no image is not defined: use reduction="sum".')
    chosen = choose_implementation(image, implementation)
    chosen_precision = choose_precision("contrastive_loss", chosen, precision)
    if precision is not None and image.dtype.itemsize == 2 and chosen == "triton":
        raise ValueError(
            f"precision={precision!r} is for float32 inputs: {image.dtype} is multiplied as it is, "
            "so leave it None."
        )
    check_position("label_offset", label_offset)
    _check_block(image, text, kind, label_offset, return_lse, lse)
    given = (None, None) if lse is None else _as_normalisers(lse, image, text)
    total, *normalisers = ContrastiveLoss.apply(
        image,
        text,
        _scalar("scale", scale, image),
        _scalar("bias", 0.0 if bias is None else bias, image),
        *given,
        (kind, label_offset, chosen_precision, chosen),
    )
    loss = total / len(image) if reduction == "mean" else total
    if not return_lse:
        return loss
    row_lse, column_lse = (maxima + sums.log() for maxima, sums in normalisers)
    return loss, (row_lse, column_lse)


def _check_features(image: Tensor, text: Tensor) -> None:
    shapes = f"image {tuple(image.shape)} and text {tuple(text.shape)}"
    if image.ndim != 2 or text.ndim != 2 or image.shape[1] != text.shape[1] or image.shape[1] == 0:
        raise ValueError(
            f"image must be (M, D) and text (N, D) with D of at least 1, not {shapes}."
        )
    if image.dtype != text.dtype:
        raise ValueError(f"image and text must have one dtype, not {image.dtype} and {text.dtype}.")
    check_same_device("image", image, "text", text)


def _check_block(
    image: Tensor, text: Tensor, kind: str, label_offset: int, return_lse: bool, lse: Lse | None
) -> None:
    if kind == "sigmoid":
        if return_lse or lse is not None:
            raise ValueError("the sigmoid loss has no LSE: its blocks are summed as they are.")
        return
    if return_lse and lse is not None:
        raise ValueError("return_lse gives the block's own LSEs, so it cannot go with lse.")
    if not return_lse and lse is None and (image.shape[0] != text.shape[0] or label_offset != 0):
        raise ValueError(
            f"{len(image)} images, {len(text)} texts and label_offset={label_offset} are a block "
            "of a larger softmax loss: give the merged lse (from return_lse=True)."
        )


def _compute_dtype(image: Tensor) -> torch.dtype:
    return torch.float64 if image.dtype == torch.float64 else torch.float32


def _scalar(name: str, value: float | Tensor, image: Tensor) -> Tensor:
    """On image's device, no dimensions."""
    check_scalar(name, value, "image", image)
    dtype = _compute_dtype(image)
    if not isinstance(value, Tensor):
        return torch.full((), float(value), dtype=dtype, device=image.device)
    return value.reshape(()).to(device=image.device, dtype=dtype)


def _as_normalisers(lse: Lse, image: Tensor, text: Tensor) -> Normalisers:
    if not isinstance(lse, tuple | list) or len(lse) != 2:
        raise ValueError(
            "lse must be that of the rows and that of the columns, as return_lse=True gives them."
        )
    row_lse, column_lse = lse
    check_floating_point("lse of the rows", row_lse)
    check_floating_point("lse of the columns", column_lse)
    if row_lse.shape != image.shape[:1] or column_lse.shape != text.shape[:1]:
        raise ValueError(
            f"lse must be that of the rows ({len(image)},) and that of the columns ({len(text)},), "
            f"not {tuple(row_lse.shape)} and {tuple(column_lse.shape)}."
        )
    check_same_device("lse of the rows", row_lse, "image", image)
    check_same_device("lse of the columns", column_lse, "image", image)
    dtype = _compute_dtype(image)
    row_lse, column_lse = row_lse.detach().to(dtype), column_lse.detach().to(dtype)
    return (
        torch.stack([row_lse, torch.ones_like(row_lse)]),
        torch.stack([column_lse, torch.ones_like(column_lse)]),
    )
