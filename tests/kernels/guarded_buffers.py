"""What a kernel leaves unwritten, or writes beyond its outputs, must not go unseen."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from torch import Tensor

GUARD = 12345.0
GUARD_LENGTH = 97


@contextmanager
def poisoned_and_guarded() -> Iterator[None]:
    """Every new floating-point tensor is full of NaN and lies between guard values.

    At the end the guard values must be what they were, and no tensor's own element one of them.
    """
    buffers: list[tuple[Tensor, int]] = []
    empty, empty_like = torch.empty, torch.empty_like

    def guarded(layout: Tensor) -> Tensor:
        if not layout.dtype.is_floating_point:
            return layout
        buffer = torch.full((_span(layout) + 2 * GUARD_LENGTH,), GUARD, dtype=layout.dtype)
        buffers.append((buffer, _span(layout)))
        inner = buffer.as_strided(layout.shape, layout.stride(), GUARD_LENGTH)
        return inner.fill_(float("nan"))

    def poisoned(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *arguments, **options: guarded(function(*arguments, **options))

    with (
        mock.patch.object(torch, "empty", poisoned(empty)),
        mock.patch.object(torch, "empty_like", poisoned(empty_like)),
    ):
        yield
    assert buffers
    for buffer, length in buffers:
        guard = torch.tensor(GUARD, dtype=buffer.dtype)
        assert (buffer[:GUARD_LENGTH] == guard).all()
        assert (buffer[GUARD_LENGTH + length :] == guard).all()


def _span(layout: Tensor) -> int:
    """Elements from the first to the last, gaps between strides included."""
    if layout.numel() == 0:
        return 0
    last = sum(
        (size - 1) * stride for size, stride in zip(layout.shape, layout.stride(), strict=True)
    )
    return last + 1
