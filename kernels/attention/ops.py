"""Attention as operations that torch knows: no Triton is imported until one of its kernels runs.

Arguments are in the canonical form of `dualwave.kernels.attention.plans.Call`. ``precision`` may
also be ``"default"``, which is resolved when an operation runs. ``implementation`` is an argument
and not a dispatch key: the kernels also run on CPU tensors, in Triton's interpreter. The third
result, the normalisers (2, B, Hq, Sq), is for the backward of the same implementation alone.
"""

from typing import Any

import torch
from torch import Tensor

from dualwave.kernels.attention.packing import read_packing
from dualwave.kernels.attention.plans import Call, Visibility
from dualwave.kernels.choices import resolve_precision

_SHARED_SCHEMA = (
    "Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, "
    "SymInt? max_seqlen_q, SymInt? max_seqlen_k, SymInt? left, SymInt? right, SymInt? q_offset, "
    "SymInt? k_offset, "
    "float scale, ScalarType out_dtype, str precision, str implementation"
)
_library = torch.library.Library("dualwave", "FRAGMENT")
_library.define(f"attention_forward({_SHARED_SCHEMA}) -> (Tensor, Tensor, Tensor)")
_library.define(
    "attention_backward(Tensor grad_out, Tensor? grad_lse, Tensor out, Tensor normalisers, "
    f"{_SHARED_SCHEMA}, ScalarType grad_dtype, bool[4] wanted) -> (Tensor, Tensor, Tensor, Tensor)"
)


def canonical_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int | None,
    max_seqlen_k: int | None,
    left: int | None,
    right: int | None,
    q_offset: int | None,
    k_offset: int | None,
    scale: float,
    out_dtype: torch.dtype,
    precision: str,
    implementation: str,
) -> Call:
    """The arguments of an operation as one value; lengths that are missing are read here."""
    from dualwave.kernels.targets import SM_90, target_of

    offsets = None
    if q_offset is not None or k_offset is not None:
        offsets = (q_offset or 0, k_offset or 0)
    packing = None
    if cu_seqlens_q is not None and cu_seqlens_k is not None:
        packing = read_packing(
            (cu_seqlens_q, cu_seqlens_k),
            (max_seqlen_q, max_seqlen_k),
            offsets,
            (q.shape[1], k.shape[1]),
            always_reads=implementation == "torch",
        )
    target = SM_90 if implementation == "torch" else target_of(q.device)
    of_16_bits = "bf16" if q.dtype == torch.bfloat16 else "fp16"
    resolved = resolve_precision(precision, q, of_16_bits)
    visibility = Visibility(left, right, offsets)
    return Call(q, k, v, bias, packing, visibility, scale, out_dtype, resolved, target)


def _forward(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> tuple[Tensor, Tensor, Tensor]:
    call = canonical_call(q, k, v, *options)
    if options[-1] == "torch":
        from dualwave.kernels.attention.pytorch import attention_forward_pytorch

        with torch.autocast(q.device.type, enabled=False):
            return attention_forward_pytorch(call)
    from dualwave.kernels.attention.planning import plan_forward

    with torch.cuda.device_of(q):
        plan = plan_forward(call)
        for launch in plan.launches:
            launch.run()
    return plan.out, plan.lse, plan.normalisers


def _backward(
    grad_out: Tensor, grad_lse: Tensor | None, out: Tensor, normalisers: Tensor, *options: Any
) -> tuple[Tensor, ...]:
    *arguments, grad_dtype, wanted = options
    call = canonical_call(*arguments)
    results = (out, normalisers, grad_out, grad_lse, grad_dtype, tuple(wanted))
    if arguments[-1] == "torch":
        from dualwave.kernels.attention.pytorch import attention_backward_pytorch

        with torch.autocast(call.q.device.type, enabled=False):
            grads = attention_backward_pytorch(call, *results)
    else:
        from dualwave.kernels.attention.planning import plan_backward

        with torch.cuda.device_of(call.q):
            plan = plan_backward(call, *results)
            for launch in plan.launches:
                launch.run()
        grads = (plan.grad_q, plan.grad_k, plan.grad_v, plan.grad_bias)
    if grads[3] is not None and call.bias is not None:
        grads = (*grads[:3], grads[3].to(call.bias.dtype))
    return tuple(call.q.new_empty(0) if grad is None else grad for grad in grads)


def _fake_forward(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> tuple[Tensor, Tensor, Tensor]:
    out_dtype = options[-3]
    batch, queries, heads, _ = q.shape
    lse_dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    out = q.new_empty(q.shape, dtype=out_dtype)
    lse = q.new_empty((batch, heads, queries), dtype=lse_dtype)
    return out, lse, lse.new_empty((2, *lse.shape))


def _fake_backward(
    grad_out: Tensor, grad_lse: Tensor | None, out: Tensor, normalisers: Tensor, *options: Any
) -> tuple[Tensor, ...]:
    q, k, v, bias, *_, grad_dtype, wanted = options
    return tuple(
        tensor.new_empty(tensor.shape, dtype=dtype)
        if is_wanted and tensor is not None
        else q.new_empty(0)
        for tensor, dtype, is_wanted in zip(
            (q, k, v, bias),
            (grad_dtype, grad_dtype, grad_dtype, bias.dtype if bias is not None else None),
            wanted,
            strict=True,
        )
    )


for _device in ("CPU", "CUDA"):  # ROCm calls itself CUDA; on the CPU the kernels are interpreted
    _library.impl("attention_forward", _forward, _device)
    _library.impl("attention_backward", _backward, _device)
torch.library.register_fake("dualwave::attention_forward", _fake_forward, lib=_library)
torch.library.register_fake("dualwave::attention_backward", _fake_backward, lib=_library)
