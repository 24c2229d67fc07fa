"""The benchmark on the CPU with small cases, and its GPU half with clocks that need no GPU."""

from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from dualwave.kernels.contrastive import contrastive_loss

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark on the CPU: clocks, cases and checks are small or made up."""
    module, checks, cases = (
        import_module(name)
        for name in ("contrastive_on_gpu", "contrastive_checks", "contrastive_cases")
    )

    def clock(function: Any, calls: int) -> float:
        function()
        return 1e-3 * calls

    for name in ("reset_peak_memory_stats", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    for name in ("memory_allocated", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    monkeypatch.setattr(module, "DEVICE", "cpu")
    small = (cases.Case("softmax", 9, 16), cases.Case("sigmoid", 9, 16))
    monkeypatch.setattr(module, "TIMED_CASES", small)
    monkeypatch.setattr(module, "queued_seconds", clock)
    monkeypatch.setattr(module, "checked", partial(module.checked, processes=1))
    few = [checks.Check("sigmoid", 5, 8, "bfloat16", None)]
    monkeypatch.setattr(module, "all_checks", lambda is_amd: few)
    monkeypatch.setattr(module, "check_on_gpu", partial(checks.compare, device="cpu"))
    return module


def test_green_checks_are_followed_by_a_table(
    on_gpu: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = on_gpu.measure()
    printed = capsys.readouterr().out
    assert printed.index("1 checks are green") < printed.index("softmax, B 9")
    assert "inf_cl is not installed" in printed
    assert [set(row["sides"]) for row in figures["times"]] == [{"ours", "open_clip", "naive"}] * 2
    assert figures["times"][0]["sides"]["ours"]["both"] == 1e-3 * on_gpu.CALLS


def test_a_side_without_memory_is_said_and_the_rest_goes_on(
    on_gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def out_of_memory(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 32 GiB.")

    cases = import_module("contrastive_cases")
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(cases.Case, "naive", out_of_memory)
    on_gpu.measure()
    printed = capsys.readouterr().out
    assert printed.count("naive         was not measured: CUDA out of memory") == 2
    assert printed.count("open_clip") == 2


def test_every_loss_dtype_and_precision_is_checked() -> None:
    checks = import_module("contrastive_checks")
    nvidia, amd = checks.all_checks(is_amd=False), checks.all_checks(is_amd=True)
    assert {(check.dtype, check.precision) for check in nvidia} == set(checks.PRECISIONS)
    assert {check.kind for check in nvidia} == {"softmax", "sigmoid"}
    assert not any(check.precision == "tf32x3" for check in amd)


def test_a_wrong_value_stops_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    cases, on_cpu = (import_module(name) for name in ("contrastive_cases", "contrastive_on_cpu"))

    def wrong(*features: Any, **options: Any) -> Any:
        return 1.01 * contrastive_loss(*features, **options)

    monkeypatch.setattr(cases, "contrastive_loss", wrong)
    with pytest.raises(SystemExit, match=r"loss of ours is wrong by .*; nothing is timed"):
        on_cpu.measure()


@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_all_sides_compute_the_same(kind: str) -> None:
    cases = import_module("contrastive_cases")
    case = cases.Case(kind, 23, 16)
    inputs = case.inputs(torch.float64)
    ours, *others = (cases.results_of(loss, inputs) for loss in case.sides().values())
    for other in others:
        for one, two in zip(ours, other, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_peak_memory_grows_with_the_batch_and_not_with_its_square(kind: str) -> None:
    """Measured in processes of their own, forward and backward, 2k to 8k rows of 64 features."""
    on_cpu, cases, memory = (
        import_module(name) for name in ("contrastive_on_cpu", "contrastive_cases", "memory")
    )

    def peak(batch: int, side: str) -> int:
        case = cases.Case(kind, batch, 64)
        return memory.peak_extra_bytes(partial(on_cpu._prepare, case, side, "forward+backward"))

    ours = [peak(batch, "ours") for batch in (2048, 4096, 8192)]
    # A few chunks of logits of a fixed size, and what grows with the batch: at most 4 times, where
    # the square grows 16 times.
    assert ours[2] < 4 * ours[0]
    assert ours[2] < 128 * 2**20
    assert peak(8192, "open_clip") > 2 * 8192 * 8192 * 4 > 4 * ours[2]
