"""The GPU half of contrastive.py: the Triton kernels against open_clip, naive, and public kernels.

Values come first: no time is printed while a check is red. This file never ran on a GPU: it was
written and tested on a machine without one. `inf-cl` and `siglip-kernel` take part where they are
installed; a side that runs out of memory is said to.
"""

import time
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from contrastive_cases import Case, Inputs, Loss
from contrastive_checks import all_checks, check_on_gpu
from gpu_checks import checked
from gpu_timing import queued_seconds
from torch import Tensor

DEVICE = "cuda"
DTYPE = torch.bfloat16
TIMED_CASES = tuple(
    Case(kind, batch, size)  # type: ignore[arg-type]
    for kind in ("softmax", "sigmoid")
    for batch in (8192, 32768, 65536)
    for size in (512, 768)
)
CALLS = 5


def measure() -> dict[str, Any]:
    """Check everything, then print the table; return its figures.

    Raises:
        SystemExit: 1 where a check is red: then nothing is timed.
    """
    begin = time.perf_counter()
    outcomes = checked(all_checks(torch.version.hip is not None), check_on_gpu)
    print(f"{len(outcomes)} checks are green ({time.perf_counter() - begin:.0f} s)", flush=True)
    for package in ("inf_cl", "siglip_kernel"):
        if find_spec(package) is None:
            print(f"{package} is not installed: it is not compared with")
    print(f"\n{DTYPE}, milliseconds of forward and of both passes, MiB at the peak of both:")
    times = []
    for case in TIMED_CASES:
        times.append(_measure_case(case))
        print(table_lines(times[-1]), flush=True)
    return {
        "checks": [outcome.to_dict() for outcome in outcomes],
        "times": times,
        "seconds": time.perf_counter() - begin,
    }


def table_lines(row: dict[str, Any]) -> str:
    """A case with one line for each side."""
    lines = [f"{Case(**row['case'])}:"]
    ours = row["sides"]["ours"]
    for name, side in row["sides"].items():
        if "failure" in side:
            lines.append(f"  {name:14}{side['failure']}")
            continue
        ratio = side["both"] / ours["both"]
        lines.append(
            f"  {name:14}{side['forward'] * 1e3:9.2f}{side['both'] * 1e3:9.2f}"
            f"{side['peak_bytes'] / 2**20:10.0f}  {ratio:.2f} of ours"
        )
    return "\n".join(lines)


def sides_of(case: Case) -> dict[str, Loss]:
    """Ours, open_clip's and the naive one, and the public kernels that are installed."""
    sides = case.sides()
    if case.kind == "softmax" and find_spec("inf_cl") is not None:
        sides["inf-cl"] = _inf_cl
    if case.kind == "sigmoid" and find_spec("siglip_kernel") is not None:
        sides["siglip-kernel"] = _siglip_kernel
    return sides


def _inf_cl(image: Tensor, text: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    from inf_cl import cal_flash_loss

    by_image = cal_flash_loss(image, text, scale=scale)
    return (by_image + cal_flash_loss(text, image, scale=scale)).mean() / 2


def _siglip_kernel(image: Tensor, text: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    from siglip_kernel import fused_siglip_loss

    loss: Tensor = fused_siglip_loss(image, text, scale.log(), bias)
    return loss


def _measure_case(case: Case) -> dict[str, Any]:
    inputs = case.inputs(DTYPE, DEVICE)
    sides = {}
    for name, loss in sides_of(case).items():
        try:
            sides[name] = _measure_side(loss, inputs)
        except RuntimeError as error:  # running out of memory is one
            if name == "ours":
                raise
            torch.cuda.empty_cache()
            sides[name] = {"failure": f"was not measured: {str(error).splitlines()[0]}"}
    return {"case": asdict(case), "sides": sides}


def _measure_side(loss: Loss, inputs: Inputs) -> dict[str, Any]:
    both = partial(_both, loss, inputs)
    both()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    both()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    with torch.no_grad():
        forward = queued_seconds(partial(loss, *inputs), CALLS)
    return {"forward": forward, "both": queued_seconds(both, CALLS), "peak_bytes": peak}


def _both(loss: Loss, inputs: Inputs) -> object:
    return torch.autograd.grad(loss(*inputs), inputs, allow_unused=True)
