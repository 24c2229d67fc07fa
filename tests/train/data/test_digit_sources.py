from itertools import combinations, pairwise

import numpy as np
import pytest
from sklearn.datasets import load_digits

from dualwave.train.data.digit_sources import PHOTO_STRIPS, SPLITS, load_split_sources


def test_splits_share_no_digit_and_use_all():
    used = {
        split: {i for indices in load_split_sources(split).indices_by_class for i in indices}
        for split in SPLITS
    }
    for first, second in combinations(SPLITS, 2):
        assert not used[first] & used[second]
    assert set.union(*used.values()) == set(range(1797))


def test_digits_are_stratified():
    target = load_digits().target
    for split, share in (("train", 0.7), ("validation", 0.1), ("test", 0.2)):
        for digit, indices in enumerate(load_split_sources(split).indices_by_class):
            assert all(target[index] == digit for index in indices)
            assert len(indices) / (target == digit).sum() == pytest.approx(share, abs=0.01)


def test_photo_strips_are_disjoint_and_complete():
    for strips in PHOTO_STRIPS.values():
        bounds = sorted(bound for of_split in strips.values() for bound in of_split)
        assert bounds[0][0] == 0
        assert bounds[-1][1] == 640
        assert all(before[1] == after[0] for before, after in pairwise(bounds))


def test_strips_hold_only_their_own_pixels():
    widths = {
        split: sum(strip.width for strip in load_split_sources(split).photo_strips)
        for split in SPLITS
    }
    assert widths == {"train": 800, "validation": 200, "test": 280}
    strip = np.asarray(load_split_sources("validation").photo_strips[0])
    from sklearn.datasets import load_sample_images

    china = load_sample_images().images[0]
    assert np.array_equal(strip, china[:, 540:640])


def test_unknown_split_is_refused():
    with pytest.raises(ValueError, match="train, validation, test"):
        load_split_sources("dev")
