"""Runs the checks of a GPU benchmark in several processes, before anything is timed.

Most of a check's time is the compiler's and the float64 reference's. What they compile is in
Triton's cache for the times. A check is a dataclass that says in words what it is.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from typing import Any

import torch

MOST_PROCESSES = 12


@dataclass(frozen=True)
class Outcome:
    """What became of a check; ``failure`` is empty where it is green."""

    check: Any
    failure: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self.check), "failure": self.failure}


def checked(
    checks: Sequence[Any], check: Callable[[Any], str], processes: int | None = None
) -> list[Outcome]:
    """Run checks and print those that are red.

    Raises:
        SystemExit: 1 if any is red.
    """

    def report(outcome: Outcome) -> None:
        if outcome.failure:
            print(f"red: {outcome.check}: {outcome.failure}", flush=True)

    outcomes = run_checks(checks, check, report, processes)
    red = sum(bool(outcome.failure) for outcome in outcomes)
    if red:
        print(f"error: {red} of {len(outcomes)} checks are red; nothing is timed.", file=sys.stderr)
        raise SystemExit(1)
    return outcomes


def run_checks(
    checks: Sequence[Any],
    check: Callable[[Any], str],
    report: Callable[[Outcome], object],
    processes: int | None = None,
) -> list[Outcome]:
    """Run all checks, each to its end, and report them as they come.

    Args:
        checks: what to compare.
        check: what compares, and returns what is wrong or "". It runs in another process.
        report: called with each outcome.
        processes: how many; by default one fewer than there are processors, at most 12.
    """
    outcomes = []
    for outcome in _outcomes(checks, check, processes):
        report(outcome)
        outcomes.append(outcome)
    return sorted(outcomes, key=lambda outcome: str(outcome.check))


def _outcomes(
    checks: Sequence[Any], check: Callable[[Any], str], processes: int | None
) -> Iterator[Outcome]:
    if processes is None:
        processes = min(MOST_PROCESSES, max(1, (os.cpu_count() or 1) - 1))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        processes, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        futures = {pool.submit(check, one): one for one in checks}
        for future in as_completed(futures):
            error = future.exception()
            failure = f"{type(error).__name__}: {error}" if error else future.result()
            yield Outcome(futures[future], failure)
