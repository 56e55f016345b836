"""A swarm: an orchestrator that splits a question over sub-agents, each an episode with its own bounded context.

Kimi K2.5 (arXiv 2602.02276). Give `SearchAgent` a `Swarm` and its policy may start sub-agents. They start at the same
time, and their rankings are fused by rank. A sub-agent's failure is reported in the result and recorded; the others go
on. What is fused depends on the order of the tasks, never on which sub-agent finished first.

With a language model, the tool's prompt says how to split a question. The embedded policy needs no language model for
that: its roles are in `policies.bridge.swarm_roles`.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from itertools import chain, zip_longest

from context_agent.errors import ConfigError, ContextAgentError
from context_agent.harness.episode import EpisodeRequest, StopReason
from context_agent.harness.episode_run import EpisodeFactory, EpisodeRun
from context_agent.harness.policy import Actor, Policy, SwarmPlayer
from context_agent.harness.profile import Profile
from context_agent.harness.ranking import fuse
from context_agent.harness.tools import SPAWN
from context_agent.harness.tools.tool import ToolOutput
from context_agent.pruning.budget import RESERVES, Budget
from context_agent.pruning.view import Block, Event, Source, SubAgentRecord, ToolResult, View
from context_agent.text.markers import escaped_line
from context_agent.types import Action, Hit

MAX_BREADTH = 64
"""Sub-agents that one turn may start at most."""
MODEL_TURNS = 8
"""Turns of a sub-agent that a language model decides in."""
ROLE_TURNS = 1
"""Turns of a sub-agent whose policy has a role of its own for it."""
NOT_STARTED = "not_started"
"""Replaces the stop reason of a sub-agent whose episode could not begin."""
REASON_LENGTH = 120
"""Characters of a sub-agent's error that the policy reads."""


class Fresh(StrEnum):
    """Which chunks the searches of sub-agents do not return again."""

    OWN = "own"
    """Those that the sub-agent itself was shown, as in any episode."""
    AGENT = "agent"
    """Also those that the agent that started it was shown."""
    OTHERS = "others"
    """Also those that the other sub-agents were shown: their turns run in the order of their tasks."""


@dataclass(frozen=True, slots=True)
class Swarm:
    """Limits of an agent's sub-agents. They have no tool to start others: a swarm is one level deep.

    `breadth` is how many one turn may start. `tokens` bounds what is placed in the contexts of all sub-agents of an
    episode together; what is left is shared out evenly, and the agent's own limit on tokens counts them too. `budget`
    is a sub-agent's context, by default that of the agent that starts it. `turns` and `seconds` end one; by default it
    has the turns that its policy needs. `documents` is how many each may return. `fresh` is how far sub-agents are
    kept from showing the same chunks: by default fully with the embedded policy, which passes on what it knows, and
    not at all with a language model. `policy` decides in sub-agents, by default the orchestrator's own.
    """

    breadth: int = 4
    tokens: int | None = None
    budget: Budget | int | None = None
    turns: int | None = None
    seconds: float = 300.0
    documents: int = 10
    fresh: Fresh | None = None
    policy: Policy | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.breadth <= MAX_BREADTH:
            raise ConfigError(f"the breadth of a swarm must lie in 1..{MAX_BREADTH}; got {self.breadth}")
        for name in ("tokens", "turns", "seconds", "documents"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"{name} of a swarm must be positive; got {value}")
        if isinstance(self.budget, int):
            object.__setattr__(self, "budget", Budget(self.budget))

    def over(self, factory: EpisodeFactory) -> Orchestrator:
        """Return what begins the episodes of an agent with this swarm; `factory` makes those of the agent without
        one.
        """
        return Orchestrator(self, factory)


