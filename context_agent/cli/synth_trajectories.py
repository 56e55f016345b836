"""The command `ctx1 synth trajectories`: an expert plays tasks, and good episodes become demonstrations."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from context_agent.cli import output
from context_agent.cli.agent_options import LimitOptions, ModelOptions, ProfileOption, WeightsOption, WindowOption
from context_agent.cli.index_options import CorpusOptions
from context_agent.cli.interrupts import run_interruptible
from context_agent.cli.parameters import (
    COUNT,
    COUNT_OR_ZERO,
    INPUT_FILE,
    OUTPUT_FOLDER,
    ROLLOUTS,
    SHARE,
    CommonOptions,
    SeedOption,
    options_in,
)
from context_agent.cli.worker_options import ProcessesOption, RayOption, worker_pool

if TYPE_CHECKING:
    from context_agent._support.worker_pool import CallParent
    from context_agent.harness.profile import Profile
    from context_agent.synth_data.demonstrations.experts import Expert
    from context_agent.synth_data.demonstrations.player import DemonstrationSettings, EpisodePlayer
    from context_agent.synth_data.demonstrations.report import DemonstrationReport

LOCATION_OPTIONS = ("base_url", "api_key_env", "timeout")
"""Options of a language model that may differ between the runs of one folder."""


@options_in("Expert")
@dataclass(frozen=True, slots=True)
class ExpertOptions:
    """The expert, and the limits of its episodes."""

    expert: Literal["oracle", "bridge", "chat", "anthropic", "tokens"] = "oracle"
    """Policy that plays: the bridge policy that knows the gold (oracle), or a policy that does not know it."""
    weights: WeightsOption = None
    pace: Annotated[int | None, COUNT, Parameter(show_default="all")] = None
    """Number of searches of the oracle in a turn. Fewer searches give more turns and prunes."""
    names_only: bool = False
    """Let the oracle search for the question, then only for names that it has read; for small models."""
    prune_at: Annotated[float, SHARE] = 0.5
    """Fill level, as a share of the soft threshold, from which the oracle prunes."""
    noise: Annotated[float, Parameter(validator=Number(gte=0, lt=1), metavar="X")] = 0.0
    """Probability that the oracle prunes a chunk wrongly."""
    hedge: Annotated[int, COUNT_OR_ZERO] = 3
    """Number of other candidates at the end of the oracle's ranking if it has not found all gold."""
    batch: Annotated[int, COUNT] = 3
    """Minimum number of chunks that the oracle prunes at a time while there is room."""
    keep: Annotated[int, COUNT_OR_ZERO] = 0
    """Minimum number of chunks that stay when the oracle prunes: first gold, then the chunks shown first."""
    length: Annotated[int, COUNT_OR_ZERO] = 0
    """Minimum number of documents in the oracle's ranking. Other candidates fill it up."""
    profile: ProfileOption = None
    rollouts: Annotated[int, ROLLOUTS] = 1
    """Number of episodes of each task."""
    concurrency: Annotated[int, COUNT] = 8
    """Number of episodes at the same time."""
    processes: ProcessesOption = None
    ray: RayOption = None
    seed: SeedOption = 0
    limits: LimitOptions = field(default_factory=LimitOptions)
    window: WindowOption = None
    language_model: ModelOptions = field(default_factory=ModelOptions)

    @property
    def wire_format(self) -> str:
        """The name of the profile that the episodes use."""
        return self.profile or "default"

    def load(self, profile: Profile) -> tuple[Expert, str]:
        """Return the expert, and a description of everything that its decisions depend on."""
        from context_agent.policies import load_policy
        from context_agent.policies.tokens import VocabularyCounter, templated
        from context_agent.synth_data.demonstrations.experts import (
            instructed_expert,
            learner_instructions,
            oracle_expert,
        )
        from context_agent.synth_data.demonstrations.oracle import OracleSettings

        model = {name: value for name, value in asdict(self.language_model).items() if value is not None}
        tokenizer = model.pop("tokenizer", None) if self.expert == "oracle" else None
        policy = load_policy("bridge" if self.expert == "oracle" else self.expert, weights=self.weights, **model)
        if self.expert != "oracle":
            description = ", ".join(f"{name}={value}" for name, value in model.items() if name not in LOCATION_OPTIONS)
            return instructed_expert(policy), f"{policy.name} {description}".strip()
        oracle = OracleSettings(
            pace=self.pace,
            names_only=self.names_only,
            prune_at=self.prune_at,
            batch=self.batch,
            keep=self.keep,
            noise=self.noise,
            hedge=self.hedge,
            length=self.length,
        )
        description = f"oracle+{policy.name} {oracle.description} tokenizer={tokenizer}"
        if tokenizer is None:
            return oracle_expert(policy, settings=oracle, profile=profile), description
        # A profile that numbers its passages is made for the format of lines, whose prompt has no schemas of tools.
        renderer = templated(tokenizer, lines=profile.numbered)
        instructions = learner_instructions(renderer, profile)
        expert = oracle_expert(
            policy,
            settings=oracle,
            profile=profile,
            counter=VocabularyCounter(renderer),
            instructions=instructions,
        )
        return expert, f"{description} instructions={instructions.tokens}"


