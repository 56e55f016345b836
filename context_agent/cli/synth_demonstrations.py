"""`ctx1 synth trajectories`, `from-feedback` and `replay-check`: demonstrations for imitation learning."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from context_agent.cli import console, options
from context_agent.cli.synth import report_problems, seed_option
from context_agent.harness.profile import NAMES as PROFILES

if TYPE_CHECKING:
    from context_agent.harness.profile import Profile
    from context_agent.integrations.feedback import FeedbackLog, Judgement
    from context_agent.retrieval.corpus import Corpus
    from context_agent.synth_data.demonstrations.experts import Expert
    from context_agent.synth_data.demonstrations.filters import DemonstrationFilters, DemonstrationReport
    from context_agent.synth_data.demonstrations.replay_check import ReplayResult, ReplaySettings
    from context_agent.synth_data.task import Task


EXPERTS = ("oracle", *options.POLICIES)
LOCATION_OPTIONS = ("base_url", "api_key_env", "timeout")
"""Options of a language model that may differ between the runs of one folder."""


@dataclass(frozen=True, slots=True)
class ExpertOptions:
    """The expert, its settings, and the limits of its episodes."""

    expert: str
    language_model: options.ModelOptions
    weights: Path | None
    pace: int | None
    prune_at: float
    noise: float
    hedge: int
    profile: str
    window: int
    rollouts: int
    max_turns: int
    time_limit: float | None
    concurrency: int
    seed: int


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """The values of the rules, as in `DemonstrationFilters`."""

    min_trajectory_recall: float
    min_output_recall: float
    low_rate: float
    max_zero_share: float
    zero_per_task: int
    high_per_task: int
    max_gap: float
    max_mistakes: int


SHARE = click.FloatRange(0, 1)
COUNT = click.IntRange(0)


def expert_options(command: options.Command) -> options.Command:
    """The options of the expert; the command gets them as `teaching: ExpertOptions`."""
    return options.together(
        options.model(options.gathered(command, "teaching", ExpertOptions)),
        click.option(
            "--expert",
            type=click.Choice(EXPERTS),
            default="oracle",
            show_default=True,
            help="Who plays: the embedded policy with knowledge of the gold (oracle), without it, or a language model.",
        ),
        options.weights,
        click.option(
            "--pace",
            type=click.IntRange(1),
            metavar="N",
            help="Searches of the oracle in a turn; fewer give more turns and prunes.  [default: all]",
        ),
        click.option(
            "--prune-at",
            type=SHARE,
            default=0.5,
            show_default=True,
            help="Share of the soft threshold from which the oracle prunes.",
        ),
        click.option(
            "--noise",
            type=click.FloatRange(0, 1, max_open=True),
            default=0.0,
            show_default=True,
            help="Probability that the oracle prunes a chunk wrongly.",
        ),
        click.option(
            "--hedge",
            type=COUNT,
            default=3,
            show_default=True,
            help="Candidates at the end of the oracle's ranking if gold is missing.",
        ),
        click.option(
            "--profile",
            type=click.Choice(PROFILES),
            default="default",
            show_default=True,
            help="Wire format of the harness.",
        ),
        click.option("--window", type=int, default=32_768, show_default=True, help="Size of the context in tokens."),
        click.option("--rollouts", type=click.IntRange(1), default=1, show_default=True, help="Episodes of each task."),
        click.option("--max-turns", type=click.IntRange(1), default=64, show_default=True, help="Turns of an episode."),
        click.option(
            "--time-limit",
            type=click.FloatRange(0, min_open=True),
            metavar="SECONDS",
            help="Time limit of an episode.",
        ),
        click.option(
            "--concurrency", type=click.IntRange(1), default=8, show_default=True, help="Concurrent episodes."
        ),
        seed_option,
    )


def filter_options(command: options.Command) -> options.Command:
    """The options of the filters; the command gets them as `filtering: FilterOptions`."""

    def rule(flag: str, kind: click.ParamType[Any], default: float, help_text: str) -> Any:
        return click.option(flag, type=kind, default=default, show_default=True, help=help_text)

    return options.together(
        options.gathered(command, "filtering", FilterOptions),
        rule("--min-trajectory-recall", SHARE, 0.5, "Keep episodes above this trajectory recall ..."),
        rule("--min-output-recall", SHARE, 0.4, "... and above this recall of the ranking."),
        rule("--high-per-task", COUNT, 1, "Most episodes above both for each task, the best ones; 0 for all."),
        rule("--low-rate", SHARE, 0.5, "Probability to keep an episode just below them; it falls with the recalls."),
        rule(
            "--max-gap",
            SHARE,
            0.5,
            "Drop episodes from this difference of the recalls on (found, then lost); 0 for never.",
        ),
        rule("--zero-per-task", COUNT, 1, "Most episodes without any gold for each task."),
        rule("--max-zero-share", SHARE, 0.05, "Largest share of kept episodes without any gold."),
        rule("--max-mistakes", COUNT, 2, "Most mistakes of a kept episode."),
    )


@click.command()
@click.argument("tasks", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True), metavar="TASKS.jsonl")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="FOLDER",
    help="Folder for the trajectories; an interrupted run resumes from it.",
)
@click.option("--keep-dropped/--no-keep-dropped", default=True, help="Keep the files of dropped episodes.")
@expert_options
@filter_options
@options.index
@options.opening
@options.common
def trajectories(
    *,
    tasks: Path,
    out: Path,
    keep_dropped: bool,
    as_json: bool,
    teaching: ExpertOptions,
    filtering: FilterOptions,
    index: options.IndexOptions,
    opening: options.OpenOptions,
) -> int:
    """Let an expert play tasks through the harness, and keep the trajectories that are worth imitating.

    TASKS.jsonl holds tasks, or plain questions with gold; - reads stdin. FOLDER gets kept/, dropped/, the list
    trajectories.jsonl and report.json. The exit code is 1 if no episode could be played.
    """
    from context_agent.synth_data.demonstrations.filters import DemonstrationFilters
    from context_agent.synth_data.task import load_tasks

    problems: list[str] = []
    questions = load_tasks(str(tasks), problems=problems)
    for problem in problems:
        console.note(f"ctx1 synth trajectories: {problem}")
    filters = DemonstrationFilters(**asdict(filtering), seed=teaching.seed)
    with options.open_corpus(index, opening) as corpus:
        report = asyncio.run(_play(questions, corpus, out, teaching, filters, keep_dropped=keep_dropped))
    if as_json:
        console.print_json({**report.to_json(), "out": str(out), "unreadable": len(problems)})
    else:
        _show_report(report, out)
    return 0 if report.episodes else 1


async def _play(
    tasks: list[Task],
    corpus: Corpus,
    out: Path,
    teaching: ExpertOptions,
    filters: DemonstrationFilters,
    *,
    keep_dropped: bool,
) -> DemonstrationReport:
    from context_agent.harness.episode import Limits
    from context_agent.harness.profile import profile
    from context_agent.pruning.budget import Budget
    from context_agent.synth_data.demonstrations.runs import DemonstrationSettings, make_demonstrations

    chosen = profile(teaching.profile)
    expert, name = _expert(teaching, chosen)
    settings = DemonstrationSettings(
        rollouts=teaching.rollouts,
        profile=chosen,
        budget=Budget(teaching.window),
        limits=Limits(turns=teaching.max_turns, seconds=teaching.time_limit),
        seed=teaching.seed,
        concurrency=teaching.concurrency,
        filters=filters,
        keep_dropped=keep_dropped,
        expert=name,
    )
    with console.progress("Playing", "episodes") as advance:
        return await make_demonstrations(tasks, corpus, expert, out, settings, advance=advance)


def _expert(chosen: ExpertOptions, profile: Profile) -> tuple[Expert, str]:
    """The expert, and a description of everything that its decisions depend on."""
    from context_agent.policies.registry import load_policy
    from context_agent.synth_data.demonstrations.experts import OracleSettings, instructed_expert, oracle_expert

    model_options = asdict(chosen.language_model)
    description = ", ".join(
        f"{key}={value}" for key, value in model_options.items() if value is not None and key not in LOCATION_OPTIONS
    )
    if chosen.expert != "oracle":
        policy = load_policy(chosen.expert, weights=chosen.weights, **model_options)
        return instructed_expert(policy), f"{policy.name} {description}".strip()
    explorer = load_policy("bridge", weights=chosen.weights, **model_options)
    oracle = OracleSettings(pace=chosen.pace, prune_at=chosen.prune_at, noise=chosen.noise, hedge=chosen.hedge)
    return oracle_expert(explorer, settings=oracle, profile=profile), f"oracle+{explorer.name} {oracle.description}"


def _show_report(report: DemonstrationReport, out: Path) -> None:
    kept_count, dropped = sum(report.kept.values()), sum(report.dropped.values())
    click.echo(
        f"{report.tasks:,} tasks, {report.episodes:,} episodes ({report.resumed:,} from earlier runs): "
        f"{kept_count:,} kept, {dropped:,} dropped. Written to {out}"
    )
    for title, counts in (("kept", report.kept), ("dropped", report.dropped), ("not played", report.unplayed)):
        counted = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        click.echo(console.printable(f"{title}: {counted or 'none'}"))
    _show_figures(report)


def _show_figures(report: DemonstrationReport) -> None:
    from rich.table import Table

    table = Table("", "played", "kept")
    for column in table.columns[1:]:
        column.justify = "right"
    for line in report.figures():
        table.add_row(*line)
    console.stdout().print(table)


LISTED_DIFFERENCES = 20
"""Differences that are listed one by one; the JSON report has all."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What a record is compared with."""

    tokenizer: str | None
    recorded_profile: bool
    any_corpus: bool

    def terms(self) -> ReplaySettings:
        """The settings of the replay, with the tokenizer loaded."""
        from context_agent.policies.tokens.policy import VocabularyCounter, templated
        from context_agent.synth_data.demonstrations.replay_check import ReplaySettings

        counter = None if self.tokenizer is None else VocabularyCounter(templated(self.tokenizer))
        return ReplaySettings(counter, recorded_profile=self.recorded_profile, any_corpus=self.any_corpus)


