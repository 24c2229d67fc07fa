"""Exact attention of any kind in PyTorch operations, a chunk of queries at a time.

The logits of a chunk are stored, with as many queries as keep them small; keys that no query of the
chunk sees are left out. Sums are in float32 (float64 for float64 inputs).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from dualwave.kernels.attention.packing import places_in_rows
from dualwave.kernels.attention.plans import Call

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]
# Few enough that a chunk's logits stay in the cache from one operation to the next.
_LOGITS_IN_A_CHUNK = 1 << 20
_LEAST_ROWS = 64


@dataclass(frozen=True)
class _Chunk:
    """Queries and all keys that they see.

    Attributes:
        queries: places of the queries.
        keys: places of the keys.
        hidden: (queries, keys) bool, True where a key is not visible; None where all are.
    """

    queries: slice
    keys: slice
    hidden: Tensor | None


def attention_forward_chunked(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """out (B, Sq, Hq, D) in ``call.out_dtype``, lse (B, Hq, Sq) and normalisers (2, B, Hq, Sq).

    The normalisers are a row's largest logit, and the logarithm of the sum of exponentials less it.
    """
    batch, queries, heads, _ = call.q.shape
    dtype = _sum_dtype(call)
    out = torch.zeros(call.q.shape, dtype=call.out_dtype, device=call.q.device)
    shape = (2, batch, heads, queries)
    normalisers = torch.full(shape, -torch.inf, dtype=dtype, device=call.q.device)
    normalisers[1] = 0.0
    for chunk in _chunks(call):
        logits = _logits(call, chunk)
        largest = logits.amax(dim=-1)
        weights = logits.sub_(_finite(largest).unsqueeze(-1)).exp_()
        total = weights.sum(dim=-1)
        total = total.masked_fill(total == 0.0, 1.0)
        values = _by_key_head(call.v[:, chunk.keys], dtype)
        mixed = _split_heads(_join_heads(weights, call) @ values, call) / total.unsqueeze(-1)
        out[:, chunk.queries] = mixed.transpose(1, 2).to(call.out_dtype)
        normalisers[0, :, :, chunk.queries] = largest
        normalisers[1, :, :, chunk.queries] = total.log()
    return out, normalisers.sum(dim=0), normalisers


def attention_backward_chunked(
    call: Call,
    out: Tensor,
    normalisers: Tensor,
    grad_out: Tensor,
    grad_lse: Tensor | None,
    grad_dtype: torch.dtype,
    wanted: tuple[bool, bool, bool, bool],
) -> Gradients:
    """The wanted gradients of q, k, v (in ``grad_dtype``) and bias; None for the others."""
    dtype = _sum_dtype(call)
    grad_q, grad_k, grad_v = (
        torch.zeros(tensor.shape, dtype=dtype, device=tensor.device)
        for tensor in (call.q, call.k, call.v)
    )
    grad_bias = None
    if wanted[3] and call.bias is not None:
        grad_bias = torch.zeros(call.bias.shape, dtype=dtype, device=call.q.device)
    delta = (out.to(dtype) * grad_out.to(dtype)).sum(dim=-1).transpose(1, 2)  # (B, H, Sq)
    if grad_lse is not None:
        delta = delta - grad_lse
    for chunk in _chunks(call):
        largest, log_total = normalisers[:, :, :, chunk.queries].unsqueeze(-1)
        weights = _logits(call, chunk).sub_(_finite(largest)).sub_(log_total).exp_()
        grads = grad_out[:, chunk.queries].to(dtype).transpose(1, 2)
        grads = _join_heads(grads, call)
        keys, values = (_by_key_head(t[:, chunk.keys], dtype) for t in (call.k, call.v))
        grad_weights = _split_heads(grads @ values.transpose(-1, -2), call)
        grad_logits = weights * (grad_weights - delta[:, :, chunk.queries].unsqueeze(-1))
        if grad_bias is not None:
            part = grad_bias[:, :, chunk.queries, chunk.keys]
            part += grad_logits.sum_to_size(part.shape)
        scaled = _join_heads(grad_logits, call) * call.scale
        grad_q[:, chunk.queries] = _split_heads(scaled @ keys, call).transpose(1, 2)
        rows = call.q[:, chunk.queries].to(dtype).transpose(1, 2)
        rows = _join_heads(rows, call)
        grad_k[:, chunk.keys] += (scaled.transpose(-1, -2) @ rows).transpose(1, 2)
        joined = _join_heads(weights, call)
        grad_v[:, chunk.keys] += (joined.transpose(-1, -2) @ grads).transpose(1, 2)
    finished = [
        grad.to(grad_dtype) if is_wanted else None
        for grad, is_wanted in zip((grad_q, grad_k, grad_v), wanted[:3], strict=True)
    ]
    return finished[0], finished[1], finished[2], grad_bias


def _sum_dtype(call: Call) -> torch.dtype:
    return torch.float64 if call.q.dtype == torch.float64 else torch.float32


def _finite(largest: Tensor) -> Tensor:
    """A row without visible keys has logits of -inf only: their exponentials must be 0, not NaN."""
    return largest.masked_fill(torch.isneginf(largest), 0.0)


def _by_key_head(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, S, Hkv, D) to (B, Hkv, S, D)."""
    return tensor.transpose(1, 2).to(dtype)


