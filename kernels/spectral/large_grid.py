"""Plans for grids of any size: the columns' transform, the rows' filter, the columns' inverse.

Lengths that are a product of two factors of at most 64 are transformed factor by factor inside
these kernels, in O(n log n) products; other lengths by the definition, O(n) products a number, in
kernels of their own. Then a row's transform, filter and inverse are three launches, and also where
a row and its gradient do not fit into a program's registers together.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dualwave.kernels.launch import Launch
from dualwave.kernels.spectral.large_grid_configurations import (
    RowTile,
    column_tile,
    columns_fit,
    direct_tile,
    filter_tile,
    row_tile,
    row_transform_tile,
)
from dualwave.kernels.spectral.large_grid_tables import (
    Factors,
    TableNumbers,
    direct_table,
    factored_tables,
    factors_of,
    padded,
)
from dualwave.kernels.spectral.plans import BackwardPlan, Call, ForwardPlan
from dualwave.kernels.spectral.triton_kernels.columns import columns_forward, columns_inverse
from dualwave.kernels.spectral.triton_kernels.direct import direct_forward, direct_inverse
from dualwave.kernels.spectral.triton_kernels.rows import rows_backward, rows_forward
from dualwave.kernels.spectral.triton_kernels.rows_transform import rows_transform

Rows = tuple[Tensor, Tensor]
"""Real and imaginary part of a column transform's rows m = 0 .. H // 2 (or of their transforms):
float32 (B, C, M, W), contiguous."""


def plan_forward(call: Call) -> ForwardPlan:
    """The launches of a forward pass; any H and W from 1 to 4096, any strides."""
    y, rows = torch.empty_like(call.x), _empty_rows(call)
    launches = [
        _columns(call, call.x, rows),
        *_filter_forward(call, rows),
        _columns_back(call, rows, y),
    ]
    return ForwardPlan(launches, y)


def plan_backward(call: Call, grad_out: Tensor, wanted: tuple[bool, bool, bool]) -> BackwardPlan:
    """The launches of a backward pass.

    Args:
        call: the forward call.
        grad_out: (B, C, H, W), any strides.
        wanted: whether the gradients of x, bias and temperature are needed.
    """
    batch, channels, height, width = call.x.shape
    rows, grad_rows = _empty_rows(call), _empty_rows(call)
    wants_x, wants_bias, wants_temperature = wanted
    grad_x = torch.empty_like(call.x) if wants_x else None
    bias_parts = temperature_parts = None
    if wants_bias:
        bias_parts = _empty(call, batch, channels, height, width // 2 + 1)
    if wants_temperature:
        temperature_parts = _empty(call, batch, channels, height // 2 + 1)
    launches = [
        _columns(call, call.x, rows),
        _columns(call, grad_out, grad_rows),
        *_filter_backward(call, rows, grad_rows, wants_x, bias_parts, temperature_parts),
    ]
    if grad_x is not None:
        launches.append(_columns_back(call, grad_rows, grad_x))
    return BackwardPlan(launches, grad_x, bias_parts, temperature_parts)


def _empty(call: Call, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=call.x.device)


def _empty_rows(call: Call) -> Rows:
    batch, channels, height, width = call.x.shape
    shape = (batch, channels, height // 2 + 1, width)
    return _empty(call, *shape), _empty(call, *shape)


def _columns(call: Call, grid: Tensor, rows: Rows) -> Launch:
    """The transform of the columns of x or of the output's gradient into ``rows``."""
    if _column_factors(call) is None:
        return _direct(call, direct_forward, (grid, None), rows, axis=2)
    return _factored_columns(call, columns_forward, grid, rows)


def _columns_back(call: Call, rows: Rows, grid: Tensor) -> Launch:
    """The inverse transform of the columns of ``rows`` into the output or x's gradient."""
    if _column_factors(call) is None:
        return _direct(call, direct_inverse, rows, (grid, None), axis=2)
    return _factored_columns(call, columns_inverse, grid, rows)


def _column_factors(call: Call) -> Factors | None:
    """The split of the columns' length; None where they are transformed by the definition."""
    factors = factors_of(call.x.shape[2])
    fits = factors is None or columns_fit(factors, call.precision, call.target)
    return factors if fits else None


def _filter_forward(call: Call, rows: Rows) -> list[Launch]:
    """Filter ``rows`` in place."""
    if _row_tile(call, is_backward=False) is not None:
        return [_filter(call, rows_forward, {"real_ptr": rows[0], "imag_ptr": rows[1]})]
    spectrum = _empty_rows(call)
    return [
        _transform(call, rows, spectrum, is_inverse=False),
        _filter(call, rows_forward, {"real_ptr": spectrum[0], "imag_ptr": spectrum[1]}),
        _transform(call, spectrum, rows, is_inverse=True),
    ]


