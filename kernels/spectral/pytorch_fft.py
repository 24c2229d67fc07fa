"""The spectral operation by torch.fft, for grids whose rows are adjacent in memory."""

from collections.abc import Sequence
from operator import index

import torch
from torch import Tensor

from dualwave.kernels.spectral.pytorch_products import product_tables


def fft_forward(x: Tensor, bias: Tensor | None, temperature: float | Tensor) -> Tensor:
    """Filter grids.

    Args:
        x: (B, C, H, W), float32 or float64.
        bias: broadcastable to (B, C, H, K), the dtype of ``x``, or None.
        temperature: a number or a tensor of no dimensions.

    Returns:
        (B, C, H, W).
    """
    spectrum = torch.fft.rfft2(x, norm="ortho")
    weights = _softmax_of_rows(_power(spectrum), bias, temperature)
    spectrum.mul_(weights)
    return _inverse(spectrum, x.shape)


def fft_backward(
    grad_out: Tensor,
    x: Tensor,
    bias: Tensor | None,
    temperature: float | Tensor,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of x, bias (summed to its shape) and temperature, by the closed form.

    Args:
        grad_out: (B, C, H, W), the dtype of ``x``.
        x: as forward.
        bias: as forward.
        temperature: as forward.
        wanted: whether each gradient is needed; None is returned for the others.
    """
    spectrum = torch.fft.rfft2(x, norm="ortho")
    grad_spectrum = torch.fft.rfft2(grad_out, norm="ortho")
    power = _power(spectrum)
    weights = _softmax_of_rows(power, bias, temperature)
    twins = _twins(x)
    # The gradient of the logits, divided by the bins that each stands for.
    grad_logits = spectrum.real * grad_spectrum.real
    grad_logits.addcmul_(spectrum.imag, grad_spectrum.imag).mul_(weights)
    row_sums = (grad_logits @ twins)[..., None]
    grad_logits.addcmul_(weights, row_sums / twins, value=-1)
    grad_bias = grad_temperature = grad_x = None
    if wanted[1] and bias is not None:
        grad_bias = (grad_logits * twins).sum_to_size(bias.shape)
    if wanted[2]:
        grad_temperature = (grad_logits * twins).mul_(power).sum()
    if wanted[0]:
        grad_spectrum.mul_(weights)
        grad_spectrum.add_(spectrum.mul_(grad_logits.mul_(2 * temperature)))
        grad_x = _inverse(grad_spectrum, x.shape)
    return grad_x, grad_bias, grad_temperature


def _twins(x: Tensor) -> Tensor:
    # Tables of one row: only the weights of the bins are of use here.
    return product_tables(1, index(x.shape[-1]), x.dtype, x.device).twins[:, 0]


def _power(spectrum: Tensor) -> Tensor:
    real, imag = spectrum.real, spectrum.imag
    return real.square().addcmul_(imag, imag)


def _softmax_of_rows(power: Tensor, bias: Tensor | None, temperature: float | Tensor) -> Tensor:
    """Softmax over the K frequencies of each row of (B, C, H, K)."""
    logits = power * temperature
    if bias is not None:
        logits += bias
    return torch.softmax(logits, dim=-1)


def _inverse(spectrum: Tensor, shape: Sequence[int]) -> Tensor:
    """The grids of a half spectrum, which is changed.

    irfft2 of a spectrum whose columns k = 0 and W / 2 are not Hermitian differs between backends,
    so their rows m and -m are averaged first.
    """
    width = shape[-1]
    for k in {0, width // 2} if width % 2 == 0 else {0}:
        column = spectrum[..., k]
        of_negative_rows = torch.roll(torch.flip(column, dims=(-1,)), shifts=1, dims=-1)
        spectrum[..., k] = (column + of_negative_rows.conj()) / 2
    return torch.fft.irfft2(spectrum, s=tuple(shape[-2:]), norm="ortho")
