"""The device code: every ``@triton.jit`` function of the contrastive operation."""

if __name__ != "dualwave.kernels.contrastive.triton_kernels":
    raise ImportError(f"import dualwave.kernels.contrastive.triton_kernels instead of {__name__}")
