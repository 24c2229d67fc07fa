"""The command line that every benchmark has: a device, and a JSON file for the figures.

It is imported before torch: see `OMP_PROC_BIND` below.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# Unpinned, both threads of a short parallel region may land on one core for seconds, which doubles
# the time of whichever side is being timed. Read when torch starts its threads.
os.environ.setdefault("OMP_PROC_BIND", "true")

import torch


def describe_machine(device: str) -> dict[str, Any]:
    """What a figure depends on besides the code."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "device": torch.cuda.get_device_name() if device == "cuda" else _processor_name(),
        "threads": torch.get_num_threads(),
        "OMP_PROC_BIND": os.environ["OMP_PROC_BIND"],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def _processor_name() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def require_gpu() -> None:
    """Exit with code 2 and one sentence where there is no GPU."""
    if not torch.cuda.is_available():
        print(
            "error: this benchmark needs a CUDA or ROCm GPU, and torch sees none: "
            "use --device cpu, or a machine that has one.",
            file=sys.stderr,
        )
        raise SystemExit(2)


def run(
    description: str,
    on_cpu: Callable[[], dict[str, Any]],
    on_gpu: Callable[[], dict[str, Any]],
) -> None:
    """Run the benchmark of the device that the command line names.

    Args:
        description: of the benchmark, in one line.
        on_cpu: prints its tables and returns what goes into the JSON file; raises SystemExit
            before timing anything if a value is wrong.
        on_gpu: likewise.
    """
    parser = argparse.ArgumentParser(description=description)
    default_device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default_device)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    arguments = parser.parse_args()
    if arguments.json and arguments.json.is_dir():  # an empty name as well
        parser.error(f"--json must name a file, and {arguments.json.resolve()} is a folder.")
    if arguments.device == "cuda":
        require_gpu()
    machine = describe_machine(arguments.device)
    print(", ".join(f"{name} {value}" for name, value in machine.items()), flush=True)
    figures = {
        "command": " ".join(["python", *sys.argv]),
        "machine": machine,
        **(on_cpu() if arguments.device == "cpu" else on_gpu()),
    }
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        partial = arguments.json.with_suffix(".partial")
        partial.write_text(json.dumps(figures, indent=1) + "\n")
        partial.rename(arguments.json)
