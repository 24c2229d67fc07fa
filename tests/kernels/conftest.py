"""Kernels run in Triton's interpreter here; it must be chosen before Triton is imported."""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")
