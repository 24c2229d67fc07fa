"""Dual-stream models, registered with transformers' Auto classes."""

if __name__ != "dualwave.models":
    raise ImportError(f"import dualwave.models instead of {__name__}, which would be a second copy")

from transformers import AutoConfig, AutoModel, AutoProcessor

from dualwave.models.attention_interface import register_attention
from dualwave.models.configuration import DualStreamConfig
from dualwave.models.loading import load
from dualwave.models.modeling import DualStreamModel, DualStreamOutput
from dualwave.models.processing import DualStreamProcessor

AutoConfig.register(DualStreamConfig.model_type, DualStreamConfig)
AutoModel.register(DualStreamConfig, DualStreamModel)
AutoProcessor.register(DualStreamConfig, DualStreamProcessor)

__all__ = [
    "DualStreamConfig",
    "DualStreamModel",
    "DualStreamOutput",
    "DualStreamProcessor",
    "load",
    "register_attention",
]
