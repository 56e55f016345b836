"""A player that runs one task with an expert and measures the episode."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from context_agent.agent import SearchAgent, SearchResult
from context_agent.budget import Budget
from context_agent.errors import BudgetError, ConfigError, PolicyError, TrajectoryError
from context_agent.eval.gold import CorpusLookup, Gold, gold_of
from context_agent.eval.scoring import failure_reason, score
from context_agent.harness.episode import Limits
from context_agent.harness.profile import Profile, default
from context_agent.harness.tools import flatten_calls
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import write
from context_agent.pruning.view import ActionTaken, EditApplied
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data import stages
from context_agent.synth_data.demonstrations.experts import Expert
from context_agent.synth_data.demonstrations.filters import DemonstrationFilters, ExpertEpisode
from context_agent.synth_data.json_files import encode_row
from context_agent.synth_data.stages import DropRow, KeptRows
from context_agent.synth_data.task import Task, task_of
from context_agent.types import Question

_UNSAFE = re.compile(r"[^\w.-]+")


LONGEST_NAME = 80
"""The largest number of bytes of a task's id in a file name."""


@dataclass(frozen=True, slots=True)
class DemonstrationSettings:
    """The settings of a run of demonstrations.

    Attributes:
        rollouts: The number of episodes per task.
        profile: The profile of the episodes.
        budget: The token budget of an episode.
        limits: The limits of an episode.
        seed: The seed of the first rollout. Each further rollout adds 1.
        concurrency: The number of episodes that run at once.
        filters: The rules that select episodes.
        keep_dropped: True if files of dropped episodes are kept.
        expert: A description of the expert and its options, for the journal.
    """

    rollouts: int = 1
    profile: Profile = field(default_factory=default)
    budget: Budget = field(default_factory=Budget)
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    concurrency: int = 8
    filters: DemonstrationFilters = field(default_factory=DemonstrationFilters)
    keep_dropped: bool = True
    expert: str = ""

    def journaled(self, corpus: Corpus) -> dict[str, object]:
        """Return everything that an episode depends on besides its task.

        A run can only resume another run if these values are equal.
        """
        return {
            "expert": self.expert,
            "corpus": corpus.name,
            "profile": self.profile.to_json(),
            "budget": asdict(self.budget),
            "limits": asdict(self.limits),
            "seed": self.seed,
        }


class EpisodePlayer:
    """A player of tasks. Its method `work` is the function of a stage.

    The rows of the stage come from `episode_rows`.
    """

    def __init__(self, corpus: Corpus, expert: Expert, folder: Path, settings: DemonstrationSettings) -> None:
        """Create a player that writes trajectory files to `folder`."""
        self._corpus, self._expert, self._folder, self._settings = corpus, expert, folder, settings

    async def work(self, row: Mapping[str, Any]) -> KeptRows:
        """Play the row's task, and return the measurements of the episode.

        Raises:
            DropRow: If another run would fail in the same way.
            PolicyError: If the policy fails. Errors of the corpus pass through.
        """
        task, rollout = task_of(row["task"], "task"), int(row["rollout"])
        gold = await self._gold(task.as_question)
        result = await self._search(task, gold, rollout)
        if (message := failure_reason(result)) is not None:
            raise PolicyError(message)
        trajectory, name = result.trajectories[0], file_name(task, rollout)
        path = self._folder / name
        write(_without_timestamps(trajectory, path.stem), path)
        return KeptRows((_episode(task, rollout, result, gold, path).to_json(),))

    async def _gold(self, question: Question) -> Gold:
        if not question.question.strip():
            raise DropRow("no question", "the question is empty")
        if not question.gold and not question.facts:
            raise DropRow("no gold", "the task has neither gold documents nor facts")
        lookup = cast("CorpusLookup", self._corpus)
        gold = await stages.off_loop(self._corpus, lambda: gold_of(question, lookup))
        reachable = frozenset().union(*gold.documents.values(), *gold.chunks.values())
        if len(reachable) < gold.needs:
            raise DropRow("gold is not in the index", f"missing: {', '.join(gold.missing[:5])}")
        return gold

    async def _search(self, task: Task, gold: Gold, rollout: int) -> SearchResult:
        with SearchAgent(
            self._corpus,
            self._expert(gold),
            profile=self._settings.profile,
            budget=self._settings.budget,
            limits=self._settings.limits,
            seed=self._settings.seed + rollout,
        ) as agent:
            try:
                return await agent.asearch(task.question, k=self._settings.profile.max_ranking, question_id=task.id)
            except (BudgetError, ConfigError) as error:
                raise DropRow("the question does not fit", str(error)) from None


def episode_rows(tasks: Iterable[Task], rollouts: int) -> list[dict[str, Any]]:
    """Return the input rows of the stage: each task once per rollout."""
    plain = [json.loads(encode_row(task.to_json())) for task in tasks]
    return [{"task": task, "rollout": number} for task in plain for number in range(rollouts)]


def file_name(task: Task, rollout: int) -> str:
    """Return the name of an episode's file.

    It consists of the safe characters of the task's id, a digest of the task, and the rollout.
    """
    digest = blake2b(encode_row(task.to_json()).encode(), digest_size=6).hexdigest()
    start = _UNSAFE.sub("-", task.id).encode()[:LONGEST_NAME].decode(errors="ignore")
    return f"{start.strip('.')}-{digest}-{rollout}.jsonl"


def _without_timestamps(trajectory: Trajectory, name: str) -> Trajectory:
    """Return the trajectory without clock readings and with a fixed id.

    If the episode is played again, its file has the same bytes.
    """
    plain = trajectory.without_timestamps()
    return replace(plain, header=replace(plain.header, id=name))


def _episode(task: Task, rollout: int, result: SearchResult, gold: Gold, path: Path) -> ExpertEpisode:
    (trajectory,) = result.trajectories
    try:
        scores, _ = score(task.as_question, result, gold=gold)
    except TrajectoryError as error:
        raise PolicyError(f"the trajectory does not replay: {error}") from error
    profile = trajectory.header.profile
    actions = [event.action for event in trajectory.events if isinstance(event, ActionTaken)]
    edits = [event.edit for event in trajectory.events if isinstance(event, EditApplied)]
    calls = [call for action in actions for call in flatten_calls(action.calls, profile.tools)]
    return ExpertEpisode(
        task=task.id,
        rollout=rollout,
        file=path.name,
        expert=trajectory.header.policy,
        type=task.type,
        hops=task.hops or gold.needs,
        trajectory_recall=scores["trajectory_recall"] or 0.0,
        output_recall=scores["recall"] or 0.0,
        precision=scores["precision"] or 0.0,
        prune_accuracy=scores["prune_accuracy"],
        turns=result.turns,
        tokens=result.tokens,
        searches=sum(call.name == "search_corpus" for call in calls),
        prunes=sum(bool(edit.pruned) for edit in edits),
        pruned=sum(len(edit.pruned) for edit in edits),
        restores=sum(bool(edit.restored) for edit in edits),
        mistakes=int(scores["mistakes"] or 0),
        stop_reason=result.stop_reason,
        bytes=path.stat().st_size,
    )
