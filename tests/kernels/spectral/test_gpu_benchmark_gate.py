"""The GPU benchmark's order and verdicts, with clocks and checks that need no GPU."""

import json
import os
import subprocess
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch

import dualwave

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def checks() -> ModuleType:
    return import_module("spectral_checks")


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch, checks: ModuleType) -> ModuleType:
    """The benchmark, told that it has a GPU: clocks, rates and shapes are made up."""
    module = import_module("spectral_on_gpu")
    rates = import_module("roofline").Rates(1e12, {"fp16": 1e15, "tf32": 5e14, "ieee": 5e13})

    def clock(function: object) -> float:
        function()
        return 1e-3

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(module, "DEVICE", "cpu")
    monkeypatch.setattr(module, "TIMED_SHAPES", ((1, 2, 4, 6),))
    monkeypatch.setattr(module, "SECONDS_FOR_COMPILED_CHAINS", 0.0)
    monkeypatch.setattr(module, "device_seconds", clock)
    monkeypatch.setattr(module, "queued_seconds", clock)
    monkeypatch.setattr(module, "measure_rates", lambda: rates)
    monkeypatch.setattr(module, "checked", partial(module.checked, processes=1))
    few = [checks.Check(4, 6, "planar", "bfloat16", "fp16")]
    monkeypatch.setattr(module, "all_checks", lambda grids, is_amd: few)
    monkeypatch.setattr(module, "check_on_gpu", partial(checks.compare, device="cpu"))
    return module


def test_green_checks_are_followed_by_a_table_with_every_case(
    on_gpu: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = on_gpu.measure()
    printed = capsys.readouterr().out
    assert printed.index("1 checks are green") < printed.index("Microseconds on the device")
    assert len(figures["times"]) == 3 * 2 * 2
    assert all(time["ours"] == 1e-3 for time in figures["times"])
    assert all("no time was left" in time["notes"][0] for time in figures["times"])
    assert all(row["batched_from_cpu"] < 1e-6 for row in figures["irfft2_of_the_raw_product"])
    json.dumps(figures)


def test_nothing_is_timed_while_a_check_is_red(
    on_gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(on_gpu, "check_on_gpu", str)  # any text is a failure
    monkeypatch.setattr(on_gpu, "measure_rates", lambda: pytest.fail("a rate was measured"))
    with pytest.raises(SystemExit) as stop:
        on_gpu.measure()
    assert stop.value.code == 1
    captured = capsys.readouterr()
    assert "red: 4x6 planar bfloat16 fp16" in captured.out
    assert "1 of 1 checks are red; nothing is timed." in captured.err
    assert "Microseconds" not in captured.out


def test_a_check_that_raises_is_red_and_the_others_still_run(checks: ModuleType) -> None:
    two = [checks.Check(4, 6, layout, "float32", "tf32") for layout in ("planar", "tokens")]
    seen: list[object] = []
    outcomes = import_module("gpu_checks").run_checks(two, len, seen.append, processes=1)
    assert len(outcomes) == len(seen) == 2
    assert all(outcome.failure.startswith("TypeError") for outcome in outcomes)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("layout", ["planar", "tokens"])
def test_a_check_compares_with_the_definition(
    checks: ModuleType, layout: str, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = checks.Check(4, 6, layout, "bfloat16", "fp16", plain=plain)
    assert checks.compare(check, "cpu") == ""
    right = dualwave.spectral_attention
    monkeypatch.setattr(
        dualwave, "spectral_attention", lambda x, **options: 1.2 * right(x, **options)
    )
    assert checks.compare(check, "cpu").startswith("y: error")


def test_a_check_sees_results_that_change_from_run_to_run(
    checks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = dualwave.spectral_attention
    runs: list[float] = []

    def drifting(x: torch.Tensor, **options: object) -> torch.Tensor:
        runs.append(1e-6)
        return right(x, **options) + sum(runs)

    monkeypatch.setattr(dualwave, "spectral_attention", drifting)
    check = checks.Check(4, 6, "planar", "float32", "tf32")
    assert checks.compare(check, "cpu") == "y differs between two runs"


def test_checks_cover_every_precision_that_a_device_has(checks: ModuleType) -> None:
    nvidia, amd = (checks.all_checks([(14, 14)], is_amd) for is_amd in (False, True))
    assert len(set(nvidia)) == len(nvidia)
    found = {(check.layout, check.dtype, check.precision) for check in nvidia if not check.plain}
    assert found == {
        (layout, *pair) for layout in ("planar", "tokens") for pair in checks.PRECISIONS
    }
    assert {check.precision for check in amd} == {"fp16", "tf32", "ieee"}


def test_what_can_not_be_captured_is_said_and_the_rest_is_timed(
    on_gpu: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(function: object) -> float:
        raise RuntimeError("capture is not permitted\nmore")

    monkeypatch.setattr(on_gpu, "device_seconds", refuse)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    time = on_gpu.measure()["times"][0]
    assert time["ours"] is None
    assert time["speedup_over_chain"] is None
    assert time["ours_queued"] == 1e-3
    assert "ours was not measured: capture is not permitted" in time["notes"]


def test_shares_and_speedups_of_a_row(on_gpu: ModuleType) -> None:
    limits = import_module("roofline").Roofline(3e-5, 2e-5)
    case = on_gpu.TimedCase((8, 768, 64, 64), "planar", "bfloat16", "fp16", True)
    timing = on_gpu.Timing(case, 5e-5, 9e-5, 4e-4, 5e-4, 3e-4, limits)
    assert timing.share_of_roofline == pytest.approx(0.6)
    assert timing.speedup == pytest.approx(8.0)
    line = on_gpu.table_line(timing)
    for text in ("50.0", "400.0", "300.0", "8.00x", "60%", "traffic", "90.0 to 500.0"):
        assert text in line


def test_without_a_gpu_the_script_says_so_in_one_sentence() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    environment["CUDA_VISIBLE_DEVICES"] = ""
    result = subprocess.run(
        [str(BENCHMARKS / "gpu_all.sh")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: this benchmark needs a CUDA or ROCm GPU")
    assert result.stderr.count("\n") == 1
