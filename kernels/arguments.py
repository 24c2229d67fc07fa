"""Checks that every operation's public function makes, each with one clear sentence."""

from numbers import Real
from typing import Any

import torch
from torch import Tensor

_LARGEST_POSITION = 2**61


def check_floating_point(name: str, value: object) -> None:
    """Raise ValueError unless ``value`` is a tensor that can be computed with."""
    if not isinstance(value, Tensor):
        raise ValueError(
            f"{name} must be a tensor, not {type(value).__name__}: torch.as_tensor makes one."
        )
    if value.layout != torch.strided:
        raise ValueError(
            f"{name} must be dense, not {value.layout}: {name}.to_dense() makes it so."
        )
    if not value.dtype.is_floating_point or value.dtype.itemsize < 2:
        raise ValueError(
            f"{name} must be floating-point of at least 16 bits, not {value.dtype}: convert it "
            f"first, for example with {name}.float()."
        )


def check_same_device(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Raise ValueError unless both tensors are on one device."""
    if tensor.device != other.device:
        raise ValueError(
            f"{name} is on {tensor.device} and {other_name} on {other.device}: move one to the "
            "other."
        )


def check_position(name: str, value: object) -> None:
    """Raise ValueError unless ``value`` is an integer whose differences fit into 64 bits."""
    if not isinstance(value, int | torch.SymInt) or isinstance(value, bool):
        raise ValueError(f"{name} must be an integer, not {value!r}.")
    if not -_LARGEST_POSITION <= value <= _LARGEST_POSITION:
        raise ValueError(
            f"{name} must be between -2**61 and 2**61, so that differences of positions fit into "
            f"64 bits, not {value}."
        )


def check_scalar(name: str, value: Any, x_name: str, x: Tensor) -> None:
    """Raise ValueError unless ``value`` is a real number or a tensor of one."""
    if not isinstance(value, Tensor):
        if not isinstance(value, Real):  # NumPy's numbers are
            raise ValueError(
                f"{name} must be a number or a tensor of one element, not {type(value).__name__}."
            )
        return
    if value.numel() != 1 or value.dtype.is_complex:
        raise ValueError(
            f"{name} must be a number or a real tensor of one element, not {value.dtype} of shape "
            f"{tuple(value.shape)}."
        )
    if value.is_meta and not x.is_meta:
        raise ValueError(
            f"{name} is on the meta device and has no value; {x_name} is on {x.device}."
        )


def with_all_dimensions(name: str, tensor: Tensor, wanted: tuple[int, ...], meaning: str) -> Tensor:
    """View ``tensor`` with as many dimensions as ``wanted``, each of size 1 or as wanted.

    Raises:
        ValueError: it cannot be broadcast to ``wanted``, which is what ``meaning`` names.
    """
    missing = len(wanted) - tensor.ndim
    if missing >= 0:
        tensor = tensor.reshape((1,) * missing + tuple(tensor.shape))
    if missing < 0 or not all(
        size in (1, full) for size, full in zip(tensor.shape, wanted, strict=True)
    ):
        raise ValueError(
            f"{name} of shape {tuple(tensor.shape)} must be broadcastable to {wanted}: {meaning}."
        )
    return tensor
