"""Blockwise attention as an attention implementation of transformers.

Transformers keeps two registries by name: functions that attend, and functions that make the mask
that a model hands to every layer. What becomes of a mask: `dualwave.models.attention_masks`.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from dualwave.kernels.attention import blockwise_attention
from dualwave.models.attention_masks import DeferredMask, Visibility, make_attention_mask

NAME = "dualwave"


def register_attention() -> str:
    """Make ``attn_implementation="dualwave"`` available to transformers models.

    Those that go through transformers' attention interface, which most do. The others (Bloom and
    MPT, for example) attend with code of their own that takes no notice of the name: where they ask
    for a mask, which would not be one for them, a ValueError says so.

    Rows that see no key, such as padded queries before the first token, give 0, where ``"eager"``
    gives a mean of what is hidden from them. Calling it again changes nothing.

    Returns:
        The name, ``"dualwave"``.
    """
    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, make_attention_mask)
    return NAME


def attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """Attend; arguments are those of transformers' attention interface.

    Args:
        module: the layer; its ``is_causal`` counts where there is no mask and no argument.
        query: (B, H, Sq, D).
        key: (B, Hkv, Sk, D).
        value: (B, Hkv, Sk, Dv), Dv at most D.
        attention_mask: from `make_attention_mask`; or (B or 1, H or 1, Sq, Sk), boolean or added.
        dropout: 0.
        scaling: of the products; D ** -0.5 if None.
        is_causal: no key after the query, where there is no mask.
        position_bias: added to the logits, differentiable.
        more: ``cu_seq_lens_q`` and so on of packed sequences, which count beside any mask; the rest
            is for others.

    Returns:
        (B, Sq, H, Dv), and None in place of weights, which are never made.

    Raises:
        ValueError: dropout, or another feature that the kernel has not.
    """
    _refuse(dropout, more)
    q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
    value_size = v.shape[-1]
    if value_size < q.shape[-1]:
        v = torch.nn.functional.pad(v, (0, q.shape[-1] - value_size))
    options: dict[str, Any] = {"scale": scaling, "bias": position_bias}
    if more.get("cu_seq_lens_q") is not None:
        options |= _packed(
            more["cu_seq_lens_q"],
            more.get("cu_seq_lens_k"),
            more.get("max_length_q"),
            more.get("max_length_k"),
        )
    if isinstance(attention_mask, DeferredMask):
        visibility = attention_mask.visibility
        if visibility.sequence_of is None:
            options |= _bounds(visibility)
            options |= _offsets(*visibility.offsets, q, k)
            options["bias"] = _added(position_bias, visibility.key_bias)
        elif position_bias is None:
            cu_seqlens, longest = attention_mask.sequences
            options |= _bounds(visibility)
            options |= _packed(cu_seqlens, cu_seqlens, longest, longest)
            q, k, v = (tensor.flatten(0, 1).unsqueeze(0) for tensor in (q, k, v))
        else:  # a bias between all tokens has no packed form
            options["bias"] = _added(position_bias, _as_bias(attention_mask.materialised, q.dtype))
    elif attention_mask is not None:
        options["bias"] = _added(position_bias, _as_bias(attention_mask, q.dtype))
    else:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        if "cu_seqlens_q" in options:
            options["causal"] = causal
        elif causal and q.shape[1] > 1:
            # The first query and the first key belong together, as in "sdpa".
            options |= {"causal": True} | _offsets(0, 0, q, k)
    out = blockwise_attention(q, k, v, **options)
    assert isinstance(out, Tensor)
    out = out.view(query.shape[0], query.shape[2], *out.shape[2:])
    return (out[..., :value_size] if value_size < out.shape[-1] else out), None


def _refuse(dropout: float, more: dict[str, Any]) -> None:
    if dropout > 0:
        raise ValueError(
            f'attn_implementation="{NAME}" has no dropout, and this layer asks for {dropout}: set '
            "the config's attention_dropout (attention_probs_dropout_prob in some) to 0."
        )
    for name, what in (
        ("softcap", "caps on logits"),
        ("s_aux", "attention sinks"),
        ("sinks", "attention sinks"),
        ("head_mask", "masks of heads"),
    ):
        if more.get(name) is not None:
            raise ValueError(
                f'attn_implementation="{NAME}" has no {what} ({name}): use "eager" for this model.'
            )
    if more.get("output_attentions"):
        raise ValueError(
            f'attn_implementation="{NAME}" makes no attention weights (output_attentions=True): '
            'use "eager" for them.'
        )


def _bounds(visibility: Visibility) -> dict[str, Any]:
    if visibility.left is None:
        return {"causal": visibility.right == 0}
    return {"window": (visibility.left, visibility.right)}


def _offsets(q_offset: int, k_offset: int, q: Tensor, k: Tensor) -> dict[str, Any]:
    """Nothing where the last query and the last key have one position, which is the default."""
    if q_offset + q.shape[1] == k_offset + k.shape[1]:
        return {}
    return {"q_offset": q_offset, "k_offset": k_offset}


def _packed(
    cu_seqlens_q: Tensor, cu_seqlens_k: Tensor | None, longest_q: int | None, longest_k: int | None
) -> dict[str, Any]:
    return {
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_k": cu_seqlens_k,
        "max_seqlen_q": None if longest_q is None else int(longest_q),
        "max_seqlen_k": None if longest_k is None else int(longest_k),
    }


def _as_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to the logits; a mask of numbers is that already."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -torch.inf)


def _added(position_bias: Tensor | None, bias: Tensor | None) -> Tensor | None:
    if position_bias is None or bias is None:
        return bias if position_bias is None else position_bias
    return position_bias + bias