class Orchestrator:
    """Begins the episodes of an agent with a swarm: a profile with one more tool, and sub-agents for each episode."""

    def __init__(self, swarm: Swarm, factory: EpisodeFactory) -> None:
        self._swarm = swarm
        self._factory = factory
        self._profile = with_spawning(factory.profile, swarm)

    def begin(self, request: EpisodeRequest) -> EpisodeRun:
        """Return the orchestrator's episode, ready to be driven. Raises what `EpisodeFactory.begin` does."""
        lead, searcher, turns, fresh = self._policies()
        main = replace(self._factory, policy=lead, profile=self._profile)
        limits = replace(self._factory.limits, turns=self._swarm.turns or turns, seconds=self._swarm.seconds)
        own = main.profile.budget(request.budget) if isinstance(request.budget, int) else request.budget
        budget = own or self._factory.budget
        sub = replace(self._factory, policy=searcher, budget=budget, limits=limits)
        request = replace(request, id=uuid.uuid4().hex)
        sub_agents = SwarmSubAgents(self._swarm, sub, request, self._swarm.fresh or fresh)
        run = main.begin(replace(request, sub_agents=sub_agents))
        return replace(run, delegated=sub_agents.runs)

    def _policies(self) -> tuple[Policy, Policy, int, Fresh]:
        """Return the orchestrator's policy, the sub-agents' policy, and the defaults for their turns and freshness.

        A policy with roles of its own plays them. Any other learns of the tool from its prompt.
        """
        policy, sub_policy = self._factory.policy, self._swarm.policy
        if not isinstance(policy, SwarmPlayer):
            return policy, sub_policy or policy, MODEL_TURNS, Fresh.OWN
        roles = policy.swarm_roles(self._swarm.breadth)
        if sub_policy is not None:
            return roles.lead, sub_policy, MODEL_TURNS, Fresh.OWN
        return roles.lead, roles.searcher, ROLE_TURNS, Fresh.OTHERS


def with_spawning(profile: Profile, swarm: Swarm) -> Profile:
    """Return the profile with the tool that starts sub-agents, and a prompt that explains it."""
    prompt = profile.prompt.rstrip("\n") + "\n\n" + _prompt().replace("{breadth}", str(swarm.breadth))
    return replace(profile, tools=(SPAWN, *profile.tools), prompt=prompt)


@cache
def _prompt() -> str:
    return (files("context_agent.harness") / "prompts" / "swarm.md").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """The tasks to start, in order; a message about the others, and the mistake's name if there is one."""

    tasks: tuple[str, ...]
    message: str = ""
    mistake: str | None = None


def plan_tasks(tasks: Iterable[str], breadth: int, started: frozenset[str] = frozenset()) -> TaskPlan:
    """Return the first `breadth` tasks that are neither empty nor repeated nor `started`, ignoring case and spaces."""
    seen = set(started)
    accepted: list[str] = []
    empty = repeated = over = 0
    for task in tasks:
        key = folded(task)
        if not key:
            empty += 1
        elif key in seen:
            repeated += 1
        elif len(accepted) >= breadth:
            over += 1
        else:
            seen.add(key)
            accepted.append(task.strip())
    parts = [
        f"{over:,} past the limit of {breadth} in one turn" if over else "",
        f"{repeated:,} given before" if repeated else "",
        f"{empty:,} empty" if empty else "",
    ]
    rejected = "; ".join(part for part in parts if part)
    mistake = "too_many_tasks" if over else "repeated_tasks" if repeated else "empty_tasks" if empty else None
    return TaskPlan(tuple(accepted), f"Tasks not started: {rejected}." if rejected else "", mistake)


def folded(task: str) -> str:
    """Return a task as it is compared with others."""
    return " ".join(task.split()).casefold()


@dataclass(slots=True)
class TurnOrder:
    """The order of turns of some sub-agents, and the chunks that they and the orchestrator have shown.

    They decide at the same time and then act one after the other: the n-th turn of a sub-agent waits for the n-th turn
    of those before it, and for the turn before that of those behind it. So the trace does not depend on timing.
    """

    shown_ids: set[str]
    _turns: list[float] = field(default_factory=list)
    """Turns that each has taken; infinitely many for one that has ended."""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def join(self) -> int:
        """Return the position of one more sub-agent."""
        self._turns.append(0)
        return len(self._turns) - 1

    async def wait(self, position: int) -> None:
        """Waits until the sub-agent's next turn may run."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._may_act(position))

    async def taken(self, position: int, turns: float = math.inf) -> None:
        """Reports the turns that a sub-agent has taken; by default it has ended."""
        async with self._changed:
            self._turns[position] = turns
            self._changed.notify_all()

    def _may_act(self, position: int) -> bool:
        turn = self._turns[position]
        before, behind = self._turns[:position], self._turns[position + 1 :]
        return all(other_turn > turn for other_turn in before) and all(other_turn >= turn for other_turn in behind)

    def listen(self, event: Event, view: View) -> None:
        """Notes the chunks that an event showed: a listener of the sub-agents' episodes."""
        if isinstance(event, ToolResult):
            self.shown_ids.update(segment.id for segment in event.segments if isinstance(segment, Block))


