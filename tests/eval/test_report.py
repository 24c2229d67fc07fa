"""The report page: everything is in it, nothing is fetched, bad input is named."""

import base64
import io
import math
import re
import sys
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from dualwave.eval.figures import moving_average, smoothing_window
from dualwave.eval.pictures import ScenePicture
from dualwave.eval.report import (
    ReportData,
    check_report_dependencies,
    pick_scenes,
    render_report,
    summary_sentence,
    write_report,
)
from dualwave.eval.runner import SaliencySample, evaluate_samples

LEVELS = ["attribute", "relation"]


class _Page(HTMLParser):
    """Collects tags, attributes and text, and checks that tags are closed in order."""

    VOID = frozenset({"meta", "link", "img", "br", "use"})

    def __init__(self, text):
        super().__init__()
        self.elements, self.words, self.open = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def named(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def _samples(strength):
    random = np.random.default_rng(0)
    for index in range(24):
        mask = np.zeros((16, 16), dtype=bool)
        mask[index % 12 : index % 12 + 4, 3:9] = True
        prediction = np.clip(strength * mask + random.random((16, 16)), 0, 1)
        yield SaliencySample(f"test-{index:03d}", prediction, mask, LEVELS[index % 2])


@pytest.fixture(scope="module")
def data():
    model = evaluate_samples(_samples(0.6))
    by_id = {sample.id: sample for sample in _samples(0.6)}
    scores = {sample.id: sample for sample in model.samples}
    scenes = [
        ScenePicture(
            id=id,
            image=Image.new("RGB", (16, 16), (index * 20, 90, 120)),
            caption=f'the <{index}th> & "largest" three',
            mask=by_id[id].mask,
            prediction=by_id[id].prediction,
            average_precision=scores[id].average_precision,
            group=by_id[id].group,
        )
        for index, id in enumerate(pick_scenes(model, per_group=4))
    ]
    return ReportData(
        title="digits & scenes",
        made_at=datetime(2026, 3, 1, 9, 5, tzinfo=UTC),
        model=model,
        shuffled_captions=evaluate_samples(_samples(0.1)),
        centre_prior=evaluate_samples(_samples(0.0)),
        scenes=scenes,
        losses={
            "map": [(step, 2 / (step + 1)) for step in range(100, 200)],
            "contrastive": [(step, 3 / (step + 1)) for step in range(200)],
        },
        facts={"Parameters": "1.2 M"},
        configuration="seed: 0\nname: <demo>",
    )


@pytest.fixture(scope="module")
def page(data):
    return render_report(data)


def test_page_shows_scores_captions_and_configuration(data, page):
    parsed = _Page(page)
    text = parsed.text
    assert "digits & scenes" in text
    assert "1 March 2026, 09:05 UTC" in text
    assert summary_sentence(data) in text
    for scores in (data.model, data.shuffled_captions, data.centre_prior):
        for value in (scores.map, *scores.map_by_group.values(), scores.max_f, scores.mae):
            assert f"{value:.3f}" in text
    for row in ("Model", "Shuffled captions", "Centre prior"):
        assert row in text
    for scene in data.scenes:
        assert scene.caption in text
    assert "seed: 0 name: <demo>" in text
    assert "PySODMetrics" in text  # the conventions
    assert "evenly spaced ranks" in text  # how the scenes were picked
    assert parsed.named("details")


def test_page_is_self_contained(page):
    parsed = _Page(page)
    assert not re.search(r"https?:|//[a-z]", re.sub(r'src="data:[^"]*"', "", page))
    assert "@import" not in page
    assert not parsed.named("script")
    for _, attributes in parsed.elements:
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "#").startswith(("#", "data:"))
    assert any("width=device-width" in (m.get("content") or "") for m in parsed.named("meta"))


