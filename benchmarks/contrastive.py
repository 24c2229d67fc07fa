"""Time the blockwise contrastive losses against open_clip's and a naive one.

    python benchmarks/contrastive.py --device cpu --json benchmarks/results/contrastive_cpu.json

Prints tables of times and peak memory, and writes them with the command and the machine into a
JSON file if asked. Nothing is timed before the values are checked against the float64 definition.
"""

from typing import Any

from command import run


def _on_cpu() -> dict[str, Any]:
    from contrastive_on_cpu import measure

    return measure()


def _on_gpu() -> dict[str, Any]:
    from contrastive_on_gpu import measure

    return measure()


def main() -> None:
    """Run the benchmark of a device."""
    run((__doc__ or "").partition("\n")[0], _on_cpu, _on_gpu)


if __name__ == "__main__":
    main()
