"""Writes an evaluation as one self-contained HTML page: figures, curves and example scenes.

The page needs nothing from the network and no script: pictures are data URIs, figures are inline
SVG. It needs the extra ``report`` (jinja2, matplotlib), which is imported on use.
"""

import base64
import importlib
import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dualwave.eval.output import write_whole
from dualwave.eval.pictures import (
    FALSE_ALARM_COLOUR,
    HEAT_COLOURS,
    MISS_COLOUR,
    ScenePicture,
    difference_image,
    heat_image,
    map_to_image,
)
from dualwave.eval.saliency import (
    CENTRE_PRIOR_SIGMA,
    SALIENCY_CONVENTIONS,
    SaliencyScores,
)

_LARGEST_PICTURE = 320
_PIXELATED_UP_TO = 160
_CONVENTION_TITLES = {
    "map": "mAP",
    "max_f": "max-F",
    "mae": "MAE",
    "pr_curve": "PR curve",
}


class MissingReportDependencyError(ImportError, ValueError):
    """jinja2 or matplotlib, which the extra ``report`` installs, is not there."""


@dataclass(frozen=True)
class ReportData:
    """All that the page shows.

    Attributes:
        title: heading of the page.
        made_at: time shown under the title.
        model: scores with every scene's own caption.
        shuffled_captions: scores of the same model and scenes with captions of other scenes.
        centre_prior: scores of the centre prior on the same scenes.
        scenes: example scenes in the order shown, gathered by ``group``.
        losses: (step, loss) pairs of each training loss by its name; empty leaves the loss figure
            out.
        groups: names and order of the groups (levels) shown; None takes the model's, sorted.
        scene_rule: one sentence saying how the scenes were picked; None says that
            ``pick_scenes`` did.
        facts: short facts shown as tiles under the scores, such as {"Parameters": "1.2 M"}.
        configuration: text (YAML) shown in an expandable section; empty leaves it out.
    """

    title: str
    made_at: datetime
    model: SaliencyScores
    shuffled_captions: SaliencyScores
    centre_prior: SaliencyScores
    scenes: Sequence[ScenePicture]
    losses: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    groups: Sequence[str] | None = None
    scene_rule: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    configuration: str = ""


def check_report_dependencies() -> None:
    """Raise at once if the page could not be written later.

    Raises:
        MissingReportDependencyError: (an ImportError and a ValueError) jinja2 or matplotlib is
            not installed; the sentence says how to install it.
    """
    for module in ("jinja2", "matplotlib"):
        try:
            importlib.import_module(module)
        except ImportError:
            raise MissingReportDependencyError(
                f"the report needs {module}, which is not installed: "
                "run `pip install dualwave[report]`"
            ) from None


def pick_scenes(scores: SaliencyScores, per_group: int = 6) -> list[str]:
    """Pick example scenes that show the whole range, not the best of it.

    In every group the scenes with an AP are sorted by it (ties by id) and taken at evenly spaced
    ranks, from the worst to the best, both included. Scenes without a group form one of their own.

    Args:
        scores: the model's scores.
        per_group: how many of each group; all, if a group has no more than that.

    Returns:
        ids, group by group (sorted by name), within a group from the worst to the best.

    Raises:
        ValueError: ``per_group`` below 1.
    """
    if per_group < 1:
        raise ValueError(f"at least one scene a group must be picked, not {per_group}")
    picked: list[str] = []
    for group in sorted({sample.group for sample in scores.samples}, key=lambda g: g or ""):
        ranked = sorted(
            (sample.average_precision, sample.id)
            for sample in scores.samples
            if sample.group == group and not math.isnan(sample.average_precision)
        )
        if ranked:
            ranks = np.linspace(0, len(ranked) - 1, min(per_group, len(ranked))).round().astype(int)
            picked.extend(ranked[rank][1] for rank in ranks)
    return picked


def summary_sentence(data: ReportData) -> str:
    """Return the result in one sentence."""
    model, shuffled, centre = data.model, data.shuffled_captions, data.centre_prior
    return (
        f"On {model.count} scenes the model finds what the caption names with a saliency mAP of "
        f"{_number(model.map)}; given the captions of other scenes it reaches "
        f"{_number(shuffled.map)}, so the words are worth {_number(model.map - shuffled.map)}, "
        f"and a centre prior reaches {_number(centre.map)}."
    )