def replay_options(command: options.Command) -> options.Command:
    """The options of a replay; the command gets them as `replay: ReplayOptions`."""
    return options.together(
        options.gathered(command, "replay", ReplayOptions),
        click.option(
            "--tokenizer",
            metavar="NAME_OR_FOLDER",
            help="Tokenizer that counts the records of a tokens policy.  [default: gpt-oss's vocabulary]",
        ),
        click.option(
            "--recorded-profile", is_flag=True, help="Don't compare the recorded profile with the current one."
        ),
        click.option("--any-corpus", is_flag=True, help="Also replay records of a corpus with another name."),
    )


@click.command("replay-check")
@click.argument(
    "paths", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FOLDER_OR_TRAJECTORY.jsonl..."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Copy the episodes without differences to FOLDER/kept, which `ctx1 train sft` reads.",
)
@replay_options
@options.index
@options.opening
@options.common
def replay_check(
    *,
    paths: tuple[Path, ...],
    out: Path | None,
    replay: ReplayOptions,
    as_json: bool,
    index: options.IndexOptions,
    opening: options.OpenOptions,
) -> int:
    """Replay recorded episodes on the current index, and report which views differ, where and why.

    The actions are those of the record; no policy runs. The exit code is 1 if an episode differs.
    """
    from context_agent.synth_data.demonstrations.replay_check import ReplaySummary, check_files, trajectory_files

    files = trajectory_files(paths)
    terms = replay.terms()
    with options.open_corpus(index, opening) as corpus, console.progress("Replaying", "episodes") as advance:
        checked = asyncio.run(check_files(files, corpus, terms, advance=advance))
    summary = ReplaySummary.of(checked)
    if out is not None:
        keep_same(out, checked, summary.to_json())
    if as_json:
        console.print_json({**summary.to_json(), "episodes": [result.to_json() for result in checked]})
    else:
        show_replays(checked, summary.to_json())
        if out is not None:
            click.echo(f"{summary.same:,} episodes are in {out}")
    return 0 if summary.same == summary.checked else 1


