"""Dual-stream models, registered with transformers' Auto classes."""

from transformers import AutoConfig, AutoModel, AutoProcessor

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
]
