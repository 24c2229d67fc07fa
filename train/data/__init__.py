"""Data for training: digit scenes, users' rows, batches."""

from dualwave.train.data.batching import TokenBudgetBatchSampler
from dualwave.train.data.config import DataConfig
from dualwave.train.data.digit_layout import DIGIT_SCENE_LEVELS
from dualwave.train.data.digit_scenes import make_digit_scenes
from dualwave.train.data.rows import BadRow, Row, RowSource, open_rows

__all__ = [
    "DIGIT_SCENE_LEVELS",
    "BadRow",
    "DataConfig",
    "Row",
    "RowSource",
    "TokenBudgetBatchSampler",
    "make_digit_scenes",
    "open_rows",
]
