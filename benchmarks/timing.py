"""Times of functions that take turns: what slows the machine for a moment slows all of them."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Speedup:
    """How many times faster than a baseline: the median over rounds and the middle half of them."""

    median: float
    lower_quartile: float
    upper_quartile: float

    def __str__(self) -> str:
        return f"{self.median:.2f}x ({self.lower_quartile:.2f} to {self.upper_quartile:.2f})"


def _nothing() -> None:
    pass


def interleaved_times(
    functions: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warm_up_rounds: int = 2,
    synchronize: Callable[[], object] = _nothing,
) -> dict[str, list[float]]:
    """Call every function once a round.

    Args:
        functions: what is timed, by name.
        rounds: timed rounds.
        warm_up_rounds: rounds before them, which are not timed.
        synchronize: waits for a device; called before and after each call.

    Returns:
        Seconds of each round, by name.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    for round_number in range(warm_up_rounds + rounds):
        for name, function in functions.items():
            synchronize()
            start = time.perf_counter()
            function()
            synchronize()
            if round_number >= warm_up_rounds:
                times[name].append(time.perf_counter() - start)
    return times


def speedup(baseline: Sequence[float], ours: Sequence[float]) -> Speedup:
    """Compare times of the same rounds, round by round."""
    ratios = [slow / fast for slow, fast in zip(baseline, ours, strict=True)]
    lower, _, upper = statistics.quantiles(ratios, n=4)
    return Speedup(statistics.median(ratios), lower, upper)


def growth_exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """The power of the size with which times grow: the slope of a line through the logarithms."""
    slope, _ = np.polyfit(np.log(sizes), np.log(seconds), 1)
    return float(slope)
