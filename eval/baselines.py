"""Captions shuffled between scenes: the baseline that shows how much the words matter."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

import numpy as np


def caption_permutation(
    captions: Sequence[str], groups: Sequence[Hashable] | None = None, seed: int = 0
) -> list[int]:
    """Pair every scene with the caption of another scene.

    Every caption is used once and no scene keeps its own. Within a group a scene is given a text
    other than its own wherever that is possible at all: captions are laid out text by text and
    rotated by the number of times the most frequent text occurs, which leaves the fewest equal
    pairs any permutation can leave.

    Args:
        captions: one text a scene.
        groups: one label a scene (its level): captions stay within their group. A scene alone in
            its group joins the other lone scenes or, if it is the only one, the largest group.
        seed: the same seed gives the same permutation.

    Returns:
        List of N indices: scene i is shown caption ``captions[result[i]]``.

    Raises:
        ValueError: fewer than two captions, or another number of groups than captions.
    """
    if len(captions) < 2:
        raise ValueError(f"captions can't be shuffled between {len(captions)} scene: 2 are needed")
    if groups is not None and len(groups) != len(captions):
        raise ValueError(f"there are {len(captions)} captions but {len(groups)} groups")
    random = np.random.default_rng(seed)
    permutation = [0] * len(captions)
    for members in _pools(groups if groups is not None else [None] * len(captions)):
        order = _text_by_text([members[i] for i in random.permutation(len(members))], captions)
        shift = max(Counter(captions[i] for i in members).values())
        if shift == len(members):  # one text only: any rotation gives equal texts
            shift = 1
        for position, scene in enumerate(order):
            permutation[scene] = order[(position + shift) % len(order)]
    return permutation


def shuffled_captions(
    captions: Sequence[str], groups: Sequence[Hashable] | None = None, seed: int = 0
) -> list[str]:
    """Return, for every scene, the caption of another one (see ``caption_permutation``)."""
    return [captions[source] for source in caption_permutation(captions, groups, seed)]


def _pools(groups: Sequence[Hashable]) -> list[list[int]]:
    """Gather indices by group so that every pool has at least two (if there are two at all)."""
    by_group: dict[Hashable, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        by_group[group].append(index)
    pools = [members for members in by_group.values() if len(members) > 1]
    lone = [members[0] for members in by_group.values() if len(members) == 1]
    if len(lone) > 1:
        pools.append(lone)
    elif lone:
        max(pools, key=len).extend(lone)
    return pools


def _text_by_text(members: Sequence[int], captions: Sequence[str]) -> list[int]:
    """Put the members with one text side by side, texts in the order they first come."""
    by_text: dict[str, list[int]] = defaultdict(list)
    for index in members:
        by_text[captions[index]].append(index)
    return [index for same_text in by_text.values() for index in same_text]
