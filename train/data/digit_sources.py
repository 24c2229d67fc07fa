"""The raw material of digit scenes: handwriting and photographs, divided between the splits.

scikit-learn ships 1,797 handwritten digits (8x8 pixels, 0 to 16 = how much of the pixel is ink)
and two colour photographs (427x640). Both are divided between the splits once and for all,
whatever the seed of the scenes, so that what one seed tests on, no other seed trains on.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import Image

SPLITS = ("train", "validation", "test")

_SHARES_OF_DIGITS = {"train": 0.7, "validation": 0.1, "test": 0.2}

# Columns [left, right) of each photograph, by file name. The test strips run through the pagoda and
# the flower, as parts of the training strips do, so that no split has the plainer backgrounds.
PHOTO_STRIPS: dict[str, dict[str, tuple[tuple[int, int], ...]]] = {
    "china.jpg": {
        "train": ((0, 230), (370, 540)),
        "validation": ((540, 640),),
        "test": ((230, 370),),
    },
    "flower.jpg": {
        "train": ((100, 310), (450, 640)),
        "validation": ((0, 100),),
        "test": ((310, 450),),
    },
}


@dataclass(frozen=True)
class SplitSources:
    """What the scenes of one split may be made of.

    Attributes:
        indices_by_class: ten tuples of indices into scikit-learn's digits.
        glyphs: by index, the ink of the digit ('L', 0..255) with a border of one empty cell.
        photo_strips: RGB pictures; only the split's own pixels are in them.
    """

    indices_by_class: tuple[tuple[int, ...], ...]
    glyphs: dict[int, Image.Image]
    photo_strips: tuple[Image.Image, ...]


@cache
def load_split_sources(split: str) -> SplitSources:
    """Digits and photograph strips of one of `SPLITS`; the three share nothing."""
    # Imported here: a user who trains on other data need not wait a second for scikit-learn.
    from sklearn.datasets import load_digits, load_sample_images

    digits = load_digits()
    indices_by_class = tuple(
        _share_of_class(np.flatnonzero(digits.target == digit), digit, split) for digit in range(10)
    )
    glyphs = {
        index: _glyph(digits.images[index]) for indices in indices_by_class for index in indices
    }
    photographs = load_sample_images()
    strips = tuple(
        Image.fromarray(np.ascontiguousarray(pixels[:, left:right]))
        for name, pixels in zip(photographs.filenames, photographs.images, strict=True)
        for left, right in PHOTO_STRIPS[name.replace("\\", "/").rsplit("/", 1)[-1]][split]
    )
    return SplitSources(indices_by_class, glyphs, strips)


def _share_of_class(indices: np.ndarray, digit: int, split: str) -> tuple[int, ...]:
    shuffled = np.random.default_rng([1797, digit]).permutation(indices)
    start = 0.0
    for name in SPLITS:
        stop = start + _SHARES_OF_DIGITS[name]
        if name == split:
            first, last = round(start * len(shuffled)), round(stop * len(shuffled))
            return tuple(int(index) for index in shuffled[first:last])
        start = stop
    raise ValueError(f"There is no split {split!r}; there are {', '.join(SPLITS)}.")


def _glyph(ink: np.ndarray) -> Image.Image:
    """Cut the digit out along its ink and put one empty cell around it, so that edges fade out."""
    rows, columns = np.flatnonzero((ink > 2).any(1)), np.flatnonzero((ink > 2).any(0))
    cut = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return Image.fromarray(np.pad(np.round(cut * (255 / 16)).astype(np.uint8), 1))
