"""``dualwave predict``: a map and an overlay, as PNG files, for each image."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageOps

import dualwave
from dualwave.pictures import map_to_grey, overlay, save_picture


@dataclass(frozen=True)
class WrittenPictures:
    """The two files written for one image."""

    map_file: Path
    overlay_file: Path


def open_image(path: Path) -> Image.Image:
    """The image in a file as RGB, turned upright as its EXIF tag says.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is a folder, or not an image that can be read.
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with Image.open(path) as image:
            return ImageOps.exif_transpose(image).convert("RGB")
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} is not an image that can be read: {error}") from error


def choose_names(images: Sequence[Path], output: Path) -> list[WrittenPictures]:
    """File names in ``output`` for each image: its stem, with -2, -3, ... where one is taken.

    A name is taken if another of the images has it, or if the file would be one of the images
    themselves; files of an earlier run are overwritten.
    """
    inputs = {path.resolve() for path in images}
    taken: set[Path] = set()
    chosen = []
    for path in images:
        number = 1
        while True:
            stem = path.stem if number == 1 else f"{path.stem}-{number}"
            names = WrittenPictures(output / f"{stem}.map.png", output / f"{stem}.overlay.png")
            files = {names.map_file.resolve(), names.overlay_file.resolve()}
            if not files & (taken | inputs):
                break
            number += 1
        taken |= files
        chosen.append(names)
    return chosen


def predict_files(
    checkpoint: Path, images: Sequence[Path], text: str, output: Path
) -> Iterator[WrittenPictures]:
    """Write the map and the overlay of each image, one image after the other.

    All images are read once before the model is loaded, so that a bad one is named at once and
    nothing is written.

    Args:
        checkpoint: folder of a saved model.
        images: image files.
        text: what to look for.
        output: folder for the files; made if it does not exist.

    Yields:
        The files of each image, once they are written.

    Raises:
        FileNotFoundError: for a missing image or checkpoint.
        ValueError: for an empty text, a file that is no image, or an output that is no folder.
    """
    if not text.strip():
        raise ValueError("--text is empty; say what to look for, such as --text 'the red three'")
    if output.exists() and not output.is_dir():
        raise ValueError(f"--output {output} is a file; name a folder")
    for path in images:
        open_image(path)
    model = dualwave.load(checkpoint)
    output.mkdir(parents=True, exist_ok=True)
    for path, names in zip(images, choose_names(images, output), strict=True):
        image = open_image(path)
        saliency = model.saliency(image, text)
        save_picture(map_to_grey(saliency), names.map_file)
        save_picture(overlay(image, saliency), names.overlay_file)
        yield names
