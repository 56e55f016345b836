"""A swarm is an orchestrator and its sub-agents.

The orchestrator splits a question, and each sub-agent has its own episode and context.

The design follows Kimi K2.5 (arXiv 2602.02276). Give `SearchAgent` a `Swarm`, and its policy may start sub-agents. They
start at the same time, and their rankings are fused by rank. If a sub-agent fails, its failure is reported and
recorded, and the others continue. The result depends on the order of the tasks, never on which sub-agent finished
first.

With a language model, the tool's prompt says how to split a question. The embedded policy needs no prompt: its roles
are in `policies.bridge.swarm_roles`.
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

from context_agent._support.arguments import real_number, require_members, whole_number
from context_agent.budget import MIN_RESERVES, Budget
from context_agent.errors import ConfigError, ContextAgentError
from context_agent.harness.episode import EpisodeRequest, StopReason
from context_agent.harness.policy import Actor, Policy, SwarmPlayer
from context_agent.harness.profile import Profile
from context_agent.harness.ranking import fuse
from context_agent.harness.runs import EpisodeFactory, EpisodeRun, adjusted
from context_agent.harness.tools import SPAWN
from context_agent.harness.tools.tool import ToolOutput
from context_agent.pruning.view import Block, Event, Source, SubAgentRecord, ToolResult, View
from context_agent.text.counts import counted
from context_agent.text.markers import escaped_line
from context_agent.text.normalization import comparison_key
from context_agent.types import Action, Hit

MAX_BREADTH = 64
"""Maximum number of sub-agents that one turn may start."""
MODEL_TURNS = 8
"""Turns of a sub-agent with a language model."""
ROLE_TURNS = 1
"""Turns of a sub-agent whose policy has a role of its own for it."""
NOT_STARTED = "not_started"
"""The stop reason of a sub-agent whose episode could not begin."""
REASON_LENGTH = 120
"""Characters of a sub-agent's error that the policy reads."""


class Fresh(StrEnum):
    """Chunks that the searches of a sub-agent do not return again."""

    OWN = "own"
    """Chunks that this sub-agent has shown, as in any episode."""
    AGENT = "agent"
    """Also chunks that its orchestrator has shown."""
    OTHERS = "others"
    """Also chunks that the other sub-agents have shown. Their turns then run in the order of their tasks."""


