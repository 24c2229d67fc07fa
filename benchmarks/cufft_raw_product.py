"""What a device's own irfft2 makes of the raw product of spectrum and weights.

The product is not Hermitian in the columns k = 0 and W / 2 (ARCHITECTURE.md), so libraries may
disagree about its inverse: NumPy's semantics take the real part, cuFFT may mirror one half.
"""

from typing import Any

import torch
from torch import Tensor

SIZES = (14, 32, 64)


def raw_product(x: Tensor) -> Tensor:
    """rfft2(x) times the softmax of its power, as the plain chain writes it."""
    spectrum = torch.fft.rfft2(x, norm="ortho")
    return spectrum * torch.softmax(spectrum.abs() ** 2, dim=-1)


def compare_inverses(device: str) -> list[dict[str, Any]]:
    """Relative L2 distances between the inverses of the same products on a device and on the CPU.

    Returns:
        For each size the distance of the device's batched inverse, and of its inverses image by
        image, from the CPU's; and the distance between those two.
    """
    rows = []
    for size in SIZES:
        generator = torch.Generator().manual_seed(size)
        product = raw_product(torch.randn(4, 3, size, size, generator=generator))
        on_cpu = _inverse(product)
        on_device = product.to(device)
        batched = _inverse(on_device).cpu()
        images = [_inverse(image).cpu() for image in on_device.flatten(0, 1)]
        unbatched = torch.stack(images).view_as(batched)
        rows.append(
            {
                "size": size,
                "batched_from_cpu": _distance(batched, on_cpu),
                "unbatched_from_cpu": _distance(unbatched, on_cpu),
                "batched_from_unbatched": _distance(batched, unbatched),
            }
        )
    return rows


def _inverse(product: Tensor) -> Tensor:
    size = product.shape[-2]
    return torch.fft.irfft2(product, s=(size, size), norm="ortho")


def _distance(values: Tensor, reference: Tensor) -> float:
    return float((values - reference).norm() / reference.norm())
