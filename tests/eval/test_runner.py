"""The runner reads a stream once and hands every sample to the evaluator."""

import numpy as np
import pytest

from dualwave.eval.runner import SaliencySample, evaluate_samples


def _stream(ids):
    for index, id in enumerate(ids):
        mask = np.zeros((4, 4), dtype=bool)
        mask[index % 4] = True
        yield SaliencySample(id, np.where(mask, 0.75, 0.25), mask, group=f"g{index % 2}")


def test_a_generator_is_judged_sample_by_sample(capsys):
    scores = evaluate_samples(_stream("abcd"))
    assert (scores.count, scores.map, scores.mae) == (4, 1.0, 0.25)
    assert scores.map_by_group == {"g0": 1.0, "g1": 1.0}
    assert capsys.readouterr().err == ""


def test_progress_is_shown_on_request(capsys):
    evaluate_samples(list(_stream("abcd")), progress=True, description="centre prior")
    shown = capsys.readouterr().err
    assert "centre prior" in shown
    assert "4/4" in shown


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="no sample"):
        evaluate_samples([])
    with pytest.raises(ValueError, match="'a' was evaluated twice"):
        evaluate_samples(_stream("aa"))
