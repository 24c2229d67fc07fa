"""Rows from tables in memory: checks, bad rows, skipping; nothing here depends on the format."""

import io

import datasets
import numpy as np
import pytest
from PIL import Image

from dualwave.train.data import DataConfig, open_rows


def png(pixels, **options):
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(pixels, dtype=np.uint8)).save(buffer, "png", **options)
    return {"bytes": buffer.getvalue(), "path": None}


def picture(index=0, height=6, width=9):
    return np.random.default_rng(index).integers(0, 256, (height, width, 3))


def object_mask(index=0, height=6, width=9):
    mask = np.zeros((height, width))
    mask[index % height, 1:4] = 255
    return mask


def table(count=8, drop=(), **columns):
    levels = datasets.ClassLabel(names=["easy", "hard"])
    values = {
        "image": [png(picture(i)) for i in range(count)],
        "mask": [png(object_mask(i)) for i in range(count)],
        "caption": [f"thing {i}" for i in range(count)],
        "level": [i % 2 for i in range(count)],
        "id": [f"row-{i}" for i in range(count)],
    } | columns
    features = {
        "image": datasets.Image(),
        "mask": datasets.Image(),
        "caption": datasets.Value("string"),
        "level": levels,
        "id": datasets.Value("string"),
    }
    kept = {name: values[name] for name in values if name not in drop}
    return datasets.Dataset.from_dict(
        kept, features=datasets.Features({name: features[name] for name in kept})
    )


@pytest.fixture
def opened(tmp_path):
    def open_table(data, **config):
        datasets.DatasetDict({"train": data}).save_to_disk(str(tmp_path / "data"))
        return open_rows(DataConfig(path=str(tmp_path / "data"), **config), "train")

    return open_table


def replaced(values, index, value):
    return [value if i == index else old for i, old in enumerate(values)]


def test_rows_hold_what_was_written(opened):
    rows = opened(table())
    assert len(rows) == 8
    assert rows.captions == [f"thing {i}" for i in range(8)]
    assert rows.ids == [f"row-{i}" for i in range(8)]
    assert rows.levels == ["easy", "hard"] * 4
    for index, row in enumerate(rows):
        assert row.image.mode == "RGB"
        assert np.array_equal(np.asarray(row.image), picture(index))
        assert row.mask.dtype == bool
        assert np.array_equal(row.mask, object_mask(index) > 0)
        assert (row.caption, row.id) == (f"thing {index}", f"row-{index}")
        assert row.level == ("easy", "hard")[index % 2]
    rows.check_all()
    assert rows.bad_rows == []
    with pytest.raises(IndexError):
        rows[8]


def test_texts_need_no_decoding(opened, monkeypatch):
    decoded = []
    opened_by_pillow = Image.open
    monkeypatch.setattr(Image, "open", lambda file: decoded.append(1) or opened_by_pillow(file))
    rows = opened(table(count=50))
    assert len(rows.captions) == len(rows.ids) == len(rows.levels) == 50
    assert len(decoded) == 8  # four images and their masks


def scened(scenes, **columns):
    return table(**columns).add_column("scene", scenes)