@options_in("Filters")
@dataclass(frozen=True, slots=True)
class FilterOptions:
    """The options that say which episodes are kept. Their names are those of `DemonstrationFilters`."""

    min_trajectory_recall: Annotated[float, SHARE] = 0.5
    """Trajectory recall above which an episode is good."""
    min_output_recall: Annotated[float, SHARE] = 0.4
    """Recall of the ranking above which an episode is good."""
    high_per_task: Annotated[int, COUNT_OR_ZERO] = 1
    """Maximum number of good episodes kept per task, best first; 0 for all."""
    low_rate: Annotated[float, SHARE] = 0.5
    """Probability of keeping an episode just below these recalls; it falls with them."""
    max_gap: Annotated[float, SHARE] = 0.5
    """Drop an episode whose ranking loses this much of its trajectory recall; 0 for never."""
    zero_per_task: Annotated[int, COUNT_OR_ZERO] = 1
    """Maximum number of episodes without any gold kept per task."""
    max_zero_share: Annotated[float, SHARE] = 0.05
    """Maximum share of kept episodes without any gold."""
    max_mistakes: Annotated[int, COUNT_OR_ZERO] = 2
    """Maximum number of mistakes in a kept episode."""
    short_rate: Annotated[float, SHARE] = 1.0
    """Probability of keeping an episode with a single search; lower it for small models."""


def trajectories(
    tasks: Annotated[Path, INPUT_FILE],
    /,
    *,
    out: Annotated[Path, OUTPUT_FOLDER],
    keep_dropped: Annotated[bool, Parameter(name="--keep-dropped", negative="--no-keep-dropped")] = True,
    expert: ExpertOptions = ExpertOptions(),
    filters: FilterOptions = FilterOptions(),
    index: CorpusOptions = CorpusOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Let an expert play tasks, and keep the good episodes.

    The folder gets kept/, dropped/, the list trajectories.jsonl and report.json. `ctx1 train sft` reads this folder.
    The file tasks.jsonl in it has the questions of the kept episodes, for `ctx1 train rl`. The exit code is 1 if no
    episode could be played.

    Args:
        tasks: File of tasks, or of plain questions with gold; - reads stdin.
        out: Folder for the trajectories. To resume an interrupted run, name its folder.
        keep_dropped: Keep the files of dropped episodes.
    """
    from context_agent.synth_data.demonstrations.runs import make_demonstrations
    from context_agent.synth_data.stages import StageWorker
    from context_agent.synth_data.task import load_tasks

    problems: list[str] = []
    questions = load_tasks(str(tasks), problems=problems)
    output.note_problems(problems)
    setup = StageWorker(partial(_open_player, expert, filters, index, out))
    with (
        index.open() as corpus,
        worker_pool(setup, expert.processes, expert.ray, concurrency=expert.concurrency) as pool,
        output.progress("Playing", "episodes") as advance,
    ):
        player, settings = _settings(expert, filters, keep_dropped=keep_dropped)
        report = run_interruptible(
            make_demonstrations(questions, corpus, player, out, settings, pool=pool, advance=advance)
        )
    if common.json:
        output.print_json({**report.to_json(), "out": str(out), "unreadable": len(problems)})
    else:
        _show_report(report, out)
    return 0 if report.episodes else 1


def _open_player(
    expert: ExpertOptions, filters: FilterOptions, index: CorpusOptions, out: Path, call: CallParent
) -> EpisodePlayer:
    """Return the function that plays the episodes in a worker process."""
    from context_agent.synth_data.demonstrations.player import EpisodePlayer
    from context_agent.synth_data.demonstrations.runs import NEW

    player, settings = _settings(expert, filters, keep_dropped=True)
    return EpisodePlayer(index.open(), player, out / NEW, settings)


def _settings(
    expert_options: ExpertOptions, filters: FilterOptions, *, keep_dropped: bool
) -> tuple[Expert, DemonstrationSettings]:
    from context_agent.harness.profile import named_profile
    from context_agent.synth_data.demonstrations.filters import DemonstrationFilters
    from context_agent.synth_data.demonstrations.player import DemonstrationSettings

    wire_format = named_profile(expert_options.wire_format)
    expert, description = expert_options.load(wire_format)
    return expert, DemonstrationSettings(
        rollouts=expert_options.rollouts,
        profile=wire_format,
        budget=wire_format.budget(expert_options.window),
        limits=expert_options.limits.load(),
        seed=expert_options.seed,
        concurrency=expert_options.concurrency,
        filters=DemonstrationFilters(**asdict(filters), seed=expert_options.seed),
        keep_dropped=keep_dropped,
        expert=description,
    )


def _show_report(report: DemonstrationReport, out: Path) -> None:
    from rich.table import Table

    from context_agent.synth_data.stages import FAILED

    output.echo(
        f"{report.tasks:,} tasks, {report.episodes:,} episodes ({report.resumed:,} from earlier runs): "
        f"{sum(report.kept.values()):,} kept, {sum(report.dropped.values()):,} dropped. Written to {out}."
    )
    for title, numbers in (("kept", report.kept), ("dropped", report.dropped), ("not played", report.unplayed)):
        output.echo(f"{title}: {output.counts(numbers)}")
    if any(reason.startswith(FAILED) for reason in report.unplayed):
        output.note_failure(report.failure)
    elif report.failure:
        output.note(f"the first episode that was not played: {report.failure}")
    table = Table("", "played", "kept")
    for column in table.columns[1:]:
        column.justify = "right"
    for line in report.figures():
        table.add_row(*line)
    output.stdout().print(table)
