"""The type check of ``make check`` finds an error that crosses packages."""

import subprocess
import sys
from pathlib import Path

import pytest

PYPROJECT = """
[tool.setuptools.package-dir]
"dualwave" = "dualwave"
"dualwave.kernels" = "kernels"
"dualwave.models" = "models"
"""


@pytest.fixture
def small_checkout(tmp_path: Path, repository: Path) -> Path:
    """A checkout of the same layout: ``kernels`` without ``__init__.py``, two packages on it."""
    settings = (repository / "pyproject.toml").read_text()
    mypy = settings[settings.index("[tool.mypy]") : settings.index("[tool.ruff]")]
    files = {
        "pyproject.toml": PYPROJECT + mypy,
        "dualwave/__init__.py": "",
        "kernels/spectral/__init__.py": "def filtered(x: float) -> float:\n    return x\n",
        "models/__init__.py": "",
        "models/towers.py": (
            "from dualwave.kernels.spectral import filtered\n\nwidth: float = filtered(1.0)\n"
        ),
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def check_types(repository: Path, root: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, repository / "tests" / "typecheck.py", "--root", root]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_planted_error_is_found_and_named_by_its_real_path(repository, small_checkout):
    clean = check_types(repository, small_checkout)
    assert (clean.returncode, clean.stderr) == (0, "")
    assert "no issues found in 5 source files" in clean.stdout

    (small_checkout / "models" / "towers.py").write_text(
        "from dualwave.kernels.spectral import filtered\n\nname: str = filtered(1.0)\n"
    )
    planted = check_types(repository, small_checkout)
    assert planted.returncode == 1
    assert planted.stdout.startswith("models/towers.py:3: error: Incompatible types")


def test_misspelt_import_of_ours_is_found(repository, small_checkout):
    (small_checkout / "models" / "heads.py").write_text("import dualwave.kernels.spektral\n")
    report = check_types(repository, small_checkout)
    assert report.returncode == 1
    assert 'named "dualwave.kernels.spektral"' in report.stdout
