"""What the demo says in the end: every figure as data, the targets beside what was reached, a page. No torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from context_agent._support.journal import replace_file as replace
from context_agent.errors import MissingExtraError
from context_agent.eval.page import escape, page
from context_agent.eval.statistics import Figure
from context_agent.train.metrics import read
from context_agent.train.proof import plots
from context_agent.train.proof.scores import Score, figures, gain
from context_agent.train.proof.settings import Plan
from context_agent.train.sections import Episodes

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
    lines = list(read(Path(plan.rl.out) / "metrics.jsonl"))
    about = {
        "seed": plan.rl.seed,
        "trajectory_reward": not plan.ablation,
        "rl": plan.rl.plain(),
        "sft": plan.sft.plain(),
    }
    replace(plan.place("report.json"), json.dumps({**made.data, "settings": about}, indent=1) + "\n")
    run = plots.Group(
        "rewards", (lines,), made.data["evaluations"]["before"][HEAD], made.data["evaluations"]["after"][HEAD]
    )
    try:
        drawing = plots.drawn([run], plots.PANELS, plan.place("plot.png"))
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
        f"<p>{escape(plots.LEGEND)}</p>"
        f"<h2>Seconds</h2>{_table(('phase', 'seconds'), seconds)}"
    )
    return page("A tiny policy learns to search and prune", body)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(one)}</th>" for one in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(one)}</td>" for one in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
