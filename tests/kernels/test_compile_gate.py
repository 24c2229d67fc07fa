"""The compile gate, in processes of its own: the kernels here are interpreted, not compiled."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dualwave.kernels.launch
from dualwave.kernels.compile_gate import CompileReport, Specialisation
from dualwave.kernels.compile_gate_judgement import Compilation, failures_of
from dualwave.kernels.targets import SM_90, SM_100

KERNELS = Path(dualwave.kernels.launch.__file__).parent

BAD_KERNELS = """
import triton
import triton.language as tl


@triton.jit
def product(x, SIZE: tl.constexpr, PRECISION: tl.constexpr):
    index = tl.arange(0, SIZE)
    values = tl.load(x + index[:, None] * SIZE + index[None, :])
    result = tl.dot(values, values, input_precision=PRECISION)
    tl.store(x + index[:, None] * SIZE + index[None, :], result)
"""

GATE = """
import sys
from pathlib import Path

import bad_kernels
import torch

from dualwave import bench_compile
from dualwave.kernels.compile_gate_judgement import CompileCase
from dualwave.kernels.launch import Launch


def case(config, size, precision, warps, needs_tensor_cores=True):
    x = torch.empty(256, 256, device="meta")
    arguments = {"x": x, "SIZE": size, "PRECISION": precision}
    launch = Launch(bad_kernels.product, (1,), arguments, warps, 1)
    return CompileCase(config, launch, needs_tensor_cores=needs_tensor_cores)


CASES = {
    "good": case("good", 64, "tf32", 4),
    "spills": case("spills", 64, "ieee", 4, needs_tensor_cores=False),
    "no units": case("no units", 64, "ieee", 8),
    "shared": case("shared", 256, "tf32", 8),
}

if __name__ == "__main__":
    wanted = [CASES[name] for name in sys.argv[2:]]
    bench_compile.discover_cases = lambda target, full: wanted
    is_green = bench_compile.bench_compile(["sm_90"], False, Path(sys.argv[1]))
    sys.exit(0 if is_green else 1)
"""

FIELDS = {"kernel", "config", "target", "registers", "spill_bytes", "shared_bytes", "tensor_core"}


def environment(tmp_path: Path) -> dict[str, str]:
    values = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    path = os.pathsep.join(filter(None, (str(tmp_path), values.get("PYTHONPATH"))))
    return values | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": path}


def run(words: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], env=env, capture_output=True, text=True, check=False
    )


def entry_points() -> set[str]:
    """Device functions under kernels/ that no other function there calls."""
    device_functions, called = set(), set()
    for file in KERNELS.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                if "triton.jit" in [ast.unparse(decorator) for decorator in node.decorator_list]:
                    device_functions.add(node.name)
            elif isinstance(node, ast.Call):
                called.add(ast.unparse(node.func).rsplit(".", 1)[-1])
    return device_functions - called


def test_every_entry_point_is_compiled_by_the_default_set(tmp_path: Path) -> None:
    script = """
from dualwave.kernels.compile_gate_judgement import discover_cases
from dualwave.kernels.targets import TARGETS

print(*{case.launch.kernel.fn.__name__ for t in TARGETS for case in discover_cases(t, False)})
"""
    result = run(["-c", script], environment(tmp_path))
    assert result.returncode == 0, result.stderr
    entries = entry_points()
    assert "planar_forward_kernel" in entries
    assert entries <= set(result.stdout.split())


@pytest.fixture
def gate(tmp_path: Path) -> tuple[str, dict[str, str]]:
    """A script that runs the gate on kernels of this test, and its environment."""
    (tmp_path / "bad_kernels.py").write_text(BAD_KERNELS)
    (tmp_path / "gate.py").write_text(GATE)
    return str(tmp_path / "gate.py"), environment(tmp_path)


def test_kernels_that_spill_or_miss_their_units_or_overflow_turn_the_gate_red(
    gate: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    script, env = gate
    file = tmp_path / "rows.json"
    result = run([script, str(file), "good", "spills", "no units", "shared"], env)
    assert result.returncode == 1, result.stderr
    rows = {row["config"]: row for row in json.loads(file.read_text())}
    assert rows["good"]["failures"] == []
    assert any("0 are allowed" in failure for failure in rows["spills"]["failures"])
    assert "compiles to no matrix instruction instead of wgmma" in rows["no units"]["failures"]
    assert any("of shared memory" in failure for failure in rows["shared"]["failures"])
    for config in ("spills", "no units", "shared"):
        assert f"error: product ({config}) on sm_90 " in result.stdout


def test_a_second_run_is_answered_by_the_cache_with_the_same_rows(
    gate: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    script, env = gate
    files = [tmp_path / "first.json", tmp_path / "out" / "second.json"]
    results = [run([script, str(file), "good"], env) for file in files]
    assert [result.returncode for result in results] == [0, 0], results[0].stderr
    assert "1 compilations, 0 of them from the cache" in results[0].stdout
    assert "1 compilations, 1 of them from the cache" in results[1].stdout
    assert files[0].read_text() == files[1].read_text()
    (row,) = json.loads(files[0].read_text())
    assert row.keys() >= FIELDS
    assert row["target"] == "sm_90"
    assert row["tensor_core"] == "wgmma"


def test_a_changed_kernel_is_compiled_anew(
    gate: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    script, env = gate
    run([script, str(tmp_path / "rows.json"), "good"], env)
    changed = BAD_KERNELS.replace("result)", "result + 1)")
    (tmp_path / "bad_kernels.py").write_text(changed)
    result = run([script, str(tmp_path / "rows.json"), "good"], env)
    assert "1 compilations, 0 of them from the cache" in result.stdout, result.stderr


def test_an_unknown_target_is_one_sentence(tmp_path: Path) -> None:
    words = ["-m", "dualwave", "bench", "compile", "--target", "sm_70"]
    result = run(words, environment(tmp_path))
    assert result.returncode == 2
    expected = "error: target must be one of sm_80, sm_90, sm_100, gfx942, not 'sm_70'.\n"
    assert result.stderr == expected


def test_interpreted_kernels_are_refused(tmp_path: Path) -> None:
    script = """
from dualwave.kernels.compile_gate import compile_launch
from dualwave.kernels.compile_gate_judgement import discover_cases
from dualwave.kernels.targets import SM_90

compile_launch(discover_cases(SM_90, False)[0].launch, SM_90)
"""
    result = run(["-c", script], environment(tmp_path) | {"TRITON_INTERPRET": "1"})
    assert "ValueError: kernels can't be compiled under TRITON_INTERPRET=1" in result.stderr


@pytest.mark.slow
def test_the_full_set_compiles_within_its_demands(tmp_path: Path) -> None:
    result = run(["-m", "dualwave", "bench", "compile", "--full"], environment(tmp_path))
    assert result.returncode == 0, result.stdout


def test_a_launch_beyond_the_tensor_memory_is_a_failure() -> None:
    """Triton compiles it to nothing and refuses to launch it: only this limit tells why."""
    arguments = ("module", "kernel", {}, {}, {}, 8, 1)
    for target, columns, count in ((SM_100, 512, 0), (SM_100, 513, 1), (SM_90, 0, 0)):
        compilation = Compilation(
            "kernel", "config", Specialisation(*arguments, target), "key", 0, False
        )
        report = CompileReport(4, 0, 0, 0, columns, None, 64)
        failures = failures_of(compilation, report)
        assert len(failures) == count
        assert all("513 columns of tensor memory, 512 are there" in each for each in failures)
