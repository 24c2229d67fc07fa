"""Tiny digit scenes and a tiny model, the same for all tests of training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dualwave.train.config import TrainConfig, config_from_mapping
from dualwave.train.data import make_digit_scenes

TINY_MODEL = {
    "image_size": 32,
    "vision_width": 32,
    "text_width": 32,
    "vision_heads": 2,
    "text_heads": 2,
    "text_layers": 1,
    "vision_mixers": ["spectral", "attention"],
    "fusion_mixers": ["spectral", "attention"],
}


@pytest.fixture
def tiny_model() -> dict[str, Any]:
    return dict(TINY_MODEL)


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """66 training rows, one a scene."""
    folder = tmp_path_factory.mktemp("scenes")
    made = make_digit_scenes(folder / "made", train=66, validation=4, test=4, image_size=32)
    made["train"] = made["train"].filter(
        lambda id_, scene: id_ == scene, input_columns=["id", "scene"]
    )
    made.save_to_disk(str(folder / "data"))
    return folder / "data"


@pytest.fixture(scope="session")
def scenes_of_several_rows(scenes: Path) -> Path:
    """The same scenes with all their captions: several rows a scene."""
    return scenes.parent / "made"


@pytest.fixture
def tiny_run(scenes: Path, tmp_path: Path) -> Callable[..., TrainConfig]:
    """A function that makes the config of a tiny run; its arguments replace whole sections."""

    def make(name: str = "run", **sections: Any) -> TrainConfig:
        return config_from_mapping(tiny_values(scenes, tmp_path / name) | sections)

    return make


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    """More threads than cores only slow tiny tensors down."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tiny_values(scenes: Path, output_dir: Path) -> dict[str, Any]:
    return {
        "output_dir": str(output_dir),
        "data": {"path": str(scenes)},
        "model": TINY_MODEL,
        "batch": {"size": 9},
        "schedule": {"steps": 6, "warmup_steps": 2},
        "log_every": 1,
        "checkpoint_every": 3,
        "loader_workers": 1,
    }
