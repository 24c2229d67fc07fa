"""Saliency figures against scikit-learn, plain loops, and values computed with PySODMetrics."""

import json
import math

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from dualwave.eval.saliency import (
    SaliencyEvaluator,
    centre_prior,
    level_histograms,
    pixel_average_precision,
    threshold_curves,
)


def _random_map(random, kind, shape):
    if kind == "ties":
        return random.integers(0, 5, shape) / 4.0
    if kind == "uint8":
        return random.integers(0, 256, shape).astype(np.uint8)
    if kind == "logits":
        return random.normal(0, 30, shape).astype(np.float32)
    if kind == "half":
        return random.random(shape).astype(np.float16)
    return random.random(shape)


def test_average_precision_equals_scikit_learn_on_200_maps():
    random = np.random.default_rng(0)
    for index in range(200):
        shape = tuple(random.integers(1, 24, 2))
        kind = ["ties", "uint8", "logits", "half", "double"][index % 5]
        prediction = _random_map(random, kind, shape)
        mask = random.random(shape) < random.choice([0.04, 0.5, 0.95])
        mask[0, 0] = True
        expected = average_precision_score(mask.ravel(), prediction.ravel())
        assert pixel_average_precision(prediction, mask) == pytest.approx(expected, abs=1e-12)


def test_average_precision_needs_only_the_ranking():
    random = np.random.default_rng(1)
    prediction, mask = random.normal(size=(9, 7)), random.random((9, 7)) < 0.3
    score = pixel_average_precision(prediction, mask)
    assert pixel_average_precision(np.exp(prediction), mask) == score
    with_infinities = np.where(prediction == prediction.max(), np.inf, prediction)
    assert pixel_average_precision(with_infinities, mask) == score


def test_average_precision_edge_cases():
    mask = np.zeros((4, 5), dtype=bool)
    assert math.isnan(pixel_average_precision(np.zeros((4, 5)), mask))
    mask[1, :3] = True
    assert pixel_average_precision(np.full((4, 5), 0.7), mask) == 3 / 20
    assert pixel_average_precision(mask.astype(np.float32), mask) == 1.0
    assert pixel_average_precision(np.zeros((4, 5)), np.ones((4, 5), dtype=bool)) == 1.0


GOOD_MAP, GOOD_MASK = np.full((3, 4), 0.5), np.eye(3, 4, dtype=bool)


@pytest.mark.parametrize(
    ("prediction", "mask", "said"),
    [
        (np.where(GOOD_MASK, np.nan, 0.5), GOOD_MASK, "NaN at 3 of 12 pixels"),
        (np.full((4, 3), 0.5), GOOD_MASK, r"\(4, 3\) and the mask \(3, 4\)"),
        (np.full((1, 3, 4), 0.5), GOOD_MASK[None], r"\(height, width\)"),
        (np.zeros((0, 4)), np.zeros((0, 4), dtype=bool), r"\(height, width\)"),
        (GOOD_MAP, GOOD_MASK.astype(np.uint8), "mask must be bool"),
        (GOOD_MAP + 0j, GOOD_MASK, "complex"),
    ],
)
def test_bad_pairs_are_refused_and_the_evaluator_names_the_sample(prediction, mask, said):
    with pytest.raises(ValueError, match=said):
        pixel_average_precision(prediction, mask)
    evaluator = SaliencyEvaluator()
    with pytest.raises(ValueError, match=f"^sample 'scene-7': .*{said}"):
        evaluator.update("scene-7", prediction, mask)
    assert len(evaluator) == 0


@pytest.mark.parametrize(
    ("prediction", "said"),
    [
        (GOOD_MAP * 3, r"\[1.5, 1.5\] instead of \[0, 1\]"),
        (GOOD_MAP - 0.6, "sigmoid"),
        (np.full((3, 4), np.inf), "inf"),
        (np.ones((3, 4), dtype=np.int64), "float in .* or uint8"),
    ],
)
def test_evaluator_refuses_maps_outside_the_unit_range(prediction, said):
    with pytest.raises(ValueError, match=f"^sample 'scene-7': .*{said}"):
        SaliencyEvaluator().update("scene-7", prediction, GOOD_MASK)