def test_every_scene_has_its_four_pictures(data, page):
    images = _Page(page).named("img")
    assert len(images) == 4 * len(data.scenes)
    assert all(image["alt"] and image["class"] == "pixelated" for image in images)
    for scene, place in ((scene, 4 * index) for index, scene in enumerate(data.scenes)):
        shown = [
            np.asarray(Image.open(io.BytesIO(base64.b64decode(image["src"].split(",")[1]))))
            for image in images[place : place + 4]
        ]
        np.testing.assert_array_equal(shown[0], np.asarray(scene.image))
        np.testing.assert_array_equal(shown[1] == 255, scene.mask)


def test_figures_are_inline_and_follow_the_page_colours(data, page):
    parsed = _Page(page)
    assert [svg["aria-label"] for svg in parsed.named("svg")] == [
        "Mean precision-recall curves",
        "Training loss",
    ]
    ids = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    figures = page[page.index("<svg") : page.rindex("</svg>")]
    assert "var(--series-1)" in figures
    assert "var(--ink)" in figures
    assert not re.search(r"(fill|stroke): #", figures)
    without_losses = render_report(replace(data, losses={}))
    assert len(_Page(without_losses).named("svg")) == 1
    assert "Training loss" not in without_losses


def test_groups_come_in_the_order_asked_for(data):
    text = _Page(render_report(replace(data, groups=["relation", "attribute"]))).text
    assert text.index("relation mAP") < text.index("attribute mAP")


def test_scenes_without_groups_and_large_pictures_are_shown(data):
    mask = np.zeros((400, 700), dtype=bool)
    mask[100:200] = True
    large = ScenePicture("big", Image.new("RGBA", (700, 400)), "a", mask, mask * 0.5, math.nan)
    images = _Page(render_report(replace(data, scenes=[large], groups=[]))).named("img")
    assert len(images) == 4
    assert "class" not in images[0]
    encoded = images[0]["src"].split(",")[1]
    assert max(Image.open(io.BytesIO(base64.b64decode(encoded))).size) == 320


def test_a_scene_of_several_sizes_is_refused(data):
    wrong = replace(data.scenes[0], image=Image.new("RGB", (8, 16)))
    with pytest.raises(ValueError, match=f"scene '{wrong.id}'"):
        render_report(replace(data, scenes=[wrong]))


def test_write_report_is_deterministic_and_leaves_nothing_else(data, page, tmp_path):
    target = tmp_path / "runs" / "report.html"
    assert write_report(target, data) == target
    assert target.read_text("utf-8") == page
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]


def test_a_failed_write_keeps_the_old_page(data, tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    target.write_text("old")

    def full_disk(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr("pathlib.Path.replace", full_disk)
    with pytest.raises(OSError, match="no space left"):
        write_report(target, data)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_pick_scenes_spreads_evenly_from_worst_to_best(data):
    picked = pick_scenes(data.model, per_group=4)
    scores = {sample.id: sample for sample in data.model.samples}
    for group, start in (("attribute", 0), ("relation", 4)):
        ids = picked[start : start + 4]
        assert {scores[id].group for id in ids} == {group}
        ranked = sorted(s.average_precision for s in scores.values() if s.group == group)
        # ranks 0, 11/3, 22/3 and 11 of 12 scenes
        assert [scores[id].average_precision for id in ids] == [ranked[i] for i in (0, 4, 7, 11)]
    assert len(pick_scenes(data.model, per_group=100)) == 24
    with pytest.raises(ValueError, match="at least one scene"):
        pick_scenes(data.model, per_group=0)


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_a_missing_extra_says_how_to_install_it(missing, data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    for call in (check_report_dependencies, lambda: write_report(tmp_path / "r.html", data)):
        with pytest.raises(ValueError, match=rf"needs {missing}.*dualwave\[report\]"):
            call()
    assert not list(tmp_path.iterdir())


def test_loss_smoothing():
    assert [smoothing_window(count) for count in (1, 59, 60, 600)] == [1, 1, 3, 21]
    values = np.array([1.0, 4.0, 1.0, 7.0, 1.0])
    np.testing.assert_allclose(moving_average(values, 3), [2.5, 2, 4, 3, 4])
    np.testing.assert_array_equal(moving_average(values, 1), values)
