"""What the packaging tests share: the checkout, and subprocesses in a clean environment."""

import os
import subprocess
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout's root."""
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def pyproject(repository: Path) -> dict[str, Any]:
    """The contents of pyproject.toml."""
    return tomllib.loads((repository / "pyproject.toml").read_text())


@pytest.fixture(scope="session")
def package_folders(pyproject: dict[str, Any]) -> dict[str, str]:
    """Import name to folder, as installed: ``{"dualwave.models": "models", ...}``."""
    return pyproject["tool"]["setuptools"]["package-dir"]


@pytest.fixture(scope="session")
def run_quietly() -> Run:
    """Run a command to its end with one thread a library, and fail with its output if it fails."""

    def run(
        command: Sequence[str | Path], *, cwd: Path, environment: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        result = subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            env=inherited | {"OMP_NUM_THREADS": "1"} | dict(environment or {}),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
        return result

    return run
