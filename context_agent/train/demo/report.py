"""The report of the demo: figures, targets, and an HTML page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from context_agent._support.atomic_files import replace_file
from context_agent.errors import MissingExtraError
from context_agent.eval.statistics import Figure
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import read
from context_agent.pruning.view import ActionTaken
from context_agent.train.config import EpisodeConfig
from context_agent.train.demo.plan import DemoPlan, DemoTargets
from context_agent.train.demo.plots import PANELS, PlottedRuns, plot
from context_agent.train.demo.scores import DemoScore, paired_gain, summarize
from context_agent.train.metrics_log import read_metrics
from context_agent.train.rl.evaluation import temperature_name
from context_agent.types import Action
from context_agent.web.page import escape, page

LEGEND = (
    "Lines are the episodes that training sampled, as running means; the pale ones are single updates, a band is from "
    "the lowest to the highest of several seeds. Small circles: questions of the dev split, asked while it trained. "
    "The dashed level: held-out questions after the demonstrations; the square at the end: the same after the rewards."
)
"""The explanation below the plot."""


SHOWN_EPISODES = 8
"""Number of episodes on the page."""


TEMPERATURE_LABELS = {"t1": "sampled", "greedy": "greedy"}
"""Labels of the temperatures."""


REPORTED = {
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
"""Figures of an evaluation that are shown, and their labels."""


EVALUATION_LABELS = {
    "before": "demonstrations",
    "after": "rewards",
    "half": "half window",
    "half_unpruned": "unpruned",
}
"""Labels of the evaluations."""


ScoresByTemperature = Mapping[str, Sequence[DemoScore]]
"""Scores by sampling temperature."""


@dataclass(frozen=True, slots=True)
class DemoTarget:
    """A measured figure and its target.

    Attributes:
        name: The name of the figure.
        result: The measured figure.
        target: The target.
        reached: True if the figure reaches the target.
    """

    name: str
    result: str
    target: str
    reached: bool


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The report of a demo.

    Attributes:
        data: The content of report.json.
        targets: The targets with their results.
    """

    data: dict[str, Any]
    targets: tuple[DemoTarget, ...]

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield a table row for each evaluation, with the columns of `head`."""
        for name, by_temperature in self.data["evaluations"].items():
            for temperature, figures in by_temperature.items():
                yield (
                    EVALUATION_LABELS[name],
                    TEMPERATURE_LABELS[temperature],
                    *(format_figure(figures[key]) for key in REPORTED),
                )

    @property
    def head(self) -> tuple[str, ...]:
        """Names of the columns of `rows`."""
        return ("policy", "asked", *REPORTED.values())


def write_report(
    plan: DemoPlan,
    scores: Mapping[str, ScoresByTemperature],
    half: EpisodeConfig,
    seconds: Mapping[str, Any],
    one_shot: Sequence[float] = (),
) -> DemoReport:
    """Write the report into the demo's folder: report.json, report.html, plot.svg and plot.png.

    Args:
        plan: The plan of the demo.
        scores: The scores of each evaluation.
        half: The harness settings with half the window.
        seconds: The time of each phase.
        one_shot: The recall of a single search for each question. Needed only if `plan.targets.one_shot` is set.

    Returns:
        The report.
    """
    report = make_report(scores, half, seconds, plan.targets, one_shot)
    head = temperature_name(plan.targets.temperature)
    lines = list(read_metrics(Path(plan.rl.out) / "metrics.jsonl"))
    about = {
        "seed": plan.rl.seed,
        "trajectory_reward": not plan.ablation,
        "rl": plan.rl.plain(),
        "sft": plan.sft.plain(),
    }
    replace_file(plan.path("report.json"), json.dumps({**report.data, "settings": about}, indent=1) + "\n")
    run = PlottedRuns(
        "rewards",
        (lines,),
        report.data["evaluations"]["before"][head],
        report.data["evaluations"]["after"][head],
    )
    try:
        drawing = plot([run], PANELS, plan.path("plot.png"))
    except MissingExtraError as error:
        drawing, notice = "", f"<p>{escape(str(error))}</p>"
    else:
        replace_file(plan.path("plot.svg"), drawing)
        notice = ""
    folder = plan.out / "trajectories" / f"after{plan.suffix}-{head}"
    episodes = [read(path) for path in sorted(folder.glob("*.jsonl"))[:SHOWN_EPISODES]]
    replace_file(
        plan.path("report.html"),
        report_page(report, drawing, notice, episodes, table=f"{Path(plan.rl.out).name}/episodes.html"),
    )
    return report


def make_report(
    scores: Mapping[str, ScoresByTemperature],
    half: EpisodeConfig,
    seconds: Mapping[str, Any],
    limits: DemoTargets,
    one_shot: Sequence[float] = (),
) -> DemoReport:
    """Compute all figures of the report.

    Args:
        scores: The scores of `before`, `after`, `half` and `half_unpruned`, each by temperature.
        half: The harness settings with half the window.
        seconds: The time of each phase.
        limits: The targets.
        one_shot: The recall of a single search for each question. Needed only if `limits.one_shot` is set.

    Returns:
        The report.
    """
    head = temperature_name(limits.temperature)
    gains = _paired_gains(scores["after"], scores["before"])
    halves = _paired_gains(scores["half"], scores["half_unpruned"])
    evaluations = {
        name: {temperature: summarize(values) for temperature, values in each.items()} for name, each in scores.items()
    }
    violations = sum(results["violations"] for each in evaluations.values() for results in each.values())
    minutes = sum(second["seconds"] for second in seconds.values()) / 60
    complete = all(second["whole"] for second in seconds.values())
    targets = (
        *([one_shot_target(scores["before"][head], one_shot)] if limits.one_shot else []),
        *([] if limits.gain is None else [gain_target(gains[head], limits.gain, limits.sure)]),
        accuracy_target(evaluations["after"][head]["prune_accuracy"], limits),
        DemoTarget("budget violations", str(violations), "0", violations == 0),
        *([] if limits.half is None else [half_window_target(halves[head], limits.half)]),
        time_target(minutes, limits, complete=complete),
    )
    data = {
        "evaluations": evaluations,
        "temperature": head,
        "one_shot": asdict(Figure.of(one_shot)) if one_shot else None,
        "gain": {temperature: asdict(item) for temperature, item in gains.items()},
        "half_window": {
            "window": half.window,
            "gain": {temperature: asdict(item) for temperature, item in halves.items()},
        },
        "targets": [asdict(target) for target in targets],
        "seconds": dict(seconds),
    }
    return DemoReport(data, targets)


def _paired_gains(scores: ScoresByTemperature, reference: ScoresByTemperature) -> dict[str, Figure]:
    return {temperature: paired_gain(values, reference[temperature]) for temperature, values in scores.items()}


def one_shot_target(before: Sequence[DemoScore], one_shot: Sequence[float]) -> DemoTarget:
    """Return the target that compares the recall after the demonstrations with that of one search for the question."""
    gain = Figure.of([score.recall - recall for score, recall in zip(before, one_shot, strict=True)])
    return DemoTarget("recall, demonstrations less one search", format_difference(gain), "low > 0", gain.low > 0)


def gain_target(gain: Figure, least: float, sure: float) -> DemoTarget:
    """Return the target for the gain in output recall and for the lower bound of its interval."""
    reached = gain.mean >= least and gain.low > sure
    target = f">= +{least:.3f}, low > +{sure:.3f}"
    return DemoTarget("recall, rewards less demonstrations", format_difference(gain), target, reached)


def accuracy_target(accuracy: float | None, limits: DemoTargets) -> DemoTarget:
    """Return the target for the accuracy of prunes."""
    reached = accuracy is not None and accuracy >= limits.accuracy
    return DemoTarget("prune accuracy", format_figure(accuracy), f">= {limits.accuracy:.3f}", reached)


def half_window_target(gain: Figure, least: float) -> DemoTarget:
    """Return the target for pruning in half the window."""
    target = f">= +{least:.3f}, low > 0" if least else "low > 0"
    reached = gain.mean >= least and gain.low > 0
    return DemoTarget("half window, pruning less not", format_difference(gain), target, reached)


def time_target(minutes: float, limits: DemoTargets, *, complete: bool) -> DemoTarget:
    """Return the target for the time of all phases. If not all of the time was measured, the target is missed."""
    elapsed = f"{'' if complete else 'more than '}{minutes:.1f}"
    return DemoTarget("minutes", elapsed, f"<= {limits.minutes:.0f}", complete and minutes <= limits.minutes)


def format_difference(difference: Figure) -> str:
    """Return a difference with its interval."""
    return f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"


def format_figure(value: Any) -> str:
    """Return a figure as text for a table."""
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def report_page(
    report: DemoReport, drawing: str, notice: str, episodes: Sequence[Trajectory] = (), *, table: str
) -> str:
    """Return the HTML page: targets, evaluations, plot, episodes and times. It needs no server and no network.

    Args:
        report: The report.
        drawing: The plot as SVG.
        notice: A paragraph below the plot that says why there is none, as HTML. Empty if there is a plot.
        episodes: Episodes to show.
        table: The address of the page with all sampled episodes.

    Returns:
        The page.
    """
    targets = [(row.name, row.result, row.target, "reached" if row.reached else "missed") for row in report.targets]
    seconds = [
        (name, f"{item['seconds']:,.0f}" + ("" if item["whole"] else " and more"))
        for name, item in report.data["seconds"].items()
    ]
    head = report.data["temperature"]
    half, placed = report.data["half_window"]["window"], report.data["evaluations"]["after"][head]["median_placed"]
    one_shot = report.data["one_shot"]
    body = (
        "<h1>A policy learns to search and prune</h1>"
        "<p>Means over held-out questions with bootstrap 95&nbsp;% intervals. The targets are about "
        f"{TEMPERATURE_LABELS[head]} answers. Half the window is {half} tokens; the median episode places {placed:g} "
        "in its context, pruned ones too. <i>Unpruned</i> is that window with the policy's prunes not carried out."
        f"{f' One search with the question reaches a recall of {format_figure(one_shot)}.' if one_shot else ''}</p>"
        f"{_table(('figure', 'result', 'target', ''), targets)}"
        f"<h2>Held-out questions</h2>{_table(report.head, list(report.rows()))}"
        f"<h2>While it trains by rewards</h2><figure>{drawing}</figure>{notice}"
        f"<p>{escape(LEGEND)}</p>"
        f'<p><a href="{escape(table)}">All episodes with their reward terms</a></p>'
        f"{''.join(['<h2>Episodes after the rewards</h2>', *map(_episode, episodes)]) if episodes else ''}"
        f"<h2>Seconds</h2>{_table(('phase', 'seconds'), seconds)}"
    )
    return page("A policy learns to search and prune", body)


def _episode(trajectory: Trajectory) -> str:
    """Return an episode as HTML: the question, and the policy's actions turn by turn."""
    turns = [event.action for event in trajectory.events if isinstance(event, ActionTaken)]
    items = "".join(f"<li>{escape('; '.join(_steps(action)))}</li>" for action in turns)
    return f"<details><summary>{escape(trajectory.header.question)}</summary><ol>{items}</ol></details>"


def _steps(action: Action) -> Iterator[str]:
    for call in action.calls:
        values: Iterable[Any] = call.arguments.values() if isinstance(call.arguments, dict) else [call.arguments]
        parts = (", ".join(map(str, value)) if isinstance(value, list) else str(value) for value in values)
        yield f"{call.name}: {', '.join(parts)}"
    if action.ranking is not None:
        yield f"ranking: {', '.join(item.id for item in action.ranking)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(item)}</th>" for item in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(item)}</td>" for item in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
