"""The learning rate as a function of the step; nothing to save but the step itself."""

import math


def learning_rate_at(
    step: int, *, peak: float, steps: int, warmup_steps: int, final_ratio: float
) -> float:
    """Linear warm-up to `peak`, then half a cosine down to `final_ratio * peak`.

    The first step already moves (`peak / warmup_steps`), the last warm-up step has the peak, and
    the last step of the run has the final rate. Steps after the last keep the final rate.

    Args:
        step: 1 for the first step of the run.
        peak: the highest rate.
        steps: steps of the whole run.
        warmup_steps: steps of the warm-up, 0 for none.
        final_ratio: final rate over peak.
    """
    if step <= warmup_steps:
        return peak * step / warmup_steps
    progress = min(1.0, (step - warmup_steps) / max(1, steps - warmup_steps))
    cosine = (1 + math.cos(math.pi * progress)) / 2
    return peak * (final_ratio + (1 - final_ratio) * cosine)