def _filter_backward(
    call: Call,
    rows: Rows,
    grad_rows: Rows,
    wants_x: bool,
    bias_parts: Tensor | None,
    temperature_parts: Tensor | None,
) -> list[Launch]:
    """Turn the rows of the output's gradient into those of x's, in place, and fill the parts."""

    def filter_of(rows: Rows, grad_rows: Rows) -> Launch:
        arguments = {
            "real_ptr": rows[0],
            "imag_ptr": rows[1],
            "grad_real_ptr": grad_rows[0],
            "grad_imag_ptr": grad_rows[1],
            "grad_bias_ptr": bias_parts,
            "grad_temperature_ptr": temperature_parts,
            "WANTS_X_GRADIENT": wants_x,
            "WANTS_BIAS_GRADIENT": bias_parts is not None,
            "WANTS_TEMPERATURE_GRADIENT": temperature_parts is not None,
        }
        return _filter(call, rows_backward, arguments)

    if _row_tile(call, is_backward=True) is not None:
        return [filter_of(rows, grad_rows)]
    spectrum, grad_spectrum = _empty_rows(call), _empty_rows(call)
    launches = [
        _transform(call, rows, spectrum, is_inverse=False),
        _transform(call, grad_rows, grad_spectrum, is_inverse=False),
        filter_of(spectrum, grad_spectrum),
    ]
    if wants_x:
        launches.append(_transform(call, grad_spectrum, grad_rows, is_inverse=True))
    return launches


def _row_tile(call: Call, is_backward: bool) -> RowTile | None:
    """The tile of a filter that transforms its rows; None where the transforms are launches."""
    factors = factors_of(call.x.shape[3])
    if factors is None:
        return None
    return row_tile(factors, is_backward, call.precision, call.target)


