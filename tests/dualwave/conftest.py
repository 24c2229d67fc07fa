import contextlib
import io
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dualwave.cli import main

# A demo in seconds: the same path, but few scenes, few steps and a narrow model.
SMALL_DEMO = [
    "scenes.train=48",
    "scenes.validation=8",
    "scenes.test=24",
    "schedule.steps=6",
    "schedule.warmup_steps=2",
    "batch.size=8",
    "log_every=1",
    "checkpoint_every=3",
    "model.vision_width=32",
    "model.vision_mixers=[spectral, attention]",
    "model.vision_heads=2",
    "model.text_width=32",
    "model.text_heads=2",
    "model.text_layers=1",
    "model.fusion_mixers=[spectral]",
]


@dataclass(frozen=True)
class CommandResult:
    code: int
    out: str
    err: str

    def assert_one_sentence(self, *parts: str) -> None:
        assert self.code == 2, (self.code, self.out, self.err)
        lines = [line for line in self.err.splitlines() if line.strip()]
        assert lines[-1].startswith("error: "), self.err
        assert len([line for line in lines if line.startswith("error: ")]) == 1
        assert "Traceback" not in self.err
        for part in parts:
            assert part in lines[-1], f"{part!r} is not in {lines[-1]!r}"


Command = Callable[..., CommandResult]


def call(*arguments: object) -> CommandResult:
    """Run one command in this process; starting Python and torch anew would take seconds."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
        else:
            raise AssertionError("main() returned instead of leaving with an exit code")
    assert isinstance(code, int | None)
    return CommandResult(code or 0, out.getvalue(), err.getvalue())


@pytest.fixture
def command() -> Command:
    return call


@pytest.fixture
def small_demo() -> list[str]:
    return SMALL_DEMO


@dataclass(frozen=True)
class FinishedDemo:
    home: Path  # the working folder; the demo is in runs/demo
    result: CommandResult

    @property
    def folder(self) -> Path:
        return self.home / "runs" / "demo"


@pytest.fixture(scope="session")
def finished_demo(tmp_path_factory: pytest.TempPathFactory) -> FinishedDemo:
    """A small demo that ran with its default output folder; read it, don't change it."""
    home = tmp_path_factory.mktemp("demo_home")
    with contextlib.chdir(home):
        result = call("demo", *SMALL_DEMO)
    assert result.code == 0, result.err
    return FinishedDemo(home, result)


@pytest.fixture
def checkpoint(finished_demo: FinishedDemo) -> Path:
    return finished_demo.folder / "model"


@pytest.fixture
def scenes(finished_demo: FinishedDemo) -> Path:
    return finished_demo.folder / "data"


@pytest.fixture
def checkpoint_copy(checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint, tmp_path / "model"))
