"""Rows of image, mask and caption, read one by one; a row that can't be used is named and counted.

A row is bad when its image or mask is missing or unreadable, when the mask has another size than
the image, when no mask value above 127 is left of a mask that isn't empty (a mask of 0 and 1, or of
class numbers), or when its caption is empty. With `on_bad_row="raise"` the first rows and all texts
are checked at opening, the others when they are read. With `on_bad_row="skip"` every row is read
once at opening and the bad ones are left out from then on: the row numbers mean the same rows in
every start of a run, which is what lets a resumed run go on with the same batches.
"""

import io
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from PIL import Image

from dualwave.models.pictures import UnreadablePictureError, read_picture, to_rgb
from dualwave.train.data.config import DataConfig
from dualwave.train.data.opening import OpenedSplit, did_you_mean, open_split

_FIRST_ROWS = 4  # looked at when the data is opened
_FIRST_SCENES = 4  # of several rows each, whose pictures are compared then
_OBJECT_ABOVE = 127


@dataclass(frozen=True)
class Row:
    """One example.

    Attributes:
        image: RGB, turned upright where its EXIF data says so.
        mask: (H, W) bool at the image's size, True where the mask file is brighter than 127.
        caption: what names the object.
        id: unique in the split.
        level: the group it is reported in, None where the data has none.
    """

    image: Image.Image
    mask: np.ndarray
    caption: str
    id: str
    level: str | None


@dataclass(frozen=True)
class BadRow:
    """A row that can't be used: its number in the data, its id, and why, in one sentence."""

    index: int
    id: str
    sentence: str


def open_rows(config: DataConfig, split: str) -> "RowSource":
    """Open a split and check its columns, texts and first rows at once.

    Args:
        config: the path and the names of the columns.
        split: the name of the split in the data, as `config.train_split`.

    Raises:
        ValueError: in one sentence: no such data, split or column, ids used twice, or a row that
            can't be used (`on_bad_row="skip"`: no row that can).
    """
    opened = open_split(config.path, split)
    rows = RowSource(config, split, opened)
    rows.check_first()
    return rows


