"""One question from first view to ranking. The production harness and the RL environment are this object.

A turn goes like this, and breaking the order changes what a trained policy has learned:

1. The action is placed in the view. One that the window cannot hold ends the episode.
2. The edits of the turn, prunes before summaries before restores, are applied together.
3. The other calls run at the same time; what each may show is decided in call order, so the trace does not depend on
   which one came back first. A call past the hard cutoff is refused, and counts what earlier calls emitted.
4. The usage line closes the turn.

What the policy does wrong becomes a result that says so. Exceptions are for the caller's mistakes and the world's.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum

from context_agent._support.markers import escape_markers
from context_agent.errors import BudgetError, ConfigError, EpisodeError
from context_agent.harness.policy import Instructions
from context_agent.harness.profile import Profile, default
from context_agent.harness.ranking import Ranking, fallback_ranking, resolve
from context_agent.harness.rendering import Renderer, action_text, parse_ranking
from context_agent.harness.tool_executor import SubAgents, ToolExecutor
from context_agent.harness.tools import bounded, flatten
from context_agent.harness.trajectory import (
    ActionTaken,
    EditApplied,
    EpisodeEnded,
    Event,
    Header,
    PromptShown,
    ToolResult,
    Trajectory,
    TurnClosed,
    digest,
    fold,
)
from context_agent.pruning import edits
from context_agent.pruning.budget import Budget, Tier
from context_agent.pruning.view import Role, Text, View
from context_agent.retrieval.corpus import Corpus, Where, check_where
from context_agent.tokens import HarmonyCounter, TokenCounter
from context_agent.types import Action, RankedDocument, RankedId
from context_agent.version import __version__

LEAST_OUTPUT = 8
"""Tokens below which a policy has no room to act and the episode ends."""


class StopReason(StrEnum):
    """Why an episode ended."""

    FINISHED = "finished"
    """The policy gave its ranking."""
    NO_RANKING = "no_ranking"
    """The policy ended without a ranking that stands; the documents in view were ranked for it."""
    TURNS = "turns"
    """The limit on turns was reached."""
    TIME = "time"
    """The limit on wall clock was reached."""
    TOKENS = "tokens"
    """The limit on tokens was reached."""
    WINDOW = "window"
    """The window had no room left for an action."""
    POLICY_ERROR = "policy_error"
    """The policy could not go on."""
    CORPUS_ERROR = "corpus_error"
    """The corpus failed in the middle of the episode."""
    CANCELLED = "cancelled"
    """The caller stopped it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an episode may spend. `tokens` bounds all that was ever placed in the context, pruned or not."""

    turns: int = 64
    seconds: float | None = None
    tokens: int | None = None
    calls: int = 16
    """Calls of one turn that run; the rest are refused."""

    def __post_init__(self) -> None:
        for name in ("turns", "seconds", "tokens", "calls"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"limit {name} must be positive; got {value}")


Partial = Callable[[View], tuple[RankedId, ...]]
"""Gives the ranking to end with when a limit strikes."""

Listener = Callable[[Event, View], None]
"""Called with each event and the view after it."""


class Episode:
    """Drives one question over a corpus. Give it actions with `step` until `done`; single use."""

    def __init__(
        self,
        question: str,
        corpus: Corpus,
        *,
        profile: Profile | None = None,
        budget: Budget | None = None,
        limits: Limits | None = None,
        renderer: Renderer | None = None,
        counter: TokenCounter | None = None,
        instructions: str | Instructions | None = None,
        where: Where | None = None,
        executor: Executor | None = None,
        listeners: Sequence[Listener] = (),
        partial: Partial | None = None,
        sub_agents: SubAgents | None = None,
        excluded_ids: AbstractSet[str] = frozenset(),
        policy: str = "",
        seed: int = 0,
        question_id: str | None = None,
        id: str | None = None,
        parent: str | None = None,
    ) -> None:
        """Raises `BudgetError` for a question that alone passes the soft threshold, `ConfigError` for an empty one or
        for a filter beyond the limits of `check_where`.

        `instructions` replaces the profile's prompt (an empty string: none). `renderer` may be shared by the episodes
        of one profile and counter. `sub_agents` starts sub-agents where the profile has the tool for it. For the
        episode of a sub-agent, `parent` is the id of the episode that started it, and `excluded_ids` are the chunks
        that other episodes show: no search of this one returns them.
        """
        if where is not None:
            check_where(where)
        self.profile = profile or default()
        self.budget = budget or Budget()
        self.limits = limits or Limits()
        self.renderer = renderer or Renderer(self.profile, counter or HarmonyCounter())
        self.stop_reason: StopReason | None = None
        self.ranking = Ranking()
        self._executor = ToolExecutor(
            corpus,
            profile=self.profile,
            renderer=self.renderer,
            budget=self.budget,
            question=question,
            where=where,
            executor=executor,
            sub_agents=sub_agents,
            excluded_ids=excluded_ids,
        )
        self._listeners = listeners
        self._partial = partial
        self._events: list[Event] = []
        self._started = time.perf_counter()
        self._acted_at = self._started
        self._spent = 0
        self._delegated = 0
        self._mistakes = 0
        self._advised = False
        self.header = Header(
            id=id or uuid.uuid4().hex,
            question=question,
            profile=self.profile.to_json(),
            budget=self.budget,
            policy=policy,
            corpus=corpus.name,
            counter=self.renderer.counter.name,
            seed=seed,
            question_id=question_id,
            limits=asdict(self.limits),
            version=__version__,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            where=where,
            parent=parent,
        )
        self._opening = self._prompt(question, self.profile.instructions() if instructions is None else instructions)
        self.view = View(question, self.budget, tools=self.profile.tools)

    def open(self) -> View:
        """Records the prompt and returns the first view. `step` does it where the caller has not."""
        if not self._events:
            self._record(PromptShown(self._opening))
            self._spent += self.view.tokens
            self._acted_at = time.perf_counter()
        return self.view

    @property
    def done(self) -> bool:
        """Whether the episode has ended."""
        return self.stop_reason is not None

    @property
    def trajectory(self) -> Trajectory:
        """The record so far."""
        return Trajectory(self.header, tuple(self._events))

    @property
    def documents(self) -> tuple[RankedDocument, ...]:
        """The ranking of an episode that is done, best first."""
        return self.ranking.documents

    @property
    def spent(self) -> int:
        """Tokens ever placed in the context, those of its sub-agents not counted."""
        return self._spent

    @property
    def tokens_left(self) -> int | None:
        """Tokens that the limit still allows, its sub-agents' counted; None where there is no limit."""
        limit = self.limits.tokens
        return None if limit is None else max(0, limit - self._spent - self._delegated)

    async def step(self, action: Action) -> View:
        """Runs one action and returns the next view (the last one when the episode is then `done`).

        Raises `EpisodeError` when the episode has ended, and what the corpus raises.
        """
        if self.done:
            raise EpisodeError(f"the episode has ended ({self.stop_reason}); open a new one")
        self.open()
        if not self._place(action):
            self.stop(StopReason.WINDOW)
        elif not action.calls:
            self._finish(action)
        else:
            await self._turn(action)
            self._apply_limits()
        self._acted_at = time.perf_counter()
        return self.view

    def stop(self, reason: StopReason, *, error: str | None = None) -> None:
        """Ends the episode with the policy's partial ranking where it has one, else the best the view can defend."""
        if self.done:
            return
        self.open()
        policy_ranking = self._partial(self.view) if self._partial is not None else ()
        ranking = resolve(policy_ranking, self.view, self.profile.max_ranking)
        self._end(
            reason,
            ranking if ranking.documents else fallback_ranking(self.view, ranking, self.profile.max_ranking),
            error,
        )

    def _prompt(self, question: str, instructions: str | Instructions) -> tuple[Text, ...]:
        if not question.strip():
            raise ConfigError("the question is empty")
        count = self.renderer.counter.count
        text = self.profile.question.format(question=escape_markers(question))
        tokens = count(text)
        if isinstance(instructions, str):
            instructions = Instructions(instructions)
        head = instructions.tokens if instructions.tokens is not None else count(instructions.text)
        if head + tokens >= self.budget.soft:
            raise BudgetError(
                f"the question and the instructions take {head + tokens:,} tokens, past the soft threshold of "
                f"{self.budget.soft:,} in a window of {self.budget.window:,}: shorten the question or raise the window"
            )
        segments = [Text(Role.PROMPT, instructions.text, head, turn=-1)] if instructions.text else []
        return (*segments, Text(Role.QUESTION, text, tokens, turn=-1))

    def _place(self, action: Action) -> bool:
        """Puts the action into the view; False where it is longer than the room that was left for it."""
        text = action_text(action)
        tokens = action.tokens if action.tokens is not None else self.renderer.counter.count(text)
        fits = tokens <= self.view.max_output
        seconds = time.perf_counter() - self._acted_at
        self._spent += tokens
        self._record(ActionTaken(self.view.turn, action, text, tokens, fits, seconds))
        return fits

    async def _turn(self, action: Action) -> None:
        calls = self._executor.check(bounded(flatten(action.calls, self.profile.tools)), self.limits.calls)
        edit, replies = self._executor.edit(self.view, calls)
        if edit:
            self._record(EditApplied(self.view.turn, edit, edits.cost(self.view, edit)))
        # Past the hard cutoff a search runs and is refused, and sub-agents get no tokens.
        tokens_left = 0 if self.view.tier is Tier.HARD else self.tokens_left
        outputs = await self._executor.run(calls, tokens_left=tokens_left)
        for call in calls:
            answer = replies.get(call.index) or outputs.get(call.index)
            self._record(self._executor.result(self.view, call, answer))
        self._close_turn()

    def _close_turn(self) -> None:
        used = self.view.tokens
        past = self.view.tier is not Tier.OPEN
        advice = self.profile.soft_advice if past and not self._advised else ""
        self._advised = past
        text = self.profile.usage.format(used=used, window=self.budget.window) + advice + "\n"
        tokens = self.renderer.counter.count(text)
        if used + tokens > self.budget.window:
            text, tokens = "", 0
        segment = Text(Role.USAGE, text, tokens, self.view.turn)
        self._record(TurnClosed(self.view.turn, segment, used + tokens))

    def _apply_limits(self) -> None:
        if self.view.turn >= self.limits.turns:
            self.stop(StopReason.TURNS)
        elif self.tokens_left == 0:
            self.stop(StopReason.TOKENS)
        elif self.view.max_output < LEAST_OUTPUT:
            self.stop(StopReason.WINDOW)

    def _finish(self, action: Action) -> None:
        named_ids = action.ranking if action.ranking is not None else parse_ranking(action.text)
        ranking = resolve(named_ids, self.view, self.profile.max_ranking)
        if ranking.documents or action.ranking == ():
            self._end(StopReason.FINISHED, ranking)
        else:
            self._end(StopReason.NO_RANKING, fallback_ranking(self.view, ranking, self.profile.max_ranking))

    def _end(self, reason: StopReason, ranking: Ranking, error: str | None = None) -> None:
        self.stop_reason = reason
        self.ranking = ranking
        self._record(
            EpisodeEnded(
                stop_reason=reason.value,
                documents=ranking.documents,
                turns=self.view.turn,
                tokens=self._spent,
                digest=digest(self.view),
                dropped=dict(Counter(ranking.dropped)),
                mistakes=self._mistakes,
                error=error,
                seconds=time.perf_counter() - self._started,
            )
        )

    def _record(self, event: Event) -> None:
        self.view = fold(self.view, event)
        self._events.append(event)
        match event:
            case ToolResult():
                self._spent += sum(segment.tokens for segment in event.segments)
                self._delegated += sum(sub_agent.tokens for sub_agent in event.delegated)
                self._mistakes += event.mistake is not None
            case EditApplied():
                self._spent += sum(summary.tokens for summary in event.edit.summaries)
            case TurnClosed():
                self._spent += event.segment.tokens
        for listen in self._listeners:
            listen(event, self.view)