def keep_same(out: Path, checked: Sequence[ReplayResult], report: dict[str, Any]) -> None:
    """Copies the episodes without differences to a folder to train on; lists the others as dropped."""
    from context_agent.synth_data.demonstrations.replay_check import ReplayRow, write_selection

    rows = [
        (ReplayRow(result.path, {**result.to_json(), "file": result.path.name}), result.difference is None)
        for result in checked
    ]
    write_selection(out, [row for row, same in rows if same], [row for row, same in rows if not same], report)


def show_replays(checked: Sequence[ReplayResult], report: dict[str, Any], *, err: bool = False) -> None:
    """Prints the number of equal episodes, the causes with their counts, and the first differences."""
    click.echo(f"{report['same']:,} of {report['checked']:,} episodes are shown as they were recorded", err=err)
    for cause, count in report["causes"].items():
        click.echo(f"  {count:6,}  {cause}", err=err)
    other_versions = {
        version: count for version, count in report["recorded_by"].items() if version != report["version"]
    }
    if other_versions:
        versions = ", ".join(f"{count:,} by {version}" for version, count in other_versions.items())
        console.note(f"recorded by other versions of the harness than this one ({report['version']}): {versions}")
    differing = [result for result in checked if result.difference is not None]
    for result in differing[:LISTED_DIFFERENCES]:
        difference = result.difference
        assert difference is not None
        turn = "before the first turn" if difference.turn < 0 else f"turn {difference.turn}"
        click.echo(console.printable(f"{result.path.name}: {difference.cause}, {turn}: {difference.detail}"), err=err)
    if len(differing) > LISTED_DIFFERENCES:
        click.echo(f"and {len(differing) - LISTED_DIFFERENCES:,} more; --json has all", err=err)