def test_duplicate_ids_and_no_samples_are_refused():
    evaluator = SaliencyEvaluator()
    with pytest.raises(ValueError, match="no sample"):
        evaluator.compute()
    evaluator.update("a", GOOD_MAP, GOOD_MASK)
    with pytest.raises(ValueError, match="'a' was evaluated twice"):
        evaluator.update("a", GOOD_MAP, GOOD_MASK)


def _curves_by_loops(samples):
    """Mean precision, recall and F at t = 255 ... 0, pixel by pixel."""
    means = np.zeros((256, 3))
    for prediction, mask in samples:
        for row, threshold in enumerate(range(255, -1, -1)):
            hit = marked = truth = 0
            for value, is_object in zip(prediction.ravel(), mask.ravel(), strict=True):
                scaled = value if prediction.dtype == np.uint8 else value * 255
                level = math.floor(scaled)
                marked += level >= threshold
                truth += bool(is_object)
                hit += bool(is_object) and level >= threshold
            precision = hit / marked if marked else 0.0
            recall = hit / truth if truth else 0.0
            f_measure = 1.3 * precision * recall / (0.3 * precision + recall) if hit else 0.0
            means[row] += np.array([precision, recall, f_measure]) / len(samples)
    return means.T


def _samples():
    random = np.random.default_rng(3)
    kinds = ["ties", "uint8", "double", "half", "double"]
    samples = [(_random_map(random, kind, (5, 6)), random.random((5, 6)) < 0.3) for kind in kinds]
    samples[2] = (samples[2][0], np.zeros((5, 6), dtype=bool))
    samples[3] = (samples[3][0].astype(np.float64), samples[3][1])
    return samples


def test_curves_max_f_and_mae_equal_plain_loops():
    samples = _samples()
    evaluator = SaliencyEvaluator()
    for index, (prediction, mask) in enumerate(samples):
        evaluator.update(str(index), prediction, mask)
    scores = evaluator.compute()

    precision, recall, f_measure = _curves_by_loops(samples)
    np.testing.assert_allclose(scores.pr_curve.precision, precision, rtol=0, atol=1e-12)
    np.testing.assert_allclose(scores.pr_curve.recall, recall, rtol=0, atol=1e-12)
    assert scores.max_f == pytest.approx(max(f_measure), abs=1e-12)
    assert f_measure[255 - scores.max_f_threshold] == pytest.approx(max(f_measure), abs=1e-12)
    unit = [p / 255 if p.dtype == np.uint8 else p for p, _ in samples]
    errors = [np.mean(np.abs(u - m)) for u, (_, m) in zip(unit, samples, strict=True)]
    assert scores.mae == pytest.approx(np.mean(errors), abs=1e-12)


def test_figures_equal_pysodmetrics():
    # Computed once with pysodmetrics 1.6.2 (Fmeasure and MAE, normalize=False); the last mask
    # has no object.
    rows, columns = np.mgrid[:12, :15]
    evaluator = SaliencyEvaluator()
    for k in range(3):
        wave = (np.sin(columns * 0.7 + k) * np.cos(rows * 0.5 - k) + 1) / 2
        disc = (columns - 7 + k) ** 2 + (rows - 5) ** 2 < 9 + 6 * k
        evaluator.update(str(k), wave.astype(np.float32), disc & (k != 2))
    scores = evaluator.compute()
    assert scores.max_f == pytest.approx(0.19835943325876215, abs=1e-9)
    assert scores.max_f_threshold == 255 - 96
    assert scores.mae == pytest.approx(0.4829794267813365, abs=1e-7)
    points = [0, 64, 128, 255]
    assert [scores.pr_curve.precision[i] for i in points] == pytest.approx(
        [0.0, 0.15473032714412024, 0.13990072546773577, 0.12962962962962962], abs=1e-9
    )
    assert [scores.pr_curve.recall[i] for i in points] == pytest.approx(
        [0.0, 0.16444444444444442, 0.3896296296296296, 0.6666666666666666], abs=1e-9
    )


