"""`ctx1 synth trajectories`: a teacher plays tasks, and what is worth imitating is kept."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from context_agent.cli import console, options
from context_agent.harness.profile import NAMES as PROFILES

if TYPE_CHECKING:
    from context_agent.harness.profile import Profile
    from context_agent.retrieval.protocol import Corpus
    from context_agent.synth_data.task import Task
    from context_agent.synth_data.trajectories import Filters, Report, Teacher

TEACHERS = ("oracle", *options.POLICIES)
WHEREABOUTS = ("base_url", "api_key_env", "timeout")
"""Options of a language model that may differ between the runs of one folder."""


@dataclass(frozen=True, slots=True)
class TeacherOptions:
    """Who plays, how often, and within what."""

    teacher: str
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
    """The rules' numbers, as `synth_data.trajectories.Filters` names them."""

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


def teaching(command: options.Command) -> options.Command:
    """The options of the teacher; the command gets them as `teaching: TeacherOptions`."""
    return options.together(
        options.model(options.gathered(command, "teaching", TeacherOptions)),
        click.option(
            "--teacher",
            type=click.Choice(TEACHERS),
            default="oracle",
            show_default=True,
            help="Who plays: the embedded policy with the gold as its judge, without it, or a language model.",
        ),
        options.weights,
        click.option(
            "--pace",
            type=click.IntRange(1),
            metavar="N",
            help="Searches that the oracle makes in a turn: fewer make more turns and prunes.  [default: all it has]",
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
            help="Chance that the oracle prunes a chunk wrongly.",
        ),
        click.option(
            "--hedge",
            type=COUNT,
            default=3,
            show_default=True,
            help="Candidates that end the oracle's ranking where gold is missing.",
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
            help="Wall clock of an episode.",
        ),
        click.option(
            "--concurrency", type=click.IntRange(1), default=8, show_default=True, help="Episodes at the same time."
        ),
        click.option("--seed", type=int, default=0, show_default=True, help="Seed of all chance."),
    )


def filtering(command: options.Command) -> options.Command:
    """The options of the filters; the command gets them as `filtering: FilterOptions`."""

    def rule(flag: str, kind: click.ParamType[Any], default: float, told: str) -> Any:
        return click.option(flag, type=kind, default=default, show_default=True, help=told)

    return options.together(
        options.gathered(command, "filtering", FilterOptions),
        rule("--min-trajectory-recall", SHARE, 0.5, "Kept for good above this recall of all that was seen ..."),
        rule("--min-output-recall", SHARE, 0.4, "... and above this recall of the ranking."),
        rule("--high-per-task", COUNT, 1, "Episodes above both that a task keeps, the best ones; 0: all."),
        rule("--low-rate", SHARE, 0.5, "Chance of an episode just below them; it falls with the recalls."),
        rule("--max-gap", SHARE, 0.5, "Dropped from this difference of the recalls on: found, then lost; 0: never."),
        rule("--zero-per-task", COUNT, 1, "Episodes without any gold that a task may keep."),
        rule("--max-zero-share", SHARE, 0.05, "Share of what is kept that may be without any gold."),
        rule("--max-mistakes", COUNT, 2, "Dropped with more wrong calls than this."),
    )


@click.command()
@click.argument("tasks", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True), metavar="TASKS.jsonl")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="FOLDER",
    help="Where the trajectories go; a run that was ended goes on from here.",
)
@click.option("--keep-dropped/--no-keep-dropped", default=True, help="Keep the files of dropped episodes, too.")
@teaching
@filtering
@options.index
@options.opening
@options.common
def trajectories(
    *,
    tasks: Path,
    out: Path,
    keep_dropped: bool,
    as_json: bool,
    teaching: TeacherOptions,
    filtering: FilterOptions,
    index: options.IndexOptions,
    opening: options.OpenOptions,
) -> int:
    """Let a teacher play tasks through the harness, and keep the trajectories that are worth imitating.

    TASKS.jsonl holds tasks, or plain questions with their gold; - reads them from stdin. FOLDER gets kept/,
    dropped/, the list trajectories.jsonl and report.json. The exit code is 1 when nothing could be played.
    """
    from context_agent.synth_data.task_file import load_tasks
    from context_agent.synth_data.trajectories import Filters

    problems: list[str] = []
    asked = load_tasks(str(tasks), problems=problems)
    for problem in problems:
        console.note(f"ctx1 synth trajectories: {problem}")
    filters = Filters(**asdict(filtering), seed=teaching.seed)
    with options.open_corpus(index, opening) as corpus:
        report = asyncio.run(_make(asked, corpus, out, teaching, filters, keep_dropped=keep_dropped))
    if as_json:
        console.print_json({**report.to_json(), "out": str(out), "unreadable": len(problems)})
    else:
        _show(report, out)
    return 0 if report.episodes else 1


async def _make(
    tasks: list[Task],
    corpus: Corpus,
    out: Path,
    teaching: TeacherOptions,
    filters: Filters,
    *,
    keep_dropped: bool,
) -> Report:
    from context_agent.harness.episode import Limits
    from context_agent.harness.profile import profile
    from context_agent.pruning.budget import Budget
    from context_agent.synth_data.trajectories import Settings, make

    chosen = profile(teaching.profile)
    teacher, name = _teacher(teaching, chosen)
    settings = Settings(
        rollouts=teaching.rollouts,
        profile=chosen,
        budget=Budget(teaching.window),
        limits=Limits(turns=teaching.max_turns, seconds=teaching.time_limit),
        seed=teaching.seed,
        concurrency=teaching.concurrency,
        filters=filters,
        keep_dropped=keep_dropped,
        teacher=name,
    )
    with console.progress("Playing", "episodes") as advance:
        return await make(tasks, corpus, teacher, out, settings, advance=advance)


def _teacher(teaching: TeacherOptions, profile: Profile) -> tuple[Teacher, str]:
    """The teacher, and all that its decisions depend on, in words."""
    from context_agent.policies.factory import load_policy
    from context_agent.synth_data.trajectories import instructed, oracle
    from context_agent.synth_data.trajectories.oracle import Manner

    given = asdict(teaching.language_model)
    said = ", ".join(f"{key}={value}" for key, value in given.items() if value is not None and key not in WHEREABOUTS)
    if teaching.teacher != "oracle":
        policy = load_policy(teaching.teacher, weights=teaching.weights, **given)
        return instructed(policy), f"{policy.name} {said}".strip()
    explorer = load_policy("bridge", weights=teaching.weights, **given)
    manner = Manner(pace=teaching.pace, prune_at=teaching.prune_at, noise=teaching.noise, hedge=teaching.hedge)
    told = ", ".join(f"{field.name}={getattr(manner, field.name)}" for field in fields(manner))
    return oracle(explorer, manner=manner, profile=profile), f"oracle+{explorer.name} {told}"


def _show(report: Report, out: Path) -> None:
    kept, dropped = sum(report.kept.values()), sum(report.dropped.values())
    click.echo(
        f"{report.tasks:,} tasks, {report.episodes:,} episodes ({report.resumed:,} from earlier runs): "
        f"{kept:,} kept, {dropped:,} dropped. Written to {out}"
    )
    for title, counts in (("kept", report.kept), ("dropped", report.dropped), ("not played", report.unplayed)):
        told = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        click.echo(console.printable(f"{title}: {told or 'none'}"))
    _show_figures(report)


def _show_figures(report: Report) -> None:
    from rich.table import Table

    table = Table("", "played", "kept")
    for column in table.columns[1:]:
        column.justify = "right"
    for line in report.figures():
        table.add_row(*line)
    console.stdout().print(table)