@dataclass(frozen=True, slots=True)
class SftOptions:
    """Which judged trajectories are demonstrations, and where they are copied."""

    sft: Path | None
    min_rating: float
    max_bad: int
    per_question: int
    keep_changed: bool


def _sft_options(command: options.Command) -> options.Command:
    """The options of `--sft`; the command gets them as `liked: SftOptions`."""
    return options.together(
        options.gathered(command, "liked", SftOptions),
        click.option(
            "--sft",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="FOLDER",
            help="Copy well-rated trajectories to FOLDER/kept, which `ctx1 train sft` reads.",
        ),
        click.option(
            "--min-rating",
            type=click.FloatRange(1, 5),
            default=4.0,
            show_default=True,
            help="Lowest mean rating of a trajectory, if it has ratings.",
        ),
        click.option(
            "--max-bad",
            type=click.IntRange(0),
            default=0,
            show_default=True,
            help="Most irrelevant documents in its ranking.",
        ),
        click.option(
            "--per-question",
            type=click.IntRange(0),
            default=1,
            show_default=True,
            help="Most trajectories of a question, the best ones; 0 for all.",
        ),
        click.option(
            "--keep-changed",
            is_flag=True,
            help="Skip the replay check: also keep trajectories that the current index shows differently.",
        ),
    )


