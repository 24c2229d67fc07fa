"""Which speedup each comparison has to reach, and whether it does."""

from dataclasses import dataclass

LEAST_EAGER_FORWARD = 1.0
LEAST_COMPILED = 2.0
_LARGEST_SMALL_GRID = 16


@dataclass(frozen=True)
class Verdict:
    """A measured speedup beside its target, which is None where nothing is asked."""

    target: float | None
    speedup: float

    @property
    def reached(self) -> bool | None:
        """Judged on the unrounded median; None without a target."""
        return None if self.target is None else self.speedup >= self.target

    def __str__(self) -> str:
        if self.target is None:
            return "no target"
        return f"target {self.target:.2f}: {'reached' if self.reached else 'not reached'}"


def target_of(form: str, direction: str, size: int) -> float | None:
    """The least speedup over the torch.fft chain of the same form.

    Args:
        form: ``"eager"`` or ``"compiled"``.
        direction: ``"forward"`` or ``"forward+backward"``.
        size: the grid's height.
    """
    is_small = size <= _LARGEST_SMALL_GRID
    if form == "compiled":
        return LEAST_COMPILED if is_small else None
    if direction == "forward":
        return LEAST_EAGER_FORWARD
    return 1.3 if is_small else 1.15


def summary(verdicts: list[Verdict]) -> str:
    """How many targets are reached, in words."""
    judged = [verdict for verdict in verdicts if verdict.target is not None]
    return f"{sum(bool(verdict.reached) for verdict in judged)} of {len(judged)} targets reached"
