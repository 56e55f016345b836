"""The command `ctx1 train judge-check`, which compares a judge of rankings with gold."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from context_agent.cli import output
from context_agent.cli.parameters import COUNT, EXISTING_PATH, OUTPUT_FILE, POSITIVE_SHARE, CommonOptions, SeedOption
from context_agent.cli.train import RunFile, SetOption
from context_agent.errors import ConfigError

if TYPE_CHECKING:
    from context_agent.train.config import RunConfig
    from context_agent.train.data import TrainingData
    from context_agent.train.experimental.judge.calibration import JudgeCalibration
    from context_agent.train.experimental.judge.labeled_rankings import LabeledRanking
    from context_agent.types import Question


JUDGE_FIGURES = {
    "accuracy": "accuracy",
    "kappa": "Cohen's kappa",
    "auc": "AUC (a good ranking scores above a bad one)",
    "correlation_recall": "rank correlation with recall",
    "correlation_f1": "rank correlation with F1",
    "yes_to_good": "share of yes to good rankings",
    "yes_to_bad": "share of yes to bad rankings",
}


def judge_check(
    *trajectories: Annotated[Path, EXISTING_PATH],
    run_file: RunFile,
    changes: SetOption = (),
    out: Annotated[Path, OUTPUT_FILE] = Path("judge.json"),
    good: Annotated[float, POSITIVE_SHARE] = 1.0,
    yes: Annotated[float, POSITIVE_SHARE] = 0.5,
    questions: Annotated[int, COUNT] = 100,
    seed: SeedOption = 0,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Compare a judge with gold before training on its scores.

    The command tests the [judge] of a run file on the questions in its data.dev. The rankings come from recorded
    episodes. Without trajectories, the command makes rankings with all, half or none of a question's gold, and adds
    search results to them. It prints accuracy, kappa, AUC, rank correlations and the shares of yes, with 95% intervals
    over questions.
    The exit code is 1 if the judge cannot distinguish good rankings from bad ones, or if it always gives the same
    answer.

    Args:
        trajectories: Trajectory files, and folders with trajectory files.
        out: File for the report, which judge.calibration names. The judge's replies are stored next to it.
        good: Minimum recall of a good ranking.
        yes: Minimum score that counts as the judge's yes.
        questions: Maximum number of dev questions to use.
    """
    from context_agent.train.data import open_data
    from context_agent.train.experimental.judge.calibration import calibrate, save_calibration
    from context_agent.train.experimental.judge.judge import RankingJudge
    from context_agent.train.run_file import parse_changes, read_run

    run = read_run(run_file, parse_changes(changes))
    if not run.judge.model:
        raise ConfigError(f"{run_file} has no judge. Set judge.model.")
    replies = out.with_name(f"{out.name}.replies.jsonl")
    with ExitStack() as stack:
        material = stack.enter_context(open_data(run.data, output.note))
        rankings = _rankings(trajectories, material, run, count=questions, seed=seed)
        judge = stack.enter_context(RankingJudge(run.judge, replies))
        calibration = calibrate(rankings, judge, good=good, yes=yes, seed=seed)
    save_calibration(out, calibration)
    output.result({"out": str(out), **calibration.to_json()}, _calibration_text(calibration, out), as_json=common.json)
    return 1 if calibration.problems or calibration.warnings else 0


def _rankings(
    trajectories: tuple[Path, ...], material: TrainingData, run: RunConfig, *, count: int, seed: int
) -> list[LabeledRanking]:
    """Return the rankings to judge. If the judge does not get the answers, leave them out."""
    from context_agent.synth_data.demonstrations.replayed_files import trajectory_files
    from context_agent.train.experimental.judge.labeled_rankings import recorded_rankings, synthetic_rankings

    questions: list[Question] = list(material.dev)[:count]
    if not questions:
        raise ConfigError("there are no questions with gold. Set data.dev in the run file.")
    if trajectories:
        names = list(material.dev) if len(material.dev) <= count else questions
        rankings = list(recorded_rankings(trajectory_files(trajectories), names, material.corpus, output.note))
    else:
        rankings = list(synthetic_rankings(material.corpus, questions, seed=seed))
    if run.judge.questions == "without_gold":
        # Questions without gold mostly have no answer either: the judge is checked as it will be used.
        return [replace(ranking, ranking=replace(ranking.ranking, answer="")) for ranking in rankings]
    return rankings


def _calibration_text(calibration: JudgeCalibration, out: Path) -> str:
    judged = f"{calibration.rankings:,} rankings of {calibration.questions:,} questions"
    lines = [f"{judged} judged by {calibration.identity['model']}, {calibration.good:,} of them good"]
    lines += [f"  {words:45} {calibration.figures[name]}" for name, words in JUDGE_FIGURES.items()]
    lines.append(f"\n  {'gold found':12}{'rankings':>10}{'mean score':>12}{'share of yes':>14}")
    for row in calibration.table:
        score, yes = (("-" if value is None else f"{value:.3f}") for value in (row.score, row.yes))
        lines.append(f"  {row.found:12}{row.rankings:>10,}{score:>12}{yes:>14}")
    lines += [f"  {number:,} without a verdict: {reason}" for reason, number in calibration.absent.items()]
    lines += ["", *calibration.problems, *calibration.warnings]
    verdict = "Do not train on this judge" if calibration.problems else "The judge tells good from bad"
    return "\n".join([*lines, f"{verdict}: {out}"])
