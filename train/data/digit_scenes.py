"""Digit scenes: real handwriting in real photographs, with referring captions and pixel masks.

Made offline from what scikit-learn ships (see `digit_sources`); plans come from `digit_layout`,
this module draws them and writes a Hugging Face `datasets` dataset.
"""

import colorsys
import contextlib
import io
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from PIL import Image

from dualwave.train.data.digit_captions import further_captions
from dualwave.train.data.digit_layout import (
    DIGIT_SCENE_LEVELS,
    SceneLayout,
    plan_scene,
)
from dualwave.train.data.digit_sources import SPLITS, SplitSources, load_split_sources

PARAMETERS_FILE = "digit_scenes.json"
_FORMAT_VERSION = 3
_SMALLEST_IMAGE = 32
_SCENES_PER_CHUNK = 500
_MOST_WORKERS = 4
_CROP_SIDES = (56, 100)  # pixels of the photograph that become one picture

# Hue (degrees), saturation and value of each colour name, and how far a digit may stray from them.
_HSV = {
    "red": (0, 0.95, 0.90),
    "orange": (28, 0.97, 0.97),
    "yellow": (57, 0.92, 0.97),
    "green": (122, 0.88, 0.75),
    "cyan": (183, 0.85, 0.95),
    "blue": (226, 0.90, 0.93),
    "purple": (285, 0.78, 0.82),
    "white": (0, 0.02, 0.97),
}
# A digit whose colour is nearer than this to the mean of what it covers (RGB distance, 0..441)
# can't be seen by anyone (white on a bright sky); another crop is tried then.
_SMALLEST_CONTRAST = 60.0
_CROP_TRIES = 30
_HUE_JITTER, _SATURATION_JITTER, _VALUE_JITTER = 5.0, 0.03, 0.06

FEATURES = datasets.Features(
    {
        "image": datasets.Image(),
        "mask": datasets.Image(),
        "caption": datasets.Value("string"),
        "level": datasets.ClassLabel(names=list(DIGIT_SCENE_LEVELS)),
        "id": datasets.Value("string"),
        "scene": datasets.Value("string"),
    }
)


def make_digit_scenes(
    output_dir: str | Path,
    *,
    train: int,
    validation: int,
    test: int,
    seed: int = 0,
    image_size: int = 64,
) -> datasets.DatasetDict:
    """Write a dataset of digit scenes to `output_dir` and return it.

    `train`, `validation` and `test` count scenes. In validation and test a scene is one row. In
    train it is about 3.4 rows, next to each other: one for the caption it was planned for, and
    further ones for other captions that it allows under the same rule (see `digit_captions`).

    Columns: `image` (RGB, image_size x image_size), `mask` ('L', 255 where the ink of what the
    caption names covers more than half of the pixel, else 0), `caption`, `level` (ClassLabel with
    the names `DIGIT_SCENE_LEVELS`), `id` (unique over the splits), `scene` (equal for rows that
    show the same picture; the id of the scene's first row). A quarter of the scenes of every split
    is planned for each level. The splits share no digit image and no photograph pixel. A scene
    depends on (seed, split, its index, image_size) alone, so a larger split begins with the smaller
    one.

    The folder is written under a temporary name and then renamed; a folder that already holds
    scenes with the same parameters is loaded instead.

    Raises:
        ValueError: a count below 1, an image size below 32, a negative seed, or a folder that
            holds something else.
    """
    output_dir = Path(output_dir)
    counts = {"train": train, "validation": validation, "test": test}
    for split, count in counts.items():
        if count < 1:
            raise ValueError(f"The {split} split must have at least 1 scene, not {count}.")
    if image_size < _SMALLEST_IMAGE:
        raise ValueError(f"image_size must be at least {_SMALLEST_IMAGE}, not {image_size}.")
    if seed < 0:
        raise ValueError(f"The seed of digit scenes must not be negative, but is {seed}.")
    parameters = {"version": _FORMAT_VERSION, **counts, "seed": seed, "image_size": image_size}
    if _holds_scenes(output_dir, parameters):
        return _load(output_dir)

    output_dir.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{output_dir.name}.", dir=output_dir.parent))
    try:
        scenes = datasets.DatasetDict(
            {split: _make_split(split, counts[split], seed, image_size) for split in SPLITS}
        )
        with _quiet_progress_bars():
            scenes.save_to_disk(str(temporary))
        (temporary / PARAMETERS_FILE).write_text(json.dumps(parameters, indent=2) + "\n")
        temporary.chmod(0o755)  # mkdtemp makes it private
        try:
            temporary.rename(output_dir)
        except OSError:
            # Another process may have made the same scenes meanwhile; anything else is an error.
            if not _holds_scenes(output_dir, parameters):
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return _load(output_dir)


