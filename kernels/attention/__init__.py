"""Blockwise attention, and merging its parts."""

if __name__ != "dualwave.kernels.attention":
    raise ImportError(
        f"import dualwave.kernels.attention instead of {__name__}, which would be a second copy"
    )

from dualwave.kernels.attention.api import blockwise_attention
from dualwave.kernels.attention.merge import merge_attention

__all__ = ["blockwise_attention", "merge_attention"]
