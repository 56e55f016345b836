"""One episode of an expert: played through the production harness, scored, and written as a trajectory file."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from context_agent._support.question_files import Question
from context_agent.agent import SearchAgent, SearchResult
from context_agent.errors import BudgetError, ConfigError, PolicyError, TrajectoryError
from context_agent.eval.gold import CorpusLookup, Gold, gold_of
from context_agent.eval.scoring import failure, score
from context_agent.harness.episode import Limits
from context_agent.harness.profile import Profile
from context_agent.harness.tools import flatten
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import write
from context_agent.pruning.budget import Budget
from context_agent.pruning.view import ActionTaken, EditApplied
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.demonstrations.experts import Expert
from context_agent.synth_data.stages import DropRow, KeptRows
from context_agent.synth_data.task import Task, encode_row, task_of

_UNSAFE = re.compile(r"[^\w.-]+")
LONGEST_NAME = 80
"""Characters of a task's id in a file name."""


FIELD_KEYS = {"expert": "teacher"}
"""Keys in files that differ from the field's name."""


@dataclass(frozen=True, slots=True)
class ExpertEpisode:
    """The figures of an episode. Recalls and precision are those of its output and of all that it saw.

    `pruned` counts chunks, `prunes` and `restores` the turns with such an edit, `bytes` is the size of the file.
    """

    task: str
    rollout: int
    file: str
    expert: str
    type: str
    hops: int
    trajectory_recall: float
    output_recall: float
    precision: float
    prune_accuracy: float | None
    turns: int
    tokens: int
    searches: int
    prunes: int
    pruned: int
    restores: int
    mistakes: int
    stop_reason: str
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """The row of the episode. The expert's name is stored as `teacher`."""
        return {FIELD_KEYS.get(name, name): value for name, value in asdict(self).items()}

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> ExpertEpisode:
        """The episode of a row. Raises `KeyError` if a field is missing."""
        names = (field.name for field in fields(ExpertEpisode))
        return ExpertEpisode(**{name: row[FIELD_KEYS.get(name, name)] for name in names})


class EpisodePlayer:
    """Plays tasks for a stage: `work` takes a row of `episode_rows`."""

    def __init__(
        self,
        corpus: Corpus,
        expert: Expert,
        folder: Path,
        *,
        profile: Profile,
        budget: Budget,
        limits: Limits,
        seed: int = 0,
    ) -> None:
        """`folder` receives the trajectory files."""
        self._corpus = corpus
        self._expert = expert
        self._folder = folder
        self._profile = profile
        self._budget = budget
        self._limits = limits
        self._seed = seed

    async def work(self, row: Mapping[str, Any]) -> KeptRows:
        """Plays the row's task. Raises `DropRow` for what no rerun would change, else the error of policy or corpus."""
        task, rollout = task_of(row["task"], "task"), int(row["rollout"])
        gold = await self._gold(task.as_question)
        result = await self._search(task, gold, rollout)
        if (message := failure(result)) is not None:
            raise PolicyError(message)
        trajectory, name = result.trajectories[0], file_name(task, rollout)
        path = self._folder / name
        partial = path.with_name(f"{name}.partial")
        write(_without_timestamps(trajectory, path.stem), partial)
        partial.replace(path)
        return KeptRows((_episode(task, rollout, result, gold, path).to_json(),))

    async def _gold(self, question: Question) -> Gold:
        if not question.gold and not question.facts:
            raise DropRow("no gold", "the task has neither gold documents nor facts")
        lookup = cast("CorpusLookup", self._corpus)
        blocking = self._corpus.blocking
        gold = await asyncio.to_thread(gold_of, question, lookup) if blocking else gold_of(question, lookup)
        reachable = frozenset().union(*gold.documents.values(), *gold.chunks.values())
        if len(reachable) < gold.needs:
            raise DropRow("gold not in the index", f"missing: {', '.join(gold.missing[:5])}")
        return gold

    async def _search(self, task: Task, gold: Gold, rollout: int) -> SearchResult:
        with SearchAgent(
            self._corpus,
            self._expert(gold),
            profile=self._profile,
            budget=self._budget,
            limits=self._limits,
            seed=self._seed + rollout,
        ) as agent:
            try:
                return await agent.asearch(task.question, k=self._profile.max_ranking, question_id=task.id)
            except (BudgetError, ConfigError) as error:
                raise DropRow("question does not fit", str(error)) from None


def episode_rows(tasks: Iterable[Task], rollouts: int) -> list[dict[str, Any]]:
    """The input rows of the stage: each task once for each rollout."""
    plain = [json.loads(encode_row(task.to_json())) for task in tasks]
    return [{"task": task, "rollout": number} for task in plain for number in range(rollouts)]


def file_name(task: Task, rollout: int) -> str:
    """The episode's file name: the task's id as far as it is safe, the digest of the task, and the rollout."""
    digest = blake2b(encode_row(task.to_json()).encode(), digest_size=6).hexdigest()
    return f"{_UNSAFE.sub('-', task.id)[:LONGEST_NAME].strip('.')}-{digest}-{rollout}.jsonl"


def _without_timestamps(trajectory: Trajectory, name: str) -> Trajectory:
    """Without clock readings and with a fixed id: playing the episode again gives the same bytes."""
    plain = trajectory.without_timestamps()
    return replace(plain, header=replace(plain.header, id=name))


def _episode(task: Task, rollout: int, result: SearchResult, gold: Gold, path: Path) -> ExpertEpisode:
    (trajectory,) = result.trajectories
    try:
        scores, _ = score(task.as_question, result, gold=gold)
    except TrajectoryError as error:
        raise PolicyError(f"the trajectory does not replay: {error}") from error
    profile = Profile.from_json(trajectory.header.profile)
    actions = [event.action for event in trajectory.events if isinstance(event, ActionTaken)]
    edits = [event.edit for event in trajectory.events if isinstance(event, EditApplied)]
    calls = [call for action in actions for call in flatten(action.calls, profile.tools)]
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
