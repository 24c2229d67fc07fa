import math

import pytest

from dualwave.train.schedule import learning_rate_at


def _rate(step, **changes):
    values = {"peak": 2.0, "steps": 100, "warmup_steps": 10, "final_ratio": 0.1} | changes
    return learning_rate_at(step, **values)


def test_the_warm_up_is_linear_and_moves_from_the_first_step_on():
    assert [_rate(step) for step in (1, 5, 10)] == pytest.approx([0.2, 1.0, 2.0])


def test_half_a_cosine_leads_to_the_final_rate():
    assert _rate(55) == pytest.approx(2 * (0.1 + 0.9 * 0.5))
    assert _rate(32.5) == pytest.approx(2 * (0.1 + 0.9 * (1 + math.sqrt(0.5)) / 2))
    assert _rate(100) == pytest.approx(0.2)
    assert _rate(101) == pytest.approx(0.2)


def test_a_schedule_may_have_no_warm_up_or_nothing_else():
    assert _rate(1, warmup_steps=0) == pytest.approx(2.0, rel=1e-3)
    assert _rate(100, warmup_steps=100) == pytest.approx(2.0)
    assert _rate(101, warmup_steps=100) == pytest.approx(0.2)
