"""Spectral-power softmax attention."""

from dualwave.kernels.spectral.api import spectral_attention

__all__ = ["spectral_attention"]
