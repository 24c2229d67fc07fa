"""Spectral-power softmax attention in PyTorch operations, with the closed-form backward.

Two exact forms of the same transform; the choice is a function of layout and shape alone:

- *Products*, for token layout (channels adjacent) with H and W of at most `LARGEST_PRODUCT_SIZE`:
  real matrix products along rows, then along columns, real and imaginary parts apart (longer ones
  would also round more than an FFT). The batch is walked in blocks of about `BLOCK_BYTES`, so that
  the passes over intermediates stay in cache; torch.compile, which fuses those passes instead,
  gets the whole batch.
- *FFT*, for everything else: torch.fft over grids whose W is adjacent, which is the order that it
  brings its input into anyway, so the passes over the spectrum are contiguous too. Its result is
  in that memory order, as torch.fft's own is.

`python benchmarks/spectral.py --device cpu` on two cores of an AMD EPYC, 1 December 2026, float32,
eager, times the speed of the torch.fft chain (written with re^2 + im^2, the faster way), forward
and with backward: 14x14x384 1.5 and 1.8, 16x16x768 1.4 and 1.8, 32x32x384 1.1 and 1.25 (products);
64x64x256 1.05 and 1.2 (FFT).
"""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from dualwave.kernels.spectral.pytorch_fft import fft_backward, fft_forward
from dualwave.kernels.spectral.pytorch_products import product_backward, product_forward

LARGEST_PRODUCT_SIZE = 32
BLOCK_BYTES = 2 * 2**20

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def spectral_forward_pytorch(
    x: Tensor, bias: Tensor | None, temperature: Tensor | None, temperature_value: float
) -> Tensor:
    """Filter grids; the arguments are those of `dualwave.kernels.spectral.plans.Call`.

    Args:
        x: (B, C, H, W), any strides, any floating-point dtype; 16 bits are computed in float32.
        bias: each dimension 1 or that of (B, C, H, K), K = W // 2 + 1, or None.
        temperature: a tensor of no dimensions, or None.
        temperature_value: the temperature if ``temperature`` is None.

    Returns:
        (B, C, H, W), the dtype of ``x``; the strides are those that the form gives.
    """
    if x.numel() == 0:
        return torch.empty_like(x)
    scale = temperature_value if temperature is None else temperature
    if not uses_products(x):
        return fft_forward(_computed(x), _computed_bias(bias, x), scale).to(x.dtype)
    grids, token_bias = _channels_last(x), _channels_last_bias(bias, x)
    blocks = (
        product_forward(_computed(grids[block]), _block_of(token_bias, block), scale).to(x.dtype)
        for block in _blocks(x)
    )
    return _joined(blocks, x.shape[0]).permute(0, 3, 1, 2)


def spectral_backward_pytorch(
    grad_out: Tensor,
    x: Tensor,
    bias: Tensor | None,
    temperature: Tensor | None,
    temperature_value: float,
    wanted: Sequence[bool],
    by_products: bool,
) -> Gradients:
    """The gradients of x, bias and temperature; None where they are not wanted.

    Args:
        grad_out: (B, C, H, W), any strides.
        x: as forward.
        bias: as forward.
        temperature: as forward.
        temperature_value: as forward.
        wanted: whether the gradients of x, bias and temperature are needed.
        by_products: `uses_products` of x, asked forward: the compiler loses track of autocast when
            strides are asked for in a backward.
    """
    inputs = (x, bias, temperature)
    if x.numel() == 0:
        zeros = [
            torch.zeros_like(tensor) if is_wanted and tensor is not None else None
            for tensor, is_wanted in zip(inputs, wanted, strict=True)
        ]
        return _cast(zeros, inputs)
    scale = temperature_value if temperature is None else temperature
    if not by_products:
        grads = fft_backward(
            _computed(grad_out), _computed(x), _computed_bias(bias, x), scale, wanted
        )
        return _cast(grads, inputs)
    grids, grad_grids = _channels_last(x), _channels_last(grad_out)
    token_bias = _channels_last_bias(bias, x)
    parts = [
        product_backward(
            _computed(grad_grids[block]),
            _computed(grids[block]),
            _block_of(token_bias, block),
            scale,
            wanted,
        )
        for block in _blocks(x)
    ]
    of_x, of_bias, of_temperature = (
        [part for part in column if part is not None] for column in zip(*parts, strict=True)
    )
    grad_x = (
        _joined((part.to(x.dtype) for part in of_x), x.shape[0]).permute(0, 3, 1, 2)
        if of_x
        else None
    )
    grad_bias = None
    if of_bias and bias is not None:
        summed = _total(of_bias) if bias.shape[0] == 1 else _joined(of_bias, x.shape[0])
        grad_bias = summed.permute(0, 3, 1, 2)
    return _cast((grad_x, grad_bias, _total(of_temperature) if of_temperature else None), inputs)


def uses_products(x: Tensor) -> bool:
    """Whether a call takes the form of matrix products rather than torch.fft's."""
    height, width = x.shape[2:]
    channels_adjacent = x.shape[1] > 1 and x.stride(1) == 1
    return channels_adjacent and max(height, width) <= LARGEST_PRODUCT_SIZE


def _blocks(x: Tensor) -> list[slice]:
    """Parts of the batch that are worked on one after the other."""
    if torch.compiler.is_compiling():
        return [slice(None)]
    batch, channels, height, width = x.shape
    size = math.ceil(BLOCK_BYTES / (4 * channels * height * width))
    return [slice(start, start + size) for start in range(0, batch, size)]


def _joined(blocks: Iterable[Tensor], batch: int) -> Tensor:
    """The blocks of a batch in one tensor, each copied while it is still in cache.

    Sizes are asked of shapes: ``len`` would fix a symbolic batch to the size seen in an export.
    """
    joined = None
    filled = 0
    for block in blocks:
        if block.shape[0] == batch:
            return block
        if joined is None:
            joined = block.new_empty(batch, *block.shape[1:])
        joined[filled : filled + block.shape[0]] = block
        filled += block.shape[0]
    assert joined is not None
    return joined


def _total(blocks: list[Tensor]) -> Tensor:
    return blocks[0] if len(blocks) == 1 else torch.stack(blocks).sum(dim=0)


def _block_of(bias: Tensor | None, block: slice) -> Tensor | None:
    return bias if bias is None or bias.shape[0] == 1 else bias[block]


def _computed(tensor: Tensor) -> Tensor:
    """Sixteen bits hold neither |X|^2 nor the softmax's sums."""
    return tensor.float() if tensor.dtype.itemsize == 2 else tensor


def _computed_bias(bias: Tensor | None, x: Tensor) -> Tensor | None:
    return None if bias is None else bias.to(_computed_dtype(x))


def _computed_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _channels_last(grids: Tensor) -> Tensor:
    return grids.permute(0, 2, 3, 1)


def _channels_last_bias(bias: Tensor | None, x: Tensor) -> Tensor | None:
    return None if bias is None else _channels_last(bias).to(_computed_dtype(x))


def _cast(grads: Sequence[Tensor | None], inputs: Sequence[Tensor | None]) -> Gradients:
    """Each gradient in the dtype of what it belongs to."""
    cast = [
        None if grad is None or tensor is None else grad.to(tensor.dtype)
        for grad, tensor in zip(grads, inputs, strict=True)
    ]
    return cast[0], cast[1], cast[2]