def test_scenes_are_read_and_skipped_with_their_rows(opened):
    pictures = [png(picture(i // 2)) for i in range(8)]
    scenes = ["a", "a", "b", "b", "c", "c", "d", "d"]
    assert opened(scened(scenes, image=pictures)).scenes == scenes
    rows = opened(scened(scenes, image=replaced(pictures, 1, None)), on_bad_row="skip")
    assert rows.scenes == ["a", "b", "b", "c", "c", "d", "d"]
    assert opened(scened([1, 1, 2, 2, 3, 3, 4, 4], image=pictures)).scenes[:3] == ["1", "1", "2"]
    assert opened(table()).scenes is None
    assert opened(scened(scenes, image=pictures), scene_column=None).scenes is None


def test_rows_of_a_scene_that_show_different_pictures_are_refused(opened):
    kitchens = scened(["kitchen", "street"] * 4)
    with pytest.raises(ValueError, match=r"Rows 0 and 2 .*'kitchen'.*data.scene_column to null"):
        opened(kitchens)
    assert opened(kitchens, scene_column=None).scenes is None
    # The same picture in two files is the same picture.
    twice = [png(picture(i // 2), compress_level=9 * (i % 2)) for i in range(8)]
    assert twice[0] != twice[1]
    assert opened(scened([str(i // 2) for i in range(8)], image=twice)).scenes[:2] == ["0", "0"]


def test_missing_scene_is_refused(opened):
    with pytest.raises(ValueError, match=r"Row 2 .*has no value in column 'scene'"):
        opened(scened(["a", "b", None, *"defgh"]))
    with pytest.raises(ValueError, match=r"data.scene_column.*did you mean 'scene'"):
        opened(scened([*"abcdefgh"]), scene_column="scenes")


def test_optional_columns_may_be_absent(opened):
    rows = opened(table(drop=("level", "id")))
    assert rows.ids == [str(i) for i in range(8)]
    assert rows.levels is None
    assert rows[3].level is None


def test_optional_columns_may_be_turned_off(opened):
    rows = opened(table(), level_column=None, id_column=None)
    assert rows.ids[5] == "5"
    assert rows.levels is None


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {"caption_column": "captoin"},
            ["'captoin'", "data.caption_column", "level", "'caption'?"],
        ),
        ({"mask_column": "masks"}, ["'masks'", "data.mask_column", "did you mean 'mask'?"]),
        (
            {"image_column": "zzz"},
            ["'zzz'", "data.image_column", "image, mask, caption, level, id"],
        ),
        ({"level_column": "levle"}, ["data.level_column", "did you mean 'level'?"]),
        ({"id_column": "idd"}, ["data.id_column", "did you mean 'id'?"]),
        ({"caption_column": "level"}, ["'level'", "ClassLabel", "not text"]),
        ({"mask_column": "level"}, ["'level'", "neither images nor file names"]),
    ],
)
def test_wrong_column_names_what_there_is(opened, config, words):
    with pytest.raises(ValueError, match="olumn") as caught:
        opened(table(), **config)
    for word in words:
        assert word in str(caught.value)


def test_ids_used_twice_are_refused(opened):
    ids = [f"row-{i % 7}" for i in range(8)]
    with pytest.raises(ValueError, match=r"'row-0'.*rows 0 and 7.*data.id_column"):
        opened(table(id=ids))


def test_an_id_that_is_missing_is_refused(opened):
    with pytest.raises(ValueError, match=r"Row 2 .*has no id"):
        opened(table(id=replaced([f"{i}" for i in range(8)], 2, None)))


TRUNCATED = {"bytes": png(picture(1, 60, 60))["bytes"][:900], "path": None}
IMAGES = [png(picture(i)) for i in range(8)]
MASKS = [png(object_mask(i)) for i in range(8)]
BAD = {
    "no mask": ({"mask": replaced(MASKS, 6, None)}, "its mask is missing"),
    "mask size": (
        {"mask": replaced(MASKS, 6, png(object_mask(0, 9, 6)))},
        "its mask is 6x9 pixels, but its image is 9x6",
    ),
    "no image": ({"image": replaced(IMAGES, 6, None)}, "its image is missing"),
    "not an image": (
        {"image": replaced(IMAGES, 6, {"bytes": b"hello", "path": None})},
        "its image can't be read (not an image file)",
    ),
    "cut off": ({"image": replaced(IMAGES, 6, TRUNCATED)}, "its image can't be read"),
    "mask of 0 and 1": (
        {"mask": replaced(MASKS, 6, png(object_mask() / 255))},
        "no value of its mask is above 127 (the largest is 1)",
    ),
    "no caption": (
        {"caption": replaced([f"thing {i}" for i in range(8)], 6, None)},
        "its caption is empty",
    ),
    "blank caption": (
        {"caption": replaced([f"thing {i}" for i in range(8)], 6, "  ")},
        "its caption is empty",
    ),
    "no level": ({"level": replaced([0, 1] * 4, 6, None)}, "it has no level"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_row_is_named_and_raised(opened, kind):
    columns, problem = BAD[kind]
    with pytest.raises(ValueError, match=r"row 6 \(id 'row-6'\): ") as caught:
        opened(table(**columns)).check_all()
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", BAD)
def test_bad_row_is_skipped_and_counted(opened, kind):
    columns, problem = BAD[kind]
    rows = opened(table(**columns), on_bad_row="skip")
    assert len(rows) == len(rows.captions) == len(rows.ids) == len(rows.levels) == 7
    assert [(bad.index, bad.id) for bad in rows.bad_rows] == [(6, "row-6")]
    assert problem in rows.bad_rows[0].sentence
    # What is left keeps its parts together.
    assert [row.id for row in rows] == rows.ids == [f"row-{i}" for i in (0, 1, 2, 3, 4, 5, 7)]
    assert rows[6].caption == rows.captions[6] == "thing 7"
    assert np.array_equal(rows[6].mask, object_mask(7) > 0)
    assert rows[6].level == rows.levels[6] == "hard"
    rows.check_all()
    assert len(rows) == 7


def test_bad_row_among_the_first_stops_the_opening(opened):
    with pytest.raises(ValueError, match=r"row 2 \(id 'row-2'\): its mask is missing"):
        opened(table(mask=replaced(MASKS, 2, None)))


def test_later_bad_row_stops_when_it_is_read_and_is_counted_once(opened):
    rows = opened(table(mask=replaced(MASKS, 6, None)))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"row 6 \(id 'row-6'\): its mask is missing"):
            rows[6]
    assert [bad.index for bad in rows.bad_rows] == [6]
    assert rows[7].id == "row-7"


def test_all_bad_rows_are_counted(opened):
    masks = replaced(replaced(MASKS, 6, None), 5, None)
    rows = opened(table(mask=masks))
    with pytest.raises(ValueError, match=r"row 5 .*\(2 rows are bad\.\)"):
        rows.check_all()
    assert [bad.index for bad in rows.bad_rows] == [5, 6]


def test_nothing_but_bad_rows_is_refused_even_when_skipping(opened):
    with pytest.raises(ValueError, match=r"Every one of the 8 rows .*row 0"):
        opened(table(mask=[None] * 8), on_bad_row="skip")


def test_no_rows_are_refused(opened):
    with pytest.raises(ValueError, match="There are no rows"):
        opened(table(count=0))


def test_mask_without_object_is_allowed(opened):
    rows = opened(table(mask=replaced(MASKS, 6, png(np.zeros((6, 9))))))
    assert not rows[6].mask.any()


def test_mask_is_what_is_brighter_than_127(opened):
    grey = np.arange(54).reshape(6, 9) + 100
    rows = opened(table(mask=replaced(MASKS, 6, png(grey))))
    assert np.array_equal(rows[6].mask, grey > 127)


def test_exif_orientation_turns_the_image(opened):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: show the picture rotated by 90 degrees clockwise
    turned = png(picture(6), exif=exif)
    masks = replaced(MASKS, 6, png(object_mask(6, 9, 6)))
    rows = opened(table(image=replaced(IMAGES, 6, turned), mask=masks))
    assert rows[6].image.size == (6, 9)
    assert np.array_equal(np.asarray(rows[6].image), np.rot90(picture(6), -1))


def test_grey_and_16_bit_images_become_rgb(opened):
    buffer = io.BytesIO()
    deep = (np.arange(54).reshape(6, 9) * 1000).astype(np.uint16)
    Image.fromarray(deep).save(buffer, "png")
    images = replaced(IMAGES, 6, {"bytes": buffer.getvalue(), "path": None})
    images = replaced(images, 7, png(picture(7)[:, :, 0]))
    rows = opened(table(image=images))
    assert np.array_equal(np.asarray(rows[6].image)[:, :, 1], deep // 256)
    assert np.array_equal(np.asarray(rows[7].image)[:, :, 2], picture(7)[:, :, 0])


def test_config_refuses_unknown_keys():
    with pytest.raises(ValueError, match="capton_column"):
        DataConfig(path="x", capton_column="text")
    with pytest.raises(ValueError, match="on_bad_row"):
        DataConfig(path="x", on_bad_row="ignore")
