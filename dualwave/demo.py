"""``dualwave demo``: scenes, training, evaluation, saving, reloading and a report, in minutes."""

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console

import dualwave
from dualwave.demo_pages import write_demo_pages
from dualwave.eval.report import check_report_dependencies
from dualwave.evaluate_model import ModelEvaluation, evaluate_model, score_table, write_json
from dualwave.models import DualStreamModel
from dualwave.overrides import read_section
from dualwave.train.checkpoint import write_folder
from dualwave.train.config import TrainConfig, load_config
from dualwave.train.data import DIGIT_SCENE_LEVELS, RowSource, make_digit_scenes, open_rows
from dualwave.train.run import train

MARKER = "demo.json"
"""A file with this name says that the demo made the folder, and with what numbers."""

_MADE_BY_THE_DEMO = ("train", "model", "report.html", "metrics.json", "scenes.png")
_RELOAD_ROWS = 16

SceneCount = Annotated[int, Field(strict=True, ge=2)]


class SceneCounts(BaseModel):
    """How many scenes the demo makes; a quarter of each split has each level."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    train: SceneCount = 8000
    validation: SceneCount = 200
    test: SceneCount = 600


class PhaseClock:
    """Says each phase when it starts and its seconds when it ends, and remembers them."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str, doing: str) -> Iterator[None]:
        """Time the block under ``name``; ``doing`` is what the user reads."""
        print(f"{doing} ...", flush=True)
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started
        print(f"  {name}: {self.seconds[name]:.1f} s", flush=True)


def run_demo(output: Path, *, seed: int, overrides: Sequence[str], started: float) -> None:
    """Run the demo in ``output``.

    Writes data/ (the scenes), train/ (the run), model/ (the trained model, reloaded and compared),
    metrics.json, scenes.png and report.html.

    Args:
        output: folder; an earlier demo in it is replaced, its scenes are used again if they were
            made with the same numbers.
        seed: of the scenes and of the run.
        overrides: ``field=value`` words for the run's config, or ``scenes.train=...`` and so on.
        started: ``time.perf_counter()`` when the command began, for ``total_seconds``.

    Raises:
        ValueError: a wrong field or value, or a folder that holds something else.
    """
    check_report_dependencies()
    counts, config = _read_settings(output, seed, overrides)
    _claim_folder(output, counts, seed)
    clock = PhaseClock()
    clock.seconds["start"] = time.perf_counter() - started
    with clock.phase(
        "scenes",
        f"making {counts.train} + {counts.validation} + {counts.test} digit scenes "
        "(train, validation, test)",
    ):
        make_digit_scenes(config.data.path, seed=seed, **counts.model_dump())
    with clock.phase("training", f"training for {config.schedule.steps} steps"):
        result = train(config)
    rows = open_rows(config.data, config.data.test_split)
    trained = dualwave.load(result.model_dir)
    with clock.phase("evaluation", f"evaluating on {len(rows)} test scenes"):
        evaluation = evaluate_model(trained, rows, seed=seed)
    with clock.phase("reload", "saving, reloading and comparing bit by bit"):
        _save_and_reload(trained, output / "model", rows)
    with clock.phase("report", "writing the report"):
        write_demo_pages(
            output,
            config=config,
            model=trained,
            rows=rows,
            evaluation=evaluation,
            training_seconds=clock.seconds["training"],
        )
    metrics = _metrics(evaluation, clock, total_seconds=time.perf_counter() - started)
    write_json(metrics, output / "metrics.json")
    Console().print(score_table(evaluation, f"{len(rows)} test scenes", DIGIT_SCENE_LEVELS))
    print(
        f"total {metrics['total_seconds']:.1f} s, of which training "
        f"{metrics['train_seconds']:.1f} s\n"
        f"model:   {output / 'model'}\n"
        f"figures: {output / 'metrics.json'}\n"
        f"report:  {output / 'report.html'}"
    )


def _read_settings(
    output: Path, seed: int, overrides: Sequence[str]
) -> tuple[SceneCounts, TrainConfig]:
    of_the_demo = {"output_dir": "--output", "data.path": "--output", "seed": "--seed"}
    for word in overrides:
        key = word.partition("=")[0]
        if key in of_the_demo:
            raise ValueError(f"the demo sets {key} itself: use {of_the_demo[key]}")
    counts = read_section(
        "scenes", SceneCounts, {}, [word for word in overrides if word.startswith("scenes.")]
    )
    # A JSON string is a YAML string, whatever characters the path holds.
    own = {
        "output_dir": json.dumps(str(output / "train")),
        "data.path": json.dumps(str(output / "data")),
        "seed": str(seed),
    }
    words = [f"{key}={value}" for key, value in own.items()]
    words += [word for word in overrides if not word.startswith("scenes.")]
    return counts, load_config("demo.yaml", words)


def _claim_folder(output: Path, counts: SceneCounts, seed: int) -> None:
    """Make the folder the demo's: what an earlier demo left goes, anything else is refused."""
    marker = output / MARKER
    scenes = {"version": dualwave.__version__, "seed": seed, **counts.model_dump()}
    if output.exists() and not output.is_dir():
        raise ValueError(f"--output {output} is a file; name a folder")
    if marker.is_file():
        print(f"replacing the earlier demo in {output}")
        if marker.read_text(encoding="utf-8") != json.dumps(scenes):
            _remove(output / "data")
        for name in _MADE_BY_THE_DEMO:
            _remove(output / name)
    elif output.exists() and any(output.iterdir()):
        raise ValueError(
            f"{output} is not empty and was not made by the demo; choose another --output"
        )
    output.mkdir(parents=True, exist_ok=True)
    marker.write_text(json.dumps(scenes), encoding="utf-8")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _save_and_reload(model: DualStreamModel, folder: Path, rows: RowSource) -> None:
    """Save the model, load it from disk, and see that every output has the same bits.

    Raises:
        RuntimeError: if one differs.
    """
    assert model.processor is not None, "dualwave.load sets it"
    write_folder(folder, model=model, processor=model.processor)
    reloaded = dualwave.load(folder)
    batch = [rows[index] for index in range(min(_RELOAD_ROWS, len(rows)))]
    inputs = model.processor(
        images=[row.image for row in batch],
        text=[row.caption for row in batch],
        return_tensors="pt",
    )
    with torch.inference_mode():
        before, after = model(**inputs), reloaded(**inputs)
    for name, value in before.items():
        if not torch.equal(value, after[name]):
            raise RuntimeError(f"{name} of the model reloaded from {folder} differs")


def _metrics(
    evaluation: ModelEvaluation, clock: PhaseClock, *, total_seconds: float
) -> dict[str, Any]:
    """The figures of metrics.json; mAP is pixel average precision, averaged over images."""
    scores = evaluation.model.to_dict()
    shuffled = evaluation.shuffled_captions.to_dict()
    by_level, shuffled_by_level = (
        {level: entry["map_by_group"][level] for level in DIGIT_SCENE_LEVELS}
        for entry in (scores, shuffled)
    )
    return {
        "map": scores["map"],
        "map_by_level": by_level,
        "map_shuffled_captions": shuffled["map"],
        "map_shuffled_captions_by_level": shuffled_by_level,
        "map_centre_prior": evaluation.centre_prior.to_dict()["map"],
        "max_f": scores["max_f"],
        "mae": scores["mae"],
        "test_scenes": scores["count"],
        "train_seconds": clock.seconds["training"],
        "total_seconds": total_seconds,
        "seconds_by_phase": clock.seconds,
        "conventions": scores["conventions"],
    }
