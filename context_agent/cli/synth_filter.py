"""The command `ctx1 synth filter`, which selects tasks by rules and by attempts to answer them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from context_agent.cli import output
from context_agent.cli.agent_options import AgentOptions, LimitOptions, ModelOptions, PolicyOptions
from context_agent.cli.index_options import CorpusOptions
from context_agent.cli.interrupts import run_interruptible
from context_agent.cli.invocation import given_flags
from context_agent.cli.parameters import (
    COUNT,
    INPUT_FILE,
    MOST_ROLLOUTS,
    OUTPUT_FILE,
    POSITIVE_SHARE,
    CommonOptions,
    essential,
    options_in,
)
from context_agent.cli.worker_options import ProcessesOption, RayOption, worker_pool
from context_agent.errors import ConfigError

if TYPE_CHECKING:
    from context_agent._support.worker_pool import CallParent
    from context_agent.retrieval.corpus import Corpus
    from context_agent.synth_data.attempts import Extreme, PassAtN
    from context_agent.synth_data.quality import TaskFilter


@options_in("Attempts")
@dataclass(frozen=True, slots=True)
class AttemptOptions:
    """The number of attempts at each task, and the results for which a task is dropped."""

    passes: Annotated[int, Parameter(validator=Number(gte=0, lte=MOST_ROLLOUTS), metavar="N")] = 0
    """Number of attempts at each task; 0 for none."""
    vary: Annotated[
        Literal["seed", "effort", "window"] | None, Parameter(show_default="effort for the bridge policy, else seed")
    ] = None
    """What varies between attempts."""
    drop: Literal["both", "always", "never", "none"] = "both"
    """Tasks to drop: those that all attempts solve (always), those that none solves (never), both, or none."""
    k: Annotated[int, COUNT] = 10
    """Number of ranked documents that count."""
    recall: Annotated[float, POSITIVE_SHARE] = 1.0
    """Minimum recall of an attempt that solves the task."""

    @property
    def extremes(self) -> frozenset[Extreme]:
        """The results for which a task is dropped."""
        match self.drop:
            case "both":
                return frozenset({"always", "never"})
            case "none":
                return frozenset()
            case extreme:
                return frozenset({extreme})


ATTEMPT_OPTIONS = [
    option.name
    for kind in (AttemptOptions, AgentOptions, PolicyOptions, ModelOptions, LimitOptions)
    for option in fields(kind)
    if option.name != "passes"
]
"""The options that have no effect if no task is attempted."""


@essential("out min_similarity keep_duplicates concurrency base_url model path url collection")
def filter_tasks(
    tasks: Annotated[Path, INPUT_FILE],
    /,
    *,
    out: Annotated[Path, OUTPUT_FILE, Parameter(metavar="FILE.jsonl")],
    min_similarity: Annotated[float, POSITIVE_SHARE] = 0.7,
    keep_duplicates: bool = False,
    concurrency: Annotated[int, COUNT] = 8,
    processes: ProcessesOption = None,
    ray: RayOption = None,
    attempts: AttemptOptions = AttemptOptions(),
    agent: AgentOptions = AgentOptions(),
    index: CorpusOptions = CorpusOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Keep the tasks that are worth training on.

    A task is kept if its gold is in the index, if no other task is nearly the same, and if it is neither trivial nor
    unsolvable. With --passes N the policy attempts every task N times. The bridge policy is deterministic, so its
    attempts differ by effort: from one search up to all its searches. Each task that stays is labeled with its attempts
    and its difficulty. To resume an interrupted run, run the same command again. The exit code is 1 if a row could not
    be read or an attempt failed.

    Args:
        tasks: File of tasks, or - for standard input.
        out: File for the tasks that stay; dropped tasks go to FILE.jsonl.dropped.jsonl.
        min_similarity: Minimum Jaccard index at which two questions about the same documents are near-duplicates.
        keep_duplicates: Keep near-duplicates.
        concurrency: Number of tasks at the same time.
    """
    from context_agent.synth_data import quality
    from context_agent.synth_data.stages import StageWorker
    from context_agent.synth_data.task import load_tasks

    if not attempts.passes and (given := given_flags(*ATTEMPT_OPTIONS)):
        raise ConfigError(
            f"{given[0]} is about the attempts at tasks, and there are none. Pass --passes N, or remove {given[0]}."
        )
    problems: list[str] = []
    task_list = load_tasks(str(tasks), problems=problems)
    output.note_problems(problems)
    with ExitStack() as stack:
        corpus = stack.enter_context(index.open())
        setup = StageWorker(partial(_open_filter, agent, attempts, index))
        pool = stack.enter_context(worker_pool(setup, processes, ray, concurrency=concurrency))
        measure = _pass_at_n(agent, corpus, attempts)
        if measure is not None:
            stack.callback(measure.close)
        advance = stack.enter_context(output.progress("Filtering", "tasks"))
        report = run_interruptible(
            quality.filter_tasks(
                task_list,
                corpus,
                out,
                pass_at_n=measure,
                min_similarity=None if keep_duplicates else min_similarity,
                concurrency=concurrency,
                pool=pool,
                advance=advance,
            )
        )
    unreadable = f", {len(problems):,} unreadable rows" if problems else ""
    output.result(
        {**report.to_json(), "unreadable": len(problems), "out": str(out)},
        f"{report.kept:,} of {report.inputs:,} tasks kept in {out}{unreadable}. "
        f"Dropped: {output.counts(report.dropped)}.",
        as_json=common.json,
    )
    output.note_failure(report.failure)
    return 1 if problems or report.failure or report.halted else 0


def _open_filter(agent: AgentOptions, attempts: AttemptOptions, index: CorpusOptions, call: CallParent) -> TaskFilter:
    """Return the function that filters tasks in a worker process."""
    from context_agent.synth_data.quality import TaskFilter

    corpus = index.open()
    return TaskFilter(corpus, _pass_at_n(agent, corpus, attempts))


def _pass_at_n(agent: AgentOptions, corpus: Corpus, chosen: AttemptOptions) -> PassAtN | None:
    """Return the attempts at each task. If tasks are not attempted, return None."""
    if not chosen.passes:
        return None
    from context_agent.synth_data.attempts import PassAtN, build_attempts, default_vary

    policy = agent.policy.load()
    vary = chosen.vary or default_vary(policy)
    attempts = build_attempts(
        corpus,
        policy,
        chosen.passes,
        vary,
        window=agent.window or agent.policy.window or agent.policy.wire_format.window,
        profile=agent.policy.wire_format,
        limits=agent.limits.load(),
        rollouts=agent.rollouts,
        trajectories=agent.save,
    )
    return PassAtN(attempts, vary, k=chosen.k, threshold=chosen.recall, drop=chosen.extremes)
