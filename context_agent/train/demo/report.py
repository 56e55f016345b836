"""The report of the demo: scores of episodes, figures, targets, plots of the metrics, HTML. Plots need `plots`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from context_agent._support.journal import replace_file
from context_agent._support.small_files import parse_json
from context_agent.errors import DataError, MissingExtraError
from context_agent.eval.gold import gold_of
from context_agent.eval.statistics import Figure
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import read
from context_agent.policies.tokens.prompt import KEY, TokenCall
from context_agent.pruning.view import ActionTaken
from context_agent.retrieval.corpus import Corpus
from context_agent.train.checkpoints import read_metrics
from context_agent.train.config import EpisodeConfig
from context_agent.train.demo.plan import DemoPlan, DemoTargets
from context_agent.train.rewards import RewardConfig, compute_reward, measure_outcome
from context_agent.train.rl.rollouts import temperature_name
from context_agent.types import Action, Question
from context_agent.web.drawing import PALETTE, canvas, svg
from context_agent.web.page import escape, page

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
EXPLORATION_PANELS = {"searches": "searches an episode", "pruning": "episodes that prune"}
"""Where a policy that collapses shows it."""
HELD_OUT_NAMES = {"trajectory_recall": "seen"}
"""What held-out figures call a metric, where that is another name."""
SMOOTH = 20
"""A line is the running mean over this part of the run."""
COLUMNS = 3
LEGEND = (
    "Lines are the episodes that training sampled, as running means; the pale ones are single updates, a band is from "
    "the lowest to the highest of several seeds. Small circles: questions of the dev split, asked while it trained. "
    "The dashed level: held-out questions after the demonstrations; the square at the end: the same after the rewards."
)

MetricsLine = Mapping[str, Any]
Floats = NDArray[np.float64]


MEANS = ("reward", "recall", "seen", "precision", "turns", "searches", "calls", "mistakes", "placed")


@dataclass(frozen=True, slots=True)
class DemoScore:
    """One episode. `recall` and `precision` are the ranking's, `seen` is recall over all that was encountered.

    `placed` counts the tokens that the view would have had without any prune, `violations` the moments in which view
    and sampled output together passed the window.
    """

    question: str
    hops: int
    ending: str
    reward: float
    recall: float
    seen: float
    precision: float
    pruned: int
    pruned_gold: int
    turns: int
    searches: int
    calls: int
    mistakes: int
    placed: int
    violations: int


def score_episode(trajectory: Trajectory, question: Question, corpus: Corpus, rewards: RewardConfig) -> DemoScore:
    """Return the measures of a whole episode. Raises `DataError` for one that something other than its policy ended."""
    outcome = measure_outcome(trajectory, question, gold_of(question, corpus))
    assert trajectory.end is not None
    return DemoScore(
        question=question.id,
        hops=question.hops or 1,
        ending=outcome.ending.value,
        reward=compute_reward(outcome, rewards).total,
        recall=outcome.recall,
        seen=outcome.seen,
        precision=outcome.precision,
        pruned=outcome.pruned,
        pruned_gold=outcome.pruned_gold,
        turns=outcome.turns,
        searches=len(outcome.queries),
        calls=sum(outcome.calls),
        mistakes=outcome.mistakes,
        placed=trajectory.end.tokens,
        violations=budget_violations(trajectory),
    )


def budget_violations(trajectory: Trajectory) -> int:
    """Actions whose view and sampled output together passed the window, found by replay; and a last view that did.

    An action that says which ids were sampled counts by these, and its prompt by its own length too.
    """
    window, count, tokens = trajectory.header.budget.window, 0, 0
    for event, after in trajectory.replay():
        if isinstance(event, ActionTaken):
            has_token_call = KEY in event.action.extra
            call = TokenCall.from_extra(event.action.extra) if has_token_call else None
            sampled = len(call.output) if call else 0 if has_token_call else event.tokens
            sent = call.reused + len(call.new) if call else 0
            count += max(tokens, sent) + sampled > window
        tokens = after.tokens
    return count + (tokens > window)


def summarize(scores: Sequence[DemoScore]) -> dict[str, Any]:
    """Means with their 95 % intervals over tasks, and what is counted over all episodes together."""
    pruned = sum(score.pruned for score in scores)
    means: dict[str, Any] = {
        name: asdict(Figure.of([float(getattr(score, name)) for score in scores])) for name in MEANS
    }
    return means | {
        "episodes": len(scores),
        "median_placed": median(score.placed for score in scores),
        "pruning": fmean(score.pruned > 0 for score in scores),
        "prune_accuracy": 1 - sum(score.pruned_gold for score in scores) / pruned if pruned else None,
        "finished": fmean(score.ending == "finished" for score in scores),
        "violations": sum(score.violations for score in scores),
    }


def paired_gain(scores: Sequence[DemoScore], reference: Sequence[DemoScore]) -> Figure:
    """Return the paired difference of recall over the same tasks. Raises `DataError` if the tasks differ."""
    return Figure.of(paired_differences(scores, reference))


def paired_differences(
    scores: Sequence[DemoScore], reference: Sequence[DemoScore], measure: str = "recall"
) -> list[float]:
    """Return the scores minus the reference, task by task."""
    if [score.question for score in scores] != [score.question for score in reference] or not scores:
        raise DataError("two evaluations are compared on the same questions, at least one")
    return [float(getattr(a, measure)) - float(getattr(b, measure)) for a, b in zip(scores, reference, strict=True)]


def save_scores(path: Path, scores: Sequence[DemoScore], about: Mapping[str, Any]) -> None:
    """Writes an evaluation, all or nothing; `about` has its settings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"about": about}, *(asdict(score) for score in scores)]
    replace_file(path, "".join(json.dumps(line) + "\n" for line in lines))


