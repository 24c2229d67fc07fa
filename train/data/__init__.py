"""Data for training: digit scenes, users' rows, batches."""

from dualwave.train.data.digit_scenes import DIGIT_SCENE_LEVELS, make_digit_scenes

__all__ = ["DIGIT_SCENE_LEVELS", "make_digit_scenes"]