def plan_and_draw(
    split: str, index: int, *, seed: int, image_size: int
) -> tuple[SceneLayout, np.ndarray, np.ndarray]:
    """One scene: its layout, picture (H, W, 3) uint8, and ink (digits, H, W) bool of each digit."""
    sources = load_split_sources(split)
    split_number = SPLITS.index(split)
    # Every four scenes in a row have the four levels, in an order of their own.
    order = np.random.default_rng([seed, split_number, 1, index // 4]).permutation(4)
    rng = np.random.default_rng([seed, split_number, 0, index])
    layout = plan_scene(DIGIT_SCENE_LEVELS[order[index % 4]], sources, rng, image_size)
    picture, ink = _draw(layout, sources, rng, image_size)
    return layout, picture, ink


def target_mask(layout: SceneLayout, ink: np.ndarray) -> np.ndarray:
    """(H, W) uint8, 255 in the ink of the layout's targets, else 0."""
    return np.where(ink[list(layout.targets)].any(0), 255, 0).astype(np.uint8)


def _make_split(split: str, count: int, seed: int, image_size: int) -> datasets.Dataset:
    load_split_sources(split)  # before any fork, so that the processes share it
    chunks = [
        (split, start, min(start + _SCENES_PER_CHUNK, count), seed, image_size)
        for start in range(0, count, _SCENES_PER_CHUNK)
    ]
    # Forked processes need no guarded main module. They use numpy and Pillow only, so threads that
    # the parent may have started (torch, arrow) do not matter to them.
    workers = min(_MOST_WORKERS, len(chunks), os.cpu_count() or 1)
    if sys.platform == "linux" and workers > 1:
        with multiprocessing.get_context("fork").Pool(workers) as pool:
            made = pool.starmap(_make_columns, chunks, chunksize=1)
    else:
        made = [_make_columns(*chunk) for chunk in chunks]
    parts = [datasets.Dataset.from_dict(columns, features=FEATURES) for columns in made]
    return datasets.concatenate_datasets(parts)


def _make_columns(
    split: str, start: int, stop: int, seed: int, image_size: int
) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [] for name in FEATURES}
    for index in range(start, stop):
        planned, picture, ink = plan_and_draw(split, index, seed=seed, image_size=image_size)
        scene, image = f"{split}-{index:06d}", _png(picture)
        further = []
        if split == "train":
            rng = np.random.default_rng([seed, SPLITS.index(split), 2, index])
            further = further_captions(planned, rng, image_size)
        for number, layout in enumerate([planned, *further]):
            columns["image"].append({"bytes": image, "path": None})
            mask = _png(target_mask(layout, ink))
            columns["mask"].append({"bytes": mask, "path": None})
            columns["caption"].append(layout.caption)
            columns["level"].append(DIGIT_SCENE_LEVELS.index(layout.level))
            columns["id"].append(f"{scene}-{number}" if number else scene)
            columns["scene"].append(scene)
    return columns


def _draw(
    layout: SceneLayout, sources: SplitSources, rng: np.random.Generator, image_size: int
) -> tuple[np.ndarray, np.ndarray]:
    strays = rng.uniform(-1, 1, (len(layout.digits), 3)).tolist()
    colours = [
        _colour(digit.colour, *stray) for digit, stray in zip(layout.digits, strays, strict=True)
    ]
    picture = _background(sources, rng, image_size)
    for _ in range(_CROP_TRIES):
        if _all_visible(layout, colours, picture):
            break
        picture = _background(sources, rng, image_size)
    ink = np.zeros((len(layout.digits), image_size, image_size), dtype=bool)
    for position, digit in enumerate(layout.digits):
        glyph = sources.glyphs[digit.source]
        # Half of the empty border cell stays: strokes end softly instead of at the box.
        alpha_image = glyph.resize(
            (digit.width, digit.height),
            Image.Resampling.BICUBIC,
            box=(0.5, 0.5, glyph.width - 0.5, glyph.height - 0.5),
        )
        alpha = np.asarray(alpha_image, dtype=np.float32)[:, :, None] / 255
        rows = slice(digit.top, digit.top + digit.height)
        columns = slice(digit.left, digit.left + digit.width)
        picture[rows, columns] += alpha * (colours[position] - picture[rows, columns])
        ink[position, rows, columns] = alpha[:, :, 0] > 0.5
    return np.round(picture).astype(np.uint8), ink


def _all_visible(layout: SceneLayout, colours: list[np.ndarray], background: np.ndarray) -> bool:
    for digit, colour in zip(layout.digits, colours, strict=True):
        bottom, right = digit.top + digit.height, digit.left + digit.width
        covered = background[digit.top : bottom, digit.left : right].reshape(-1, 3)
        red, green, blue = (np.add.reduce(covered) / len(covered) - colour).tolist()
        if red * red + green * green + blue * blue < _SMALLEST_CONTRAST**2:
            return False
    return True


def _background(sources: SplitSources, rng: np.random.Generator, image_size: int) -> np.ndarray:
    """A random square of the split's photograph strips, (image_size, image_size, 3) float32."""
    smallest, largest = _CROP_SIDES
    side = int(rng.integers(smallest, largest + 1))
    rooms = np.array([strip.width - side + 1 for strip in sources.photo_strips])
    strip = sources.photo_strips[int(rng.choice(len(rooms), p=rooms / rooms.sum()))]
    left = int(rng.integers(strip.width - side + 1))
    top = int(rng.integers(strip.height - side + 1))
    crop = strip.resize(
        (image_size, image_size),
        Image.Resampling.BILINEAR,
        box=(left, top, left + side, top + side),
    )
    if rng.random() < 0.5:
        crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(crop, dtype=np.float32).copy()


def _colour(name: str, hue_stray: float, saturation_stray: float, value_stray: float) -> np.ndarray:
    """RGB (3,) float32 of 0..255: the named colour, strayed by -1..1 times the jitter."""
    hue, saturation, value = _HSV[name]
    rgb = colorsys.hsv_to_rgb(
        (hue + _HUE_JITTER * hue_stray) % 360 / 360,
        min(max(saturation + _SATURATION_JITTER * saturation_stray, 0.0), 1.0),
        min(value + _VALUE_JITTER * value_stray, 1.0),
    )
    return np.array(rgb, dtype=np.float32) * 255


def _png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    # Run lengths alone are quicker than zlib's search, and photographs come out smaller, too.
    Image.fromarray(pixels).save(buffer, "png", compress_level=1, compress_type=zlib.Z_RLE)
    return buffer.getvalue()


def _holds_scenes(folder: Path, parameters: dict[str, int]) -> bool:
    """Whether the folder holds these scenes; ValueError when it holds anything else."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    parameters_file = folder / PARAMETERS_FILE
    if not parameters_file.is_file():
        raise ValueError(
            f"{str(folder)!r} exists and holds no digit scenes: choose another output folder."
        )
    try:
        found = json.loads(parameters_file.read_text())
    except json.JSONDecodeError:
        found = {}
    if found == parameters:
        return True
    names = [name for name in parameters if found.get(name) != parameters[name]]
    differences = ", ".join(
        f"{name}={found.get(name)} instead of {parameters[name]}" for name in names
    )
    raise ValueError(
        f"{str(folder)!r} holds digit scenes made with {differences}: delete the folder to make "
        "them anew, or choose another output folder."
    )


def _load(folder: Path) -> datasets.DatasetDict:
    loaded = datasets.load_from_disk(str(folder))
    assert isinstance(loaded, datasets.DatasetDict)
    return loaded


@contextlib.contextmanager
def _quiet_progress_bars() -> Any:
    """Hide the bars of `datasets` for a write of a second, and leave the setting as it was."""
    were_enabled = datasets.are_progress_bars_disabled() is False
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if were_enabled:
            datasets.enable_progress_bars()
