"""The definition of attention, in plain PyTorch operations: slow, and storing every logit."""

import torch
from torch import Tensor


def blockwise_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    bias: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    q_offset: int | None = None,
    k_offset: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Output and natural-log LSE; the arguments are those of `blockwise_attention`.

    Differentiable by autograd, in whatever dtype the arguments have.
    """
    visible = visible_pairs(
        q.shape[1], k.shape[1], causal, window, cu_seqlens_q, cu_seqlens_k, q_offset, k_offset
    ).to(q.device)
    group = q.shape[2] // k.shape[2]
    keys, values = (tensor.repeat_interleave(group, dim=2) for tensor in (k, v))
    logits = torch.einsum("bihd,bjhd->bhij", q, keys)
    logits = logits * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        logits = logits + bias.to(logits.dtype)
        visible = visible & ~torch.isneginf(bias)
    sees_nothing = ~visible.any(dim=-1, keepdim=True).expand(*logits.shape[:-1], 1)
    # A row that sees nothing gets any finite logits, for the sake of its gradients, then no weight.
    logits = logits.masked_fill(~visible, -torch.inf).masked_fill(sees_nothing, 0.0)
    if k.shape[1] == 0:
        lse = logits.sum(dim=-1)
        weights = logits
    else:
        lse = torch.logsumexp(logits, dim=-1)
        weights = torch.softmax(logits, dim=-1).masked_fill(~visible, 0.0)
    out = torch.einsum("bhij,bjhd->bihd", weights, values)
    return out, lse.masked_fill(sees_nothing.squeeze(-1), -torch.inf)


def visible_pairs(
    queries: int,
    keys: int,
    causal: bool,
    window: tuple[int | None, int | None] | None,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    q_offset: int | None,
    k_offset: int | None,
) -> Tensor:
    """Which keys each query sees, (queries, keys) bool."""
    place_q, place_k = torch.arange(queries) + (q_offset or 0), torch.arange(keys) + (k_offset or 0)
    visible = torch.ones(queries, keys, dtype=torch.bool)
    end_q, end_k = torch.tensor(queries), torch.tensor(keys)
    if cu_seqlens_q is not None and cu_seqlens_k is not None:
        sequence_q, end_q = _sequence_and_end(place_q, cu_seqlens_q.cpu())
        sequence_k, end_k = _sequence_and_end(place_k, cu_seqlens_k.cpu())
        visible &= (sequence_q[:, None] == sequence_k[None, :]) & (sequence_q >= 0)[:, None]
    if q_offset is None and k_offset is None:
        place_q, place_k = place_q - end_q, place_k - end_k  # the last of each are neighbours
    ahead = place_k[None, :] - place_q[:, None]
    left, right = (None, None) if window is None else window
    if left is not None:
        visible &= ahead >= -left
    if right is not None:
        visible &= ahead <= right
    if causal:
        visible &= ahead <= 0
    return visible


def _sequence_and_end(places: Tensor, cu_seqlens: Tensor) -> tuple[Tensor, Tensor]:
    """The sequence of each place, -1 outside all, and where that sequence ends."""
    sequence = torch.full_like(places, -1)
    end = torch.zeros_like(places)
    for index in range(len(cu_seqlens) - 1):
        inside = (places >= cu_seqlens[index]) & (places < cu_seqlens[index + 1])
        sequence[inside] = index
        end[inside] = cu_seqlens[index + 1].to(end.dtype)
    return sequence, end
