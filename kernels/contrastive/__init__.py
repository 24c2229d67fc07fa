"""Blockwise contrastive loss."""

if __name__ != "dualwave.kernels.contrastive":
    raise ImportError(
        f"import dualwave.kernels.contrastive instead of {__name__}, which would be a second copy"
    )

from dualwave.kernels.contrastive.api import contrastive_loss

__all__ = ["contrastive_loss"]