@click.command("from-feedback")
@click.argument("log", type=click.Path(path_type=Path, allow_dash=True), metavar="LOG.jsonl")
@click.option(
    "--trajectories",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    required=True,
    metavar="FOLDER",
    help="Folder of the judged trajectories.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE.jsonl",
    help="File for the tasks.",
)
@_sft_options
@replay_options
@options.index
@options.opening
@options.common
def from_feedback(
    *,
    log: Path,
    trajectories: Path,
    out: Path,
    liked: SftOptions,
    replay: ReplayOptions,
    as_json: bool,
    index: options.IndexOptions,
    opening: options.OpenOptions,
) -> int:
    """Make tasks from judgements: a question, the documents judged relevant as gold, the others as distractors.

    LOG.jsonl is the feedback.jsonl that `ctx1 serve` and `ctx1 feedback` write beside the trajectories. If judges
    disagree, the majority decides. Gold must be in the index. With --sft, well-rated trajectories become demonstrations
    if the current index and harness reproduce their views (`ctx1 synth replay-check`). The exit code is 1 if a row
    could not be read.
    """
    from context_agent.integrations.feedback import FeedbackLog, load_judgements
    from context_agent.synth_data.demonstrations.from_feedback import tasks_from_feedback
    from context_agent.synth_data.task import write_tasks

    problems: list[str] = []
    judgements = load_judgements(str(log), problems=problems)
    feedback_log = FeedbackLog(trajectories)
    with options.open_corpus(index, opening) as corpus:
        tasks, report = tasks_from_feedback(judgements, feedback_log, corpus)
        selection = None
        if liked.sft is not None:
            selection = _demonstrations(judgements, feedback_log, corpus, folder=liked.sft, liked=liked, replay=replay)
    write_tasks(out, tasks)
    report_problems("from-feedback", problems)
    summary = {**report.to_json(), "unreadable": len(problems), "out": str(out)}
    if as_json:
        console.print_json(summary if selection is None else {**summary, "sft": selection})
    else:
        lost = (*summary["dropped_judgements"].items(), *summary["dropped_questions"].items())
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in lost) or "none"
        click.echo(
            console.printable(
                f"{report.tasks:,} tasks from {report.read:,} judgements in {out}. Dropped: {dropped}. "
                f"Judges disagreed on {report.conflicts:,} documents, {report.ties:,} of them left out; "
                f"{report.missing:,} judged ids are not in the index."
            )
        )
        if selection is not None:
            _show_selection(selection)
    return 1 if problems else 0


def _demonstrations(
    judgements: Sequence[Judgement],
    log: FeedbackLog,
    corpus: Corpus,
    *,
    folder: Path,
    liked: SftOptions,
    replay: ReplayOptions,
) -> dict[str, Any]:
    """Copies the selected trajectories and returns a report on all."""
    from context_agent.synth_data.demonstrations.from_feedback import FeedbackFilters, demonstrations_from_feedback
    from context_agent.synth_data.demonstrations.replay_check import ReplaySummary, write_selection

    taste = FeedbackFilters(rating=liked.min_rating, bad=liked.max_bad, per_question=liked.per_question)
    check = None if liked.keep_changed else replay.terms()
    selection = asyncio.run(demonstrations_from_feedback(judgements, log, corpus, taste, check=check))
    report: dict[str, Any] = {**selection.counts(), "folder": str(folder)}
    if check is not None:
        report["replay"] = ReplaySummary.of(selection.checks).to_json()
    write_selection(folder, selection.kept, selection.dropped, report)
    if check is not None and selection.checks:
        console.note("ctx1 synth from-feedback: replay of the selected trajectories:")
        show_replays(selection.checks, report["replay"], err=True)
    return report


def _show_selection(report: dict[str, Any]) -> None:
    dropped = ", ".join(f"{count:,} {rule}" for rule, count in report["dropped"].items()) or "none"
    click.echo(
        f"{report['kept']:,} of {report['judged']:,} judged trajectories kept in {report['folder']}. "
        f"Dropped: {dropped}."
    )
