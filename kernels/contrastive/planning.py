"""Which kernels a call runs: a pass over the rows of the logits, and one over the transpose."""

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from dualwave.kernels.contrastive.configurations import (
    LABEL_LOSSES,
    backward_configuration,
    forward_configuration,
)
from dualwave.kernels.contrastive.plans import BackwardPlan, Call, ForwardPlan, Normalisers
from dualwave.kernels.contrastive.triton_kernels.backward import contrastive_backward_kernel
from dualwave.kernels.contrastive.triton_kernels.forward import (
    contrastive_forward_kernel,
    label_losses_kernel,
)
from dualwave.kernels.launch import Launch


@dataclass(frozen=True)
class _Pass:
    """The rows and columns of the logits, or of their transpose."""

    rows: Tensor
    columns: Tensor
    label_offset: int

    @property
    def size(self) -> int:
        return self.rows.shape[1]

    def programs(self, block_rows: int) -> int:
        return triton.cdiv(len(self.rows), block_rows)


def plan_forward(call: Call, given: Normalisers | None) -> ForwardPlan:
    """The launches of a forward pass and what they fill.

    Args:
        call: with no empty side.
        given: normalisers of a softmax whose rows and columns are larger than this block, or None.
    """
    by_images, by_texts = _passes(call)
    if given is not None:
        launch, losses = _plan_label_losses(call, by_images, given)
        return ForwardPlan([launch], (losses,), None)
    launch, losses, of_rows = _plan_rows(call, by_images)
    if of_rows is None:
        return ForwardPlan([launch], (losses,), None)
    transposed, column_losses, of_columns = _plan_rows(call, by_texts)
    assert of_columns is not None
    return ForwardPlan([launch, transposed], (losses, column_losses), (of_rows, of_columns))


def plan_backward(
    call: Call,
    normalisers: Normalisers | None,
    grad_loss: Tensor,
    wanted: tuple[bool, bool, bool, bool],
) -> BackwardPlan:
    """The launches of a backward pass and what they fill.

    Args:
        call: with no empty side.
        normalisers: of the softmax; None for sigmoid.
        grad_loss: of the summed loss, no dimensions, float32.
        wanted: whether the gradients of image, text, scale and bias are needed; that of the bias
            for sigmoid only.
    """
    of_rows, of_columns = (None, None) if normalisers is None else normalisers
    by_images, by_texts = _passes(call)
    wants_sums = wanted[2] or wanted[3]
    # The sums come from whichever pass there is; from one over the images if there is none.
    texts_sum = wants_sums and wanted[1] and not wanted[0]
    launches = []
    grads: list[Tensor | None] = [None, None]
    parts: tuple[Tensor | None, Tensor | None] = (None, None)
    for index, (side, row_normalisers, column_normalisers, sums) in enumerate(
        (
            (by_images, of_rows, of_columns, wants_sums and not texts_sum),
            (by_texts, of_columns, of_rows, texts_sum),
        )
    ):
        if not (wanted[index] or sums):
            continue
        if wanted[index]:
            grads[index] = _empty(side, *side.rows.shape, dtype=side.rows.dtype)
        if sums:
            count = len(side.rows)
            parts = (_empty(side, count), _empty(side, count) if call.kind == "sigmoid" else None)
        launches.append(
            _backward_launch(
                call,
                side,
                grad_loss,
                grads[index],
                parts if sums else (None, None),
                row_normalisers,
                column_normalisers,
            )
        )
    return BackwardPlan(launches, grads[0], grads[1], *parts)


def _passes(call: Call) -> tuple[_Pass, _Pass]:
    return (
        _Pass(call.image, call.text, call.label_offset),
        _Pass(call.text, call.image, -call.label_offset),
    )


def _plan_rows(call: Call, side: _Pass) -> tuple[Launch, Tensor, Tensor | None]:
    """The launch, the losses of the rows and, for softmax, their normalisers."""
    configuration = forward_configuration(side.size, call.precision, call.target)
    losses = _empty(side, len(side.rows))
    normalisers = _empty(side, 2, len(side.rows)) if call.kind == "softmax" else None
    arguments = {
        **_shared_arguments(call, side),
        "losses": losses,
        "normalisers": normalisers,
        "KIND": call.kind,
        "BLOCK_ROWS": configuration.block_rows,
        "BLOCK_COLUMNS": configuration.block_columns,
        "BLOCK_SIZE": configuration.block_size,
    }
    launch = Launch(
        contrastive_forward_kernel,
        (side.programs(configuration.block_rows),),
        arguments,
        configuration.num_warps,
        configuration.num_stages,
    )
    return launch, losses, normalisers


def _plan_label_losses(call: Call, side: _Pass, given: Normalisers) -> tuple[Launch, Tensor]:
    losses = _empty(side, len(side.rows))
    arguments = {
        **_shared_arguments(call, side),
        "losses": losses,
        "row_normalisers": given[0],
        "column_normalisers": given[1],
        "BLOCK_ROWS": LABEL_LOSSES.block_rows,
        "BLOCK_SIZE": LABEL_LOSSES.block_size,
    }
    grid = (side.programs(LABEL_LOSSES.block_rows),)
    launch = Launch(
        label_losses_kernel, grid, arguments, LABEL_LOSSES.num_warps, LABEL_LOSSES.num_stages
    )
    return launch, losses


def _backward_launch(
    call: Call,
    side: _Pass,
    grad_loss: Tensor,
    grad_rows: Tensor | None,
    parts: tuple[Tensor | None, Tensor | None],
    row_normalisers: Tensor | None,
    column_normalisers: Tensor | None,
) -> Launch:
    configuration = backward_configuration(side.size, call.precision, call.target)
    slices = 1 if grad_rows is None else triton.cdiv(side.size, configuration.block_slice)
    arguments = {
        **_shared_arguments(call, side),
        "grad_loss": grad_loss,
        "row_normalisers": row_normalisers,
        "column_normalisers": column_normalisers,
        "grad_rows": grad_rows,
        "grad_scale_parts": parts[0],
        "grad_bias_parts": parts[1],
        "slices": slices,
        "KIND": call.kind,
        "WANTS_ROWS_GRADIENT": grad_rows is not None,
        "WANTS_SUMS": parts[0] is not None,
        "BLOCK_ROWS": configuration.block_rows,
        "BLOCK_COLUMNS": configuration.block_columns,
        "BLOCK_SIZE": configuration.block_size,
        "BLOCK_SLICE": configuration.block_slice,
    }
    return Launch(
        contrastive_backward_kernel,
        (side.programs(configuration.block_rows) * slices,),
        arguments,
        configuration.num_warps,
        configuration.num_stages,
    )


def _shared_arguments(call: Call, side: _Pass) -> dict[str, Any]:
    """What all kernels take."""
    return {
        "rows": side.rows,
        "columns": side.columns,
        "scale": call.scale,
        "bias": call.bias,
        "row_count": len(side.rows),
        "column_count": len(side.columns),
        "size": side.size,
        "label_offset": side.label_offset,
        "rows_stride_row": side.rows.stride(0),
        "rows_stride_place": side.rows.stride(1),
        "columns_stride_row": side.columns.stride(0),
        "columns_stride_place": side.columns.stride(1),
        "PRECISION": call.precision,
    }


def _empty(side: _Pass, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=side.rows.device)
