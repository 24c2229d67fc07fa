"""Spectral-power softmax attention."""

if __name__ != "dualwave.kernels.spectral":
    raise ImportError(
        f"import dualwave.kernels.spectral instead of {__name__}, which would be a second copy"
    )

from dualwave.kernels.spectral.api import spectral_attention

__all__ = ["spectral_attention"]