def _join_heads(tensor: Tensor, call: Call) -> Tensor:
    """(B, Hq, rows, n) to (B, Hkv, group * rows, n): one product serves a group of query heads."""
    return tensor.unflatten(1, (call.k.shape[2], -1)).flatten(2, 3)


def _split_heads(tensor: Tensor, call: Call) -> Tensor:
    """(B, Hkv, group * rows, n) to (B, Hq, rows, n)."""
    group = call.q.shape[2] // call.k.shape[2]
    return tensor.unflatten(2, (group, tensor.shape[2] // group)).flatten(1, 2)


def _logits(call: Call, chunk: _Chunk) -> Tensor:
    """(B, Hq, queries, keys); -inf where a key is not visible."""
    dtype = _sum_dtype(call)
    rows = _join_heads(call.q[:, chunk.queries].to(dtype).transpose(1, 2), call)
    keys = _by_key_head(call.k[:, chunk.keys], dtype)
    logits = _split_heads(rows @ keys.transpose(-1, -2), call) * call.scale
    if call.bias is not None:
        logits = logits + call.bias[:, :, chunk.queries, chunk.keys].to(dtype)
    return logits if chunk.hidden is None else logits.masked_fill(chunk.hidden, -torch.inf)


def _chunks(call: Call) -> Iterator[_Chunk]:
    """All queries that see a key, sequence by sequence."""
    left, right = call.visibility.left, call.visibility.right
    logits_of_a_pair = max(1, call.q.shape[0] * call.q.shape[2])
    for q_begin, q_end, k_begin, k_end, shift in _sequences(call):
        # Key j is visible to query i where -left <= j - i - shift <= right.
        seen = max(1, k_end - k_begin)
        rows = q_end - q_begin
        if left is not None and right is not None:
            # A chunk as long as its window computes at most twice as many logits as are visible.
            rows = max(left + right + 1, _LEAST_ROWS)
            seen = min(seen, 2 * rows)
        rows = max(1, min(rows, _LOGITS_IN_A_CHUNK // (logits_of_a_pair * seen)))
        for begin in range(0, q_end - q_begin, rows):
            end = min(begin + rows, q_end - q_begin)
            first = 0 if left is None else max(0, begin + shift - left)
            last = k_end - k_begin
            if right is not None:
                last = min(last, end + shift + right)
            if first >= last:
                continue
            ahead = (
                torch.arange(first, last, device=call.q.device)
                - torch.arange(begin, end, device=call.q.device).unsqueeze(1)
                - shift
            )
            hidden = None
            if left is not None:
                hidden = ahead < -left
            if right is not None:
                hidden = ahead > right if hidden is None else hidden | (ahead > right)
            yield _Chunk(
                slice(q_begin + begin, q_begin + end),
                slice(k_begin + first, k_begin + last),
                hidden,
            )


def _sequences(call: Call) -> Iterator[tuple[int, int, int, int, int]]:
    """First query, end of queries, first key, end of keys, and the shift of their positions."""
    queries, keys = call.q.shape[1], call.k.shape[1]
    q_offset, k_offset = call.visibility.offsets or (0, 0)
    bounds = [(0, queries, 0, keys)]
    if call.packing is not None:
        q_places = places_in_rows(call.packing.cu_seqlens_q, q_offset, queries)
        k_places = places_in_rows(call.packing.cu_seqlens_k, k_offset, keys)
        bounds = list(zip(q_places[:-1], q_places[1:], k_places[:-1], k_places[1:], strict=True))
    for q_begin, q_end, k_begin, k_end in bounds:
        if call.visibility.offsets is None:
            shift = (k_end - k_begin) - (q_end - q_begin)
        else:
            shift = (q_offset + q_begin) - (k_offset + k_begin)
        yield q_begin, q_end, k_begin, k_end, shift