@dataclass(frozen=True, slots=True)
class Swarm:
    """Limits of the sub-agents of an agent. Sub-agents cannot start others.

    Attributes:
        breadth: Maximum number of sub-agents that one turn may start.
        tokens: Maximum number of tokens in the contexts of all sub-agents of an episode. What is left is shared out
            evenly. The agent's own limit on tokens counts them too.
        budget: The context of a sub-agent. Defaults to the budget of the agent that starts it.
        turns: Maximum number of turns of a sub-agent. Defaults to what its policy needs.
        seconds: Maximum number of seconds of a sub-agent.
        documents: Maximum number of documents that a sub-agent returns.
        fresh: Which chunks sub-agents do not show again. Defaults to `Fresh.OTHERS` with the embedded policy, which
            passes on what it knows, and to `Fresh.OWN` with a language model.
        policy: The policy that decides in sub-agents. Defaults to the policy of the orchestrator.

    Raises:
        ConfigError: If a limit is outside its range.

    Example:
        >>> from context_agent import Document, MemoryCorpus, SearchAgent
        >>> documents = [
        ...     Document("light", "Ketil Varga designed Orm Skerry Light.", title="Orm Skerry Light"),
        ...     Document("varga", "He was born in Brasko.", title="Ketil Varga"),
        ... ]
        >>> with SearchAgent(MemoryCorpus(documents), swarm=Swarm(breadth=2)) as agent:
        ...     result = agent.search("Where was the designer of Orm Skerry Light born?")
        >>> sorted(document.id for document in result.documents)
        ['light', 'varga']
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
        if not 1 <= whole_number(self.breadth, "breadth") <= MAX_BREADTH:
            raise ConfigError(f"the breadth of a swarm must be from 1 to {MAX_BREADTH}; got {self.breadth}")
        for name in ("tokens", "turns", "seconds", "documents"):
            if (value := getattr(self, name)) is None:
                continue
            if (real_number(value, name) if name == "seconds" else whole_number(value, name)) <= 0:
                raise ConfigError(f"{name} of a swarm must be positive; got {value}")
        if self.policy is not None:
            require_members(
                self.policy, "policy", ("instructions", "open", "counter"), "a policy, such as ChatPolicy()"
            )
        if self.fresh is not None:
            if self.fresh not in list(Fresh):
                raise ConfigError(f"`fresh` must be {', '.join(Fresh)} or None; got {self.fresh!r}")
            object.__setattr__(self, "fresh", Fresh(self.fresh))
        if self.budget is not None and not isinstance(self.budget, Budget):
            object.__setattr__(self, "budget", Budget(whole_number(self.budget, "budget")))

    def over(self, factory: EpisodeFactory) -> Orchestrator:
        """Return the object that begins the episodes of an agent with this swarm.

        The `factory` begins the episodes of the agent without it.
        """
        return Orchestrator(self, factory)


class Orchestrator:
    """An object that begins the episodes of an agent with a swarm.

    Their profile has one more tool, and each has its own sub-agents.
    """

    def __init__(self, swarm: Swarm, factory: EpisodeFactory) -> None:
        self._swarm = swarm
        self._factory = factory
        self._profile = with_spawning(factory.profile, swarm)

    def begin(self, request: EpisodeRequest) -> EpisodeRun:
        """Return the orchestrator's episode, ready to be driven. Raise what `EpisodeFactory.begin` raises."""
        lead, searcher, turns, fresh = self._policies(adjusted(self._factory.policy, request))
        main = replace(self._factory, policy=lead, profile=self._profile)
        limits = replace(self._factory.limits, turns=self._swarm.turns or turns, seconds=self._swarm.seconds)
        budget = request.budget_in(main.profile) or self._factory.budget
        sub = replace(self._factory, policy=searcher, budget=budget, limits=limits)
        request = replace(request, id=request.id or uuid.uuid4().hex, effort=None)
        sub_agents = SwarmSubAgents(self._swarm, sub, request, self._swarm.fresh or fresh)
        run = main.begin(replace(request, sub_agents=sub_agents))
        return replace(run, delegated=sub_agents.runs)

    def _policies(self, policy: Policy) -> tuple[Policy, Policy, int, Fresh]:
        """Return the orchestrator's policy, the sub-agents' policy, and the defaults for their turns and freshness.

        A policy with roles of its own plays them. The prompt tells any other policy about the tool.
        """
        sub_policy = self._swarm.policy
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
    """The tasks of a call that are started.

    Attributes:
        tasks: The tasks, in order.
        message: Which other tasks were not started, and why.
        mistake: The kind of mistake that the policy made. It is None if there was no mistake.
    """

    tasks: tuple[str, ...]
    message: str = ""
    mistake: str | None = None


def plan_tasks(tasks: Iterable[str], breadth: int, started: frozenset[str] = frozenset()) -> TaskPlan:
    """Return the first `breadth` tasks that are not empty, repeated or already `started`.

    Letter case and spaces do not count.
    """
    seen = set(started)
    accepted: list[str] = []
    empty = repeated = over = 0
    for task in tasks:
        key = comparison_key(task)
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


@dataclass(slots=True)
class TurnOrder:
    """The order in which sub-agents act, and the chunks that they and the orchestrator have shown.

    Sub-agents decide at the same time and then act one after the other. The n-th turn of a sub-agent waits for the n-th
    turn of those before it, and for turn n - 1 of those after it. So the trace does not depend on timing.
    """

    shown_ids: set[str]
    _turns: list[float] = field(default_factory=list)
    """The turns that each sub-agent has taken. Infinite if it has ended."""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def join(self) -> int:
        """Add a sub-agent and return its position."""
        self._turns.append(0)
        return len(self._turns) - 1

    async def wait(self, position: int) -> None:
        """Wait until the sub-agent's next turn may run."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._may_act(position))

    async def taken(self, position: int, turns: float = math.inf) -> None:
        """Record how many turns a sub-agent has taken. By default, record that it has ended."""
        async with self._changed:
            self._turns[position] = turns
            self._changed.notify_all()

    def _may_act(self, position: int) -> bool:
        turn = self._turns[position]
        before, behind = self._turns[:position], self._turns[position + 1 :]
        return all(other_turn > turn for other_turn in before) and all(other_turn >= turn for other_turn in behind)

    def listen(self, event: Event, view: View) -> None:
        """Record the chunks that an event showed. The sub-agents' episodes call it as a listener."""
        if isinstance(event, ToolResult):
            self.shown_ids.update(segment.id for segment in event.segments if isinstance(segment, Block))


