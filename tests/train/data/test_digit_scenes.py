import json
from collections import Counter

import numpy as np
import pytest
from datasets import ClassLabel, Image, Value, load_from_disk

from dualwave.train.data import DIGIT_SCENE_LEVELS, make_digit_scenes
from dualwave.train.data.digit_captions import all_captions
from dualwave.train.data.digit_layout import COLOURS, DIGIT_WORDS
from dualwave.train.data.digit_scenes import plan_and_draw, target_mask


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes") / "data"
    make_digit_scenes(folder, train=520, validation=8, test=40, seed=3)
    return folder


def test_columns_and_levels(folder):
    scenes = load_from_disk(str(folder))
    assert {split: len(set(rows["scene"])) for split, rows in scenes.items()} == {
        "train": 520, "validation": 8, "test": 40,
    }  # fmt: skip
    for rows in scenes.values():
        assert isinstance(rows.features["image"], Image)
        assert isinstance(rows.features["mask"], Image)
        assert rows.features["caption"] == Value("string")
        assert rows.features["level"] == ClassLabel(names=list(DIGIT_SCENE_LEVELS))
        planned = [row["level"] for row in rows.remove_columns(["image", "mask"])
                   if row["id"] == row["scene"]]  # fmt: skip
        assert np.bincount(planned, minlength=4).tolist() == [len(planned) // 4] * 4
    ids = [id_ for rows in scenes.values() for id_ in rows["id"]]
    assert len(set(ids)) == len(ids) == sum(map(len, scenes.values()))
    for split in ("validation", "test"):
        assert scenes[split]["id"][:] == scenes[split]["scene"][:]


def test_train_scenes_are_several_adjacent_rows(folder):
    train = load_from_disk(str(folder))["train"].remove_columns(["image", "mask"])
    names = train.features["level"].names
    rows = iter(train)
    row = next(rows)
    counts = Counter()
    for index in range(520):
        scene = f"train-{index:06d}"
        layout = plan_and_draw("train", index, seed=3, image_size=64)[0]
        assert (row["id"], row["caption"]) == (scene, layout.caption)
        allowed = [(other.level, other.caption) for other in all_captions(layout, 64)]
        written, number = [], 0
        while row is not None and row["scene"] == scene:
            assert row["id"] == (f"{scene}-{number}" if number else scene)
            written.append((names[row["level"]], row["caption"]))
            row, number = next(rows, None), number + 1
        assert len(set(written)) == len(written)
        assert set(written) <= set(allowed)
        # All captions by colour and class are there, and at most one further by place and by size.
        for level in ("attribute", "all"):
            assert {x for x in written if x[0] == level} == {x for x in allowed if x[0] == level}
        for level in ("relation", "size"):
            further = [x for x in written[1:] if x[0] == level]
            possible = [x for x in allowed if x[0] == level and x[1] != layout.caption]
            assert len(further) == min(1, len(possible))
        counts.update(level for level, _ in written)
    assert row is None
    assert min(counts.values()) > 200, counts
    assert 3 < len(train) / 520 < 4


def test_all_captions_by_colour_and_class_are_found_and_their_masks_exact():
    counts = []
    for index in range(200):
        planned, _, ink = plan_and_draw("train", index, seed=0, image_size=64)
        captions = all_captions(planned, 64)
        own = [layout for layout in captions if layout.caption == planned.caption]
        assert [layout.targets for layout in own] == [planned.targets]
        digits = planned.digits
        wanted = {}
        for colour in COLOURS:
            for number, word in enumerate(DIGIT_WORDS):
                named = [i for i, d in enumerate(digits) if (d.digit, d.colour) == (number, colour)]
                others = [d for i, d in enumerate(digits) if i not in named]
                if (
                    named
                    and any(d.colour == colour for d in others)
                    and any(d.digit == number for d in others)
                ):
                    caption = f"{'the' if len(named) == 1 else 'every'} {colour} {word}"
                    wanted[caption] = named
        found = [layout for layout in captions if layout.level in ("attribute", "all")]
        assert {layout.caption: list(layout.targets) for layout in found} == wanted
        for layout in captions:
            assert layout.digits == planned.digits
            mask = target_mask(layout, ink) > 0
            for i, digit in enumerate(digits):
                box = np.s_[
                    digit.top : digit.top + digit.height, digit.left : digit.left + digit.width
                ]
                inked = ink[i][box] if i in layout.targets else np.zeros_like(ink[i][box])
                assert np.array_equal(mask[box], inked)
            assert mask.sum() == sum(ink[i].sum() for i in layout.targets)
        counts.append(len(captions))
    assert min(counts) == 1
    assert max(counts) >= 6


def test_written_rows_equal_single_scenes_whatever_the_process(folder):
    train = load_from_disk(str(folder))["train"]
    number_of = {id_: number for number, id_ in enumerate(train["id"])}
    further = "train-000000-1"
    scenes = [(f"train-{index:06d}", index, 0) for index in (0, 1, 499, 500, 519)]  # two processes
    assert further in number_of
    for id_, index, position in [*scenes, (further, 0, 1)]:
        planned, picture, ink = plan_and_draw("train", index, seed=3, image_size=64)
        caption = train[number_of[id_]]["caption"]
        (layout,) = [other for other in all_captions(planned, 64) if other.caption == caption]
        assert (layout.caption == planned.caption) == (position == 0)
        mask = target_mask(layout, ink)
        row = train[number_of[id_]]
        assert np.array_equal(np.asarray(row["image"]), picture)
        assert np.array_equal(np.asarray(row["mask"]), mask)
        assert row["caption"] == layout.caption
        assert row["mask"].mode == "L"
        assert row["image"].mode == "RGB"


def test_seed_split_and_index_make_the_scene():
    def scene(split, index, seed):
        return plan_and_draw(split, index, seed=seed, image_size=64)[1]

    assert np.array_equal(scene("test", 5, 0), scene("test", 5, 0))
    for other in (("test", 6, 0), ("test", 5, 1), ("validation", 5, 0)):
        assert not np.array_equal(scene("test", 5, 0), scene(*other))


def test_a_larger_split_begins_with_the_smaller(folder, tmp_path):
    small = make_digit_scenes(tmp_path / "small", train=8, validation=1, test=1, seed=3)
    large = load_from_disk(str(folder))
    assert list(small["train"]["caption"]) == list(large["train"]["caption"])[: len(small["train"])]


def test_mask_is_the_ink_of_the_targets_alone():
    for index in range(60):
        layout, picture, ink = plan_and_draw("train", index, seed=0, image_size=64)
        mask = target_mask(layout, ink)
        assert set(np.unique(mask)) == {0, 255}
        allowed = np.zeros_like(mask, dtype=bool)
        for position in layout.targets:
            digit = layout.digits[position]
            box = np.s_[digit.top : digit.top + digit.height, digit.left : digit.left + digit.width]
            allowed[box] = True
            share = (mask[box] > 0).mean()
            assert 0.08 < share < 0.85
            # Under the mask the digit's colour dominates: two of its pixels are more alike there
            # than the picture is as a whole.
            inked = picture[box][mask[box] > 0].astype(float)
            assert inked.std(0).mean() < 75
        assert not (mask[~allowed] > 0).any()


def test_prevalence_is_near_four_percent():
    shares = []
    for index in range(200):
        layout, _, ink = plan_and_draw("test", index, seed=0, image_size=64)
        shares.append((target_mask(layout, ink) > 0).mean())
    assert 0.03 < np.mean(shares) < 0.045


def test_other_image_size():
    layout, picture, ink = plan_and_draw("train", 0, seed=0, image_size=96)
    assert picture.shape == (96, 96, 3)
    assert target_mask(layout, ink).shape == (96, 96)
    assert 22 < np.mean([digit.height for digit in layout.digits]) < 44


def test_same_parameters_are_reused(folder):
    before = (folder / "train").stat().st_mtime_ns
    scenes = make_digit_scenes(folder, train=520, validation=8, test=40, seed=3)
    assert (folder / "train").stat().st_mtime_ns == before
    assert len(set(scenes["train"]["scene"])) == 520


def test_other_parameters_are_refused(folder):
    with pytest.raises(ValueError, match=r"seed=3 instead of 4.*delete the folder"):
        make_digit_scenes(folder, train=520, validation=8, test=40, seed=4)


def test_older_format_is_refused(folder, tmp_path):
    old = tmp_path / "old"
    old.mkdir()
    parameters = json.loads((folder / "digit_scenes.json").read_text())
    (old / "digit_scenes.json").write_text(json.dumps(parameters | {"version": 1}))
    with pytest.raises(ValueError, match=r"version=1 instead of 3.*delete the folder"):
        make_digit_scenes(old, train=520, validation=8, test=40, seed=3)


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="holds no digit scenes"):
        make_digit_scenes(tmp_path, train=4, validation=4, test=4)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("datasets.DatasetDict.save_to_disk", fail)
    with pytest.raises(OSError, match="disk full"):
        make_digit_scenes(tmp_path / "data", train=4, validation=4, test=4)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test": 0}, "test split must have at least 1"),
        ({"image_size": 16}, "at least 32"),
        ({"seed": -1}, "negative"),
    ],
)
def test_bad_parameters(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        make_digit_scenes(tmp_path / "x", **({"train": 4, "validation": 4, "test": 4} | change))