class RowSource:
    """A split's rows by number; texts are there at once, images are read when asked for.

    Attributes:
        captions: the caption of each row.
        ids: the id of each row; its number in the data where there are none.
        levels: the level of each row; None where the data has none.
        scenes: equal for rows that show the same picture; None where the data has no such column.
        bad_rows: the bad rows met so far, in the order of the data for `check_all`.
    """

    captions: list[str]
    ids: list[str]
    levels: list[str] | None
    scenes: list[str] | None
    bad_rows: list[BadRow]

    def __init__(self, config: DataConfig, split: str, opened: OpenedSplit):
        self._config = config
        self._where = f"the data {config.path!r} (split {split!r})"
        self._folder = opened.folder
        table = opened.table.with_format(None)
        if len(table) == 0:
            raise ValueError(f"There are no rows in {self._where}.")
        for field in ("image_column", "mask_column", "caption_column"):
            self._require_column(table, field)
        self._pictures = self._picture_columns(table)
        self.captions = self._read_captions(table)
        self.ids = self._read_ids(table)
        levels = self._read_levels(table)
        self.levels = None if levels is None else [level or "" for level in levels]
        self._has_level = None if levels is None else [level is not None for level in levels]
        self.scenes = self._read_scenes(table)
        self._numbers = list(range(len(table)))  # in the data, of the rows that are left
        self.bad_rows = []
        self._all_checked = False

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> Row:
        """Read one row.

        Raises:
            IndexError: beyond the last row.
            ValueError: the row can't be used; the sentence names it.
        """
        index = operator.index(index)
        number = self._numbers[index]
        row = self._read(index, number)
        if isinstance(row, BadRow):
            if row not in self.bad_rows:
                self.bad_rows.append(row)
            raise ValueError(row.sentence)
        return row

    def __iter__(self) -> Iterator[Row]:
        return (self[index] for index in range(len(self)))

    def check_first(self) -> None:
        """Check the first rows and all texts; every row when bad rows are to be skipped.

        Raises:
            ValueError: a bad row, or with `on_bad_row="skip"` nothing but bad rows; or rows of one
                scene that show different pictures.
        """
        self._check_first_scenes()
        if self._config.on_bad_row == "skip":
            self.check_all()
            return
        bad_texts = [
            self._bad(index, number, problem)
            for index, number in enumerate(self._numbers)
            if (problem := self._text_problem(index)) is not None
        ]
        self._raise_for(bad_texts)
        first = [
            self._read(index, self._numbers[index]) for index in range(len(self))[:_FIRST_ROWS]
        ]
        self._raise_for([row for row in first if isinstance(row, BadRow)])

    def check_all(self) -> None:
        """Read every row once and note the bad ones in `bad_rows`.

        With `on_bad_row="skip"` they are left out of this source from then on (`len`, `captions`,
        `ids`, `levels`, `scenes` and the row numbers change). A second call does nothing.

        Raises:
            ValueError: with `on_bad_row="raise"` when there is a bad row; with `"skip"` when every
                row is bad.
        """
        if self._all_checked:
            return
        good: list[int] = []
        bad: list[BadRow] = []
        for index, number in enumerate(self._numbers):
            row = self._read(index, number)
            if isinstance(row, BadRow):
                bad.append(row)
            else:
                good.append(index)
        if self._config.on_bad_row == "raise":
            self._raise_for(bad)
        self.bad_rows = bad
        if not good:
            raise ValueError(
                f"Every one of the {len(bad)} rows of {self._where} is bad; the first: "
                f"{bad[0].sentence}"
            )
        self._numbers = [self._numbers[index] for index in good]
        self.captions = [self.captions[index] for index in good]
        self.ids = [self.ids[index] for index in good]
        if self.levels is not None:
            self.levels = [self.levels[index] for index in good]
            self._has_level = [True] * len(good)
        if self.scenes is not None:
            self.scenes = [self.scenes[index] for index in good]
        self._all_checked = True

    def _check_first_scenes(self) -> None:
        """Notice a column that says something else of rows, such as "kitchen", in good time."""
        first_of: dict[str, int] = {}
        compared: set[str] = set()
        for number, scene in enumerate(self.scenes or []):
            first = first_of.setdefault(scene, number)
            if first == number or scene in compared:
                continue
            compared.add(scene)
            if not self._show_the_same(first, number):
                raise ValueError(
                    f"Rows {first} and {number} of {self._where} have the same value {scene!r} in "
                    f"column {self._config.scene_column!r} (data.scene_column), but show different "
                    "pictures: set data.scene_column to null."
                )
            if len(compared) == _FIRST_SCENES:
                return

    def _show_the_same(self, first: int, second: int) -> bool:
        """Whether two rows show one picture; also True when one can't be read at all."""
        name = self._config.image_column
        cells = [self._pictures[first][name], self._pictures[second][name]]
        if cells[0] == cells[1]:
            return True
        pictures = [self._open_picture(cell, "image") for cell in cells]
        pixels = [np.asarray(to_rgb(p)) for p in pictures if not isinstance(p, str)]
        return len(pixels) < 2 or np.array_equal(pixels[0], pixels[1])

    def _raise_for(self, bad: list[BadRow]) -> None:
        if not bad:
            return
        self.bad_rows = bad
        others = f" ({len(bad)} rows are bad.)" if len(bad) > 1 else ""
        raise ValueError(f"In {self._where}, {bad[0].sentence}{others}")

    def _bad(self, index: int, number: int, problem: str) -> BadRow:
        identity = self.ids[index]
        return BadRow(number, identity, f"row {number} (id {identity!r}): {problem}.")

    # --- columns

    def _require_column(self, table: datasets.Dataset, field: str) -> str:
        name = getattr(self._config, field)
        if name not in table.column_names:
            raise ValueError(
                f"There is no column {name!r} (data.{field}) in {self._where}, which has "
                f"{', '.join(table.column_names)}{did_you_mean(name, table.column_names)}"
            )
        return str(name)

    def _optional_column(self, table: datasets.Dataset, field: str) -> str | None:
        """The column's name; None when turned off, or absent under its default name."""
        name = getattr(self._config, field)
        is_default = name == DataConfig.model_fields[field].default
        if name is None or (is_default and name not in table.column_names):
            return None
        return self._require_column(table, field)

    def _picture_columns(self, table: datasets.Dataset) -> datasets.Dataset:
        """Only images and masks, as bytes or file names instead of decoded pictures."""
        for field in ("image_column", "mask_column"):
            name = getattr(self._config, field)
            feature = table.features[name]
            if isinstance(feature, datasets.Image):
                table = table.cast_column(name, datasets.Image(decode=False))
            elif not _is_text(feature):
                raise ValueError(
                    f"Column {name!r} (data.{field}) in {self._where} holds {_kind(feature)}, "
                    "neither images nor file names."
                )
        names = dict.fromkeys([self._config.image_column, self._config.mask_column])
        return table.select_columns(list(names))

    def _read_captions(self, table: datasets.Dataset) -> list[str]:
        name = self._config.caption_column
        if not _is_text(table.features[name]):
            raise ValueError(
                f"Column {name!r} (data.caption_column) in {self._where} holds "
                f"{_kind(table.features[name])}, not text."
            )
        return [(caption or "").strip() for caption in table[name][:]]

    def _read_ids(self, table: datasets.Dataset) -> list[str]:
        name = self._optional_column(table, "id_column")
        if name is None:
            return [str(number) for number in range(len(table))]
        ids: list[str] = []
        seen: dict[str, int] = {}
        for number, value in enumerate(table[name][:]):
            identity = "" if value is None else str(value)
            if not identity:
                raise ValueError(f"Row {number} of {self._where} has no id in column {name!r}.")
            if identity in seen:
                raise ValueError(
                    f"The id {identity!r} in column {name!r} of {self._where} is used by rows "
                    f"{seen[identity]} and {number}: set data.id_column to a column of unique "
                    "values, or to null to number the rows."
                )
            seen[identity] = number
            ids.append(identity)
        return ids

    def _read_levels(self, table: datasets.Dataset) -> list[str | None] | None:
        name = self._optional_column(table, "level_column")
        if name is None:
            return None
        feature = table.features[name]
        name_of: Callable[[Any], str] = str
        if isinstance(feature, datasets.ClassLabel):
            name_of = feature.int2str
        return [
            None if value is None or value == "" or value == -1 else name_of(value)
            for value in table[name][:]
        ]

    def _read_scenes(self, table: datasets.Dataset) -> list[str] | None:
        name = self._optional_column(table, "scene_column")
        if name is None:
            return None
        values = table[name][:]
        for number, value in enumerate(values):
            if value is None or value == "":
                raise ValueError(
                    f"Row {number} of {self._where} has no value in column {name!r}: give each "
                    "picture one, or set data.scene_column to null."
                )
        return [str(value) for value in values]

    # --- one row

    def _text_problem(self, index: int) -> str | None:
        if not self.captions[index]:
            return "its caption is empty"
        if self._has_level is not None and not self._has_level[index]:
            return "it has no level"
        return None

    def _read(self, index: int, number: int) -> Row | BadRow:
        problem = self._text_problem(index)
        if problem is not None:
            return self._bad(index, number, problem)
        cells = self._pictures[number]
        image = self._open_picture(cells[self._config.image_column], "image")
        if isinstance(image, str):
            return self._bad(index, number, image)
        mask_picture = self._open_picture(cells[self._config.mask_column], "mask")
        if isinstance(mask_picture, str):
            return self._bad(index, number, mask_picture)
        if mask_picture.size != image.size:
            return self._bad(
                index,
                number,
                f"its mask is {_size(mask_picture)} pixels, but its image is {_size(image)}",
            )
        grey = _grey(mask_picture)
        mask = grey > _OBJECT_ABOVE
        if not mask.any() and grey.any():
            return self._bad(
                index,
                number,
                f"no value of its mask is above {_OBJECT_ABOVE} (the largest is {grey.max()}), "
                "but masks hold 0 and 255",
            )
        level = self.levels[index] if self.levels is not None else None
        return Row(to_rgb(image), mask, self.captions[index], self.ids[index], level)

    def _open_picture(self, cell: Any, role: str) -> Image.Image | str:
        """The picture, upright; or what is wrong with it."""
        if isinstance(cell, str):
            cell = {"bytes": None, "path": cell}
        if cell is None or (not cell["bytes"] and not cell["path"]):
            return f"its {role} is missing"
        name = f" {cell['path']!r}" if cell["path"] else ""
        source: Path | io.BytesIO
        if cell["bytes"]:
            source = io.BytesIO(cell["bytes"])
        else:
            file = self._folder / cell["path"]
            if not file.is_file():
                return f"its {role}{name} does not exist"
            source = file
        try:
            return read_picture(source)
        except UnreadablePictureError as error:
            return f"its {role}{name} can't be read ({error})"


def _grey(picture: Image.Image) -> np.ndarray:
    # Modes of more than 8 bits would be clipped or wrapped by a conversion.
    return np.asarray(picture if picture.mode[0] in "IF" else picture.convert("L"))


def _is_text(feature: Any) -> bool:
    return isinstance(feature, datasets.Value) and feature.dtype in ("string", "large_string")


def _kind(feature: Any) -> str:
    return str(feature.dtype) if isinstance(feature, datasets.Value) else type(feature).__name__


def _size(picture: Image.Image) -> str:
    return f"{picture.width}x{picture.height}"
