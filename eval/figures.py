"""The report's two figures as inline SVG whose colours follow the page (light and dark).

Matplotlib draws with placeholder colours that are then replaced by CSS variables of the page:
``--ink``, ``--rule`` and ``--series-1`` to ``--series-3``.
"""

import io
import re
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dualwave.eval.saliency import LEVELS, SaliencyScores

_PLACEHOLDERS = {
    "#010101": "var(--ink)",
    "#020202": "var(--rule)",
    "#030303": "var(--series-1)",
    "#040404": "var(--series-2)",
    "#050505": "var(--series-3)",
}
_INK, _RULE, *_SERIES = _PLACEHOLDERS
_SIZE_INCHES = (3.9, 3.0)


def precision_recall_figure(rows: Sequence[tuple[str, SaliencyScores]]) -> str:
    """Return the mean PR curves (at most three) as an ``<svg>`` element.

    The first row's best F point is marked.
    """
    figure, axes = _axes()
    for (name, scores), colour in zip(rows, _SERIES, strict=False):
        recall, precision = scores.pr_curve.recall, scores.pr_curve.precision
        axes.plot(recall, precision, color=colour, linewidth=2, label=name)
    best = LEVELS - 1 - rows[0][1].max_f_threshold
    curve = rows[0][1].pr_curve
    axes.plot(
        [curve.recall[best]],
        [curve.precision[best]],
        marker="o",
        markersize=6,
        color=_SERIES[0],
        linestyle="none",
        label="best F of the model",
    )
    axes.set_xlim(0, 1.01)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("recall", color=_INK)
    axes.set_ylabel("precision", color=_INK)
    axes.legend(frameon=False, labelcolor=_INK, fontsize=9, loc="best")
    return _inline_svg(figure, "Mean precision-recall curves", "pr")


def loss_figure(losses: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Return the training losses, each raw and smoothed, as an ``<svg>`` element.

    Args:
        losses: name of each curve and its (step, loss) pairs, at most as many as there are series
            colours.
    """
    figure, axes = _axes()
    for (name, pairs), colour in zip(losses.items(), _SERIES, strict=False):
        steps = np.array([step for step, _ in pairs])
        values = np.array([loss for _, loss in pairs], dtype=np.float64)
        axes.plot(steps, values, color=colour, linewidth=1, alpha=0.3)
        smooth = moving_average(values, smoothing_window(len(values)))
        axes.plot(steps, smooth, color=colour, linewidth=2, label=name)
    axes.set_xlabel("step", color=_INK)
    axes.set_ylabel("loss", color=_INK)
    axes.margins(x=0.01)
    axes.legend(frameon=False, labelcolor=_INK, fontsize=9)
    return _inline_svg(figure, "Training loss", "loss")


def smoothing_window(count: int) -> int:
    """Return the odd window, about a thirtieth of the entries, that the loss is averaged over."""
    return 2 * (count // 60) + 1


def moving_average(values: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Return the centred moving average, (N,), over what the window covers at the ends.

    Args:
        values: (N,) floats.
        window: odd number of entries.
    """
    sums = np.concatenate([[0.0], np.cumsum(values)])
    centre = np.arange(len(values))
    first = np.maximum(centre - window // 2, 0)
    last = np.minimum(centre + window // 2, len(values) - 1)
    return (sums[last + 1] - sums[first]) / (last + 1 - first)


def _axes() -> tuple[Figure, Axes]:
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    figure.patch.set_visible(False)
    axes = figure.add_subplot()
    axes.patch.set_visible(False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_RULE)
    axes.tick_params(color=_RULE, labelcolor=_INK, labelsize=9)
    axes.grid(color=_RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def _inline_svg(figure: Figure, title: str, prefix: str) -> str:
    stream = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    # The salt makes the element ids, and so the file, the same in every run; ids of two figures
    # on one page must still differ, hence the prefix in it.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": prefix}):
        FigureCanvasSVG(figure).print_svg(stream, metadata=no_metadata)
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :]
    # Inline SVG needs no namespaces; ids are made unique for the page.
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", svg)
    svg = re.sub(r'id="', f'id="{prefix}-', svg)
    svg = re.sub(r'href="#', f'href="#{prefix}-', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}-", svg)
    svg = re.sub(r'<svg width="[^"]*" height="[^"]*"', f'<svg role="img" aria-label="{title}"', svg)
    for placeholder, variable in _PLACEHOLDERS.items():
        svg = svg.replace(placeholder, variable)
    return re.sub(r"'DejaVu Sans'[^;\"]*", "var(--font)", svg)
