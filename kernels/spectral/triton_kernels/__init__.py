"""The device code: every ``@triton.jit`` function of the spectral operation."""

if __name__ != "dualwave.kernels.spectral.triton_kernels":
    raise ImportError(f"import dualwave.kernels.spectral.triton_kernels instead of {__name__}")
