"""Brute force: is every caption true of exactly its targets, and is each of its words needed?"""

import numpy as np
import pytest

from dualwave.train.data.digit_captions import all_captions
from dualwave.train.data.digit_layout import COLOURS, DIGIT_SCENE_LEVELS, plan_scene
from dualwave.train.data.digit_sources import load_split_sources

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
SCENES = 400  # a level


@pytest.fixture(scope="module")
def layouts():
    sources = load_split_sources("train")
    planned = [
        plan_scene(level, sources, np.random.default_rng([7, index]), 64)
        for level in DIGIT_SCENE_LEVELS
        for index in range(SCENES)
    ]
    # Every other caption that a scene allows must pass the checks that the planned ones do.
    return planned + [other for layout in planned for other in all_captions(layout, 64)]


def described(caption, digits):
    """Positions of the digits that the caption fits, read from the caption's words alone."""
    words = caption.split()
    is_class = [digit.digit == WORDS.index(words[-1]) for digit in digits]
    if words[1] in COLOURS and len(words) == 3:
        is_colour = [digit.colour == words[1] for digit in digits]
        return {i for i in range(len(digits)) if is_class[i] and is_colour[i]}
    if words[1] in ("largest", "smallest"):
        same = [i for i in range(len(digits)) if is_class[i]]
        pick = max if words[1] == "largest" else min
        by_height = pick(same, key=lambda i: digits[i].height)
        by_area = pick(same, key=lambda i: digits[i].height * digits[i].width)
        assert by_height == by_area
        return {by_height}
    anchors = [i for i, digit in enumerate(digits) if is_class[i] and digit.colour == words[-2]]
    assert len(anchors) == 1
    x, y = digits[anchors[0]].centre
    side = {
        "left": lambda centre: centre[0] < x,
        "right": lambda centre: centre[0] > x,
        "above": lambda centre: centre[1] < y,
        "below": lambda centre: centre[1] > y,
    }[words[2]]
    wanted = WORDS.index(words[1])
    return {i for i, digit in enumerate(digits) if digit.digit == wanted and side(digit.centre)}


def test_caption_fits_exactly_the_targets(layouts):
    for layout in layouts:
        assert described(layout.caption, layout.digits) == set(layout.targets), layout
        assert (len(layout.targets) > 1) == (layout.level == "all")


def test_every_scene_has_other_digits_of_the_colour_and_of_the_class(layouts):
    for layout in layouts:
        named = set(layout.targets)
        named_groups = [named, {layout.anchor}] if layout.anchor is not None else [named]
        for group in named_groups:
            for position in group:
                own = layout.digits[position]
                others = [d for i, d in enumerate(layout.digits) if i not in group]
                assert any(d.colour == own.colour for d in others), layout
                assert any(d.digit == own.digit and d.colour != own.colour for d in others), layout


def test_qualifying_phrase_is_needed_and_clear(layouts):
    for layout in layouts:
        target = layout.digits[layout.targets[0]]
        rivals = [
            digit
            for i, digit in enumerate(layout.digits)
            if i not in layout.targets and digit.digit == target.digit
        ]
        assert rivals
        if layout.level == "relation":
            anchor = layout.digits[layout.anchor]
            axis = 0 if (" left of " in layout.caption or " right of " in layout.caption) else 1
            offsets = [digit.centre[axis] - anchor.centre[axis] for digit in [target, *rivals]]
            assert all(offsets[0] * offset < 0 for offset in offsets[1:])
            assert min(map(abs, offsets)) >= 5
        if layout.level == "size":
            for rival in rivals:
                pair = sorted([target.height, rival.height])
                assert pair[1] / pair[0] >= 1.25


def test_boxes_lie_inside_and_do_not_overlap(layouts):
    for layout in layouts:
        covered = np.zeros((64, 64), dtype=int)
        for digit in layout.digits:
            assert 0 <= digit.left <= 64 - digit.width
            assert 0 <= digit.top <= 64 - digit.height
            covered[
                digit.top : digit.top + digit.height, digit.left : digit.left + digit.width
            ] += 1
        assert covered.max() == 1


def test_counts_classes_colours_and_phrases_all_occur(layouts):
    assert {len(layout.digits) for layout in layouts} == {4, 5, 6}
    assert {digit.colour for layout in layouts for digit in layout.digits} == set(COLOURS)
    captions = " ".join(layout.caption for layout in layouts)
    for phrase in ("left of", "right of", "above", "below", "largest", "smallest", *WORDS):
        assert f" {phrase}" in captions
    # No digit image twice in a scene: it would be told apart by its pixels alone.
    assert all(len({d.source for d in lay.digits}) == len(lay.digits) for lay in layouts)
