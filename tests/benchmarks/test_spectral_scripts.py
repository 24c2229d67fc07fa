"""What the scripts print, write and refuse; shapes are tiny and the compiler stays out."""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The CPU half over one tiny case, three rounds, without compiling anything."""
    module = import_module("spectral_on_cpu")
    monkeypatch.setattr(module, "CASES", (module.Case(batch=2, height=4, width=6, channels=3),))
    monkeypatch.setattr(module, "ROUNDS", 3)
    monkeypatch.setattr(module, "GROWTH_SIZES", (2, 4))
    monkeypatch.setattr(module, "ATTENTION_SIZES", (2, 4))
    monkeypatch.setattr(torch, "compile", lambda operation, **options: operation)
    return module


@pytest.mark.parametrize("spelling", ["chain", "chain_without_abs"])
def test_both_spellings_of_the_chain_are_rfft2_softmax_irfft2(
    on_cpu: ModuleType, spelling: str
) -> None:
    (case,) = on_cpu.CASES
    x, _ = case.inputs()
    planar = x.double().view(2, 4, 6, 3).permute(0, 3, 1, 2)
    spectrum = torch.fft.rfft2(planar, norm="ortho")
    product = spectrum * torch.softmax(spectrum.abs().square(), dim=-1)
    expected = torch.fft.irfft2(product, s=(4, 6), norm="ortho").permute(0, 2, 3, 1).flatten(1, 2)
    torch.testing.assert_close(getattr(case, spelling)(x), expected.float())


def test_ours_is_the_public_function_in_its_pytorch_form(
    on_cpu: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, object] = {}
    monkeypatch.setattr(
        on_cpu, "spectral_attention", lambda x, **options: seen.update(options) or x
    )
    (case,) = on_cpu.CASES
    case.ours(case.inputs()[0])
    assert seen == {"grid": (4, 6), "implementation": "torch"}


def test_the_script_prints_verdicts_and_writes_machine_command_and_figures(
    on_cpu: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = tmp_path / "new" / "figures.json"
    monkeypatch.setattr(sys, "argv", ["spectral.py", "--device", "cpu", "--json", str(target)])
    import_module("spectral").main()
    figures = json.loads(target.read_text())
    assert [path.name for path in target.parent.iterdir()] == ["figures.json"]
    assert figures["command"] == f"python spectral.py --device cpu --json {target}"
    assert {"device", "threads", "python", "torch"} <= set(figures["machine"])
    (times,) = figures["times"]
    # Two forms, two directions; two chains and ours.
    assert len(times["median_seconds"]) == 12
    assert len(times["speedups"]) == 8
    assert all(row["reached"] == (row["median"] >= row["target"]) for row in times["speedups"])
    assert set(figures["growth"]) == {"ours", "scaled_dot_product_attention"}
    printed = capsys.readouterr().out
    assert printed.count("reached") == 9
    assert f"{figures['targets']}\n" in printed
    assert "8 targets reached" in figures["targets"]


def test_nothing_is_timed_while_a_value_is_wrong(
    on_cpu: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = on_cpu.spectral_attention

    def wrong(x: Tensor, **options: object) -> Tensor:
        return 1.01 * right(x, **options)

    monkeypatch.setattr(on_cpu, "spectral_attention", wrong)
    monkeypatch.setattr(on_cpu, "interleaved_times", lambda *a, **k: pytest.fail("was timed"))
    with pytest.raises(SystemExit, match=r"y of ours is wrong by .*; nothing is timed"):
        on_cpu.measure()
    assert "Milliseconds" not in capsys.readouterr().out


def test_cuda_without_a_gpu_is_one_sentence_and_code_2(benchmarks: Path, tmp_path: Path) -> None:
    target = tmp_path / "figures.json"
    result = subprocess.run(
        [str(benchmarks / "gpu_all.sh"), str(target)],
        env={**os.environ, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: this benchmark needs a CUDA or ROCm GPU")
    assert result.stderr.count("\n") == 1
    assert not target.exists()
