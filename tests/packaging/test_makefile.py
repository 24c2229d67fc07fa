"""``make setup`` makes, keeps, updates or repairs ``.venv``, whichever its state calls for."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FRESH, UPDATE = "-m venv --clear .venv", "--editable '.[dev]'"


@pytest.fixture
def checkout(tmp_path: Path, repository: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(repository / name, tmp_path)
    return tmp_path


@pytest.fixture
def installed(checkout: Path) -> Path:
    """A checkout whose ``.venv`` looks as it does after a finished installation."""
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (checkout / ".venv" / ".installed").write_text(f"{checkout}\n")
    return checkout


def make(checkout: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    return subprocess.run(
        ["make", "setup", *words],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def planned(checkout: Path) -> str:
    """The commands that ``make setup`` would run."""
    result = make(checkout, "--dry-run")
    assert result.returncode == 0, result.stderr
    return result.stdout


def executable(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_finished_installation_is_kept(installed):
    assert FRESH not in planned(installed)
    assert UPDATE not in planned(installed)


def test_new_checkout_gets_an_environment(checkout):
    assert FRESH in planned(checkout)
    assert UPDATE in planned(checkout)


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_changed_requirements_are_installed_into_the_same_environment(installed, name):
    later = (installed / ".venv" / ".installed").stat().st_mtime + 10
    os.utime(installed / name, (later, later))
    assert FRESH not in planned(installed)
    assert UPDATE in planned(installed)


def test_interrupted_installation_is_made_anew(installed):
    (installed / ".venv" / ".installed").unlink()
    assert FRESH in planned(installed)


def test_environment_of_a_moved_checkout_is_made_anew(installed):
    (installed / ".venv" / ".installed").write_text("/somewhere/else\n")
    assert FRESH in planned(installed)


def test_environment_whose_python_is_gone_is_made_anew(installed):
    python = installed / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to(installed / "removed")
    assert FRESH in planned(installed)


def test_failed_installation_is_not_taken_for_a_finished_one(checkout):
    # A Python whose environments cannot install anything.
    make_venv = "mkdir -p .venv/bin && printf '#!/bin/sh\\nexit 1' > .venv/bin/python"
    python = executable(
        checkout / "python", f'[ "$2" = venv ] || exit 0; {make_venv}; chmod +x .venv/bin/python'
    )
    assert make(checkout, f"PYTHON={python}").returncode != 0
    assert FRESH in planned(checkout)


def test_old_python_is_refused_in_one_sentence(checkout):
    python = executable(
        checkout / "python", '[ "$1" = --version ] && echo Python 3.9.2 && exit; exit 1'
    )
    result = make(checkout, f"PYTHON={python}")
    assert result.returncode != 0
    assert f"needs Python 3.11 or newer, but {python} is Python 3.9.2" in result.stderr
    assert not (checkout / ".venv").exists()
