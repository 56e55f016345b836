"""Plots of a training run's metrics against updates. They need the extra `plots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from context_agent.web.drawing import PALETTE, canvas, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes


PANELS = {
    "reward": "reward",
    "recall": "output recall",
    "trajectory_recall": "trajectory recall",
    "prune_accuracy": "prune accuracy",
    "entropy": "entropy, nats a token",
}
"""Metrics of a training run that are plotted, and their titles."""


EXPLORATION_PANELS = {"searches": "searches an episode", "pruning": "episodes that prune"}
"""Metrics that show whether a policy collapses, and their titles."""


HELD_OUT_NAMES = {"trajectory_recall": "seen"}
"""Names of metrics in held-out figures, where they differ."""


RUNNING_MEAN_PARTS = 20
"""A running mean covers one part of a run that is divided into this many parts."""


PANELS_PER_ROW = 3
"""Number of panels side by side."""


MetricsLine = Mapping[str, Any]


Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PlottedRuns:
    """Runs that differ only in their seed.

    Attributes:
        label: The name in the legend.
        runs: For each run, the lines of its metrics file.
        before: Held-out figures measured before the runs.
        after: Held-out figures measured after the runs.
    """

    label: str
    runs: tuple[Sequence[MetricsLine], ...]
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


def plot(groups: Sequence[PlottedRuns], panels: Mapping[str, str], png: Path | None = None) -> str:
    """Plot metrics, one panel per metric.

    Args:
        groups: The runs.
        panels: The metrics and their titles.
        png: A file that also receives the plot as PNG.

    Returns:
        The plot as SVG text.

    Raises:
        MissingExtraError: If matplotlib is missing.
    """
    with canvas() as figure_type:
        from matplotlib.ticker import MaxNLocator

        rows = -(-len(panels) // PANELS_PER_ROW)
        figure = figure_type(figsize=(3.6 * PANELS_PER_ROW, 2.7 * rows + 0.3))
        axes = list(figure.subplots(rows, PANELS_PER_ROW, squeeze=False).flat)
        for panel, (metric, title) in zip(axes, panels.items(), strict=False):
            panel.set_title(title, loc="left")
            panel.set_xlabel("updates")
            panel.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
            for group, color in zip(groups, PALETTE, strict=False):
                _plot_metric(panel, group, metric, color)
        for panel in axes[len(panels) :]:
            panel.remove()
        if len(groups) > 1:
            figure.legend(
                *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(groups), fontsize=9
            )
        if png is not None:
            figure.savefig(png, dpi=144, facecolor="white", metadata={"Software": None})
        return svg(figure, "training", "metrics against updates")


def metric_series(lines: Sequence[MetricsLine], metric: str) -> tuple[Floats, Floats]:
    """Return the updates that have a value of the metric, and the values. Lines with a null value are left out."""
    points = [(line["step"], line[metric]) for line in lines if line.get(metric) is not None]
    return np.array([item for item, _ in points], dtype=float), np.array([item for _, item in points], dtype=float)


def running_mean(values: Floats) -> Floats:
    """Return the running mean over a part of the run. At the ends it covers only the values that exist."""
    if not len(values):
        return values
    window = np.ones(max(1, len(values) // RUNNING_MEAN_PARTS))
    sums, counts = (np.convolve(item, window, mode="same") for item in (values, np.ones(len(values))))
    return np.asarray(sums / counts, dtype=np.float64)


def _plot_metric(panel: Axes, group: PlottedRuns, metric: str, color: str) -> None:
    curves = [item for item in (metric_series(lines, metric) for lines in group.runs) if len(item[0])]
    if not curves:
        return
    if len(curves) == 1:
        panel.plot(*curves[0], color=color, alpha=0.25, lw=0.8)
    at = np.unique(np.concatenate([steps for steps, _ in curves]))
    lines = np.array([np.interp(at, steps, running_mean(values)) for steps, values in curves])
    panel.plot(at, lines.mean(axis=0), color=color, label=group.label)
    if len(curves) > 1:
        panel.fill_between(at, lines.min(axis=0), lines.max(axis=0), color=color, alpha=0.18, lw=0)
    _plot_dev(panel, group, metric, color)
    _plot_held_out(panel, group, metric, color, max(line["step"] for lines in group.runs for line in lines))


def _plot_dev(panel: Axes, group: PlottedRuns, metric: str, color: str) -> None:
    points: dict[float, list[float]] = {}
    for lines in group.runs:
        for step, value in zip(*metric_series(lines, f"dev/t1/{metric}"), strict=True):
            points.setdefault(float(step), []).append(float(value))
    if points:
        panel.plot(
            list(points), [float(np.mean(point)) for point in points.values()], "o", color=color, ms=3.5, mfc="none"
        )


def _plot_held_out(panel: Axes, group: PlottedRuns, metric: str, color: str, last: float) -> None:
    name = HELD_OUT_NAMES.get(metric, metric)
    before, after = ((item or {}).get(name) for item in (group.before, group.after))
    if before is not None:
        panel.axhline(_mean(before), color=color, ls=(0, (4, 3)), lw=1)
    if after is not None:
        panel.plot([last], [_mean(after)], "s", color=color, ms=6, clip_on=False)


def _mean(figure: Any) -> float:
    return float(figure["mean"] if isinstance(figure, Mapping) else figure)
