"""The GPU benchmark's checks, order and verdicts, with clocks that need no GPU."""

from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark on the CPU: clocks, cases and checks are small or made up."""
    module, checks, cases = (
        import_module(name) for name in ("attention_on_gpu", "attention_checks", "attention_cases")
    )

    def clock(function: object) -> float:
        function()
        return 1e-3

    for name in ("reset_peak_memory_stats", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    for name in ("memory_allocated", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    monkeypatch.setattr(module, "DEVICE", "cpu")
    monkeypatch.setattr(module, "TIMED_CASES", (cases.Case(1, 16, 2, 128, causal=True),))
    monkeypatch.setattr(module, "FLEX_CASES", ())
    monkeypatch.setattr(module, "queued_seconds", clock)
    monkeypatch.setattr(module, "checked", partial(module.checked, processes=1))
    few = [checks.Check(16, "bfloat16", None, "causal")]
    monkeypatch.setattr(module, "all_checks", lambda is_amd: few)
    monkeypatch.setattr(
        module, "check_on_gpu", partial(checks.compare, device="cpu", lengths=(5, 7))
    )
    return module


def test_green_checks_are_followed_by_times_and_a_verdict(
    on_gpu: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = on_gpu.measure()
    printed = capsys.readouterr().out
    assert printed.index("1 checks are green") < printed.index("S 16") < printed.index("goal")
    (timed,) = figures["times"]
    assert timed["seconds"]["forward ours"] == timed["seconds"]["backward ours"] == 1e-3


def test_a_red_check_stops_everything(
    on_gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = import_module("attention_checks").Check(512, "bfloat16", None, "plain")
    monkeypatch.setattr(on_gpu, "all_checks", lambda is_amd: [unknown])
    with pytest.raises(SystemExit):
        on_gpu.measure()
    captured = capsys.readouterr()
    assert "from 1 to 256" in captured.out
    assert "nothing is timed" in captured.err
    assert "TFLOP/s" not in captured.out


@pytest.mark.parametrize("variant", ["bias", "packed", "all together"])
def test_a_check_of_every_kind_runs(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = import_module("attention_checks")
    options = {"batch": 1, "keys": 5, "packed": True, "window": (3, 2), "q_offset": 0}
    small = {
        "bias": {"bias_shape": (1, 4, 5, 7)},
        "packed": {"batch": 1, "keys": 5, "packed": True, "causal": True},
        "all together": {**options, "bias_shape": (1, 4, 5, 5), "key_heads": 2},
    }
    assert small[variant].keys() == checks.VARIANTS[variant].keys()
    monkeypatch.setitem(checks.VARIANTS, variant, small[variant])
    monkeypatch.setattr(checks, "_CU_SEQLENS", (0, 0, 4, 5))
    check = checks.Check(8, "float32", "ieee", variant)
    assert checks.compare(check, "cpu", (5, 7)) == ""


def test_shares_rates_and_goals() -> None:
    module, cases = (import_module(name) for name in ("attention_on_gpu", "attention_cases"))
    case = cases.Case(2, 100, 4, 128)
    seconds = {
        "forward ours": 2.0,
        "forward cudnn": 1.6,
        "forward flash": 3.0,
        "backward ours": 2.0,
        "backward cudnn": None,
        "backward flash": 1.0,
    }
    timing = module.Timing(case, seconds, dict.fromkeys(("ours", "cudnn", "flash"), 0))
    assert timing.share_of_best("forward") == 0.8
    assert timing.share_of_best("backward") == 0.5
    assert timing.teraflops("forward", "ours") == 4 * 2 * 4 * 100 * 100 * 128 / 2 / 1e12
    assert timing.teraflops("backward", "flash") == 2.5 * 4 * 2 * 4 * 100 * 100 * 128 / 1e12
    assert timing.teraflops("backward", "cudnn") is None
    text = module.verdict([timing])
    assert "goal forward, D = 128: at least 75% of torch's best backend: reached" in text
    assert "not reached (the least is 50%)" in text
    assert "nothing to compare with" in module.verdict([])


def test_every_kernel_variant_and_precision_is_checked() -> None:
    checks = import_module("attention_checks")
    nvidia, amd = checks.all_checks(is_amd=False), checks.all_checks(is_amd=True)
    assert {check.variant for check in nvidia} == set(checks.VARIANTS)
    assert {check.size for check in nvidia} == set(checks.SIZES)
    assert {(check.dtype, check.precision) for check in nvidia} == set(checks.PRECISIONS)
    assert not any(check.precision == "tf32x3" for check in amd)