def test_threshold_zero_marks_every_pixel_as_in_the_reference():
    # Reference behaviour, measured: a black map scores max-F 1.0 on a full mask, 0.565 on half.
    black = np.zeros((8, 8), dtype=np.float32)
    for share, expected in [(8, 1.0), (4, 0.565)]:
        mask = np.zeros((8, 8), dtype=bool)
        mask[:share] = True
        evaluator = SaliencyEvaluator()
        evaluator.update("black", black, mask)
        assert evaluator.compute().max_f == pytest.approx(expected, abs=5e-4)


def test_histograms_count_every_pixel_once():
    random = np.random.default_rng(5)
    levels = random.integers(0, 256, (13, 7)).astype(np.uint8)
    mask = random.random((13, 7)) < 0.5
    histograms = level_histograms(levels, mask)
    for level in range(256):
        assert histograms[0, level] == np.count_nonzero((levels == level) & ~mask)
        assert histograms[1, level] == np.count_nonzero((levels == level) & mask)
    assert threshold_curves(histograms[None]).recall[0, -1] == 1.0


def test_means_are_over_samples_and_do_not_depend_on_the_order():
    samples = _samples()
    groups = ["easy", "hard", "hard", None, "easy"]
    results = []
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1]):
        evaluator = SaliencyEvaluator()
        for index in order:
            evaluator.update(f"s{index}", *samples[index], group=groups[index])
        results.append(evaluator.compute())
    assert results[0].to_dict() == results[1].to_dict()
    assert results[0].sample_rows() == results[1].sample_rows()

    scores = results[0]
    precisions = {
        index: average_precision_score(mask.ravel(), prediction.ravel())
        for index, (prediction, mask) in enumerate(samples)
        if mask.any()
    }
    assert scores.map == pytest.approx(np.mean(list(precisions.values())), abs=1e-12)
    assert scores.map_by_group == pytest.approx(
        {"easy": (precisions[0] + precisions[4]) / 2, "hard": precisions[1]}, abs=1e-12
    )
    assert scores.count == 5
    assert scores.count_without_object == 1
    assert scores.count_by_group == {"easy": 2, "hard": 2}
    assert [row["id"] for row in scores.sample_rows()] == ["s0", "s1", "s2", "s3", "s4"]
    assert scores.sample_rows()[2]["average_precision"] is None


def test_figures_without_any_object_are_valid_json():
    evaluator = SaliencyEvaluator()
    evaluator.update("empty", np.zeros((2, 2)), np.zeros((2, 2), dtype=bool), group="g")
    scores = evaluator.compute()
    assert math.isnan(scores.map)
    written = json.loads(json.dumps(scores.to_dict(), allow_nan=False))
    assert written["map"] is None
    assert written["map_by_group"] == {"g": None}
    assert written["mae"] == 0.0
    assert "scikit-learn" in written["conventions"]["map"]


@pytest.mark.parametrize("shape", [(1, 1), (6, 9), (64, 64)])
def test_centre_prior_is_symmetric_and_largest_in_the_middle(shape):
    prior = centre_prior(*shape)
    assert prior.dtype == np.float32
    assert prior.shape == shape
    np.testing.assert_array_equal(prior, prior[::-1, ::-1])
    middle = prior[(shape[0] - 1) // 2, (shape[1] - 1) // 2]
    assert middle == prior.max() <= 1
    assert prior.min() > 0


def test_centre_prior_has_the_stated_width():
    row = centre_prior(1, 101)[0].astype(np.float64)
    offset = np.arange(101) - 50
    # One standard deviation (0.22 * 101) from the middle a Gaussian has fallen to exp(-1/2).
    assert np.interp(0.22 * 101, offset[50:], row[50:]) == pytest.approx(math.exp(-0.5), abs=1e-3)
    with pytest.raises(ValueError, match="0 x 3"):
        centre_prior(0, 3)