def render_report(data: ReportData) -> str:
    """Return the page as HTML text.

    Raises:
        MissingReportDependencyError: the extra ``report`` is not installed.
        ValueError: a scene's map or mask does not fit its picture.
    """
    check_report_dependencies()
    import jinja2

    from dualwave.eval.figures import loss_figure, precision_recall_figure

    rows = [
        ("Model", data.model),
        ("Shuffled captions", data.shuffled_captions),
        ("Centre prior", data.centre_prior),
    ]
    groups = list(data.groups) if data.groups is not None else sorted(data.model.map_by_group)
    template = files("dualwave.eval").joinpath("templates/report.html.j2").read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    return environment.from_string(template).render(
        title=data.title,
        made_at=f"{data.made_at.day} {data.made_at:%B %Y, %H:%M %Z}".strip(),
        summary=summary_sentence(data),
        columns=["mAP", *groups, "max-F", "MAE"],
        rows=[{"name": name, "cells": _cells(scores, groups)} for name, scores in rows],
        groups=groups,
        count=data.model.count,
        count_without_object=data.model.count_without_object,
        facts=data.facts,
        precision_recall_svg=precision_recall_figure(rows),
        loss_svg=loss_figure(data.losses) if data.losses else "",
        sections=_sections(data, groups),
        scene_rule=data.scene_rule or _default_scene_rule(),
        conventions=[(_CONVENTION_TITLES[key], text) for key, text in SALIENCY_CONVENTIONS.items()],
        centre_sigma=CENTRE_PRIOR_SIGMA,
        configuration=data.configuration,
        heat_gradient=", ".join(_css_colour(colour) for colour in HEAT_COLOURS),
        false_alarm_colour=_css_colour(FALSE_ALARM_COLOUR),
        miss_colour=_css_colour(MISS_COLOUR),
    )


def write_report(path: str | os.PathLike[str], data: ReportData) -> Path:
    """Write the page under a temporary name, then rename it; folders are made.

    Returns:
        The path written.

    Raises:
        MissingReportDependencyError: the extra ``report`` is not installed.
        ValueError: a scene's map or mask does not fit its picture.
    """
    return write_whole(path, render_report(data).encode("utf-8"))


def _cells(scores: SaliencyScores, groups: Sequence[str]) -> list[str]:
    by_group = [scores.map_by_group.get(group, math.nan) for group in groups]
    return [_number(value) for value in (scores.map, *by_group, scores.max_f, scores.mae)]


def _number(value: float) -> str:
    return "n/a" if math.isnan(value) else f"{value:.3f}"


def _default_scene_rule() -> str:
    return (
        "The scenes were not chosen by hand: within each group all scenes are sorted by their "
        "AP and taken at evenly spaced ranks, from the worst to the best."
    )


def _sections(data: ReportData, groups: Sequence[str]) -> list[dict[str, Any]]:
    """Gather the scenes by group: the named groups first, then what has none of these."""
    sections = []
    for group in [*groups, None]:
        scenes = [
            scene
            for scene in data.scenes
            if (scene.group == group if group is not None else scene.group not in groups)
        ]
        if scenes:
            sections.append(
                {
                    "name": group or ("other" if groups else ""),
                    "map": _number(data.model.map_by_group.get(group, math.nan)) if group else None,
                    "count": data.model.count_by_group.get(group) if group else None,
                    "scenes": [_card(scene) for scene in scenes],
                }
            )
    return sections


def _card(scene: ScenePicture) -> dict[str, Any]:
    size = (scene.image.height, scene.image.width)
    if scene.mask.shape != size or scene.prediction.shape != size:
        raise ValueError(
            f"scene {scene.id!r}: picture {size}, mask {scene.mask.shape} and map "
            f"{scene.prediction.shape} must have one size"
        )
    pictures = [
        ("picture", scene.image),
        ("truth", map_to_image(scene.mask)),
        ("prediction", heat_image(scene.prediction)),
        ("difference", difference_image(scene.prediction, scene.mask)),
    ]
    defined = not math.isnan(scene.average_precision)
    return {
        "id": scene.id,
        "caption": scene.caption,
        "score": f"{scene.average_precision:.2f}" if defined else "n/a",
        "percent": round(100 * scene.average_precision) if defined else 0,
        "pictures": [(name, _data_uri(picture)) for name, picture in pictures],
        "pixelated": max(size) <= _PIXELATED_UP_TO,
    }


def _data_uri(picture: Image.Image) -> str:
    shown = picture if picture.mode in ("L", "RGB") else picture.convert("RGB")
    if max(shown.size) > _LARGEST_PICTURE:
        shown = shown.copy()
        shown.thumbnail((_LARGEST_PICTURE, _LARGEST_PICTURE))
    stream = io.BytesIO()
    shown.save(stream, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


def _css_colour(colour: Sequence[float]) -> str:
    red, green, blue = (round(float(channel)) for channel in colour)
    return f"rgb({red} {green} {blue})"
