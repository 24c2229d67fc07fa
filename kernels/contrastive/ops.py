"""The contrastive loss as operations that torch knows: no Triton is imported until one runs.

Arguments are in the canonical form of `dualwave.kernels.contrastive.plans.Call`, but M and N may be
0, label_offset any number, and ``precision`` may be ``"default"``, which is resolved when an
operation runs. ``implementation`` is an argument and not a dispatch key: the kernels also run on
CPU tensors, in Triton's interpreter. Normalisers that do not exist have no elements.
"""

from typing import Any

import torch
from torch import Tensor

from dualwave.kernels.choices import resolve_precision
from dualwave.kernels.contrastive.plans import Call, Normalisers

_SHARED_SCHEMA = (
    "Tensor image, Tensor text, Tensor scale, Tensor bias, str kind, SymInt label_offset, "
    "str precision, str implementation"
)
_library = torch.library.Library("dualwave", "FRAGMENT")
_library.define(
    "contrastive_forward(Tensor? of_rows, Tensor? of_columns, "
    f"{_SHARED_SCHEMA}) -> (Tensor, Tensor, Tensor)"
)
_library.define(
    "contrastive_backward(Tensor grad_loss, Tensor? of_rows, Tensor? of_columns, "
    f"{_SHARED_SCHEMA}, bool[4] wanted) -> (Tensor, Tensor, Tensor, Tensor)"
)


def canonical_call(
    image: Tensor,
    text: Tensor,
    scale: Tensor,
    bias: Tensor,
    kind: Any,
    label_offset: int,
    precision: str,
    implementation: str,
) -> Call:
    """The arguments of an operation as one value."""
    from dualwave.kernels.targets import SM_90, target_of

    target = SM_90 if implementation == "torch" else target_of(image.device)
    of_16_bits = "bf16" if image.dtype == torch.bfloat16 else "fp16"
    resolved = resolve_precision(precision, image, of_16_bits)
    # Further out there are no labels either, and 32 bits hold these.
    label_offset = max(-len(image), min(label_offset, len(text)))
    return Call(image, text, scale, bias, kind, label_offset, resolved, target)


def _forward(
    of_rows: Tensor | None, of_columns: Tensor | None, image: Tensor, text: Tensor, *options: Any
) -> tuple[Tensor, Tensor, Tensor]:
    call = canonical_call(image, text, *options)
    given = _both(of_rows, of_columns)
    found: Normalisers | None = None
    if image.numel() == 0 or text.numel() == 0:
        total = call.scale.new_zeros(())
        if call.kind == "softmax" and given is None:
            nothing = call.scale.new_tensor([[-torch.inf], [0.0]])
            found = nothing.repeat(1, len(image)), nothing.repeat(1, len(text))
    elif options[-1] == "torch":
        from dualwave.kernels.contrastive.pytorch import contrastive_forward_pytorch

        with torch.autocast(image.device.type, enabled=False):
            total, found = contrastive_forward_pytorch(call, given)
    else:
        from dualwave.kernels.contrastive.planning import plan_forward

        with torch.cuda.device_of(image):
            plan = plan_forward(call, given)
            for launch in plan.launches:
                launch.run()
            total = torch.stack([part.sum(dtype=torch.float64) for part in plan.losses]).sum()
        found = plan.normalisers
    if found is None:
        found = call.scale.new_empty(2, 0), call.scale.new_empty(2, 0)
    return total.to(call.scale.dtype), *found


def _backward(
    grad_loss: Tensor,
    of_rows: Tensor | None,
    of_columns: Tensor | None,
    image: Tensor,
    text: Tensor,
    *options: Any,
) -> tuple[Tensor, ...]:
    *arguments, wanted = options
    call = canonical_call(image, text, *arguments)
    normalisers = _both(of_rows, of_columns)
    grads: tuple[Tensor | None, ...]
    if image.numel() == 0 or text.numel() == 0:
        inputs = (image, text, call.scale, call.bias)
        grads = tuple(tensor.new_zeros(tensor.shape) for tensor in inputs)
    elif arguments[-1] == "torch":
        from dualwave.kernels.contrastive.pytorch import contrastive_backward_pytorch

        with torch.autocast(image.device.type, enabled=False):
            grads = contrastive_backward_pytorch(call, normalisers, grad_loss, tuple(wanted))
    else:
        from dualwave.kernels.contrastive.planning import plan_backward

        with torch.cuda.device_of(image):
            plan = plan_backward(call, normalisers, grad_loss, tuple(wanted))
            for launch in plan.launches:
                launch.run()
            grads = (
                plan.grad_image,
                plan.grad_text,
                _scaled_sum(plan.grad_scale_parts, grad_loss),
                _scaled_sum(plan.grad_bias_parts, grad_loss),
            )
    return tuple(
        image.new_empty(0) if grad is None or not is_wanted else grad
        for grad, is_wanted in zip(grads, wanted, strict=True)
    )


def _both(of_rows: Tensor | None, of_columns: Tensor | None) -> Normalisers | None:
    return None if of_rows is None or of_columns is None else (of_rows, of_columns)


def _scaled_sum(parts: Tensor | None, grad_loss: Tensor) -> Tensor | None:
    if parts is None:
        return None
    return (parts.sum(dtype=torch.float64) * grad_loss).to(grad_loss.dtype)


def _fake_forward(
    of_rows: Tensor | None, of_columns: Tensor | None, image: Tensor, text: Tensor, *options: Any
) -> tuple[Tensor, Tensor, Tensor]:
    scale, _, kind, *_ = options
    # Asked of shapes: len() would fix a symbolic size to the one that is traced.
    sizes = (image.shape[0], text.shape[0])
    if kind == "sigmoid" or of_rows is not None:
        sizes = (0, 0)
    return scale.new_empty(()), *(scale.new_empty(2, size) for size in sizes)


def _fake_backward(
    grad_loss: Tensor,
    of_rows: Tensor | None,
    of_columns: Tensor | None,
    image: Tensor,
    text: Tensor,
    *options: Any,
) -> tuple[Tensor, ...]:
    scale, bias, *_, wanted = options
    return tuple(
        tensor.new_empty(tensor.shape) if is_wanted else image.new_empty(0)
        for tensor, is_wanted in zip((image, text, scale, bias), wanted, strict=True)
    )


for _device in ("CPU", "CUDA"):  # ROCm calls itself CUDA; on the CPU the kernels are interpreted
    _library.impl("contrastive_forward", _forward, _device)
    _library.impl("contrastive_backward", _backward, _device)
torch.library.register_fake("dualwave::contrastive_forward", _fake_forward, lib=_library)
torch.library.register_fake("dualwave::contrastive_backward", _fake_backward, lib=_library)
