"""The definition of spectral-power softmax attention, written to be read and tested against.

It shares no code with the implementations: full complex transforms, no tables, no half spectra
beyond the one over which the softmax runs. Meant for float64 and small shapes.
"""

import torch
from torch import Tensor


def spectral_attention_reference(
    x: Tensor, *, temperature: float | Tensor = 1.0, bias: Tensor | None = None
) -> Tensor:
    """Filter each grid by the softmax of its own power spectrum.

        X = rfft2(x)                                            K = W // 2 + 1 columns
        w[m, :] = softmax_k(temperature * |X[m, :]|^2 + bias[m, :])
        y = Re ifft2(A * fft2(x))

    ``A`` extends ``w`` to the full spectrum so that it is real and centro-symmetric,
    ``A[-m, -k] = A[m, k]``. In the columns k = 0 and (W even) k = W / 2 the rows m and -m of
    the half spectrum describe the same frequencies but have different softmax denominators;
    there ``A`` is their mean. All transforms use ``norm="ortho"``.

    Args:
        x: (..., H, W), float32 or float64.
        temperature: a number or a scalar tensor.
        bias: broadcastable to (..., H, K), or None.

    Returns:
        (..., H, W), the dtype of ``x``.
    """
    width = x.shape[-1]
    half_width = width // 2 + 1
    spectrum = torch.fft.fft2(x, norm="ortho")
    logits = temperature * spectrum[..., :half_width].abs().square()
    if bias is not None:
        logits = logits + bias
    weights = torch.softmax(logits, dim=-1)

    # weights_of_negative_rows[m, k] = weights[-m, k]
    weights_of_negative_rows = torch.roll(torch.flip(weights, dims=(-2,)), shifts=1, dims=-2)
    columns = []
    for k in range(width):
        mirrored = (width - k) % width
        if k == mirrored:
            columns.append((weights[..., k] + weights_of_negative_rows[..., k]) / 2)
        elif k < half_width:
            columns.append(weights[..., k])
        else:
            columns.append(weights_of_negative_rows[..., mirrored])
    full_weights = torch.stack(columns, dim=-1)
    return torch.fft.ifft2(full_weights * spectrum, norm="ortho").real
