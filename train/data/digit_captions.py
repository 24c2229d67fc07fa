"""Every caption that a scene of digits allows, under the rule that its own caption follows.

The rule: the scene holds another digit of the colour of what the caption names, and another digit
of its class in another colour. So neither colour nor class alone ever finds it.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dualwave.train.data.digit_layout import (
    DIGIT_SCENE_LEVELS,
    DIGIT_WORDS,
    REFERENCE_SIDE,
    RELATION_MARGIN,
    RELATIONS,
    SIZE_RATIO,
    SIZE_WORDS,
    PlacedDigit,
    SceneLayout,
)

MOST_FURTHER_CAPTIONS = {"relation": 1, "size": 1}
"""How many further captions of a level a scene gets at most, so that the levels stay balanced."""


def further_captions(
    layout: SceneLayout, rng: np.random.Generator, image_size: int
) -> list[SceneLayout]:
    """The scene once more for some of the other captions that it allows.

    Args:
        layout: the scene with its own caption.
        rng: which captions stay where a level has more than `MOST_FURTHER_CAPTIONS` allows.
        image_size: side of the picture in pixels.

    Returns:
        Layouts of the same digits with another level, caption and targets.
    """
    allowed = [
        other for other in all_captions(layout, image_size) if other.caption != layout.caption
    ]
    kept: list[SceneLayout] = []
    for level in DIGIT_SCENE_LEVELS:
        of_level = [other for other in allowed if other.level == level]
        chosen = rng.permutation(len(of_level))[: MOST_FURTHER_CAPTIONS.get(level)]
        kept.extend(of_level[position] for position in sorted(chosen.tolist()))
    return kept


def all_captions(layout: SceneLayout, image_size: int) -> list[SceneLayout]:
    """The scene with each caption that it allows, its own included; order depends on it alone."""
    captions = _Captions(layout.digits, RELATION_MARGIN * image_size / REFERENCE_SIDE)
    return [
        replace(layout, level=level, caption=caption, targets=targets, anchor=anchor)
        for level, caption, targets, anchor in captions
    ]


class _Captions:
    def __init__(self, digits: tuple[PlacedDigit, ...], margin: float):
        self._digits = digits
        self._margin = margin
        self._identities = [(digit.digit, digit.colour) for digit in digits]

    def __iter__(self) -> Iterator[tuple[str, str, tuple[int, ...], int | None]]:
        yield from self._by_colour_and_class()
        for digit in sorted({digit.digit for digit in self._digits}):
            members = [i for i, other in enumerate(self._digits) if other.digit == digit]
            if len(members) > 1:
                yield from self._by_size(digit, members)
                yield from self._by_relation(digit, members)

    def _follows_the_rule(self, position: int) -> bool:
        digit, colour = self._identities[position]
        shares_colour = any(c == colour and d != digit for d, c in self._identities)
        shares_class = any(d == digit and c != colour for d, c in self._identities)
        return shares_colour and shares_class

    def _by_colour_and_class(self) -> Iterator[tuple[str, str, tuple[int, ...], None]]:
        for digit, colour in dict.fromkeys(self._identities):
            identity = (digit, colour)
            targets = tuple(i for i, other in enumerate(self._identities) if other == identity)
            if self._follows_the_rule(targets[0]):
                level, quantifier = ("attribute", "the") if len(targets) == 1 else ("all", "every")
                yield level, f"{quantifier} {colour} {DIGIT_WORDS[digit]}", targets, None

    def _by_size(
        self, digit: int, members: list[int]
    ) -> Iterator[tuple[str, str, tuple[int, ...], None]]:
        by_height = sorted(members, key=lambda i: self._digits[i].height)
        for word in SIZE_WORDS:
            target = by_height[-1] if word == "largest" else by_height[0]
            others = [i for i in members if i != target]
            if all(
                self._clearly_larger(target, i)
                if word == "largest"
                else self._clearly_larger(i, target)
                for i in others
            ) and self._follows_the_rule(target):
                yield "size", f"the {word} {DIGIT_WORDS[digit]}", (target,), None

    def _clearly_larger(self, position: int, other: int) -> bool:
        """By height and by area, or a wide digit could be taken for the larger one."""
        large, small = self._digits[position], self._digits[other]
        taller = large.height >= SIZE_RATIO * small.height
        return taller and large.width * large.height >= SIZE_RATIO * small.width * small.height

    def _by_relation(
        self, digit: int, members: list[int]
    ) -> Iterator[tuple[str, str, tuple[int, ...], int]]:
        for anchor, (anchor_digit, anchor_colour) in enumerate(self._identities):
            is_unique = self._identities.count((anchor_digit, anchor_colour)) == 1
            if anchor_digit == digit or not is_unique or not self._follows_the_rule(anchor):
                continue
            for relation in RELATIONS:
                offsets = {i: self._offset(i, anchor, relation) for i in members}
                targets = tuple(i for i in members if offsets[i] >= self._margin)
                rivals = [i for i in members if offsets[i] <= -self._margin]
                if (
                    len(targets) == 1
                    and len(rivals) == len(members) - 1
                    and self._follows_the_rule(targets[0])
                ):
                    named = f"{anchor_colour} {DIGIT_WORDS[anchor_digit]}"
                    caption = f"the {DIGIT_WORDS[digit]} {relation} the {named}"
                    yield "relation", caption, targets, anchor

    def _offset(self, position: int, anchor: int, relation: str) -> float:
        """Pixels from the anchor's middle to the digit's, positive on the relation's side."""
        digit, other = self._digits[position], self._digits[anchor]
        across = digit.left + digit.width / 2 - other.left - other.width / 2
        down = digit.top + digit.height / 2 - other.top - other.height / 2
        return {"left of": -across, "right of": across, "above": -down, "below": down}[relation]
