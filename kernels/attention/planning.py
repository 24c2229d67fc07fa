"""The launches of a call: one forward; a row sum, dq, dk with dv, and dbias backward."""

import math
from typing import Any

import torch
from torch import Tensor

from dualwave.kernels.attention.configurations import Kernel, Tile, tile_of
from dualwave.kernels.attention.descriptors import descriptors_of
from dualwave.kernels.attention.plans import BackwardPlan, Call, ForwardPlan
from dualwave.kernels.attention.triton_kernels.forward import attention_forward_kernel
from dualwave.kernels.attention.triton_kernels.grad_bias import attention_grad_bias_kernel
from dualwave.kernels.attention.triton_kernels.grad_key_value import (
    attention_grad_key_value_kernel,
)
from dualwave.kernels.attention.triton_kernels.grad_query import attention_grad_query_kernel
from dualwave.kernels.attention.triton_kernels.row_sums import attention_row_sums_kernel
from dualwave.kernels.launch import Launch

_LARGEST_DESCRIBED_FLOAT32_SIZE = 64
_ROWS_OF_SUMS = 64
_LOG2_E = math.log2(math.e)


def plan_forward(call: Call) -> ForwardPlan:
    """The launch of a forward pass and the tensors that it fills."""
    batch, queries, heads, _ = call.q.shape
    is_filled = call.packing is None
    out = _empty(call.q.shape, call.out_dtype, call, is_filled)
    normalisers = _empty((2, batch, heads, queries), torch.float32, call, is_filled)
    lse = torch.empty((batch, heads, queries), dtype=torch.float32, device=call.q.device)
    if not is_filled:
        lse.fill_(-torch.inf)  # no program looks after rows that are in no sequence
    tile = _tile(call, "forward")
    longest = _longest(call)[0]
    launch = Launch(
        attention_forward_kernel,
        (_sequences(call) * heads * _cdiv(longest, tile.block_q),),
        _arguments(call, tile)
        | {"out": out, "lse": lse, "longest": longest}
        | _normaliser_arguments(normalisers)
        | _strides("out", out, "bsh"),
        tile.num_warps,
        tile.num_stages,
    )
    return ForwardPlan([launch], out, lse, normalisers)


def plan_backward(
    call: Call,
    out: Tensor,
    normalisers: Tensor,
    grad_out: Tensor,
    grad_lse: Tensor | None,
    grad_dtype: torch.dtype,
    wanted: tuple[bool, bool, bool, bool],
) -> BackwardPlan:
    """The launches of a backward pass and the tensors that they fill.

    Args:
        call: the forward call.
        out: what it gave, contiguous.
        normalisers: what it gave, contiguous.
        grad_out: (B, Sq, Hq, D), any strides and floating dtype.
        grad_lse: (B, Hq, Sq) or None.
        grad_dtype: of the gradients of q, k and v.
        wanted: whether the gradients of q, k, v and bias are needed.
    """
    delta = torch.empty(normalisers.shape[1:], dtype=torch.float32, device=call.q.device)
    if call.q.dtype.itemsize == 2:
        # Products take it in 16 bits. Rounded here and not where a tile is loaded, it takes half
        # the registers and the traffic of a partial result's float32. Delta is of the same numbers,
        # or the two would not cancel under a query that sees one key.
        grad_out = grad_out.to(call.q.dtype)
    launches = [_row_sums(call, out, grad_out, grad_lse, delta)]
    shared = {"delta": delta, **_normaliser_arguments(normalisers)}
    shared |= _strides("grad_out", grad_out, "bshd")
    is_filled = call.packing is None
    sequences, (longest_q, longest_k) = _sequences(call), _longest(call)
    grad_q = grad_k = grad_v = grad_bias = None
    if wanted[0]:
        grad_q = _empty(call.q.shape, grad_dtype, call, is_filled)
        tile = _tile(call, "grad_query")
        launches.append(
            Launch(
                attention_grad_query_kernel,
                (sequences * call.q.shape[2] * _cdiv(longest_q, tile.block_q),),
                _arguments(call, tile, grad_out)
                | shared
                | {"grad_q": grad_q, "longest": longest_q}
                | _strides("grad_q", grad_q, "bsh"),
                tile.num_warps,
                tile.num_stages,
            )
        )
    if wanted[1] or wanted[2]:
        grad_k = _empty(call.k.shape, grad_dtype, call, is_filled)
        grad_v = _empty(call.v.shape, grad_dtype, call, is_filled)
        tile = _tile(call, "grad_key_value")
        launches.append(
            Launch(
                attention_grad_key_value_kernel,
                (sequences * call.k.shape[2] * _cdiv(longest_k, tile.block_k),),
                _arguments(call, tile, grad_out)
                | shared
                | {"grad_k": grad_k, "grad_v": grad_v, "longest": longest_k}
                | _strides("grad_k", grad_k, "bsh"),
                tile.num_warps,
                tile.num_stages,
            )
        )
    if wanted[3]:
        assert call.bias is not None
        grad_bias = _empty(call.bias.shape, torch.float32, call, is_filled)
        launches.append(_grad_bias(call, grad_out, shared, grad_bias))
    return BackwardPlan(
        launches,
        grad_q,
        grad_k if wanted[1] else None,
        grad_v if wanted[2] else None,
        grad_bias,
    )


