"""Shuffled captions: a permutation without fixed points that changes as many texts as possible."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from dualwave.eval.baselines import caption_permutation, shuffled_captions


@pytest.mark.parametrize("seed", range(5))
def test_permutation_has_no_fixed_point_and_stays_in_the_group(seed):
    random = np.random.default_rng(seed)
    captions = [f"the {random.integers(0, 12)}" for _ in range(120)]
    groups = [str(random.integers(0, 4)) for _ in range(120)]
    order = caption_permutation(captions, groups, seed)
    assert sorted(order) == list(range(120))
    assert all(source != scene for scene, source in enumerate(order))
    assert all(groups[source] == groups[scene] for scene, source in enumerate(order))
    assert all(captions[source] != captions[scene] for scene, source in enumerate(order))
    assert shuffled_captions(captions, groups, seed) == [captions[source] for source in order]


def _fewest_equal_texts(captions):
    return min(
        sum(captions[source] == captions[scene] for scene, source in enumerate(order))
        for order in permutations(range(len(captions)))
    )


@pytest.mark.parametrize(
    "captions", ["aab", "aaab", "aaabbc", "aaaabb", "abcabc", "aaaa", "aabbcc"]
)
def test_no_permutation_leaves_fewer_equal_texts(captions):
    for seed in range(6):
        order = caption_permutation(list(captions), seed=seed)
        assert all(source != scene for scene, source in enumerate(order))
        equal = sum(captions[source] == captions[scene] for scene, source in enumerate(order))
        assert equal == _fewest_equal_texts(captions)


def test_seed_decides_the_permutation():
    captions = [f"caption {index}" for index in range(50)]
    assert caption_permutation(captions, seed=3) == caption_permutation(captions, seed=3)
    assert caption_permutation(captions, seed=3) != caption_permutation(captions, seed=4)


@pytest.mark.parametrize("groups", [list("xxxy"), list("xxyz"), list("wxyz")])
def test_a_scene_alone_in_its_group_gets_another_caption(groups):
    order = caption_permutation(list("abcd"), groups)
    assert sorted(order) == [0, 1, 2, 3]
    assert all(source != scene for scene, source in enumerate(order))


def test_every_caption_is_used_once():
    captions = ["the red three"] * 3 + ["every blue six"] * 2 + ["the largest one"]
    assert Counter(shuffled_captions(captions)) == Counter(captions)


def test_wrong_lengths_are_refused():
    with pytest.raises(ValueError, match="2 are needed"):
        shuffled_captions(["the red three"])
    with pytest.raises(ValueError, match="3 captions but 2 groups"):
        shuffled_captions(["a", "b", "c"], ["x", "y"])
