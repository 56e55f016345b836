"""`ctx1 train judge-check`: a run's judge beside what gold says, before anything is learned from it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from context_agent.cli import console, options
from context_agent.errors import ConfigError

if TYPE_CHECKING:
    from context_agent.questions import Question
    from context_agent.train.config import Run
    from context_agent.train.data import Material
    from context_agent.train.judge.calibration import Calibration, Labelled

NAMES = {
    "accuracy": "accuracy",
    "kappa": "Cohen's kappa",
    "auc": "AUC (a good ranking scores above a bad one)",
    "correlation_recall": "rank correlation with recall",
    "correlation_f1": "rank correlation with F1",
    "yes_to_good": "share of yes to good rankings",
    "yes_to_bad": "share of yes to bad rankings",
}


@click.command("judge-check")
@click.argument(
    "trajectories",
    type=click.Path(path_type=Path, exists=True),
    nargs=-1,
    metavar="[FOLDER_OR_TRAJECTORY.jsonl...]",
)
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE.toml",
    help="The run whose [judge] is checked, with its [data]: the index, and dev questions with gold.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("judge.json"),
    show_default=True,
    metavar="FILE.json",
    help="The report, for judge.calibration; the judge's replies are kept beside it.",
)
@click.option(
    "--good",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Share of the gold in a ranking from which on it is good.",
)
@click.option(
    "--yes",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.5,
    show_default=True,
    help="Score from which on the judge says yes.",
)
@click.option("--questions", type=click.IntRange(1), default=100, show_default=True, help="Dev questions at most.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the rankings and of the intervals.")
@options.told
def judge_check(
    *,
    trajectories: tuple[Path, ...],
    file: Path,
    out: Path,
    good: float,
    yes: float,
    questions: int,
    seed: int,
    as_json: bool,
) -> int:
    """Compare a judge with gold: on the rankings of recorded episodes, or on rankings made of the index.

    Without trajectories each dev question gives three rankings: with all of its gold, with half, with none, filled up
    by what a search brings up. Printed are accuracy, kappa, AUC, rank correlations and the shares of yes, with 95 %
    intervals over questions. The exit code is 1 for a judge that cannot tell good from bad, or says always the same.
    """
    from context_agent.train.config import read
    from context_agent.train.data import opened, world_of
    from context_agent.train.judge.calibration import calibrate, save
    from context_agent.train.judge.judge import Judge

    run = read(file)
    if not run.judge.model:
        raise ConfigError(f"{file} names no judge: judge.model")
    replies = out.with_name(f"{out.name}.replies.jsonl")
    with ExitStack() as stack:
        material = stack.enter_context(opened(run.data, _note, world_of(run.data)))
        rankings = _rankings(trajectories, material, run, count=questions, seed=seed)
        judge = stack.enter_context(Judge(run.judge, replies))
        made = calibrate(rankings, judge, good=good, yes=yes, seed=seed)
    save(out, made)
    if as_json:
        console.print_json({"out": str(out), **made.to_json()})
    else:
        _show(made, out)
    return 1 if made.problems or made.warnings else 0


def _note(text: str) -> None:
    console.note(f"ctx1 train judge-check: {text}")


def _rankings(trajectories: tuple[Path, ...], material: Material, run: Run, *, count: int, seed: int) -> list[Labelled]:
    """The rankings to ask about, without the answers where the judge is not shown them."""
    from context_agent.synth_data.replay_check import recorded
    from context_agent.train.judge.calibration import made_up, played

    asked: list[Question] = list(material.dev)[:count]
    if not asked:
        raise ConfigError("there are no labelled questions: name a file of them in data.dev")
    if trajectories:
        known = list(material.dev) if len(material.dev) <= count else asked
        found = list(played(recorded(trajectories), known, material.corpus, _note))
    else:
        found = list(made_up(material.corpus, asked, seed=seed))
    if run.judge.questions == "without_gold":
        # Questions without gold mostly have no answer either: the judge is checked as it will be used.
        return [replace(one, ranking=replace(one.ranking, answer="")) for one in found]
    return found


def _show(made: Calibration, out: Path) -> None:
    click.echo(
        f"{made.rankings:,} rankings of {made.questions:,} questions judged by {made.identity['model']}, "
        f"{made.good:,} of them good"
    )
    for name, words in NAMES.items():
        click.echo(f"  {words:45} {made.figures[name]}")
    click.echo(f"\n  {'gold found':12}{'rankings':>10}{'mean score':>12}{'share of yes':>14}")
    for row in made.table:
        score, yes = (("-" if value is None else f"{value:.3f}") for value in (row.score, row.yes))
        click.echo(f"  {row.found:12}{row.rankings:>10,}{score:>12}{yes:>14}")
    for reason, number in made.absent.items():
        click.echo(f"  {number:,} without a verdict: {reason}")
    click.echo()
    for text in (*made.problems, *made.warnings):
        click.echo(console.printable(text))
    click.echo(f"{'Not to be trusted' if made.problems else 'It tells good from bad'}: {out}")
