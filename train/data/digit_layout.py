"""Plan digit scenes: which digits, in which colours, sizes and places, and what the caption names.

A plan is made without drawing anything, so that it can be checked by brute force. Every scene holds
another digit of the colour of what the caption names, and another digit of its class in another
colour; on the levels `relation` and `size` another digit of the class contradicts the phrase.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from dualwave.train.data.digit_sources import SplitSources

DIGIT_SCENE_LEVELS = ("attribute", "all", "relation", "size")
DIGIT_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
)  # fmt: skip
COLOURS = ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "white")
RELATIONS = ("left of", "right of", "above", "below")
SIZE_WORDS = ("largest", "smallest")

# All lengths are for pictures of 64 pixels and grow with the picture.
REFERENCE_SIDE = 64
_HEIGHTS = (16.0, 28.5)  # of boxes; the ink is a ninth less
RELATION_MARGIN = 5.0
SIZE_RATIO = 1.25
_PLACEMENT_TRIES = 40

T = TypeVar("T")
Identity = tuple[int, str]  # digit class, colour


@dataclass(frozen=True)
class PlacedDigit:
    """A digit in a scene; `source` is its index in scikit-learn's digits, the box is in pixels."""

    digit: int
    colour: str
    source: int
    left: int
    top: int
    width: int
    height: int

    @property
    def centre(self) -> tuple[float, float]:
        """(x, y) of the middle of the box; y grows downwards."""
        return self.left + self.width / 2, self.top + self.height / 2


@dataclass(frozen=True)
class SceneLayout:
    """A planned scene: `targets` are the positions in `digits` of what the caption names.

    `anchor` is the position of the digit that a `relation` caption refers to, otherwise None.
    """

    level: str
    caption: str
    digits: tuple[PlacedDigit, ...]
    targets: tuple[int, ...]
    anchor: int | None = None


@dataclass(frozen=True)
class _Cast:
    """The digits of a scene before they have sizes and places; targets come first."""

    level: str
    caption: str
    identities: list[Identity]
    target_count: int = 1
    anchor: int | None = None
    phrase: str = ""  # the relation or the size word


def plan_scene(
    level: str, sources: SplitSources, rng: np.random.Generator, image_size: int
) -> SceneLayout:
    """Plan one scene of 4 to 6 digits whose boxes do not overlap, for a square picture.

    Args:
        level: one of `DIGIT_SCENE_LEVELS`.
        sources: the digits to choose from.
        rng: where every choice comes from.
        image_size: side of the picture in pixels.
    """
    count = 4 + _below(rng, 3)
    for _ in range(1000):
        cast = _CASTS[level](rng, count)
        layout = _place(cast, sources, rng, image_size)
        if layout is not None:
            return layout
    raise AssertionError("digits of these sizes always fit within a thousand tries")


def _below(rng: np.random.Generator, stop: int) -> int:
    return int(rng.random() * stop)


def _pick(rng: np.random.Generator, values: Sequence[T], *excluded: T) -> T:
    while True:
        value = values[_below(rng, len(values))]
        if value not in excluded:
            return value


def _fill(
    rng: np.random.Generator, identities: list[Identity], count: int, forbidden: Identity
) -> None:
    """Add digits up to `count`, half of them made of classes and colours the scene already has."""
    while len(identities) < count:
        if rng.random() < 0.5:
            identity = (_pick(rng, identities)[0], _pick(rng, identities)[1])
        else:
            identity = (_below(rng, 10), _pick(rng, COLOURS))
        if identity != forbidden:
            identities.append(identity)


def _cast_attribute(rng: np.random.Generator, count: int) -> _Cast:
    digit, colour = _below(rng, 10), _pick(rng, COLOURS)
    identities = [
        (digit, colour),
        (_pick(rng, range(10), digit), colour),
        (digit, _pick(rng, COLOURS, colour)),
    ]
    _fill(rng, identities, count, forbidden=(digit, colour))
    return _Cast("attribute", f"the {colour} {DIGIT_WORDS[digit]}", identities)


def _cast_all(rng: np.random.Generator, count: int) -> _Cast:
    digit, colour = _below(rng, 10), _pick(rng, COLOURS)
    matches = 3 if count > 4 and rng.random() < 0.3 else 2
    identities = [(digit, colour)] * matches
    identities.append((_pick(rng, range(10), digit), colour))
    identities.append((digit, _pick(rng, COLOURS, colour)))
    _fill(rng, identities, count, forbidden=(digit, colour))
    return _Cast("all", f"every {colour} {DIGIT_WORDS[digit]}", identities, matches)


def _cast_relation(rng: np.random.Generator, count: int) -> _Cast:
    """Target, a rival of its class on the other side, the anchor and the anchor's look-alikes."""
    digit, colour = _below(rng, 10), _pick(rng, COLOURS)
    anchor_digit, anchor_colour = _pick(rng, range(10), digit), _pick(rng, COLOURS)
    relation = _pick(rng, RELATIONS)
    if colour == anchor_colour:
        rival_colour = lookalike_colour = _pick(rng, COLOURS, colour)
    else:
        # Crossed colours: each of target and anchor has its colour on a digit of the other class.
        rival_colour, lookalike_colour = anchor_colour, colour
    identities = [
        (digit, colour),
        (anchor_digit, anchor_colour),
        (digit, rival_colour),
        (anchor_digit, lookalike_colour),
    ]
    _fill(rng, identities, count, forbidden=(anchor_digit, anchor_colour))
    caption = f"the {DIGIT_WORDS[digit]} {relation} the {anchor_colour} {DIGIT_WORDS[anchor_digit]}"
    return _Cast("relation", caption, identities, anchor=1, phrase=relation)


