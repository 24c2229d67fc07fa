"""Who takes turns with whom, how ratios come about and when a target counts as reached."""

from importlib import import_module

import pytest


def test_functions_take_turns_and_warm_up_rounds_are_not_timed() -> None:
    calls: list[str] = []
    functions = {name: lambda name=name: calls.append(name) for name in ("chain", "ours")}
    times = import_module("timing").interleaved_times(functions, rounds=3, warm_up_rounds=2)
    assert calls == ["chain", "ours"] * 5
    assert {name: len(seconds) for name, seconds in times.items()} == {"chain": 3, "ours": 3}


def test_the_device_is_waited_for_before_and_after_each_call() -> None:
    calls: list[str] = []
    import_module("timing").interleaved_times(
        {"ours": lambda: calls.append("ours")},
        rounds=2,
        warm_up_rounds=0,
        synchronize=lambda: calls.append("wait"),
    )
    assert calls == ["wait", "ours", "wait"] * 2


def test_a_speedup_is_the_median_of_the_ratios_of_the_same_rounds() -> None:
    # The second round was slow for both: the ratio of the medians would not see 2, 3, 4.
    found = import_module("timing").speedup([2.0, 30.0, 4.0], [1.0, 10.0, 1.0])
    assert found.median == pytest.approx(3.0)
    assert (found.lower_quartile, found.upper_quartile) == pytest.approx((2.0, 4.0))
    assert str(found) == "3.00x (2.00 to 4.00)"


def test_rounds_that_do_not_match_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        import_module("timing").speedup([1.0, 2.0, 3.0], [1.0, 2.0])


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_the_growth_exponent_of_a_power_is_that_power(power: float) -> None:
    sizes = [64, 256, 1024]
    exponent = import_module("timing").growth_exponent(sizes, [1e-6 * n**power for n in sizes])
    assert exponent == pytest.approx(power)


@pytest.mark.parametrize(
    ("form", "direction", "size", "target"),
    [
        ("eager", "forward", 14, 1.0),
        ("eager", "forward", 64, 1.0),
        ("eager", "forward+backward", 14, 1.3),
        ("eager", "forward+backward", 16, 1.3),
        ("eager", "forward+backward", 32, 1.15),
        ("eager", "forward+backward", 64, 1.15),
        ("compiled", "forward", 16, 2.0),
        ("compiled", "forward+backward", 14, 2.0),
        ("compiled", "forward+backward", 32, None),
    ],
)
def test_each_comparison_has_its_target(
    form: str, direction: str, size: int, target: float | None
) -> None:
    assert import_module("verdicts").target_of(form, direction, size) == target


def test_a_target_is_reached_by_the_unrounded_median() -> None:
    module = import_module("verdicts")
    met, missed, free = (module.Verdict(*pair) for pair in ((1.3, 1.3), (1.3, 1.299), (None, 0.1)))
    assert str(met) == "target 1.30: reached"
    assert str(missed) == "target 1.30: not reached"
    assert str(free) == "no target"
    assert free.reached is None
    assert module.summary([met, missed, free]) == "1 of 2 targets reached"
