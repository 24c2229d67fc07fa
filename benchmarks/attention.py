"""Time blockwise attention against torch's scaled_dot_product_attention and FlexAttention.

    python benchmarks/attention.py --device cpu --json benchmarks/results/attention_cpu.json

Prints tables of times and peak memory, and writes them with the command and the machine into a
JSON file if asked. Nothing is timed before the values are checked against the float64 definition.
"""

from typing import Any

from command import run


def _on_cpu() -> dict[str, Any]:
    from attention_on_cpu import measure

    return measure()


def _on_gpu() -> dict[str, Any]:
    from attention_on_gpu import measure

    return measure()


def main() -> None:
    """Run the benchmark of a device."""
    run((__doc__ or "").partition("\n")[0], _on_cpu, _on_gpu)


if __name__ == "__main__":
    main()
