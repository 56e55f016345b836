"""`ctx1 train judge-check`: compares the judge of a run file with gold, before training on its scores."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from context_agent.cli import console, options
from context_agent.errors import ConfigError

if TYPE_CHECKING:
    from context_agent._support.question_files import Question
    from context_agent.train.config import RunConfig
    from context_agent.train.data import TrainingData
    from context_agent.train.judge.calibration import JudgeCalibration, LabelledRanking

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
    "--run",
    "run_file",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE.toml",
    help="Run file with the [judge] to check and its [data]: the index, and dev questions with gold.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("judge.json"),
    show_default=True,
    metavar="FILE.json",
    help="Report, for judge.calibration. The judge's replies are stored next to it.",
)
@click.option(
    "--good",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Least recall of a good ranking.",
)
@click.option(
    "--yes",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.5,
    show_default=True,
    help="Least score that counts as a yes of the judge.",
)
@click.option("--questions", type=click.IntRange(1), default=100, show_default=True, help="Most dev questions to use.")
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed of the rankings and the intervals.")
@options.told
def judge_check(
    *,
    trajectories: tuple[Path, ...],
    run_file: Path,
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
    from context_agent.train.config import read_run
    from context_agent.train.data import environment_of, open_data
    from context_agent.train.judge.calibration import calibrate, save_calibration
    from context_agent.train.judge.judge import RankingJudge

    run = read_run(run_file)
    if not run.judge.model:
        raise ConfigError(f"{run_file} names no judge: judge.model")
    replies = out.with_name(f"{out.name}.replies.jsonl")
    with ExitStack() as stack:
        material = stack.enter_context(open_data(run.data, _note, environment_of(run.data)))
        rankings = _rankings(trajectories, material, run, count=questions, seed=seed)
        judge = stack.enter_context(RankingJudge(run.judge, replies))
        calibration = calibrate(rankings, judge, good=good, yes=yes, seed=seed)
    save_calibration(out, calibration)
    if as_json:
        console.print_json({"out": str(out), **calibration.to_json()})
    else:
        _show(calibration, out)
    return 1 if calibration.problems or calibration.warnings else 0


def _note(text: str) -> None:
    console.note(f"ctx1 train judge-check: {text}")


def _rankings(
    trajectories: tuple[Path, ...], material: TrainingData, run: RunConfig, *, count: int, seed: int
) -> list[LabelledRanking]:
    """The rankings to ask about, without the answers where the judge is not shown them."""
    from context_agent.synth_data.demonstrations.replay_check import trajectory_files
    from context_agent.train.judge.calibration import recorded_rankings, synthetic_rankings

    questions: list[Question] = list(material.dev)[:count]
    if not questions:
        raise ConfigError("there are no labelled questions: name a file of them in data.dev")
    if trajectories:
        names = list(material.dev) if len(material.dev) <= count else questions
        rankings = list(recorded_rankings(trajectory_files(trajectories), names, material.corpus, _note))
    else:
        rankings = list(synthetic_rankings(material.corpus, questions, seed=seed))
    if run.judge.questions == "without_gold":
        # Questions without gold mostly have no answer either: the judge is checked as it will be used.
        return [replace(ranking, ranking=replace(ranking.ranking, answer="")) for ranking in rankings]
    return rankings


def _show(calibration: JudgeCalibration, out: Path) -> None:
    click.echo(
        f"{calibration.rankings:,} rankings of {calibration.questions:,} questions judged by "
        f"{calibration.identity['model']}, {calibration.good:,} of them good"
    )
    for name, words in NAMES.items():
        click.echo(f"  {words:45} {calibration.figures[name]}")
    click.echo(f"\n  {'gold found':12}{'rankings':>10}{'mean score':>12}{'share of yes':>14}")
    for row in calibration.table:
        score, yes = (("-" if value is None else f"{value:.3f}") for value in (row.score, row.yes))
        click.echo(f"  {row.found:12}{row.rankings:>10,}{score:>12}{yes:>14}")
    for reason, number in calibration.absent.items():
        click.echo(f"  {number:,} without a verdict: {reason}")
    click.echo()
    for text in (*calibration.problems, *calibration.warnings):
        click.echo(console.printable(text))
    click.echo(f"{'Not to be trusted' if calibration.problems else 'It tells good from bad'}: {out}")
