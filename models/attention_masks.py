"""What a transformers model's mask becomes for blockwise attention.

- Causal or full, nothing padded: no mask at all, as with transformers' own ``"sdpa"``.
- Causal, sliding (causal or to both sides), with offsets of a cache: arguments of the kernel.
- Padding: a bias of one number a key, (B, 1, 1, Sk), beside those arguments.
- Packed sequences (``position_ids`` that restart): ``cu_seqlens``.
- Anything else (chunks, blocks of an image in a text, a user's own function, a ready 4-D mask), and
  everything under torch.compile: an exact bias.

A form is recognised by the code of the functions that transformers builds it from, so one that
changes there becomes a bias and not another mask.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import (
    and_masks,
    bidirectional_mask_function,
    causal_mask_function,
    packed_sequence_mask_function,
    remap_positions_for_packed_sequence,
    sdpa_mask,
    sliding_window_bidirectional_overlay,
    sliding_window_overlay,
)


@dataclass(frozen=True)
class Visibility:
    """Which keys a query sees, as `blockwise_attention` takes it.

    Attributes:
        left: keys before the query's own position; None for all.
        right: keys after it; None for all.
        offsets: positions of the first query and key.
        key_bias: (B, 1, 1, Sk), -inf where a key is padding, or None.
        sequence_of: (B, S), equal numbers for tokens of one packed sequence, or None.
    """

    left: int | None = None
    right: int | None = None
    offsets: tuple[int, int] = (0, 0)
    key_bias: Tensor | None = None
    sequence_of: Tensor | None = None

    def intersected(self, other: "Visibility") -> "Visibility":
        """Of what a mask function alone can say: bounds and sequences."""
        sequences = [one.sequence_of for one in (self, other) if one.sequence_of is not None]
        return Visibility(
            _smaller(self.left, other.left),
            _smaller(self.right, other.right),
            sequence_of=sequences[0] if sequences else None,
        )


class DeferredMask(Tensor):
    """A boolean mask (B, 1, Sq, Sk) that is not made unless a model computes with it.

    Models pass masks through; only `attention_forward` looks at what this one stands for. In any
    other operation it is the tensor that ``"sdpa"`` would have.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    visibility: Visibility
    make: Callable[[], Tensor]

    @staticmethod
    def __new__(
        cls, visibility: Visibility, make: Callable[[], Tensor], shape: tuple[int, ...], device: Any
    ) -> Self:
        """Only its shape, (B, 1, Sq, Sk)."""
        mask = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bool, device=device)
        mask.visibility, mask.make = visibility, make
        return mask

    @cached_property
    def materialised(self) -> Tensor:
        """The mask as a plain tensor."""
        return self.make()

    @cached_property
    def sequences(self) -> tuple[Tensor, int]:
        """``cu_seqlens`` of all rows of the batch after one another, and the longest sequence."""
        sequence_of = self.visibility.sequence_of
        assert sequence_of is not None
        is_first = torch.ones_like(sequence_of, dtype=torch.bool)
        is_first[:, 1:] = sequence_of[:, 1:] != sequence_of[:, :-1]
        starts = is_first.flatten().nonzero().flatten()
        cu_seqlens = torch.nn.functional.pad(starts, (0, 1), value=sequence_of.numel())
        return cu_seqlens.to(torch.int32), int(cu_seqlens.diff().max())

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Every operation is done on the tensor."""
        plain_args, plain_kwargs = tree_map_only(
            DeferredMask, lambda mask: mask.materialised, (args, kwargs or {})
        )
        return func(*plain_args, **plain_kwargs)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"DeferredMask({tuple(self.shape)}, {self.visibility})"


def make_attention_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Tensor] = causal_mask_function,
    attention_mask: Tensor | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    config: PreTrainedConfig | None = None,
    **more: Any,
) -> Tensor | None:
    """The mask of a model's layers; arguments are those of transformers' mask interface.

    Returns:
        None where no mask is needed, a `DeferredMask` for what the kernel has arguments for, else
        a boolean mask (B, 1, Sq, Sk), True where a key is visible.

    Raises:
        ValueError: the model attends with code of its own, which would misread any of these.
    """
    if config is not None and not _has_attention_interface(type(config)):
        raise ValueError(
            f"{config.model_type} models do not attend through transformers' attention interface, "
            'so attn_implementation="dualwave" cannot serve them: use "eager".'
        )
    arguments = {
        "batch_size": batch_size,
        "q_length": q_length,
        "kv_length": kv_length,
        "q_offset": q_offset,
        "kv_offset": kv_offset,
        "mask_function": mask_function,
        "attention_mask": attention_mask,
        "device": device,
        "dtype": dtype,
        **more,
    }
    may_skip = config is None or _knows_when_it_is_causal(type(config))
    skips = {
        "allow_is_causal_skip": allow_is_causal_skip and may_skip,
        "allow_is_bidirectional_skip": allow_is_bidirectional_skip and may_skip,
    }
    if torch.compiler.is_compiling():  # values must not be looked at
        return sdpa_mask(**arguments, **skips)

    def make() -> Tensor:
        return sdpa_mask(**arguments, **dict.fromkeys(skips, False))

    visibility = recognise(mask_function)
    if visibility is None:
        return make()
    if visibility.sequence_of is None:
        if not any(skips.values()):  # the model says that it computes with the mask
            return make()
        q_offset = int(q_offset)
        padding = _padding(attention_mask, visibility, q_offset + q_length, kv_length, kv_offset)
        if padding is None and _needs_no_mask(
            visibility, q_length, kv_length, q_offset - kv_offset
        ):
            return None
        visibility = replace(visibility, offsets=(q_offset, kv_offset))
        if padding is not None:
            key_bias = torch.zeros(padding.shape, dtype=dtype, device=padding.device)
            key_bias = key_bias.masked_fill(~padding, -torch.inf)[:, None, None, :]
            visibility = replace(visibility, key_bias=key_bias)
    return DeferredMask(visibility, make, (batch_size, 1, q_length, kv_length), device)


@torch.compiler.assume_constant_result
def _has_attention_interface(config_type: type[PreTrainedConfig]) -> bool:
    """By transformers' own reading of the model's code; a model from elsewhere counts as having.

    A file with a table of attention classes (``{"eager": ..., "sdpa": ...}``) has not, whatever its
    other layers do: those keep the class they were built with.
    """
    model = _model_of(config_type)
    if model is None:
        return True
    names = vars(importlib.import_module(model.__module__)).values()
    has_own_table = any(isinstance(value, dict) and "eager" in value for value in names)
    return bool(model._can_set_attn_implementation()) and not has_own_table


@torch.compiler.assume_constant_result
def _knows_when_it_is_causal(config_type: type[PreTrainedConfig]) -> bool:
    """Whether a layer without a mask can be trusted to say: for "sdpa", too, it would have to."""
    model = _model_of(config_type)
    return model is None or bool(model._supports_sdpa)


def _model_of(config_type: type[PreTrainedConfig]) -> type[PreTrainedModel] | None:
    """The model that a configuration of transformers is for, or one of the same file."""
    name = config_type.__module__.replace(".configuration_", ".modeling_")
    if not name.startswith("transformers.models.") or importlib.util.find_spec(name) is None:
        return None
    models = [
        value
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, type)
        and issubclass(value, PreTrainedModel)
        and value.__module__ == name
    ]
    own = [model for model in models if getattr(model, "config_class", None) is config_type]
    return next(iter(own or models), None)


def recognise(mask_function: Callable[..., Any]) -> Visibility | None:
    """What a mask function of transformers means, or None if it is not one of those known here."""
    if mask_function is causal_mask_function:
        return Visibility(right=0)
    if mask_function is bidirectional_mask_function:
        return Visibility()
    if (window := _captured(mask_function, sliding_window_overlay(1))) is not None:
        return Visibility(left=window["sliding_window"] - 1)
    if (window := _captured(mask_function, sliding_window_bidirectional_overlay(1))) is not None:
        return Visibility(window["sliding_window"], window["sliding_window"])
    if (both := _captured(mask_function, and_masks(causal_mask_function))) is None:
        return None
    found, sequence_of, is_remapped = Visibility(), None, False
    for part in both["mask_functions"]:
        if (packed := _captured(part, _PACKED)) is not None:
            sequence_of = packed["packed_sequence_mask"]
            continue
        if (remapped := _captured(part, _REMAPPED)) is not None:
            # Positions rise by 1 inside a sequence: differences are those of the places.
            part, is_remapped = remapped["mask_function"], True
        if (known := recognise(part)) is None or known.sequence_of is not None:
            return None
        found = found.intersected(known)
    if is_remapped != (sequence_of is not None):
        return None
    return replace(found, sequence_of=sequence_of)


_PACKED = packed_sequence_mask_function(torch.empty(0))
_REMAPPED = remap_positions_for_packed_sequence(causal_mask_function, torch.empty(0))


def _captured(function: Callable[..., Any], like: Callable[..., Any]) -> dict[str, Any] | None:
    """The variables that a function closes over, if its code is that of ``like``."""
    code = getattr(function, "__code__", None)
    if code is None or code is not like.__code__:
        return None
    cells = function.__closure__ or ()
    return {name: cell.cell_contents for name, cell in zip(code.co_freevars, cells, strict=True)}


def _smaller(one: int | None, other: int | None) -> int | None:
    bounds = [bound for bound in (one, other) if bound is not None]
    return min(bounds) if bounds else None


def _padding(
    attention_mask: Tensor | None,
    visibility: Visibility,
    q_end: int,
    kv_length: int,
    kv_offset: int,
) -> Tensor | None:
    """Which keys are there, (B, Sk), or None if all that can be seen are."""
    if attention_mask is None:
        return None
    there = attention_mask[:, kv_offset : kv_offset + kv_length].bool()
    there = torch.nn.functional.pad(there, (0, kv_length - there.shape[1]))
    seen = kv_length
    if visibility.right is not None:  # a static cache's empty end is after every query
        seen = min(kv_length, q_end - kv_offset + visibility.right)
    return None if bool(there[:, :seen].all()) else there


def _needs_no_mask(visibility: Visibility, q_length: int, kv_length: int, shift: int) -> bool:
    """Whether a layer does the right thing without one: by its own flag, it is causal or not.

    Args:
        visibility: what is visible.
        q_length: queries.
        kv_length: keys.
        shift: position of the first query after that of the first key.
    """
    if visibility.left is not None and visibility.left < q_length - 1 + shift:
        return False
    if visibility.right is None:
        return True
    sees_all = shift + visibility.right >= kv_length - 1
    return (q_length == 1 and sees_all) or (q_length == kv_length and shift == 0)
