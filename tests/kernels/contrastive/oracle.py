"""What every implementation of the contrastive loss is measured against.

The exact answer is the definition in float64. The yardstick for rounding is what PyTorch users
write, in the dtype of the features: `plain_loss`. An implementation may err at most twice as much,
plus four eps of the result.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dualwave.kernels.contrastive.reference import contrastive_loss_reference

Results = dict[str, Tensor]
"""By name: loss, dimage, dtext, dscale, dbias, norm (of all gradients); of softmax also row_lse and
column_lse."""


@dataclass(frozen=True)
class Problem:
    """Inputs and the gradient of the loss in float64, and the options that all functions take."""

    image: Tensor
    text: Tensor
    scale: Tensor
    bias: Tensor
    grad_loss: Tensor
    options: dict[str, Any]

    @property
    def is_softmax(self) -> bool:
        """Whether there are LSEs."""
        return self.options["kind"] == "softmax"

    @property
    def is_whole(self) -> bool:
        """Whether each image and each text has its label."""
        return len(self.image) == len(self.text) and self.options["label_offset"] == 0


def make_problem(
    images: int,
    texts: int | None = None,
    *,
    size: int = 12,
    kind: str = "softmax",
    scale: float = 10.0,
    bias: float = -3.0,
    likeness: float = 0.5,
    dtype: torch.dtype = torch.float64,
    **options: Any,
) -> Problem:
    """Random features of unit length, the same for the same sizes, rounded to ``dtype``.

    Args:
        images: M.
        texts: N, M if None.
        size: D.
        kind: of the loss.
        scale: of the products.
        bias: of the logits.
        likeness: how much each label is like its image; 1 is the same.
        dtype: features are rounded to it, the rest to float32 at least, and kept in float64.
        options: label_offset and reduction.
    """
    texts = images if texts is None else texts
    generator = torch.Generator().manual_seed(images * 10_007 + texts * 101 + size)
    image, noise = (
        torch.randn(count, size, generator=generator, dtype=torch.float64)
        for count in (images, texts)
    )
    image = F.normalize(image, dim=1)
    text = (1 - likeness) * F.normalize(noise, dim=1)
    options = {"kind": kind, "label_offset": 0, "reduction": "mean", **options}
    labels = torch.arange(images) + options["label_offset"]
    has_label = (labels >= 0) & (labels < texts)
    text[labels[has_label]] += likeness * image[has_label]
    small = _small(dtype)
    return Problem(
        image.to(dtype).double(),
        F.normalize(text, dim=1).to(dtype).double(),
        torch.tensor(scale, dtype=small).double(),
        torch.tensor(bias, dtype=small).double(),
        torch.tensor(1.7, dtype=small).double(),
        options,
    )


def results_of(
    function: Callable[..., Any], problem: Problem, dtype: torch.dtype, **more: Any
) -> Results:
    """Run ``function(image, text, scale=..., bias=..., **options, **more)`` and its backward.

    It returns the loss, or the loss and the two LSEs.
    """
    small = _small(dtype)
    leaves = [
        tensor.to(to).requires_grad_()
        for tensor, to in (
            (problem.image, dtype),
            (problem.text, dtype),
            (problem.scale, small),
            (problem.bias, small),
        )
    ]
    image, text, scale, bias = leaves
    found = function(image, text, scale=scale, bias=bias, **problem.options, **more)
    loss, lse = found if isinstance(found, tuple) else (found, None)
    grads = torch.autograd.grad(loss, leaves, problem.grad_loss.to(loss.dtype))
    names = ("dimage", "dtext", "dscale", "dbias")
    results = {"loss": loss.detach(), **dict(zip(names, grads, strict=True))}
    results["norm"] = torch.stack([grad.double().norm() for grad in grads]).norm().to(dtype)
    if lse is not None and problem.is_softmax:
        results |= {"row_lse": lse[0].detach(), "column_lse": lse[1].detach()}
    return results


def plain_loss(
    image: Tensor,
    text: Tensor,
    *,
    scale: Tensor,
    bias: Tensor,
    kind: str,
    label_offset: int,
    reduction: str,
) -> Any:
    """In PyTorch's own functions where they can express it: cross_entropy, both ways."""
    if kind == "sigmoid" or label_offset != 0 or len(image) != len(text):
        return contrastive_loss_reference(
            image,
            text,
            scale=scale,
            bias=bias,
            kind=kind,
            label_offset=label_offset,
            reduction=reduction,
        )
    logits = scale * image @ text.T + bias
    labels = torch.arange(len(image))
    loss = sum(F.cross_entropy(side, labels, reduction=reduction) for side in (logits, logits.T))
    return loss / 2, (torch.logsumexp(logits, dim=1), torch.logsumexp(logits, dim=0))