class OrderedActor:
    """An actor whose actions wait for their position in the order."""

    def __init__(self, inner: Actor, order: TurnOrder, position: int) -> None:
        self._inner, self._order, self._position = inner, order, position

    async def act(self, view: View) -> Action:
        """Return the inner actor's action when it is its turn."""
        await self._order.taken(self._position, view.turn)
        action = await self._inner.act(view)
        await self._order.wait(self._position)
        return action


@dataclass(slots=True)
class _SubAgent:
    """A sub-agent: its task, its episode if it could begin, and its error."""

    task: str
    run: EpisodeRun | None = None
    error: str | None = None
    position: int = 0

    async def search(self, order: TurnOrder) -> None:
        """Run the episode to its end. Nothing but a cancellation is raised."""
        if self.run is None:
            return
        try:
            failure = await self.run.drive()
        except Exception as error:  # noqa: BLE001 - the other sub-agents go on
            self.error = _unexpected(error)
        else:
            self.error = None if failure is None else str(failure)
        finally:
            await order.taken(self.position)

    def record(self) -> SubAgentRecord:
        """Return what the trajectory of the orchestrator records about it."""
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
        """Return the text about it that the policy reads."""
        count = len(self.run.episode.ranking.documents) if self.run is not None else 0
        documents = "nothing found" if not count else counted(count, "document")
        if self.error is not None:
            reason = escaped_line(self.error)
            return f"failed ({reason[:REASON_LENGTH]}{'…' if len(reason) > REASON_LENGTH else ''}), {documents}"
        timed_out = self.run is not None and self.run.episode.stop_reason is StopReason.TIME
        return f"out of time, {documents}" if timed_out else documents


def _unexpected(error: Exception) -> str:
    return f"unexpected {type(error).__name__}: {error}"


@dataclass(slots=True)
class SwarmSubAgents:
    """The sub-agents of one episode. See `SubAgents`.

    Attributes:
        swarm: The limits of the sub-agents.
        factory: The factory of their episodes.
        request: The request of the episode that started them.
        fresh: The rule for the chunks that they do not show again.
        runs: The runs of the sub-agents that have begun.
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
        """Return the output for each request. All requests share the breadth and the tokens that are left."""
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
            self._started |= {comparison_key(task) for task in plan.tasks}
            plans.append(plan)
        return plans

    @property
    def _budget(self) -> Budget:
        """The budget of a sub-agent if its share of tokens covers it."""
        return self.swarm.budget if isinstance(self.swarm.budget, Budget) else self.factory.budget

    @property
    def _least_window(self) -> int:
        """The smallest window that a sub-agent can have, in tokens."""
        return MIN_RESERVES * self._budget.reserve

    def _share(self, count: int, tokens_left: int | None) -> int | None:
        """Return the tokens that each of `count` sub-agents may spend. If there is no bound, return None.

        The orchestrator keeps an equal share of its tokens for what they return.
        """
        bounds = []
        if self.swarm.tokens is not None:
            bounds.append((self.swarm.tokens - sum(run.episode.spent for run in self.runs)) // max(1, count))
        if tokens_left is not None:
            bounds.append(tokens_left // (count + 1))
        return max(0, min(bounds)) if bounds else None

    def _begin(self, task: str, share: int | None, order: TurnOrder) -> _SubAgent:
        """Start a sub-agent for the task. Its share of tokens may lower its hard cutoff."""
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
            on_unrecorded=self.request.on_unrecorded,
            excluded_ids=frozenset() if self.fresh is Fresh.OWN else order.shown_ids,
            listeners=[order.listen] if self.fresh is Fresh.OTHERS else (),
        )
        try:
            run = factory.begin(request)
        except ContextAgentError as error:
            return _SubAgent(task, error=str(error))
        except Exception as error:  # noqa: BLE001 - the other sub-agents go on
            return _SubAgent(task, error=_unexpected(error))
        position = order.join()
        if self.fresh is Fresh.OTHERS:
            run = replace(run, actor=OrderedActor(run.actor, order, position))
        self.runs.append(run)
        return _SubAgent(task, run, position=position)


def _without_tokens(plan: TaskPlan) -> ToolOutput:
    message = f"No searchers were started: too few tokens are left. {plan.message}".strip()
    return ToolOutput(Source.SPAWN, message=message, mistake=plan.mistake or "no_tokens")


def _merged(group: Sequence[_SubAgent], plan: TaskPlan, documents: int) -> ToolOutput:
    """Return what the sub-agents of a request found, best first, and a report on each."""
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
    """Return the passages of the fused ranking.

    The best passage of every document comes first, by rank, then the second ones, and so on. Each sub-agent returns at
    most `documents`. If several found a passage, the hit of the first one is returned. A passage gets the score of its
    document.
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
