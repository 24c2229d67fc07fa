import subprocess
import sys
import time

import pytest

import dualwave

COMMANDS = [["demo"], ["train"], ["eval", "model"], ["predict"]]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_of_a_command_has_an_example(command, words):
    result = command(*words, "--help")
    assert result.code == 0
    assert "Example" in result.out
    assert f"\n    dualwave {' '.join(words)}" in result.out


def test_help_lists_every_command(command):
    result = command("--help")
    assert result.code == 0
    for name in ("demo", "train", "predict", "eval"):
        assert f"\n  {name} " in result.out
    assert "\n  model " in command("eval", "--help").out


def test_version(command):
    result = command("--version")
    assert (result.code, result.out) == (0, f"dualwave {dualwave.__version__}\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["predct"], "Did you mean 'predict'?"),
        (["demo", "--outptu", "x"], "No such option"),
        (["predict", "model"], "Missing argument"),
        (["eval", "model", "model"], "--data"),
        (["train"], "--config"),
        (["eval", "model", "m", "--data", "d", "--batch-size", "0"], "--batch-size"),
    ],
)
def test_words_that_are_no_command_line_leave_with_2(command, words, complaint):
    result = command(*words)
    assert result.code == 2
    assert complaint in result.err
    assert "Traceback" not in result.err


def test_help_is_quick_and_imports_nothing_heavy():
    heavy = ("torch", "transformers", "datasets", "matplotlib", "pydantic", "numpy", "PIL")
    program = (
        "import sys\n"
        "from dualwave.cli import main\n"
        "try:\n    main(['--help'])\n"
        f"finally:\n    assert not [m for m in {heavy} if m in sys.modules], sys.modules.keys()\n"
    )
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        seconds.append(time.perf_counter() - started)
        assert done.returncode == 0, done.stderr
        assert "Commands:" in done.stdout
    assert min(seconds) < 1


def test_python_m_dualwave_gives_one_sentence_and_exit_code_2(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "dualwave", "train", "--config", "nowhere.yaml"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: no config 'nowhere.yaml'")
    assert done.stderr.count("\n") == 1


def test_a_bug_keeps_its_traceback(command, monkeypatch):
    import dualwave.predict

    def broken(*arguments):
        raise KeyError("a bug")

    monkeypatch.setattr(dualwave.predict, "predict_files", broken)
    with pytest.raises(KeyError, match="a bug"):
        command("predict", "model", "x.png", "--text", "the red three")


def test_ctrl_c_leaves_with_130(command, monkeypatch):
    import dualwave.predict

    def stopped(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(dualwave.predict, "predict_files", stopped)
    assert command("predict", "model", "x.png", "--text", "the red three").code == 130