def exact_results(problem: Problem) -> Results:
    """The definition in float64."""
    return results_of(contrastive_loss_reference, problem, torch.float64)


def sizes_of(exact: Results, problem: Problem) -> dict[str, float]:
    """What the rounding of each result is measured by: its largest absolute value.

    The terms of dscale cancel, dlogit * product of each pair, and at a label dlogit itself is a
    probability less 1: so it is at least the root of the sum over images of (sum_j (probability +
    is_label) |product|)^2, since each image's terms share their errors and those of different
    images are independent.
    """
    sizes = {name: float(value.abs().max()) for name, value in exact.items()}
    products = problem.image @ problem.text.T
    # A feature of its own for every pair: its gradient is that of the logit.
    logits = (problem.scale * products + problem.bias).requires_grad_()
    arguments = {"scale": 1.0, **problem.options}
    loss, _ = contrastive_loss_reference(logits, torch.eye(len(problem.text)).double(), **arguments)
    (grad,) = torch.autograd.grad(loss, logits, problem.grad_loss)
    of_labels = problem.grad_loss
    if problem.options["reduction"] == "mean":
        of_labels = of_labels / len(problem.image)
    terms = torch.where(grad < 0, grad + 2 * of_labels, grad) * products.abs()
    of_terms = terms.sum(dim=1).square().sum().sqrt()
    return sizes | {"dscale": max(sizes["dscale"], float(of_terms.detach()))}


def plain_errors(problem: Problem, dtype: torch.dtype) -> dict[str, float]:
    """The largest error of what PyTorch users write, in ``dtype``, as a part of each result's size.

    A single rounding may happen to be exact, in particular that of a probability near 1. So it is
    the largest among the problem and seven like it, whose scales differ by at most a twentieth.
    """
    largest: dict[str, float] = {}
    for step in range(-3, 5):
        scale = (problem.scale * (1 + step / 80)).to(_small(dtype)).double()
        alike = replace(problem, scale=scale)
        exact = exact_results(alike)
        sizes = sizes_of(exact, alike)
        for name, value in results_of(plain_loss, alike, dtype).items():
            error = float((value.double() - exact[name]).abs().max())
            part = error / sizes[name] if error > 0 and sizes[name] > 0 else 0.0
            largest[name] = max(part, largest.get(name, 0.0))
    return largest


def assert_within_budget(
    ours: Results,
    problem: Problem,
    dtype: torch.dtype,
    *,
    rounded_products: bool = False,
    has_merged_lse: bool = False,
) -> None:
    """Compare with the exact answer, in the largest error of each result.

    The budget of a result is twice plain PyTorch's error plus 4 eps, both as a part of the result's
    size. eps is that of the result's dtype, or 2^-10 if that is more and ``rounded_products`` (tf32
    or fp16 operands of float32 features, 11 significant bits); in float64, where plain PyTorch is
    the exact answer itself, all of it is 1e-12. The mean loss of blocks with merged LSEs is a
    difference from those, which are rounded to their own size: it is as large as they are. A
    softmax loss's gradient for the bias must be exactly 0 where every row has its label.
    """
    exact, of_plain = exact_results(problem), plain_errors(problem, dtype)
    sizes = sizes_of(exact, problem)
    if has_merged_lse:
        of_lse = max(float(exact[name].abs().max()) for name in ("row_lse", "column_lse"))
        sizes["loss"] = max(sizes["loss"], of_lse)
    for name, value in ours.items():
        assert value.shape == exact[name].shape, name
        if name == "dbias" and problem.is_softmax and problem.is_whole:
            assert value == 0
            continue
        error = float((value.double() - exact[name]).abs().max())
        eps = max(torch.finfo(value.dtype).eps, 2.0**-10 if rounded_products else 0.0)
        budget = (2 * of_plain[name] + 4 * eps) * sizes[name]
        if dtype == torch.float64:
            budget = 1e-12 * max(sizes[name], 1.0)
        assert error <= budget, f"{name}: error {error:.3g} over the budget of {budget:.3g}"


def _small(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype == torch.float64 else torch.float32
