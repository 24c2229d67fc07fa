"""dualwave: vision-text dual-stream transformers on Triton kernels.

The public names below are imported on first use, so that ``import dualwave`` and the command
line's ``--help`` stay quick. They live in the sub-packages ``dualwave.kernels``,
``dualwave.models``, ``dualwave.parallel``, ``dualwave.train`` and ``dualwave.eval``.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dualwave.kernels.attention import blockwise_attention as blockwise_attention
    from dualwave.kernels.attention import merge_attention as merge_attention
    from dualwave.kernels.contrastive import contrastive_loss as contrastive_loss
    from dualwave.kernels.spectral import spectral_attention as spectral_attention
    from dualwave.models import DualStreamConfig as DualStreamConfig
    from dualwave.models import DualStreamModel as DualStreamModel
    from dualwave.models import DualStreamProcessor as DualStreamProcessor
    from dualwave.models import load as load
    from dualwave.models import register_attention as register_attention

__version__ = "0.1.0"

_HOME_OF = {
    "blockwise_attention": "dualwave.kernels.attention",
    "merge_attention": "dualwave.kernels.attention",
    "contrastive_loss": "dualwave.kernels.contrastive",
    "spectral_attention": "dualwave.kernels.spectral",
    "DualStreamConfig": "dualwave.models",
    "DualStreamModel": "dualwave.models",
    "DualStreamProcessor": "dualwave.models",
    "load": "dualwave.models",
    "register_attention": "dualwave.models",
}
__all__ = [
    "DualStreamConfig",
    "DualStreamModel",
    "DualStreamProcessor",
    "blockwise_attention",
    "contrastive_loss",
    "load",
    "merge_attention",
    "register_attention",
    "spectral_attention",
]

# In a checkout the sub-packages lie beside this folder, not in it. Python finds this folder first
# whenever the checkout's root is on the path (`python -m dualwave` from the root), even if dualwave
# is installed as well, and would then look for `dualwave.kernels` here and nowhere else.
_checkout_root = Path(__file__).resolve().parent.parent
if (_checkout_root / "pyproject.toml").is_file() and (_checkout_root / "kernels").is_dir():
    __path__.append(str(_checkout_root))


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dualwave' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
