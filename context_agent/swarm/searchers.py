"""The sub-agents of one episode: started at the same time, each an episode of its own, their rankings merged by rank.

Whatever goes wrong in one (its policy fails, it hangs, it finds nothing, its task is too long) is told in the result
and recorded; the others go on. What is merged depends on the order of the tasks, never on who was done first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest

from context_agent.errors import ContextAgentError
from context_agent.harness.episode import StopReason
from context_agent.harness.episode_run import EpisodeFactory, EpisodeRun
from context_agent.harness.ranking import fuse
from context_agent.harness.rendering import one_line
from context_agent.harness.tool_executor import ToolOutput
from context_agent.harness.trajectory import SubAgentRecord
from context_agent.pruning.budget import RESERVES, Budget
from context_agent.pruning.view import Block, Source
from context_agent.retrieval.protocol import Where
from context_agent.swarm.settings import Fresh, Swarm
from context_agent.swarm.step import InStep, Step
from context_agent.swarm.steps import steps
from context_agent.swarm.tasks import Plan, folded, plan
from context_agent.types import Hit

NOT_STARTED = "not_started"
"""Stands for the stop reason of a sub-agent whose episode could not begin."""
REASON = 120
"""Characters told of why a sub-agent failed."""


@dataclass(slots=True)
class _Searcher:
    """One sub-agent: its task, its episode where that could begin, and what went wrong."""

    task: str
    run: EpisodeRun | None = None
    error: str | None = None
    place: int = 0

    async def search(self, step: Step) -> None:
        """Runs the episode to its end; nothing that happens in it is raised but a cancellation."""
        if self.run is None:
            return
        try:
            failed = await self.run.drive()
        except Exception as error:  # noqa: BLE001 - the other sub-agents go on
            self.error = f"unexpected {type(error).__name__}: {error}"
        else:
            self.error = None if failed is None else str(failed)
        finally:
            await step.had(self.place)

    def record(self) -> SubAgentRecord:
        """What the episode that started it keeps of it."""
        if self.run is None:
            return SubAgentRecord("", self.task, NOT_STARTED, error=self.error)
        episode = self.run.episode
        return SubAgentRecord(
            id=episode.header.id,
            task=self.task,
            stop_reason=str(episode.stop_reason),
            documents=len(episode.documents),
            steps=steps(episode.trajectory),
            tokens=episode.spent,
            error=self.error,
        )

    def told(self) -> str:
        """What the policy is told of it."""
        found = len(self.run.episode.documents) if self.run is not None else 0
        said = "nothing found" if not found else f"{found} document{'' if found == 1 else 's'}"
        if self.error is not None:
            reason = one_line(self.error)
            return f"failed ({reason[:REASON]}{'…' if len(reason) > REASON else ''}), {said}"
        timed_out = self.run is not None and self.run.episode.stop_reason is StopReason.TIME
        return f"out of time, {said}" if timed_out else said


@dataclass(slots=True)
class SwarmSearchers:
    """The sub-agents of the episode with the id `parent`; see `SubAgents`. Keeps what they left behind.

    `setting` is what their episodes have in common, by their own limits apart.
    """

    swarm: Swarm
    setting: EpisodeFactory
    parent: str
    fresh: Fresh = Fresh.OWN
    where: Where | None = None
    seed: int = 0
    question_id: str | None = None
    runs: list[EpisodeRun] = field(default_factory=list)
    _started: frozenset[str] = frozenset()

    async def search(
        self, requests: Sequence[Sequence[str]], *, tokens_left: int | None, shown_ids: frozenset[str]
    ) -> list[ToolOutput]:
        """The outcome of each request. The breadth, and what is left of the tokens, are for all of them together."""
        plans: list[Plan] = []
        for named in requests:
            made = plan(named, self.swarm.breadth - sum(len(one.tasks) for one in plans), self._started)
            self._started |= {folded(task) for task in made.tasks}
            plans.append(made)
        share = self._share(sum(len(one.tasks) for one in plans), tokens_left)
        if share is not None and share * 4 // 3 < self._least:
            return [_without_tokens(one) for one in plans]
        step = Step(set(shown_ids))
        groups = [[self._begin(task, share, step) for task in one.tasks] for one in plans]
        await asyncio.gather(*(one.search(step) for one in chain.from_iterable(groups)))
        kept = None if tokens_left is None or share is None else share // len(plans)
        return [
            replace(_merged(group, one, self.swarm.documents), room=kept)
            for group, one in zip(groups, plans, strict=True)
        ]

    @property
    def _budget(self) -> Budget:
        """A sub-agent's, as far as its share of tokens is as large."""
        return self.swarm.budget if isinstance(self.swarm.budget, Budget) else self.setting.budget

    @property
    def _least(self) -> int:
        """Tokens of the least window that a sub-agent can have."""
        return RESERVES * self._budget.reserve

    def _share(self, count: int, tokens_left: int | None) -> int | None:
        """Tokens that each of `count` sub-agents may have; None for no bound.

        Of what is left to the agent itself, it keeps as much for what they hand back.
        """
        bounds = []
        if self.swarm.tokens is not None:
            bounds.append((self.swarm.tokens - sum(run.episode.spent for run in self.runs)) // max(1, count))
        if tokens_left is not None:
            bounds.append(tokens_left // (count + 1))
        return max(0, min(bounds)) if bounds else None

    def _begin(self, task: str, share: int | None, step: Step) -> _Searcher:
        """A sub-agent on the task. Its hard cutoff lies where its share is spent, if not before."""
        budget = self._budget
        if share is not None and share * 4 // 3 < budget.window:
            window = max(self._least, share * 4 // 3)
            budget = Budget(window, per_call=min(budget.per_call, window // 2), reserve=budget.reserve)
        limits = replace(self.setting.limits, tokens=share)
        try:
            run = replace(self.setting, budget=budget, limits=limits).begin(
                task,
                where=self.where,
                seed=self.seed + len(self.runs) + 1,
                question_id=self.question_id,
                parent=self.parent,
                excluded_ids=frozenset() if self.fresh is Fresh.OWN else step.shown,
                watch=[step.see] if self.fresh is Fresh.OTHERS else (),
            )
        except ContextAgentError as error:
            return _Searcher(task, error=str(error))
        place = step.join()
        if self.fresh is Fresh.OTHERS:
            run = replace(run, actor=InStep(run.actor, step, place))
        self.runs.append(run)
        return _Searcher(task, run, place=place)


def _without_tokens(made: Plan) -> ToolOutput:
    told = "No searchers were started: too few tokens are left."
    return ToolOutput(Source.SPAWN, message=f"{told} {made.told}".strip(), mistake=made.mistake or "no_tokens")


def _merged(group: Sequence[_Searcher], made: Plan, most: int) -> ToolOutput:
    """What a request's sub-agents found, best first, and what is told of them."""
    hits = _hits(group, most)
    reports = [f"{number}: {one.told()}" for number, one in enumerate(group, start=1)]
    words = [f"(Searchers: {'; '.join(reports)}.)" if reports else "No searchers were started.", made.told]
    return ToolOutput(
        Source.SPAWN,
        hits,
        limit=len(hits),
        new_only=True,
        message=" ".join(word for word in words if word),
        mistake=made.mistake,
        calls=max(1, len(group)),
        delegated=tuple(one.record() for one in group),
    )


def _hits(group: Sequence[_Searcher], most: int) -> tuple[Hit, ...]:
    """The passages of the merged ranking: the best one of every document, by rank, then the second ones, and so on.

    Each hands back `most` documents at most. A passage that several found is the first one's. The score is that of its
    document.
    """
    episodes = [one.run.episode for one in group if one.run is not None]
    shown: dict[str, Hit] = {}
    for episode in episodes:
        for segment in episode.view.segments:
            if isinstance(segment, Block):
                shown.setdefault(segment.id, segment.hit)
    merged = fuse([episode.documents[:most] for episode in episodes])
    layers = zip_longest(*([(document.score, chunk.id) for chunk in document.chunks] for document in merged))
    order = [item for layer in layers for item in layer if item is not None and item[1] in shown]
    return tuple(replace(shown[chunk], score=score, rank=place) for place, (score, chunk) in enumerate(order, start=1))