def _row_sums(
    call: Call, out: Tensor, grad_out: Tensor, grad_lse: Tensor | None, delta: Tensor
) -> Launch:
    batch, queries, heads, size = call.q.shape
    arguments = {
        "out": out,
        "grad_out": grad_out,
        "grad_lse": grad_lse,
        "delta": delta,
        "rows": queries,
        "heads": heads,
        **_strides("out", out, "bsh"),
        **_strides("grad_out", grad_out, "bshd"),
        **_strides("grad_lse", grad_lse, "bhs"),
        "SIZE": size,
        "COLUMNS": 1 << max(0, size - 1).bit_length(),
        "ROWS": _ROWS_OF_SUMS,
        "HAS_GRAD_LSE": grad_lse is not None,
    }
    grid = (batch * heads * _cdiv(queries, _ROWS_OF_SUMS),)
    return Launch(attention_row_sums_kernel, grid, arguments, 4, 1)


def _grad_bias(call: Call, grad_out: Tensor, shared: dict[str, Any], grad_bias: Tensor) -> Launch:
    assert call.bias is not None
    tile = _tile(call, "grad_bias")
    batches, heads = call.bias.shape[:2]
    longest_q, longest_k = _longest(call)
    sequences = _sequences(call) if call.packing is not None else batches
    programs = sequences * heads * _cdiv(longest_q, tile.block_q) * _cdiv(longest_k, tile.block_k)
    arguments = {
        "grad_bias": grad_bias,
        "longest_q": longest_q,
        "longest_k": longest_k,
        "batches": call.q.shape[0] // batches,
        "bias_heads": heads,
        "heads_of_a_bias": call.q.shape[2] // heads,
    }
    return Launch(
        attention_grad_bias_kernel,
        (programs,),
        _arguments(call, tile, grad_out)
        | shared
        | arguments
        | _strides("grad_bias", grad_bias, "bhqk"),
        tile.num_warps,
        tile.num_stages,
    )


def _tile(call: Call, kernel: Kernel) -> Tile:
    return tile_of(kernel, call.q.shape[3], call.precision, call.bias is not None, call.target)


