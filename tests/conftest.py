"""Kernels run in Triton's interpreter in tests.

It must be chosen before anything imports Triton, whose own functions are interpreted or compiled as
well, so before the first test module of any folder is imported.
"""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")
