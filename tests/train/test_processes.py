"""Runs that need processes of their own: killed, terminated, shared by several ranks."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from dualwave.train.checkpoint import list_checkpoints, load_state
from dualwave.train.metrics_log import read_metrics
from dualwave.train.output import RunFolder
from dualwave.train.run import train

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
TIMEOUT = 120
# The rate is constant after the warm-up, so a short and a long run have the same first steps.
ENDLESS = {"steps": 100_000, "warmup_steps": 2, "final_lr_ratio": 1.0}


def _start(config, tmp_path: Path, ranks: int = 1) -> subprocess.Popen[str]:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    launcher = ["-m"]
    if ranks > 1:
        launcher = [
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={ranks}",
            "-m",
        ]
    return subprocess.Popen(
        [sys.executable, *launcher, "dualwave", "train", "--config", str(file)],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=(tmp_path / "stderr").open("w"),
        text=True,
    )


def _wait_for_steps(process: subprocess.Popen[str], metrics: Path, steps: int, tmp_path) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not metrics.exists() or len(read_metrics(metrics)) < steps:
        assert process.poll() is None, (tmp_path / "stderr").read_text()[-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _end(process: subprocess.Popen[str]) -> None:
    """Only torchrun can end its ranks, so it must not be killed before it has."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=45)
        except subprocess.TimeoutExpired:
            process.kill()


def _losses(folder: RunFolder) -> list[float]:
    lines = read_metrics(folder.metrics)
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    return [line["loss"] for line in lines]


def test_a_killed_run_goes_on_from_its_last_checkpoint(tiny_run, tmp_path):
    config = tiny_run(schedule=ENDLESS, checkpoint_every=2)
    folder = RunFolder(Path(config.output_dir))
    process = _start(config, tmp_path)
    try:
        _wait_for_steps(process, folder.metrics, 9, tmp_path)
    finally:
        process.kill()
        process.wait(timeout=TIMEOUT)
    # The run was in its second epoch: 66 rows are seven batches of 9.
    newest = list_checkpoints(folder.checkpoints)[-1]
    step = load_state(newest)["step"]
    assert step >= 8
    assert newest.name == f"step_{step:08d}"

    schedule = ENDLESS | {"steps": step + 5}
    train(tiny_run(schedule=schedule), resume=True)
    train(tiny_run("unbroken", schedule=schedule))
    assert _losses(folder) == _losses(RunFolder(tmp_path / "unbroken"))


def test_two_ranks_have_the_losses_of_one(tiny_run, tmp_path, scenes_of_several_rows):
    # Up to 13 rows of a few scenes: the ranks have different numbers of rows, and share scenes.
    sections = {
        "schedule": {"steps": 20, "warmup_steps": 4, "contrastive_only_share": 0.3},
        "data": {"path": str(scenes_of_several_rows)},
        "batch": {"size": 13},
    }
    process = _start(tiny_run("two", **sections), tmp_path, ranks=2)
    try:
        code = process.wait(timeout=TIMEOUT)
    finally:
        _end(process)
    assert code == 0, (tmp_path / "stderr").read_text()[-3000:]
    train(tiny_run("one", **sections))
    one, two = (read_metrics(tmp_path / name / "metrics.jsonl") for name in ("one", "two"))
    for key in ("loss", "saliency_loss", "contrastive_loss"):
        pairs = [(a[key], b[key]) for a, b in zip(one, two, strict=True) if a[key] is not None]
        assert len(pairs) == (14 if key == "saliency_loss" else 20)
        differences = [abs(a - b) for a, b in pairs]
        assert max(differences) < 1e-5, key
    assert [line["grad_norm"] for line in two] == pytest.approx(
        [line["grad_norm"] for line in one], rel=1e-3
    )


def test_terminated_ranks_agree_on_a_step_and_one_process_can_go_on(tiny_run, tmp_path):
    sections = {"batch": {"size": 7, "accumulation": 2}, "checkpoint_every": 1000}
    config = tiny_run(schedule=ENDLESS, **sections)
    folder = RunFolder(Path(config.output_dir))
    process = _start(config, tmp_path, ranks=2)
    try:
        _wait_for_steps(process, folder.metrics, 3, tmp_path)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=TIMEOUT) != 0
    finally:
        _end(process)
    (checkpoint,) = list_checkpoints(folder.checkpoints)
    step = load_state(checkpoint)["step"]
    assert step == len(read_metrics(folder.metrics))
    assert f"stopped by SIGTERM after step {step}; go on with" in (tmp_path / "stderr").read_text()

    schedule = ENDLESS | {"steps": step + 2}
    train(tiny_run(schedule=schedule, **sections), resume=True)
    train(tiny_run("unbroken", schedule=schedule, **sections))
    assert _losses(folder) == pytest.approx(_losses(RunFolder(tmp_path / "unbroken")), abs=1e-5)
