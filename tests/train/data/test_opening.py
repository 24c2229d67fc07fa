"""The ways in which data can lie on a disk, and what is said when it does not."""

import csv
import json

import datasets
import numpy as np
import pytest
from PIL import Image

from dualwave.train.data import DataConfig, make_digit_scenes, open_rows


def write_images(folder, count=3, offset=0):
    (folder / "masks").mkdir(parents=True)
    for index in range(count):
        Image.new("RGB", (5, 4), (index + offset, 0, 0)).save(folder / f"{index}.png")
        mask = np.zeros((4, 5), dtype=np.uint8)
        mask[index] = 255
        Image.fromarray(mask).save(folder / "masks" / f"{index}.png")


def write_csv(folder, count=3, header=("file_name", "mask", "caption"), rows=None):
    rows = rows or [[f"{i}.png", f"masks/{i}.png", f"thing, {i}"] for i in range(count)]
    with (folder / "metadata.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def test_flat_folder_with_csv(tmp_path):
    write_images(tmp_path)
    write_csv(tmp_path)
    rows = open_rows(DataConfig(path=str(tmp_path)), "train")
    assert rows.captions == ["thing, 0", "thing, 1", "thing, 2"]
    assert rows.ids == ["0", "1", "2"]
    assert rows.levels is None
    for index, row in enumerate(rows):
        assert row.image.getpixel((0, 0)) == (index, 0, 0)
        assert np.flatnonzero(row.mask.any(1)).tolist() == [index]


def test_flat_folder_is_the_train_split_only(tmp_path):
    write_images(tmp_path)
    write_csv(tmp_path)
    with pytest.raises(ValueError, match=r"no split 'test', only 'train'.*sub-folder"):
        open_rows(DataConfig(path=str(tmp_path)), "test")


def test_split_folders_with_jsonl(tmp_path):
    for offset, split in enumerate(("train", "test")):
        write_images(tmp_path / split, offset=10 * offset)
        lines = [
            {"file_name": f"{i}.png", "mask_file_name": f"masks/{i}.png", "text": f"{split} {i}",
             "kind": "a", "number": i}
            for i in range(3)
        ]  # fmt: skip
        text = "\n".join(map(json.dumps, lines)) + "\n"
        (tmp_path / split / "metadata.jsonl").write_text(text)
    config = DataConfig(
        path=str(tmp_path), caption_column="text", level_column="kind", id_column="number"
    )
    rows = open_rows(config, "test")
    assert rows.captions == ["test 0", "test 1", "test 2"]
    assert rows.levels == ["a", "a", "a"]
    assert rows.ids == ["0", "1", "2"]
    assert rows[2].image.getpixel((0, 0)) == (12, 0, 0)
    with pytest.raises(ValueError, match="no split 'tests', only test, train; did you mean 'test'"):
        open_rows(config, "tests")


def test_missing_files_in_a_folder_are_named(tmp_path):
    write_images(tmp_path)
    write_csv(tmp_path)
    (tmp_path / "masks" / "1.png").unlink()
    with pytest.raises(
        ValueError, match=r"row 1 \(id '1'\): its mask 'masks/1.png' does not exist"
    ):
        open_rows(DataConfig(path=str(tmp_path)), "train")
    rows = open_rows(DataConfig(path=str(tmp_path), on_bad_row="skip"), "train")
    assert (len(rows), len(rows.bad_rows)) == (2, 1)


def test_empty_mask_field_is_a_missing_mask(tmp_path):
    write_images(tmp_path)
    write_csv(tmp_path, rows=[["0.png", "", "thing"]])
    with pytest.raises(ValueError, match=r"row 0 \(id '0'\): its mask is missing"):
        open_rows(DataConfig(path=str(tmp_path)), "train")


def test_wrong_metadata_columns_are_named(tmp_path):
    write_images(tmp_path)
    write_csv(tmp_path, header=("file_name", "mask", "captions"))
    with pytest.raises(
        ValueError, match=r"file_name, mask, captions, image; did you mean 'captions"
    ):
        open_rows(DataConfig(path=str(tmp_path)), "train")


def test_broken_metadata_is_named(tmp_path):
    write_csv(tmp_path, rows=[["0.png", "m.png", "a red", " three"]])
    with pytest.raises(ValueError, match=r"metadata.csv' line 2 has more fields"):
        open_rows(DataConfig(path=str(tmp_path)), "train")
    (tmp_path / "metadata.csv").unlink()
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "0.png"}\n{"file_name": \n')
    with pytest.raises(ValueError, match=r"metadata.jsonl' line 2 is not JSON"):
        open_rows(DataConfig(path=str(tmp_path)), "train")
    (tmp_path / "metadata.jsonl").write_text("[1]\n")
    with pytest.raises(ValueError, match=r"metadata.jsonl' line 1 is not a JSON object"):
        open_rows(DataConfig(path=str(tmp_path)), "train")
    (tmp_path / "metadata.jsonl").write_text("")
    with pytest.raises(ValueError, match="holds no rows"):
        open_rows(DataConfig(path=str(tmp_path)), "train")
    (tmp_path / "metadata.jsonl").write_bytes(b'{"file_name": "\xff"}\n')
    with pytest.raises(ValueError, match="not UTF-8"):
        open_rows(DataConfig(path=str(tmp_path)), "train")


def test_digit_scenes_are_read_by_the_same_code(tmp_path):
    scenes = make_digit_scenes(tmp_path / "data", train=8, validation=4, test=4)
    rows = open_rows(DataConfig(path=str(tmp_path / "data")), "validation")
    assert rows.captions == list(scenes["validation"]["caption"])
    assert sorted(rows.levels) == ["all", "attribute", "relation", "size"]
    assert np.array_equal(rows[1].mask, np.asarray(scenes["validation"][1]["mask"]) > 0)


def test_single_dataset_on_disk_is_the_train_split(tmp_path):
    scenes = make_digit_scenes(tmp_path / "data", train=8, validation=4, test=4)
    scenes["test"].save_to_disk(str(tmp_path / "single"))
    config = DataConfig(path=str(tmp_path / "single"))
    assert len(open_rows(config, "train")) == 4
    with pytest.raises(ValueError, match="only 'train'"):
        open_rows(config, "test")


def test_parquet_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    scenes = make_digit_scenes(tmp_path / "data", train=8, validation=4, test=4)
    (tmp_path / "parquet").mkdir()
    for split, rows in scenes.items():
        rows.to_parquet(str(tmp_path / "parquet" / f"{split}-00000-of-00001.parquet"))
    config = DataConfig(path=str(tmp_path / "parquet"))
    rows = open_rows(config, "test")
    assert rows.captions == list(scenes["test"]["caption"])
    assert rows[0].image.size == (64, 64)
    with pytest.raises(ValueError, match=r"can't load it: .*nosplit"):
        open_rows(config, "nosplit")


def test_what_is_no_dataset(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("x")
    with pytest.raises(ValueError, match=r"neither it nor its sub-folders hold a metadata.csv"):
        open_rows(DataConfig(path=str(tmp_path / "empty")), "train")
    with pytest.raises(ValueError, match="is a file"):
        open_rows(DataConfig(path=str(tmp_path / "file.txt")), "train")
    with pytest.raises(ValueError, match="does not exist; did you mean 'empty'"):
        open_rows(DataConfig(path=str(tmp_path / "emptty")), "train")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="The data folder 'empty/data' does not exist"):
        open_rows(DataConfig(path="empty/data"), "train")


def test_hub_names_go_to_datasets(monkeypatch):
    asked = []

    def load_dataset(path, split):
        asked.append((path, split))
        raise ConnectionError("Couldn't reach\nthe hub")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(ValueError, match=r"'someone/things' is no folder here.*reach the hub"):
        open_rows(DataConfig(path="someone/things"), "train")
    assert asked == [("someone/things", "train")]


def test_damaged_dataset_on_disk(tmp_path):
    make_digit_scenes(tmp_path / "data", train=8, validation=4, test=4)
    (tmp_path / "data" / "train" / "state.json").write_text("{")
    with pytest.raises(ValueError, match="can't be read"):
        open_rows(DataConfig(path=str(tmp_path / "data")), "train")
