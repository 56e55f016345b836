"""The course of training by rewards as plots: one run, or the mean and the band of several. Needs the extra `plots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from context_agent.eval.report.drawing import PALETTE, canvas, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = {
    "reward": "reward",
    "recall": "output recall",
    "trajectory_recall": "trajectory recall",
    "prune_accuracy": "prune accuracy",
    "entropy": "entropy, nats a token",
}
"""Metrics of a training run, and what they are called."""
EXPLORING = {"searches": "searches an episode", "pruning": "episodes that prune"}
"""Where a policy that collapses shows it."""
ASKED = {"trajectory_recall": "seen"}
"""What held-out figures call a metric, where that is another name."""
SMOOTH = 20
"""A line is the running mean over this part of the run."""
COLUMNS = 3
LEGEND = (
    "Lines are the episodes that training sampled, as running means; the pale ones are single updates, a band is from "
    "the lowest to the highest of several seeds. Small circles: questions of the dev split, asked while it trained. "
    "The dashed level: held-out questions after the lessons; the square at the end: the same after the rewards."
)

Line = Mapping[str, Any]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that differ in their seed alone: the lines of each one's metrics, and what held-out questions gave."""

    label: str
    runs: tuple[Sequence[Line], ...]
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


def drawn(groups: Sequence[Group], panels: Mapping[str, str], png: Path | None = None) -> str:
    """The plot as SVG text, a panel a metric; also written as a PNG. Raises `MissingExtraError` without matplotlib."""
    with canvas() as figure_type:
        from matplotlib.ticker import MaxNLocator

        rows = -(-len(panels) // COLUMNS)
        figure = figure_type(figsize=(3.6 * COLUMNS, 2.7 * rows + 0.3))
        axes = list(figure.subplots(rows, COLUMNS, squeeze=False).flat)
        for panel, (metric, title) in zip(axes, panels.items(), strict=False):
            panel.set_title(title, loc="left")
            panel.set_xlabel("updates")
            panel.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
            for group, color in zip(groups, PALETTE, strict=False):
                _draw(panel, group, metric, color)
        for panel in axes[len(panels) :]:
            panel.remove()
        if len(groups) > 1:
            figure.legend(
                *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(groups), fontsize=9
            )
        if png is not None:
            figure.savefig(png, dpi=144, facecolor="white", metadata={"Software": None})
        return svg(figure, "training", "metrics against updates")


def series(lines: Sequence[Line], metric: str) -> tuple[Floats, Floats]:
    """Updates and values of the lines that have the metric; a null is left out."""
    found = [(line["step"], line[metric]) for line in lines if line.get(metric) is not None]
    return np.array([one for one, _ in found], dtype=float), np.array([one for _, one in found], dtype=float)


def smoothed(values: Floats) -> Floats:
    """The running mean over a part of the run, at its ends over as much of that as there is."""
    if not len(values):
        return values
    window = np.ones(max(1, len(values) // SMOOTH))
    sums, counts = (np.convolve(one, window, mode="same") for one in (values, np.ones(len(values))))
    return np.asarray(sums / counts, dtype=np.float64)


def _draw(panel: Axes, group: Group, metric: str, color: str) -> None:
    found = [one for one in (series(lines, metric) for lines in group.runs) if len(one[0])]
    if not found:
        return
    if len(found) == 1:
        panel.plot(*found[0], color=color, alpha=0.25, lw=0.8)
    at = np.unique(np.concatenate([steps for steps, _ in found]))
    lines = np.array([np.interp(at, steps, smoothed(values)) for steps, values in found])
    panel.plot(at, lines.mean(axis=0), color=color, label=group.label)
    if len(found) > 1:
        panel.fill_between(at, lines.min(axis=0), lines.max(axis=0), color=color, alpha=0.18, lw=0)
    _dev(panel, group, metric, color)
    _held_out(panel, group, metric, color, max(line["step"] for lines in group.runs for line in lines))


def _dev(panel: Axes, group: Group, metric: str, color: str) -> None:
    points: dict[float, list[float]] = {}
    for lines in group.runs:
        for step, value in zip(*series(lines, f"dev/t1/{metric}"), strict=True):
            points.setdefault(float(step), []).append(float(value))
    if points:
        panel.plot(list(points), [float(np.mean(one)) for one in points.values()], "o", color=color, ms=3.5, mfc="none")


def _held_out(panel: Axes, group: Group, metric: str, color: str, last: float) -> None:
    name = ASKED.get(metric, metric)
    before, after = ((one or {}).get(name) for one in (group.before, group.after))
    if before is not None:
        panel.axhline(_mean(before), color=color, ls=(0, (4, 3)), lw=1)
    if after is not None:
        panel.plot([last], [_mean(after)], "s", color=color, ms=6, clip_on=False)


def _mean(figure: Any) -> float:
    return float(figure["mean"] if isinstance(figure, Mapping) else figure)