def _arguments(call: Call, tile: Tile, grad_out: Tensor | None = None) -> dict[str, Any]:
    """What all kernels but the row sums take; backward ones take grad_out as well."""
    visibility, packing, bias = call.visibility, call.packing, call.bias
    sources = {"q": call.q, "k": call.k, "v": call.v}
    rows = {"q": tile.block_q, "k": tile.block_k, "v": tile.block_k, "grad_out": tile.block_q}
    if grad_out is not None:
        sources["grad_out"] = grad_out
    # Rows of a packed sequence end where the next one's begin, which a descriptor does not know. In
    # float32, whose products and not loads take the time, large heads spill with descriptors.
    spills = call.q.dtype.itemsize > 2 and call.q.shape[3] > _LARGEST_DESCRIBED_FLOAT32_SIZE
    described = None
    if packing is None and not spills:
        described = descriptors_of(sources, rows, call.target)
    bias_strides = _strides("bias", bias, "bhqk")
    if bias is not None:
        for dimension, name in enumerate("bh"):
            if bias.shape[dimension] == 1:
                bias_strides[f"bias_stride_{name}"] = 0
    q_offset, k_offset = visibility.offsets or (0, 0)
    scales_first = bias is not None or call.scale <= 0
    return {
        **(sources if described is None else described),
        "bias": bias,
        "cu_seqlens_q": None if packing is None else packing.cu_seqlens_q.contiguous(),
        "cu_seqlens_k": None if packing is None else packing.cu_seqlens_k.contiguous(),
        "scale": call.scale,
        "exponent_scale": _LOG2_E if scales_first else call.scale * _LOG2_E,
        "heads": call.q.shape[2],
        "group": call.q.shape[2] // call.k.shape[2],
        "queries": call.q.shape[1],
        "keys": call.k.shape[1],
        "left": visibility.left or 0,
        "right": visibility.right or 0,
        "q_offset": q_offset,
        "k_offset": k_offset,
        **_strides("q", call.q, "bshd"),
        **_strides("k", call.k, "bshd"),
        **_strides("v", call.v, "bshd"),
        **bias_strides,
        "SIZE": call.q.shape[3],
        "BLOCK_Q": tile.block_q,
        "BLOCK_K": tile.block_k,
        "HAS_LEFT": visibility.left is not None,
        "HAS_RIGHT": visibility.right is not None,
        "HAS_BIAS": bias is not None,
        "SCALES_FIRST": scales_first,
        "OFFSETS": _offsets(call, tile, grad_out),
        "USES_DESCRIPTORS": described is not None,
        "IS_PACKED": packing is not None,
        "IS_ABSOLUTE": visibility.offsets is not None,
        "PRECISION": call.precision,
    }


def _offsets(call: Call, tile: Tile, grad_out: Tensor | None) -> str:
    """What is known of the strides of q, k, v and grad_out, and of the results, which are packed.

    ``"wide"``: offsets in a tile may take more than 32 bits. ``"aligned"``: each row of each head
    begins at a multiple of 8 elements and 16 bytes. Triton finds multiples of 16 by itself, but
    heads of 72 are none, and would be loaded one element at a time. ``"narrow"``: neither.
    """
    sources = [call.q, call.k, call.v]
    if grad_out is not None:
        sources.append(grad_out)
    rows = max(tile.block_q, tile.block_k)
    spans = [rows * tensor.stride(1) + tensor.shape[3] * tensor.stride(3) for tensor in sources]
    if call.bias is not None:
        spans.append(rows * (call.bias.stride(2) + call.bias.stride(3)))
    if max(spans) >= 2**31:
        return "wide"
    is_aligned = call.q.shape[3] % 8 == 0 and all(
        stride % 8 == 0 for tensor in sources for stride in tensor.stride()[:3]
    )
    return "aligned" if is_aligned and not any(t.data_ptr() % 16 for t in sources) else "narrow"


def _normaliser_arguments(normalisers: Tensor) -> dict[str, Any]:
    return {"normalisers": normalisers, "normaliser_stride": normalisers.stride(0)}


def _empty(shape: tuple[int, ...], dtype: torch.dtype, call: Call, is_filled: bool) -> Tensor:
    """Contiguous; zeros where no program looks after rows that are in no sequence."""
    tensor = torch.empty(shape, dtype=dtype, device=call.q.device)
    return tensor if is_filled else tensor.zero_()


def _strides(name: str, tensor: Tensor | None, dimensions: str) -> dict[str, int]:
    """``name_stride_x`` of each of the first dimensions; 0 without a tensor."""
    strides = (0,) * len(dimensions) if tensor is None else tensor.stride()[: len(dimensions)]
    return {f"{name}_stride_{x}": stride for x, stride in zip(dimensions, strides, strict=True)}


def _sequences(call: Call) -> int:
    return call.q.shape[0] if call.packing is None else len(call.packing.cu_seqlens_q) - 1


def _longest(call: Call) -> tuple[int, int]:
    """The most queries and keys that one sequence can have in the tensors."""
    queries, keys = call.q.shape[1], call.k.shape[1]
    if call.packing is None:
        return queries, keys
    return min(queries, call.packing.max_seqlen_q), min(keys, call.packing.max_seqlen_k)


def _cdiv(number: int, divisor: int) -> int:
    return -(-number // divisor)
