import json
from dataclasses import dataclass

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import average_precision_score

from dualwave.evaluate_model import evaluate_model


@dataclass(frozen=True)
class FakeRow:
    image: Image.Image
    mask: np.ndarray
    caption: str
    id: str
    level: str | None


class FakeRows(list):
    @property
    def captions(self):
        return [row.caption for row in self]

    @property
    def ids(self):
        return [row.id for row in self]

    @property
    def levels(self):
        return [row.level for row in self]


class Oracle:
    """Marks the truth for the caption that belongs to an image, and its opposite for others."""

    def __init__(self, rows):
        self.rows = {row.image.tobytes(): row for row in rows}
        self.batch_sizes = []

    def saliency(self, images, captions):
        self.batch_sizes.append(len(images))
        maps = []
        for image, caption in zip(images, captions, strict=True):
            row = self.rows[image.tobytes()]
            maps.append((row.mask == (caption == row.caption)).astype(np.float32))
        return maps


@pytest.fixture
def rows():
    generator = np.random.default_rng(0)
    made = FakeRows()
    for index in range(10):
        height, width = 8 + index, 12
        image = Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8))
        mask = generator.random((height, width)) < 0.2
        level = ("easy", "hard")[index % 2]
        made.append(FakeRow(image, mask, f"caption {index}", f"row-{index}", level))
    return made


def test_the_three_evaluations_differ_as_they_must(rows):
    evaluation = evaluate_model(Oracle(rows), rows, batch_size=4, progress=False)
    assert evaluation.model.map == 1.0
    assert evaluation.model.map_by_group == {"easy": 1.0, "hard": 1.0}
    opposite = np.mean([average_precision_score(r.mask.ravel(), ~r.mask.ravel()) for r in rows])
    assert evaluation.shuffled_captions.map == pytest.approx(opposite, abs=1e-12)
    assert evaluation.shuffled_captions.count == evaluation.centre_prior.count == 10
    prior = []
    for row in rows:
        height, width = row.mask.shape
        y, x = np.mgrid[:height, :width]
        distance = ((y - (height - 1) / 2) / height) ** 2 + ((x - (width - 1) / 2) / width) ** 2
        prior.append(average_precision_score(row.mask.ravel(), -distance.round(9).ravel()))
    assert evaluation.centre_prior.map == pytest.approx(np.mean(prior), abs=0.02)


def test_batches_do_not_change_the_figures(rows):
    model = Oracle(rows)
    one = evaluate_model(model, rows, batch_size=3, progress=False)
    assert max(model.batch_sizes) == 3
    assert one == evaluate_model(Oracle(rows), rows, batch_size=100, progress=False)


def test_json_says_what_its_figures_mean(rows):
    values = evaluate_model(Oracle(rows), rows, progress=False).to_dict()
    assert "average precision" in values["conventions"]["map"]
    assert set(values) == {"conventions", "model", "shuffled_captions", "centre_prior"}
    json.dumps(values, allow_nan=False)


def test_command_prints_one_table_and_writes_json(command, checkpoint, scenes, tmp_path):
    target = tmp_path / "new" / "scores.json"
    result = command("eval", "model", checkpoint, "--data", scenes, "--json", target)
    assert result.code == 0, result.err
    for word in ("pixel mAP", "attribute", "relation", "max-F", "MAE", "shuffled", "centre"):
        assert word in result.out
    assert f"wrote {target}" in result.out
    scores = json.loads(target.read_text())
    assert scores["split"] == "test"
    assert scores["model"]["count"] == 24
    assert set(scores["model"]["map_by_group"]) == {"attribute", "all", "relation", "size"}
    assert f"{scores['model']['map']:.4f}" in result.out
    assert f"{scores['shuffled_captions']['map']:.4f}" in result.out
    assert f"{scores['centre_prior']['map']:.4f}" in result.out
    assert [path.name for path in target.parent.iterdir()] == ["scores.json"]


def test_command_takes_another_split(command, checkpoint, scenes, tmp_path):
    target = tmp_path / "scores.json"
    words = ["--split", "validation", "--json", target, "data.level_column=null"]
    result = command("eval", "model", checkpoint, "--data", scenes, *words)
    assert result.code == 0, result.err
    scores = json.loads(target.read_text())
    assert scores["model"]["count"] == 8
    assert scores["model"]["map_by_group"] == {}