class OrderedActor:
    """An actor whose actions wait for their position in the order."""

    def __init__(self, inner: Actor, order: TurnOrder, position: int) -> None:
        self._inner, self._order, self._position = inner, order, position

    async def act(self, view: View) -> Action:
        """Return the inner action, once it is its turn."""
        await self._order.taken(self._position, view.turn)
        action = await self._inner.act(view)
        await self._order.wait(self._position)
        return action


@dataclass(slots=True)
class _SubAgent:
    """One sub-agent: its task, its episode if it could begin, and its error."""

    task: str
    run: EpisodeRun | None = None
    error: str | None = None
    position: int = 0

    async def search(self, order: TurnOrder) -> None:
        """Runs the episode to its end. Raises nothing but a cancellation."""
        if self.run is None:
            return
        try:
            failure = await self.run.drive()
        except Exception as error:  # noqa: BLE001 - the other sub-agents go on
            self.error = f"unexpected {type(error).__name__}: {error}"
        else:
            self.error = None if failure is None else str(failure)
        finally:
            await order.taken(self.position)

    def record(self) -> SubAgentRecord:
        """Return what the trajectory of the episode that started it records."""
        if self.run is None:
            return SubAgentRecord("", self.task, NOT_STARTED, error=self.error)
        episode = self.run.episode
        return SubAgentRecord(
            id=episode.header.id,
            task=self.task,
            stop_reason=str(episode.stop_reason),
            documents=len(episode.ranking.documents),
            steps=episode.trajectory.critical_steps,
            tokens=episode.spent,
            error=self.error,
        )

    def report(self) -> str:
        """Return the text that the policy reads about it."""
        count = len(self.run.episode.ranking.documents) if self.run is not None else 0
        documents = "nothing found" if not count else f"{count} document{'' if count == 1 else 's'}"
        if self.error is not None:
            reason = escaped_line(self.error)
            return f"failed ({reason[:REASON_LENGTH]}{'…' if len(reason) > REASON_LENGTH else ''}), {documents}"
        timed_out = self.run is not None and self.run.episode.stop_reason is StopReason.TIME
        return f"out of time, {documents}" if timed_out else documents


