"""Blockwise attention."""

if __name__ != "dualwave.kernels.attention":
    raise ImportError(
        f"import dualwave.kernels.attention instead of {__name__}, which would be a second copy"
    )
