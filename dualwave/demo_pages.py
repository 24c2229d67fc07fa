"""What the demo leaves to look at: the report, and a picture of scenes for the README."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
import torch
import yaml

from dualwave.eval.pictures import ScenePicture, contact_sheet, save_picture
from dualwave.eval.report import ReportData, pick_scenes, write_report
from dualwave.evaluate_model import ModelEvaluation, predict_maps
from dualwave.models import DualStreamModel
from dualwave.train.config import TrainConfig
from dualwave.train.data import DIGIT_SCENE_LEVELS, RowSource
from dualwave.train.metrics_log import read_metrics

_SCENES_A_LEVEL = 2


def write_demo_pages(
    output: Path,
    *,
    config: TrainConfig,
    model: DualStreamModel,
    rows: RowSource,
    evaluation: ModelEvaluation,
    training_seconds: float,
) -> None:
    """Write ``report.html`` and ``scenes.png`` into ``output``.

    The report shows scenes of every quality; the picture shows the first scenes of each level, so
    neither is a choice of the best.
    """
    average_precision = {sample.id: sample.average_precision for sample in evaluation.model.samples}
    scores = evaluation.model
    log = read_metrics(Path(config.output_dir) / "metrics.jsonl")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    report = ReportData(
        title="dualwave demo: finding digits by what a caption says",
        made_at=datetime.now().astimezone(),
        model=scores,
        shuffled_captions=evaluation.shuffled_captions,
        centre_prior=evaluation.centre_prior,
        scenes=_predicted_scenes(model, rows, pick_scenes(scores), average_precision),
        losses={
            name: [(line["step"], line[key]) for line in log if line[key] is not None]
            for name, key in (("map", "saliency_loss"), ("contrastive", "contrastive_loss"))
        },
        groups=[level for level in DIGIT_SCENE_LEVELS if level in scores.map_by_group],
        facts={
            "Parameters": f"{parameters / 1e6:.2f} M",
            "Training": f"{training_seconds:.0f} s, {config.schedule.steps} steps",
            "Batch": f"{config.batch.size} captions",
            "Device": _device_name(),
        },
        configuration=yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False),
    )
    write_report(output / "report.html", report)
    first = _first_of_each_level(rows)
    save_picture(
        contact_sheet(_predicted_scenes(model, rows, first, average_precision)),
        output / "scenes.png",
    )


def _predicted_scenes(
    model: DualStreamModel,
    rows: RowSource,
    ids: Sequence[str],
    average_precision: dict[str, float],
) -> list[ScenePicture]:
    index_of = {id: index for index, id in enumerate(rows.ids)}
    chosen = [rows[index_of[id]] for id in ids]
    maps = predict_maps(model, [row.image for row in chosen], [row.caption for row in chosen])
    return [
        ScenePicture(
            id=row.id,
            image=row.image,
            caption=row.caption,
            mask=row.mask,
            prediction=np.asarray(saliency),
            average_precision=average_precision[row.id],
            group=row.level,
        )
        for row, saliency in zip(chosen, maps, strict=True)
    ]


def _first_of_each_level(rows: RowSource) -> list[str]:
    assert rows.levels is not None, "digit scenes have levels"
    by_level: dict[str, list[str]] = {level: [] for level in DIGIT_SCENE_LEVELS}
    for id, level in zip(rows.ids, rows.levels, strict=True):
        by_level[level].append(id)
    return [id for ids in by_level.values() for id in ids[:_SCENES_A_LEVEL]]


def _device_name() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    threads = torch.get_num_threads()
    return f"CPU, {threads} thread{'s' if threads > 1 else ''}"