@dataclass(slots=True)
class SwarmSubAgents:
    """The sub-agents of one episode; see `SubAgents`. Keeps their runs.

    `factory` makes their episodes, apart from their own limits; `request` is that of the episode they belong to.
    """

    swarm: Swarm
    factory: EpisodeFactory
    request: EpisodeRequest
    fresh: Fresh = Fresh.OWN
    runs: list[EpisodeRun] = field(default_factory=list)
    _started: frozenset[str] = frozenset()

    async def search(
        self, requests: Sequence[Sequence[str]], *, tokens_left: int | None, shown_ids: frozenset[str]
    ) -> list[ToolOutput]:
        """Return the output for each request. The breadth and the tokens left are for all of them together."""
        plans = self._plans(requests)
        share = self._share(sum(len(plan.tasks) for plan in plans), tokens_left)
        if share is not None and share * 4 // 3 < self._least_window:
            return [_without_tokens(plan) for plan in plans]
        order = TurnOrder(set(shown_ids))
        groups = [[self._begin(task, share, order) for task in plan.tasks] for plan in plans]
        await asyncio.gather(*(sub_agent.search(order) for sub_agent in chain.from_iterable(groups)))
        room = None if tokens_left is None or share is None else share // len(plans)
        return [
            replace(_merged(group, plan, self.swarm.documents), room=room)
            for group, plan in zip(groups, plans, strict=True)
        ]

    def _plans(self, requests: Sequence[Sequence[str]]) -> list[TaskPlan]:
        plans: list[TaskPlan] = []
        for tasks in requests:
            plan = plan_tasks(tasks, self.swarm.breadth - sum(len(plan.tasks) for plan in plans), self._started)
            self._started |= {folded(task) for task in plan.tasks}
            plans.append(plan)
        return plans

    @property
    def _budget(self) -> Budget:
        """A sub-agent's budget if its share of tokens covers it."""
        return self.swarm.budget if isinstance(self.swarm.budget, Budget) else self.factory.budget

    @property
    def _least_window(self) -> int:
        """Tokens of the smallest window that a sub-agent can have."""
        return RESERVES * self._budget.reserve

    def _share(self, count: int, tokens_left: int | None) -> int | None:
        """Tokens that each of `count` sub-agents may have; None for no bound.

        The agent itself keeps an equal share of its tokens for what they return.
        """
        bounds = []
        if self.swarm.tokens is not None:
            bounds.append((self.swarm.tokens - sum(run.episode.spent for run in self.runs)) // max(1, count))
        if tokens_left is not None:
            bounds.append(tokens_left // (count + 1))
        return max(0, min(bounds)) if bounds else None

    def _begin(self, task: str, share: int | None, order: TurnOrder) -> _SubAgent:
        """Return a sub-agent on the task. Its hard cutoff lies at its share of tokens, if not before."""
        budget = self._budget
        if share is not None and share * 4 // 3 < budget.window:
            window = max(self._least_window, share * 4 // 3)
            budget = Budget(window, per_call=min(budget.per_call, window // 2), reserve=budget.reserve)
        factory = replace(self.factory, budget=budget, limits=replace(self.factory.limits, tokens=share))
        request = EpisodeRequest(
            task,
            where=self.request.where,
            seed=(self.request.seed or 0) + len(self.runs) + 1,
            question_id=self.request.question_id,
            parent=self.request.id,
            effort=self.request.effort,
            excluded_ids=frozenset() if self.fresh is Fresh.OWN else order.shown_ids,
            listeners=[order.listen] if self.fresh is Fresh.OTHERS else (),
        )
        try:
            run = factory.begin(request)
        except ContextAgentError as error:
            return _SubAgent(task, error=str(error))
        position = order.join()
        if self.fresh is Fresh.OTHERS:
            run = replace(run, actor=OrderedActor(run.actor, order, position))
        self.runs.append(run)
        return _SubAgent(task, run, position=position)


def _without_tokens(plan: TaskPlan) -> ToolOutput:
    message = f"No searchers were started: too few tokens are left. {plan.message}".strip()
    return ToolOutput(Source.SPAWN, message=message, mistake=plan.mistake or "no_tokens")


def _merged(group: Sequence[_SubAgent], plan: TaskPlan, documents: int) -> ToolOutput:
    """Return what a request's sub-agents found, best first, and a report on each."""
    hits = _hits(group, documents)
    reports = [f"{number}: {sub_agent.report()}" for number, sub_agent in enumerate(group, start=1)]
    sentences = [f"(Searchers: {'; '.join(reports)}.)" if reports else "No searchers were started.", plan.message]
    return ToolOutput(
        Source.SPAWN,
        hits,
        limit=len(hits),
        new_only=True,
        message=" ".join(sentence for sentence in sentences if sentence),
        mistake=plan.mistake,
        calls=max(1, len(group)),
        delegated=tuple(sub_agent.record() for sub_agent in group),
    )


def _hits(group: Sequence[_SubAgent], documents: int) -> tuple[Hit, ...]:
    """Return the passages of the fused ranking: the best one of every document, by rank, then the second ones, and so
    on.

    Each sub-agent returns `documents` at most. A passage that several found is the first one's. The score is that of
    its document.
    """
    episodes = [sub_agent.run.episode for sub_agent in group if sub_agent.run is not None]
    hit_of_chunk: dict[str, Hit] = {}
    for episode in episodes:
        for segment in episode.view.segments:
            if isinstance(segment, Block):
                hit_of_chunk.setdefault(segment.id, segment.hit)
    fused = fuse([episode.ranking.documents[:documents] for episode in episodes])
    layers = zip_longest(*([(document.score, chunk.id) for chunk in document.chunks] for document in fused))
    order = [item for layer in layers for item in layer if item is not None and item[1] in hit_of_chunk]
    return tuple(
        replace(hit_of_chunk[chunk], score=score, rank=rank) for rank, (score, chunk) in enumerate(order, start=1)
    )