def _cast_size(rng: np.random.Generator, count: int) -> _Cast:
    digit, colour = _below(rng, 10), _pick(rng, COLOURS)
    word = _pick(rng, SIZE_WORDS)
    identities = [
        (digit, colour),
        (digit, _pick(rng, COLOURS, colour)),
        (_pick(rng, range(10), digit), colour),
    ]
    # No fill is forbidden: digits of the class are kept to the other side of the size instead.
    _fill(rng, identities, count, forbidden=(-1, ""))
    return _Cast("size", f"the {word} {DIGIT_WORDS[digit]}", identities, phrase=word)


_CASTS: dict[str, Callable[[np.random.Generator, int], _Cast]] = {
    "attribute": _cast_attribute,
    "all": _cast_all,
    "relation": _cast_relation,
    "size": _cast_size,
}


def _place(
    cast: _Cast, sources: SplitSources, rng: np.random.Generator, image_size: int
) -> SceneLayout | None:
    """Give every digit an image, a size and a place; None when they do not fit this time."""
    scale = image_size / REFERENCE_SIDE
    chosen: list[int] = []
    for digit, _ in cast.identities:
        chosen.append(_pick(rng, sources.indices_by_class[digit], *chosen))
    sizes = _sizes(cast, [sources.glyphs[index].size for index in chosen], rng, scale)
    if sizes is None:
        return None
    corners = _corners(cast, sizes, rng, image_size, RELATION_MARGIN * scale)
    if corners is None:
        return None
    digits = tuple(
        PlacedDigit(digit, colour, source, *corner, *size)
        for (digit, colour), source, corner, size in zip(
            cast.identities, chosen, corners, sizes, strict=True
        )
    )
    return SceneLayout(
        cast.level, cast.caption, digits, tuple(range(cast.target_count)), cast.anchor
    )


def _sizes(
    cast: _Cast, glyph_sizes: list[tuple[int, int]], rng: np.random.Generator, scale: float
) -> list[tuple[int, int]] | None:
    """(width, height) of every box; on level `size` the target is clearly beyond its class."""
    low, high = _HEIGHTS
    heights = [low + (high - low) * rng.random() for _ in glyph_sizes]
    rivals: list[int] = []
    if cast.level == "size":
        rivals = [
            position
            for position, (digit, _) in enumerate(cast.identities)
            if position and digit == cast.identities[0][0]
        ]
        if cast.phrase == "largest":
            heights[0] = low * SIZE_RATIO + (high - low * SIZE_RATIO) * rng.random()
            low, high = low, heights[0] / SIZE_RATIO
        else:
            heights[0] = low + (high / SIZE_RATIO - low) * rng.random()
            low, high = heights[0] * SIZE_RATIO, high
        for position in rivals:
            heights[position] = low + (high - low) * rng.random()
    sizes = [
        (round(height * scale * (columns - 1) / (rows - 1)), round(height * scale))
        for height, (columns, rows) in zip(heights, glyph_sizes, strict=True)
    ]
    for position in rivals:
        large, small = sizes[0], sizes[position]
        if cast.phrase == "smallest":
            large, small = small, large
        # Height and area must agree, or a wide digit could be taken for the larger one.
        clearly_taller = large[1] >= SIZE_RATIO * small[1]
        clearly_wider = large[0] * large[1] >= SIZE_RATIO * small[0] * small[1]
        if not (clearly_taller and clearly_wider):
            return None
    return sizes


def _corners(
    cast: _Cast,
    sizes: list[tuple[int, int]],
    rng: np.random.Generator,
    image_size: int,
    margin: float,
) -> list[tuple[int, int]] | None:
    """(left, top) of boxes that do not overlap, by trial; relations are kept with a margin."""
    # What is bound to a side of the anchor comes right after it, then the largest: that fits best.
    order = sorted(
        range(len(sizes)),
        key=lambda position: (
            position != cast.anchor,
            not _is_bound_to_side(cast, position),
            -sizes[position][0] * sizes[position][1],
        ),
    )
    trials = rng.random((len(sizes), _PLACEMENT_TRIES, 2)).tolist()
    corners: dict[int, tuple[int, int]] = {}
    placed: list[tuple[int, int, int, int]] = []
    for position in order:
        width, height = sizes[position]
        for across, down in trials[position]:
            left, top = (
                int(across * (image_size - width + 1)),
                int(down * (image_size - height + 1)),
            )
            right, bottom = left + width, top + height
            for other_left, other_top, other_right, other_bottom in placed:
                if (
                    left < other_right
                    and other_left < right
                    and top < other_bottom
                    and other_top < bottom
                ):
                    break
            else:
                if not _contradicts_relation(cast, position, (left, top), sizes, corners, margin):
                    corners[position] = (left, top)
                    placed.append((left, top, right, bottom))
                    break
        else:
            return None
    return [corners[position] for position in range(len(sizes))]


def _is_bound_to_side(cast: _Cast, position: int) -> bool:
    """Whether the digit is of the class whose place relative to the anchor the caption states."""
    return cast.anchor is not None and cast.identities[position][0] == cast.identities[0][0]


def _contradicts_relation(
    cast: _Cast,
    position: int,
    corner: tuple[int, int],
    sizes: list[tuple[int, int]],
    corners: dict[int, tuple[int, int]],
    margin: float,
) -> bool:
    """Whether the target is not clearly on its side of the anchor, or a rival not on the other."""
    if cast.anchor is None or not _is_bound_to_side(cast, position):
        return False
    axis = 0 if cast.phrase in ("left of", "right of") else 1
    anchor_middle = corners[cast.anchor][axis] + sizes[cast.anchor][axis] / 2
    offset = corner[axis] + sizes[position][axis] / 2 - anchor_middle
    if cast.phrase in ("left of", "above"):
        offset = -offset
    return offset < margin if position == 0 else offset > -margin
