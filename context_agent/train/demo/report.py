"""The course of training by rewards as plots: one run, or the mean and the band of several. Needs the extra `plots`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import MissingExtraError
from context_agent.eval.journal import replace
from context_agent.eval.page import escape, page
from context_agent.eval.report.drawing import PALETTE, canvas, svg
from context_agent.eval.statistics import Figure
from context_agent.train.checkpoints import read_metrics
from context_agent.train.config import Episodes
from context_agent.train.demo.plan import Plan, Score, figures, gain

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


GAIN, SURE, ACCURACY, MINUTES = 0.15, 0.10, 0.90, 60.0
"""The targets: gain of output recall and what its interval leaves out, accuracy of prunes, minutes of a seed."""
HEAD = "t1"
"""The manner of asking that the targets are about: at temperature 1, as in training."""
MANNERS = {"t1": "sampled", "greedy": "greedy"}
SHOWN = {
    "recall": "output recall",
    "seen": "trajectory recall",
    "precision": "precision",
    "prune_accuracy": "prune accuracy",
    "pruning": "episodes that prune",
    "searches": "searches",
    "turns": "turns",
    "reward": "reward",
    "mistakes": "mistakes",
    "violations": "violations",
}
"""Figures of an evaluation that are shown, by what they are called."""
SITTINGS = {
    "before": "lessons",
    "after": "rewards",
    "half": "half window",
    "half_unpruned": "unpruned",
}

Scores = Mapping[str, Sequence[Score]]
"""By manner."""


@dataclass(frozen=True, slots=True)
class Target:
    """A figure beside what it should be."""

    name: str
    found: str
    wanted: str
    reached: bool


@dataclass(frozen=True, slots=True)
class Report:
    """`data` is what report.json holds."""

    data: dict[str, Any]
    targets: tuple[Target, ...]

    def rows(self) -> Iterator[tuple[str, ...]]:
        """A row for each evaluation, under `head`."""
        for name, manners in self.data["evaluations"].items():
            for manner, found in manners.items():
                yield (SITTINGS[name], MANNERS[manner], *(shown(found[key]) for key in SHOWN))

    @property
    def head(self) -> tuple[str, ...]:
        """What the columns of `rows` are called."""
        return ("policy", "asked", *SHOWN.values())


def reported(plan: Plan, scores: Mapping[str, Scores], half: Episodes, seconds: Mapping[str, Any]) -> Report:
    """The report, written into the demo's folder: report.json, report.html, plot.svg and plot.png."""
    made = report(scores, half, seconds)
    lines = list(read_metrics(Path(plan.rl.out) / "metrics.jsonl"))
    about = {
        "seed": plan.rl.seed,
        "trajectory_reward": not plan.ablation,
        "rl": plan.rl.plain(),
        "sft": plan.sft.plain(),
    }
    replace(plan.place("report.json"), json.dumps({**made.data, "settings": about}, indent=1) + "\n")
    run = Group("rewards", (lines,), made.data["evaluations"]["before"][HEAD], made.data["evaluations"]["after"][HEAD])
    try:
        drawing = drawn([run], PANELS, plan.place("plot.png"))
    except MissingExtraError as error:
        drawing, told = "", f"<p>{escape(str(error))}</p>"
    else:
        replace(plan.place("plot.svg"), drawing)
        told = ""
    replace(plan.place("report.html"), html(made, drawing, told))
    return made


def report(scores: Mapping[str, Scores], half: Episodes, seconds: Mapping[str, Any]) -> Report:
    """All figures from the scores of `before`, `after`, `half` and `half_unpruned`, each by manner."""
    gains = {manner: gain(scores["after"][manner], scores["before"][manner]) for manner in scores["after"]}
    halves = {manner: gain(scores["half"][manner], scores["half_unpruned"][manner]) for manner in scores["half"]}
    evaluations = {name: {manner: figures(found) for manner, found in each.items()} for name, each in scores.items()}
    over = sum(found["violations"] for each in evaluations.values() for found in each.values())
    minutes = sum(one["seconds"] for one in seconds.values()) / 60
    whole = all(one["whole"] for one in seconds.values())
    targets = (
        gained(gains[HEAD]),
        accurate(evaluations["after"][HEAD]["prune_accuracy"]),
        Target("budget violations", str(over), "0", over == 0),
        better(halves[HEAD]),
        lasted(minutes, whole=whole),
    )
    data = {
        "evaluations": evaluations,
        "gain": {manner: asdict(one) for manner, one in gains.items()},
        "half_window": {"window": half.window, "gain": {manner: asdict(one) for manner, one in halves.items()}},
        "targets": [asdict(one) for one in targets],
        "seconds": dict(seconds),
    }
    return Report(data, targets)


def gained(found: Figure) -> Target:
    """The target for the gain of output recall."""
    wanted = f">= +{GAIN:.3f}, low > +{SURE:.3f}"
    return Target("recall, rewards less lessons", signed(found), wanted, found.mean >= GAIN and found.low > SURE)


def accurate(found: float | None) -> Target:
    """The target for the accuracy of prunes."""
    reached = found is not None and found >= ACCURACY
    return Target("prune accuracy", shown(found), f">= {ACCURACY:.3f}", reached)


def better(found: Figure) -> Target:
    """The target for half the window."""
    return Target("half window, pruning less not", signed(found), "low > 0", found.low > 0)


def lasted(minutes: float, *, whole: bool) -> Target:
    """The target for the time of a seed; where not the `whole` of it was measured, it is not reached."""
    found = f"{'' if whole else 'more than '}{minutes:.1f}"
    return Target("minutes", found, f"<= {MINUTES:.0f}", whole and minutes <= MINUTES)


def signed(found: Figure) -> str:
    """A difference with its interval."""
    return f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def shown(found: Any) -> str:
    """A figure as a table has it."""
    if found is None:
        return "none"
    if isinstance(found, Mapping):
        return f"{found['mean']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"
    return f"{found:.3f}" if isinstance(found, float) else str(found)


def html(made: Report, drawing: str, told: str) -> str:
    """The page: targets, evaluations, plot, seconds. It needs no server and no network."""
    targets = [(one.name, one.found, one.wanted, "reached" if one.reached else "missed") for one in made.targets]
    seconds = [
        (name, f"{one['seconds']:,.0f}" + ("" if one["whole"] else " and more"))
        for name, one in made.data["seconds"].items()
    ]
    half, placed = made.data["half_window"]["window"], made.data["evaluations"]["after"][HEAD]["median_placed"]
    body = (
        "<h1>A tiny policy learns to search and prune</h1>"
        "<p>Means over held-out questions with bootstrap 95&nbsp;% intervals. The targets are about answers sampled at "
        f"temperature 1. Half the window is {half} tokens; the median episode places {placed:g} in its context, "
        "pruned ones too. <i>Unpruned</i> is that window with the policy's prunes not carried out.</p>"
        f"{_table(('figure', 'found', 'target', ''), targets)}"
        f"<h2>Held-out questions</h2>{_table(made.head, list(made.rows()))}"
        f"<h2>While it trains by rewards</h2><figure>{drawing}</figure>{told}"
        f"<p>{escape(LEGEND)}</p>"
        f"<h2>Seconds</h2>{_table(('phase', 'seconds'), seconds)}"
    )
    return page("A tiny policy learns to search and prune", body)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(one)}</th>" for one in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(one)}</td>" for one in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
