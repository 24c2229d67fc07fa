"""Find the dataset behind a path: what `datasets` wrote, a folder of images, or a hub name.

A folder of images follows the `imagefolder` convention: a `metadata.csv` or `metadata.jsonl` with
one line an image, whose `file_name` names the image; further columns name the mask's file and hold
the caption. File names are relative to the metadata file. `file_name` is also offered as the
column `image`, and any `<name>_file_name` as `<name>`. Splits are sub-folders, each with its own
metadata (`train/metadata.csv`, ...); a folder with metadata of its own is the one split `train`.
A folder of parquet files is read as `datasets.load_dataset` reads it.
"""

import csv
import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets

METADATA_NAMES = ("metadata.csv", "metadata.jsonl")
FLAT_SPLIT = "train"


@dataclass(frozen=True)
class OpenedSplit:
    """A split as a table; file names in it are relative to `folder`."""

    table: datasets.Dataset
    folder: Path


def open_split(path: str, split: str) -> OpenedSplit:
    """Open one split without reading any image.

    Raises:
        ValueError: there is no such dataset or split, or its metadata is broken.
    """
    folder = Path(path).expanduser()
    if folder.is_file():
        raise ValueError(f"The data path {path!r} is a file; it must be a folder or a hub name.")
    if not folder.is_dir():
        return OpenedSplit(_from_hub(path, split), Path.cwd())
    if (folder / "dataset_dict.json").is_file():
        names = _split_names(folder / "dataset_dict.json")
        _require_split(path, split, names)
        return OpenedSplit(_written_by_datasets(folder / split), folder)
    if (folder / "state.json").is_file():
        _require_split(path, split, [FLAT_SPLIT])
        return OpenedSplit(_written_by_datasets(folder), folder)
    if _metadata_in(folder) is not None:
        _require_split(path, split, [FLAT_SPLIT])
        return _image_folder(folder)
    names = sorted(
        child.name for child in folder.iterdir() if child.is_dir() and _metadata_in(child)
    )
    if not names and next(folder.rglob("*.parquet"), None):
        return OpenedSplit(_load_dataset(str(folder), split, "holds parquet files, but"), folder)
    if not names:
        raise ValueError(
            f"The data folder {path!r} was not written by datasets.save_to_disk, and neither it "
            f"nor its sub-folders hold a {' or '.join(METADATA_NAMES)}, or parquet files."
        )
    _require_split(path, split, names)
    return _image_folder(folder / split)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of a sentence that offers the nearest of `names`, or just ends."""
    nearest = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else "."


def _require_split(path: str, split: str, names: Iterable[str]) -> None:
    names = list(names)
    if split in names:
        return
    if names == [FLAT_SPLIT]:
        raise ValueError(
            f"The data {path!r} has no split {split!r}, only {FLAT_SPLIT!r} (it is one table): "
            f"ask for {FLAT_SPLIT!r}, or put the rows into one sub-folder a split."
        )
    raise ValueError(
        f"The data {path!r} has no split {split!r}, only {', '.join(names)}"
        + did_you_mean(split, names)
    )


def _split_names(file: Path) -> list[str]:
    try:
        return list(json.loads(file.read_text(encoding="utf-8"))["splits"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{str(file)!r} is damaged: it must list the splits.") from error


def _written_by_datasets(folder: Path) -> datasets.Dataset:
    try:
        table = datasets.load_from_disk(str(folder))
    except IndexError as error:  # `datasets` writes no file for no rows, and then misses it
        raise ValueError(f"There are no rows in the dataset {str(folder)!r}.") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"The dataset in {str(folder)!r} can't be read: {reason}") from error
    assert isinstance(table, datasets.Dataset)
    return table


def _from_hub(path: str, split: str) -> datasets.Dataset:
    # "runs/data" could be a hub name, but not to someone who has a folder "runs".
    is_local = path.startswith(("/", ".", "~")) or path.count("/") > 1 or "\\" in path
    if is_local or ("/" in path and Path(path).parent.is_dir()):
        parent = Path(path).expanduser().parent
        siblings = [child.name for child in parent.iterdir()] if parent.is_dir() else []
        raise ValueError(
            f"The data folder {path!r} does not exist{did_you_mean(Path(path).name, siblings)}"
        )
    return _load_dataset(path, split, "is no folder here, and")


def _load_dataset(path: str, split: str, situation: str) -> datasets.Dataset:
    try:
        return datasets.load_dataset(path, split=split)
    # A missing dataset, no connection, an unknown split or configuration, broken files.
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"The data {path!r} {situation} datasets.load_dataset({path!r}, split={split!r}) "
            f"can't load it: {reason}"
        ) from error


def _metadata_in(folder: Path) -> Path | None:
    return next((folder / name for name in METADATA_NAMES if (folder / name).is_file()), None)


def _image_folder(folder: Path) -> OpenedSplit:
    metadata = _metadata_in(folder)
    assert metadata is not None
    try:
        rows = _csv_rows(metadata) if metadata.suffix == ".csv" else _json_rows(metadata)
    except UnicodeDecodeError as error:
        raise ValueError(f"{str(metadata)!r} is not UTF-8 text: {error}") from error
    if not rows:
        raise ValueError(f"{str(metadata)!r} holds no rows.")
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [_text(row.get(name)) for row in rows] for name in names}
    for name in names:
        alias = "image" if name == "file_name" else name.removesuffix("_file_name")
        columns.setdefault(alias, columns[name])
    features = datasets.Features({name: datasets.Value("string") for name in columns})
    return OpenedSplit(datasets.Dataset.from_dict(columns, features=features), folder)


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _csv_rows(metadata: Path) -> list[dict[str, Any]]:
    # A byte-order mark, as spreadsheets write it, is no part of the first column's name.
    with metadata.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        rows = []
        try:
            for row in reader:
                if None in row:
                    raise ValueError(
                        f"{str(metadata)!r} line {reader.line_num} has more fields than the "
                        "header: put text that contains a comma in double quotes."
                    )
                rows.append(row)
        except csv.Error as error:
            raise ValueError(f"{str(metadata)!r} line {reader.line_num}: {error}.") from error
    return rows


def _json_rows(metadata: Path) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(metadata.read_text(encoding="utf-8-sig").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{str(metadata)!r} line {number} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ValueError(f"{str(metadata)!r} line {number} is not a JSON object.")
        rows.append(row)
    return rows
