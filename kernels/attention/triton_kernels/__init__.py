"""The device code: every ``@triton.jit`` function of the attention operation."""

if __name__ != "dualwave.kernels.attention.triton_kernels":
    raise ImportError(f"import dualwave.kernels.attention.triton_kernels instead of {__name__}")
