"""`ctx1 train judge-check`: compares the judge of a run file with gold, before training on its scores."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from context_agent.cli import options, output
from context_agent.cli.command import COUNT, FILE, POSITIVE_SHARE, Argument, Json, Option, command
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


@command
def judge_check(
    trajectories: Annotated[
        tuple[Path, ...],
        Argument("[FOLDER_OR_TRAJECTORY.jsonl...]", click.Path(path_type=Path, exists=True)),
    ] = (),
    *,
    run_file: options.RunFile,
    out: Annotated[
        Path,
        Option("File for the report, which judge.calibration names. The judge's replies are stored next to it.", FILE),
    ] = Path("judge.json"),
    good: Annotated[float, Option("Minimum recall of a good ranking.", POSITIVE_SHARE)] = 1.0,
    yes: Annotated[float, Option("Minimum score that counts as the judge's yes.", POSITIVE_SHARE)] = 0.5,
    questions: Annotated[int, Option("Maximum number of dev questions to use.", COUNT)] = 100,
    seed: options.SeedOption = 0,
    as_json: Json,
) -> int:
    """Compare a judge with gold before training on its scores.

    Tests the [judge] of a run file on the questions in its data.dev. The rankings are those of recorded episodes;
    without trajectories, each question gives three: with all of its gold, with half and with none, filled up with
    search results. Prints accuracy, kappa, AUC, rank correlations and the shares of yes, with 95 % intervals over
    questions. The exit code is 1 for a judge that cannot tell good from bad, or always gives the same answer.
    """
    from context_agent.train.config import read_run
    from context_agent.train.data import environment_of, open_data
    from context_agent.train.judge.calibration import calibrate, save_calibration
    from context_agent.train.judge.judge import RankingJudge

    run = read_run(run_file)
    if not run.judge.model:
        raise ConfigError(f"{run_file} has no judge: set judge.model")
    replies = out.with_name(f"{out.name}.replies.jsonl")
    with ExitStack() as stack:
        material = stack.enter_context(open_data(run.data, output.note, environment_of(run.data)))
        rankings = _rankings(trajectories, material, run, count=questions, seed=seed)
        judge = stack.enter_context(RankingJudge(run.judge, replies))
        calibration = calibrate(rankings, judge, good=good, yes=yes, seed=seed)
    save_calibration(out, calibration)
    output.result({"out": str(out), **calibration.to_json()}, _text(calibration, out), as_json=as_json)
    return 1 if calibration.problems or calibration.warnings else 0


def _rankings(
    trajectories: tuple[Path, ...], material: TrainingData, run: RunConfig, *, count: int, seed: int
) -> list[LabelledRanking]:
    """The rankings to judge, without the answers if the judge does not get them."""
    from context_agent.synth_data.demonstrations.replay_check import trajectory_files
    from context_agent.train.judge.calibration import recorded_rankings, synthetic_rankings

    questions: list[Question] = list(material.dev)[:count]
    if not questions:
        raise ConfigError("no questions with gold: set data.dev in the run file")
    if trajectories:
        names = list(material.dev) if len(material.dev) <= count else questions
        rankings = list(recorded_rankings(trajectory_files(trajectories), names, material.corpus, output.note))
    else:
        rankings = list(synthetic_rankings(material.corpus, questions, seed=seed))
    if run.judge.questions == "without_gold":
        # Questions without gold mostly have no answer either: the judge is checked as it will be used.
        return [replace(ranking, ranking=replace(ranking.ranking, answer="")) for ranking in rankings]
    return rankings


def _text(calibration: JudgeCalibration, out: Path) -> str:
    judged = f"{calibration.rankings:,} rankings of {calibration.questions:,} questions"
    lines = [f"{judged} judged by {calibration.identity['model']}, {calibration.good:,} of them good"]
    lines += [f"  {words:45} {calibration.figures[name]}" for name, words in NAMES.items()]
    lines.append(f"\n  {'gold found':12}{'rankings':>10}{'mean score':>12}{'share of yes':>14}")
    for row in calibration.table:
        score, yes = (("-" if value is None else f"{value:.3f}") for value in (row.score, row.yes))
        lines.append(f"  {row.found:12}{row.rankings:>10,}{score:>12}{yes:>14}")
    lines += [f"  {number:,} without a verdict: {reason}" for reason, number in calibration.absent.items()]
    lines += ["", *calibration.problems, *calibration.warnings]
    verdict = "Do not train on this judge" if calibration.problems else "The judge tells good from bad"
    return "\n".join([*lines, f"{verdict}: {out}"])
