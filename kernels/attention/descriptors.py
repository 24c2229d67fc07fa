"""Tensor descriptors: whole tiles are loaded by one instruction (TMA, NVIDIA Hopper and later).

A head's rows are described by the dimensions batch, row, and the columns of all heads in one, which
is the order of falling strides that the hardware wants. Whatever does not fit that is loaded
through pointers, with the same result.
"""

from collections.abc import Mapping

from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from dualwave.kernels.targets import Target

_ALIGNMENT_IN_BYTES = 16
_SIZES = (16, 32, 64, 128, 256)  # a tile is a power of two, and must not reach into the next head


def descriptors_of(
    tensors: Mapping[str, Tensor], rows: Mapping[str, int], target: Target
) -> dict[str, TensorDescriptor] | None:
    """A descriptor for every tensor, or None if the target or any of them can't have one.

    Args:
        tensors: by name, (B, S, H, D).
        rows: of a tile of each.
        target: what the kernels run on.
    """
    if not target.has_tensor_descriptors:
        return None
    described = {name: _describe(tensor, rows[name]) for name, tensor in tensors.items()}
    if None in described.values():
        return None
    return {name: descriptor for name, descriptor in described.items() if descriptor is not None}


def _describe(tensor: Tensor, rows_of_tile: int) -> TensorDescriptor | None:
    batch, rows, heads, size = tensor.shape
    batch_stride, row_stride, head_stride, column_stride = tensor.stride()
    if size not in _SIZES or tensor.numel() == 0 or column_stride != 1:
        return None
    columns = (heads - 1) * head_stride + size
    # The stride of a dimension of one means nothing.
    row_stride = row_stride if rows > 1 else _aligned(columns, tensor)
    batch_stride = batch_stride if batch > 1 else rows * row_stride
    if not (row_stride >= columns >= size and batch_stride >= rows * row_stride):
        return None
    is_aligned = tensor.data_ptr() % _ALIGNMENT_IN_BYTES == 0
    if not is_aligned or row_stride != _aligned(row_stride, tensor) or batch_stride % row_stride:
        return None
    return TensorDescriptor(
        tensor, [batch, rows, columns], [batch_stride, row_stride, 1], [1, rows_of_tile, size]
    )


def _aligned(columns: int, tensor: Tensor) -> int:
    """The next number of columns that is aligned in bytes."""
    elements = _ALIGNMENT_IN_BYTES // tensor.element_size()
    return -(-columns // elements) * elements
