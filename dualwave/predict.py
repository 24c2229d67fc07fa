"""``dualwave predict``: a map and an overlay, as PNG files, for each image."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import dualwave
from dualwave.eval.pictures import map_to_image, overlay, save_picture
from dualwave.models import DualStreamModel
from dualwave.models.saliency import to_pil


@dataclass(frozen=True)
class WrittenPictures:
    """The two files written for one image."""

    map_file: Path
    overlay_file: Path


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


def unknown_words(model: DualStreamModel, text: str) -> list[str]:
    """The words of a text that the model's tokenizer has no token for, as they were written."""
    assert model.processor is not None, "dualwave.load sets it"
    tokenizer = model.processor.tokenizer
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return [
        text[start:end]
        for token, (start, end) in zip(encoded.input_ids, encoded.offset_mapping, strict=True)
        if token == tokenizer.unk_token_id
    ]


def predict_files(
    checkpoint: Path, images: Sequence[Path], text: str, output: Path
) -> Iterator[WrittenPictures]:
    """Write the map and the overlay of each image, one image after the other.

    All images are read once before the model is loaded, so that a bad one is named at once and
    nothing is written. Words that the model has never seen are noted on stderr.

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
        to_pil(path)
    model = dualwave.load(checkpoint)
    if unknown := unknown_words(model, text):
        print(f"note: this model has not learned {', '.join(map(repr, unknown))}", file=sys.stderr)
    for path, names in zip(images, choose_names(images, output), strict=True):
        image = to_pil(path)
        saliency = model.saliency(image, text)
        save_picture(map_to_image(saliency), names.map_file)
        save_picture(overlay(image, saliency), names.overlay_file)
        yield names
