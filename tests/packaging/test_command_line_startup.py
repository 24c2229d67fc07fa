"""``dualwave --help`` answers at once, because nothing heavy is imported for it."""

import sys
from pathlib import Path

import pytest

HEAVY = {"torch", "transformers", "datasets", "matplotlib", "numpy", "sklearn", "pydantic", "PIL"}


@pytest.fixture(scope="module")
def report(repository, run_quietly) -> list[str]:
    """CPU seconds from the start of the interpreter to the end of the help, then the modules."""
    code = (
        "import sys, time\n"
        "from dualwave.cli import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as stop:\n"
        "    assert not stop.code, stop.code\n"
        "print('REPORT', time.process_time(), *{name.split('.')[0] for name in sys.modules})\n"
    )
    output = run_quietly([sys.executable, "-c", code, "--help"], cwd=repository).stdout
    return output.partition("REPORT ")[2].split()


def test_help_imports_nothing_heavy(report):
    assert "typer" in report
    assert not HEAVY & set(report)


def test_help_takes_less_than_a_second(report):
    # CPU time, so that a busy machine does not decide this test.
    assert float(report[0]) < 1.0


def test_installed_command_shows_the_help(repository, run_quietly):
    command = Path(sys.executable).parent / "dualwave"
    output = run_quietly([command, "--help"], cwd=repository.parent).stdout
    for name in ("demo", "train", "eval", "predict"):
        assert name in output
