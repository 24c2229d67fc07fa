import json
import re
import shutil

import pytest
import torch
from PIL import Image

import dualwave
from dualwave.demo import _save_and_reload
from dualwave.models import DualStreamModel

LEVELS = {"attribute", "all", "relation", "size"}


def test_metrics_have_the_promised_keys(finished_demo):
    metrics = json.loads((finished_demo.folder / "metrics.json").read_text())
    for key in ("map", "map_shuffled_captions", "map_centre_prior", "max_f", "mae"):
        assert 0 < metrics[key] < 1
    assert set(metrics["map_by_level"]) == LEVELS
    mean = sum(metrics["map_by_level"].values()) / 4  # 24 scenes, 6 of each level
    assert metrics["map"] == pytest.approx(mean, abs=1e-12)
    assert metrics["test_scenes"] == 24
    assert 0 < metrics["train_seconds"] < metrics["total_seconds"]
    assert sum(metrics["seconds_by_phase"].values()) <= metrics["total_seconds"]


def test_everything_is_written_and_nothing_half_written(finished_demo):
    names = {path.name for path in finished_demo.folder.iterdir()}
    assert names == {
        "data",
        "demo.json",
        "metrics.json",
        "model",
        "report.html",
        "scenes.png",
        "train",
    }
    assert Image.open(finished_demo.folder / "scenes.png").width > 500
    assert (finished_demo.folder / "train" / "metrics.jsonl").read_text().count("\n") == 6


def test_report_is_one_self_contained_page(finished_demo):
    page = (finished_demo.folder / "report.html").read_text()
    assert "data:image/png;base64," in page
    assert not re.findall(r'(?:src|href)="(?!data:|#)[^"]', page)
    figure = json.loads((finished_demo.folder / "metrics.json").read_text())["map"]
    assert f"{figure:.3f}" in page


def test_every_phase_is_said_with_its_seconds_and_where_the_report_is(finished_demo):
    out = finished_demo.result.out
    for phase in ("scenes", "training", "evaluation", "reload", "report"):
        assert re.search(rf"^  {phase}: \d+\.\d s$", out, flags=re.M), out
    assert "runs/demo/report.html" in out
    assert "shuffled" in out


def test_the_saved_model_is_the_trained_one(finished_demo):
    trained = dualwave.load(finished_demo.folder / "train" / "model")
    saved = dualwave.load(finished_demo.folder / "model")
    for name, value in trained.state_dict().items():
        assert torch.equal(value, saved.state_dict()[name]), name


def test_a_reload_that_changes_the_model_is_noticed(finished_demo, tmp_path, monkeypatch):
    from dualwave.train.data import DataConfig, open_rows

    model = dualwave.load(finished_demo.folder / "model")
    rows = open_rows(DataConfig(path=str(finished_demo.folder / "data")), "test")
    save = DualStreamModel.save_pretrained

    def save_slightly_wrong(self, *arguments, **keywords):
        changed = dualwave.load(finished_demo.folder / "model")
        with torch.no_grad():
            for parameter in changed.saliency_head.parameters():
                parameter.add_(1e-3)
        save(changed, *arguments, **keywords)

    monkeypatch.setattr(DualStreamModel, "save_pretrained", save_slightly_wrong)
    with pytest.raises(RuntimeError, match="saliency_logits"):
        _save_and_reload(model, tmp_path / "model", rows)


def test_a_second_run_replaces_the_first_and_keeps_scenes_and_other_files(
    command, finished_demo, small_demo, tmp_path
):
    output = tmp_path / "demo"
    shutil.copytree(finished_demo.folder, output)
    (output / "notes.txt").write_text("the user's own")
    scenes = (output / "data" / "dataset_dict.json").stat().st_mtime_ns
    first = json.loads((output / "metrics.json").read_text())
    result = command("demo", "--output", output, *small_demo)
    assert result.code == 0, result.err
    assert f"replacing the earlier demo in {output}" in result.out
    assert (output / "notes.txt").read_text() == "the user's own"
    assert (output / "data" / "dataset_dict.json").stat().st_mtime_ns == scenes
    second = json.loads((output / "metrics.json").read_text())
    for key in ("map", "map_by_level", "map_shuffled_captions", "max_f", "mae"):
        assert second[key] == first[key], key  # the same seed, the same figures


def test_scenes_with_other_numbers_are_made_anew(command, finished_demo, small_demo, tmp_path):
    output = tmp_path / "demo"
    shutil.copytree(finished_demo.folder, output)
    result = command("demo", "--output", output, *small_demo, "scenes.test=8", "--seed", 3)
    assert result.code == 0, result.err
    assert json.loads((output / "metrics.json").read_text())["test_scenes"] == 8


def test_a_folder_with_anything_else_is_refused_and_left_alone(command, small_demo, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    command("demo", "--output", tmp_path, *small_demo).assert_one_sentence(
        str(tmp_path), "not made by the demo", "--output"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("scenes.tset=3", ["scenes.tset", "did you mean 'scenes.test'"]),
        ("scenes.test=0", ["scenes.test", "0"]),
        ("schedule.stepz=3", ["schedule.stepz", "did you mean 'schedule.steps'"]),
        ("output_dir=x", ["output_dir", "--output"]),
        ("seed=1", ["seed", "--seed"]),
    ],
)
def test_a_wrong_field_is_named(command, tmp_path, word, parts):
    output = tmp_path / "demo"
    command("demo", "--output", output, word).assert_one_sentence(*parts)
    assert not output.exists()