def _transform(call: Call, source: Rows, result: Rows, is_inverse: bool) -> Launch:
    """The transform of rows alone, or its inverse, by factors where the width has some."""
    batch, channels, height, width = call.x.shape
    factors = factors_of(width)
    if factors is None:
        kernel = direct_inverse if is_inverse else direct_forward
        return _direct(call, kernel, source, result, axis=3)
    tile = row_transform_tile(factors, call.precision, call.target)
    rows = batch * channels * (height // 2 + 1)
    arguments = {
        "source_real_ptr": source[0],
        "source_imag_ptr": source[1],
        "result_real_ptr": result[0],
        "result_imag_ptr": result[1],
        "rows": rows,
        "normalization": width**-0.5,
        "SECOND_BLOCK": tile.second_block,
        "ROWS": tile.rows,
        "INVERSE": is_inverse,
        "PRECISION": call.precision,
        **_factored_arguments(call, factors),
    }
    grid = (_quotient(rows, tile.rows),)
    return Launch(rows_transform, grid, arguments, tile.num_warps, tile.num_stages)


def _factored_columns(call: Call, kernel: Any, grid: Tensor, rows: Rows) -> Launch:
    """`columns_forward` or `columns_inverse` between ``grid`` (B, C, H, W) and ``rows``."""
    batch, channels, height, width = grid.shape
    factors = _column_factors(call)
    assert factors is not None
    is_inverse = kernel is columns_inverse
    layout = replace(call, x=grid).layout
    tile = column_tile(factors, channels, width, layout, is_inverse, call.precision, call.target)
    arguments = {
        "grid_ptr": grid,
        "real_ptr": rows[0],
        "imag_ptr": rows[1],
        "channels": channels,
        "width": width,
        **_strides("grid_stride_", "bchw", grid.stride()),
        "normalization": height**-0.5,
        "FIRST_BLOCK": tile.first_block,
        "SECOND_BLOCK": tile.second_block,
        "SECOND_BINS": factors.second_bins,
        "BLOCK_C": tile.block_c,
        "BLOCK_W": tile.block_w,
        "PRECISION": call.precision,
        **_factored_arguments(call, factors),
    }
    parts = factors.first_padded // tile.first_block
    if is_inverse:
        parts = factors.second_padded // tile.second_block
    tiles = batch * _quotient(channels, tile.block_c) * _quotient(width, tile.block_w)
    return Launch(kernel, (parts * tiles,), arguments, tile.num_warps, tile.num_stages)


def _filter(call: Call, kernel: Any, arguments: dict[str, Any]) -> Launch:
    """`rows_forward` or `rows_backward`, with the rows' transform where they have factors."""
    batch, channels, height, width = call.x.shape
    rows = batch * channels * (height // 2 + 1)
    factors = factors_of(width)
    tile = _row_tile(call, is_backward=kernel is rows_backward)
    if tile is not None and factors is not None:
        length = _factored_arguments(call, factors)
    else:
        tile = filter_tile(width, is_backward=kernel is rows_backward)
        length = {
            "first_ptr": None,
            "twiddle_ptr": None,
            "second_ptr": None,
            "FIRST": 1,
            "SECOND": width,
            "FIRST_PADDED": 1,
            "SECOND_PADDED": padded(width),
        }
    bias_strides: tuple[int, ...] = (0, 0, 0, 0)
    if call.bias is not None:
        bias_strides = call.bias.expand(batch, channels, height, width // 2 + 1).stride()
    arguments = arguments | {
        "bias_ptr": call.bias,
        "temperature_ptr": call.temperature,
        "rows": rows,
        "channels": channels,
        **_strides("bias_stride_", "bchk", bias_strides),
        "temperature_value": call.temperature_value,
        "normalization": width**-0.5,
        "HEIGHT": height,
        "ROWS": tile.rows,
        "SECOND_BLOCK": tile.second_block,
        "TRANSFORM": length["first_ptr"] is not None,
        "HAS_BIAS": call.bias is not None,
        "HAS_TEMPERATURE": call.temperature is not None,
        "PRECISION": call.precision,
        **length,
    }
    grid = (_quotient(rows, tile.rows),)
    return Launch(kernel, grid, arguments, tile.num_warps, tile.num_stages)


def _direct(
    call: Call,
    kernel: Any,
    source: tuple[Tensor, Tensor | None],
    result: tuple[Tensor, Tensor | None],
    axis: int,
) -> Launch:
    """`direct_forward` or `direct_inverse` along an axis of 4-D tensors.

    The real side of a transform over columns (axis 2) has no imaginary part.
    """
    is_inverse = kernel is direct_inverse
    batch, channels, height, width = call.x.shape
    size, lines = (height, width) if axis == 2 else (width, height // 2 + 1)
    layout = replace(call, x=result[0] if is_inverse else source[0]).layout
    tile = direct_tile(channels, lines, layout, is_inverse, call.precision, call.target)
    # Strides of batch, channel, lines and along the lines.
    order = (0, 1, 5 - axis, axis)
    arguments = {
        "source_real_ptr": source[0],
        "source_imag_ptr": source[1],
        "result_real_ptr": result[0],
        "result_imag_ptr": result[1],
        "table_ptr": direct_table(size, TableNumbers.of(call.precision), call.x.device),
        "channels": channels,
        "lines": lines,
        "normalization": size**-0.5,
        "SIZE": size,
        "IS_REAL": axis == 2,
        "BLOCK_C": tile.block_c,
        "BLOCK_LINES": tile.block_lines,
        "BLOCK_BINS": tile.block_bins,
        "BLOCK_SAMPLES": tile.block_samples,
        "PRECISION": call.precision,
    }
    names = ("b", "c", "line", "along")
    for side, tensor in (("source", source[0]), ("result", result[0])):
        strides = tuple(tensor.stride(dimension) for dimension in order)
        arguments |= _strides(f"{side}_stride_", names, strides)
    parts = _quotient(size // 2 + 1, tile.block_bins)
    if is_inverse:
        parts = _quotient(size, tile.block_samples)
    tiles = batch * _quotient(channels, tile.block_c) * _quotient(lines, tile.block_lines)
    return Launch(kernel, (parts * tiles,), arguments, tile.num_warps, tile.num_stages)


def _factored_arguments(call: Call, factors: Factors) -> dict[str, Any]:
    """A length's tables and factors."""
    first, twiddle, second = factored_tables(
        factors, TableNumbers.of(call.precision), call.x.device
    )
    return {
        "first_ptr": first,
        "twiddle_ptr": twiddle,
        "second_ptr": second,
        "FIRST": factors.first,
        "SECOND": factors.second,
        "FIRST_PADDED": factors.first_padded,
        "SECOND_PADDED": factors.second_padded,
    }


def _strides(prefix: str, names: Sequence[str], strides: Sequence[int]) -> dict[str, int]:
    return {f"{prefix}{name}": stride for name, stride in zip(names, strides, strict=True)}


def _quotient(total: int, part: int) -> int:
    """How many parts cover the total."""
    return -(-total // part)