def load_scores(path: Path, about: Mapping[str, Any] | None = None) -> list[DemoScore] | None:
    """Return the scores of a file, None where there is none or it is of another evaluation. Raises `DataError`."""
    if not path.is_file():
        return None
    try:
        first, *rest = [parse_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if about is not None and first["about"] != json.loads(json.dumps(about)):
            return None
        return [DemoScore(**row) for row in rest]
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path} is not an evaluation ({error}): delete it, and it is repeated") from None


@dataclass(frozen=True, slots=True)
class PlottedRuns:
    """Runs that differ in their seed alone: the lines of each one's metrics, and what held-out questions gave."""

    label: str
    runs: tuple[Sequence[MetricsLine], ...]
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


def plot(groups: Sequence[PlottedRuns], panels: Mapping[str, str], png: Path | None = None) -> str:
    """Return the plot as SVG text, a panel a metric; also written as a PNG. Raises `MissingExtraError` without
    matplotlib.
    """
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
    """Updates and values of the lines that have the metric; nulls are skipped."""
    points = [(line["step"], line[metric]) for line in lines if line.get(metric) is not None]
    return np.array([item for item, _ in points], dtype=float), np.array([item for _, item in points], dtype=float)


def running_mean(values: Floats) -> Floats:
    """Return the running mean over a part of the run, at its ends over as much of that as there is."""
    if not len(values):
        return values
    window = np.ones(max(1, len(values) // SMOOTH))
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


TEMPERATURE_LABELS = {"t1": "sampled", "greedy": "greedy"}
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
"""Figures of an evaluation that are shown, by what they are called."""
EVALUATION_LABELS = {
    "before": "demonstrations",
    "after": "rewards",
    "half": "half window",
    "half_unpruned": "unpruned",
}

ScoresByTemperature = Mapping[str, Sequence[DemoScore]]
"""By sampling temperature."""


@dataclass(frozen=True, slots=True)
class DemoTarget:
    """A figure with its target."""

    name: str
    result: str
    target: str
    reached: bool


@dataclass(frozen=True, slots=True)
class DemoReport:
    """`data` is what report.json holds."""

    data: dict[str, Any]
    targets: tuple[DemoTarget, ...]

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield a row for each evaluation, under `head`."""
        for name, by_temperature in self.data["evaluations"].items():
            for temperature, figures in by_temperature.items():
                yield (
                    EVALUATION_LABELS[name],
                    TEMPERATURE_LABELS[temperature],
                    *(format_figure(figures[key]) for key in REPORTED),
                )

    @property
    def head(self) -> tuple[str, ...]:
        """What the columns of `rows` are called."""
        return ("policy", "asked", *REPORTED.values())


def write_report(
    plan: DemoPlan,
    scores: Mapping[str, ScoresByTemperature],
    half: EpisodeConfig,
    seconds: Mapping[str, Any],
    one_shot: Sequence[float] = (),
) -> DemoReport:
    """Return the report, written into the demo's folder: report.json, report.html, plot.svg and plot.png.

    `one_shot` has the recall of one search for each question, if that is a reference.
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
    episodes = [read(path) for path in sorted(folder.glob("*.jsonl"))[:PAGE_EPISODES]]
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
    """Return all figures from the scores of `before`, `after`, `half` and `half_unpruned`, each by temperature."""
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
    """Return the target for the demonstrations against one search with the question."""
    gain = Figure.of([score.recall - recall for score, recall in zip(before, one_shot, strict=True)])
    return DemoTarget("recall, demonstrations less one search", format_difference(gain), "low > 0", gain.low > 0)


def gain_target(gain: Figure, least: float, sure: float) -> DemoTarget:
    """Return the target for the gain of output recall, and for the low end of its interval."""
    reached = gain.mean >= least and gain.low > sure
    target = f">= +{least:.3f}, low > +{sure:.3f}"
    return DemoTarget("recall, rewards less demonstrations", format_difference(gain), target, reached)


def accuracy_target(accuracy: float | None, limits: DemoTargets) -> DemoTarget:
    """Return the target for the accuracy of prunes."""
    reached = accuracy is not None and accuracy >= limits.accuracy
    return DemoTarget("prune accuracy", format_figure(accuracy), f">= {limits.accuracy:.3f}", reached)


def half_window_target(gain: Figure, least: float) -> DemoTarget:
    """Return the target for half the window."""
    target = f">= +{least:.3f}, low > 0" if least else "low > 0"
    reached = gain.mean >= least and gain.low > 0
    return DemoTarget("half window, pruning less not", format_difference(gain), target, reached)


def time_target(minutes: float, limits: DemoTargets, *, complete: bool) -> DemoTarget:
    """Return the target for the time of a seed; it is missed if not all of it was measured."""
    elapsed = f"{'' if complete else 'more than '}{minutes:.1f}"
    return DemoTarget("minutes", elapsed, f"<= {limits.minutes:.0f}", complete and minutes <= limits.minutes)


def format_difference(difference: Figure) -> str:
    """Return a difference with its interval."""
    return f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"


def format_figure(value: Any) -> str:
    """Return a figure as a table has it."""
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def report_page(
    report: DemoReport, drawing: str, notice: str, episodes: Sequence[Trajectory] = (), *, table: str
) -> str:
    """Return the page: targets, evaluations, plot, episodes, seconds. It needs no server and no network.

    `table` is the address of the page with all episodes that training sampled.
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


PAGE_EPISODES = 8
"""Episodes on the page."""


def _episode(trajectory: Trajectory) -> str:
    """Return the question and what the policy did, turn by turn."""
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
