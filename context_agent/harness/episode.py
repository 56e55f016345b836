"""An episode takes one question from the first view to the ranking. Production and RL training use the same class.

A turn has four steps. Another order would change what a trained policy has learned:

1. The action enters the view. If the window cannot hold the action, the episode ends.
2. The edits of the turn are applied together: prunes, then summaries, then restores.
3. The other calls run at the same time. The episode decides in call order which results each call may show. The trace
therefore does not depend on which call returned first. A call past the hard cutoff is refused, and results of earlier
calls count.
4. The usage line closes the turn.

A policy's mistake becomes a result with an error text. Exceptions report mistakes of the caller and failures of other
systems.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from context_agent._support.arguments import real_number, whole_number
from context_agent.budget import Budget
from context_agent.errors import BudgetError, ConfigError, EpisodeError
from context_agent.harness.action_text import action_text, ranking_of
from context_agent.harness.policy import Assessment, Instructions
from context_agent.harness.profile import Profile, default
from context_agent.harness.ranking import Ranking, fallback_ranking, resolve, with_shown_documents
from context_agent.harness.rendering import Renderer
from context_agent.harness.tools.executor import ToolExecutor
from context_agent.harness.tools.tool import ReadContext, SubAgents
from context_agent.harness.trajectory import Header, Trajectory
from context_agent.pruning.view import (
    NO_EDIT,
    ActionTaken,
    EditApplied,
    EpisodeEnded,
    Event,
    PromptShown,
    Role,
    Text,
    ToolResult,
    TurnClosed,
    View,
    digest,
    fold,
)
from context_agent.retrieval.corpus import Corpus
from context_agent.retrieval.filters import Where, plain_where
from context_agent.text.markers import escape_markers
from context_agent.tokens import HarmonyCounter, TokenCounter
from context_agent.types import Action, RankedId
from context_agent.version import __version__

LEAST_OUTPUT = 8
"""If a policy has fewer tokens left to act, the episode ends."""


class StopReason(StrEnum):
    """The reason why an episode ended."""

    FINISHED = "finished"
    """The policy gave its ranking."""
    NO_RANKING = "no_ranking"
    """The policy ended without a valid ranking. The documents in view were ranked instead."""
    TURNS = "turns"
    """The limit on turns was reached."""
    TIME = "time"
    """The limit on seconds was reached."""
    TOKENS = "tokens"
    """The limit on tokens was reached."""
    WINDOW = "window"
    """The window had no room left for an action."""
    POLICY_ERROR = "policy_error"
    """The policy could not continue."""
    CORPUS_ERROR = "corpus_error"
    """The corpus failed during the episode."""
    CANCELLED = "cancelled"
    """The caller stopped it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of an episode.

    Attributes:
        turns: Maximum number of turns. If None, the limit of the profile applies.
        seconds: Time limit in seconds of wall clock.
        tokens: Maximum number of tokens that are ever placed in the context, pruned or not.
        calls: Maximum number of calls that run in one turn. Further calls are refused.

    Raises:
        ConfigError: If a limit is not positive.
    """

    turns: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    calls: int = 16

    def __post_init__(self) -> None:
        for name in ("turns", "seconds", "tokens", "calls"):
            value = getattr(self, name)
            if value is None and name != "calls":
                continue
            value = real_number(value, name) if name == "seconds" else whole_number(value, name)
            object.__setattr__(self, name, value)
            if value <= 0:
                raise ConfigError(f"the limit {name} must be positive; got {value}")


Partial = Callable[[View], tuple[RankedId, ...]]
"""Returns the ranking to end with when a limit is reached."""

Assess = Callable[[], Assessment | None]
"""A function that assesses the evidence when the episode ends. If there is no assessment, it returns None."""

Listener = Callable[[Event, View], None]
"""Called with each event and the view after it."""

Observer = Callable[[Header], Listener]
"""Makes the listener of an episode that begins. The listener runs in the episode's own task, in its context."""

DEFAULT_K = 10
"""Documents that a search returns by default."""


@dataclass(frozen=True, slots=True)
class EpisodeRequest:
    """The settings that differ between the episodes of an agent.

    Attributes:
        question: The question to search for.
        where: A filter on metadata, which no call of the policy can lift.
        seed: The seed of the policy's decisions. If it is None, the agent's seed is used.
        question_id: An id that the trajectory stores.
        id: The id of the episode. If it is None, the episode gets a new id.
        parent: The id of the episode that started this one as a sub-agent.
        sub_agents: The object that starts sub-agents, if the profile has the tool for it.
        excluded_ids: Chunks that other episodes show. No search of this episode returns them.
        listeners: Functions that are called with each event and the view after it.
        effort: The effort that replaces the policy's effort.
        budget: The budget that replaces the agent's budget. A number is the window in tokens.
        k: The number of documents that the caller takes. A policy that would rank fewer documents may rank as many.
        on_unrecorded: A function that is called if the trajectory cannot be written. The episode then continues without
            a record. If it is None, the episode fails.
    """

    question: str
    where: Where | None = None
    seed: int | None = None
    question_id: str | None = None
    id: str | None = None
    parent: str | None = None
    sub_agents: SubAgents | None = None
    excluded_ids: AbstractSet[str] = frozenset()
    listeners: Sequence[Listener] = ()
    effort: str | None = None
    budget: Budget | int | None = None
    k: int = DEFAULT_K
    on_unrecorded: Callable[[OSError], None] | None = None

    def budget_in(self, profile: Profile) -> Budget | None:
        """Return the budget for an episode with this profile. If the agent's budget applies, return None.

        Args:
            profile: The profile, which decides how much of a window one result may take.

        Returns:
            The budget of the request.

        Raises:
            ConfigError: If the window is too small.
        """
        return None if self.budget is None else profile.budget(self.budget)


class Episode:
    """An episode of one question over a corpus. Use each object for a single episode.

    Give it actions with `step` until it is `done`.

    Args:
        request: The question, or a request with more about this episode.
        corpus: The corpus to search.
        profile: The tools and texts of the episode. Defaults to the profile `default`.
        budget: The size of the context. Defaults to the profile's budget. A budget in the request replaces it.
        limits: The limits of the episode. If it has no limit on turns, the profile's limit applies.
        renderer: The renderer that writes the blocks. Episodes with the same profile and counter may share it.
        counter: The token counter, if no renderer is given. Defaults to o200k_harmony.
        instructions: The text that replaces the profile's prompt. An empty string means no prompt.
        executor: The executor that runs the reads of a corpus that waits for disk or network.
        observers: Functions that make a listener for the episode.
        partial: A function that returns the ranking if a limit ends the episode.
        assess: A function that assesses the evidence when the episode ends.
        policy: The name of the policy, for the trajectory.

    Raises:
        ConfigError: If the question is empty, or the filter cannot be used, as `plain_where` says.
        BudgetError: If the question alone passes the soft threshold.

    Example:
        >>> import asyncio
        >>> from context_agent import Action, Document, MemoryCorpus, RankedId, ToolCall
        >>> corpus = MemoryCorpus([Document("light", "Orm Skerry Light was lit in 1868.")])
        >>> episode = Episode("When was the light lit?", corpus)
        >>> search = ToolCall("search_corpus", {"query": "Orm Skerry Light"})
        >>> view = asyncio.run(episode.step(Action(calls=(search,))))
        >>> view = asyncio.run(episode.step(Action(ranking=(RankedId("light"),))))
        >>> [document.id for document in episode.ranking.documents]
        ['light']
    """

    def __init__(
        self,
        request: str | EpisodeRequest,
        corpus: Corpus,
        *,
        profile: Profile | None = None,
        budget: Budget | None = None,
        limits: Limits | None = None,
        renderer: Renderer | None = None,
        counter: TokenCounter | None = None,
        instructions: str | Instructions | None = None,
        executor: Executor | None = None,
        observers: Sequence[Observer] = (),
        partial: Partial | None = None,
        assess: Assess | None = None,
        policy: str = "",
    ) -> None:
        if isinstance(request, str):
            request = EpisodeRequest(request)
        question = request.question
        where = None if request.where is None else plain_where(request.where)
        self.profile = profile or default()
        self.budget = request.budget_in(self.profile) or budget or self.profile.budget()
        self.limits = limits if limits and limits.turns else replace(limits or Limits(), turns=self.profile.turns)
        self.renderer = renderer or Renderer(self.profile, counter or HarmonyCounter())
        self.stop_reason: StopReason | None = None
        self.ranking = Ranking()
        self.confidence: float | None = None
        """The probability that the corpus answers the question. None until the episode ends, or if it is not known."""
        context = ReadContext(
            corpus,
            self.profile,
            self.renderer,
            self.budget,
            question,
            where,
            request.excluded_ids,
            sub_agents=request.sub_agents,
        )
        self._executor = ToolExecutor(context, executor)
        self._partial, self._assess = partial, assess
        self._events: list[Event] = []
        self._started = self._acted_at = time.perf_counter()
        self.spent = 0
        """Tokens ever placed in the context, without those of sub-agents."""
        self.tokens_left = self.limits.tokens
        """Tokens that the limit still allows, after those of sub-agents. None without a limit."""
        self._delegated, self._mistakes, self._advised = 0, 0, False
        self.header = Header(
            id=request.id or uuid.uuid4().hex,
            question=question,
            profile=self.profile,
            budget=self.budget,
            policy=policy,
            corpus=corpus.name,
            counter=self.renderer.counter.name,
            seed=request.seed or 0,
            question_id=request.question_id,
            limits=asdict(self.limits),
            version=__version__,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            where=where,
            parent=request.parent,
        )
        self._opening = self._prompt(question, self.profile.instructions() if instructions is None else instructions)
        self.view = View(question, self.budget, tools=self.profile.tools)
        self._listeners = [*(observe(self.header) for observe in observers), *request.listeners]

    def open(self) -> View:
        """Record the prompt and return the first view. `step` does this if the caller has not."""
        if not self._events:
            self._record(PromptShown(self._opening))
            self._acted_at = time.perf_counter()
        return self.view

    @property
    def done(self) -> bool:
        """True if the episode has ended."""
        return self.stop_reason is not None

    @property
    def trajectory(self) -> Trajectory:
        """The record of the episode so far."""
        return Trajectory(self.header, tuple(self._events))

    async def step(self, action: Action) -> View:
        """Run one action.

        Args:
            action: The tool calls of a turn, or the final ranking.

        Returns:
            The next view. If the episode is then `done`, it is the last one.

        Raises:
            EpisodeError: If the episode has ended.
            CorpusError: If the corpus fails.
        """
        if self.stop_reason is not None:
            raise EpisodeError(f"the episode has ended ({self.stop_reason}). Open a new one.")
        self.open()
        text = action_text(action)
        tokens = action.tokens if action.tokens is not None else self.renderer.counter.count(text)
        fits = tokens <= self.view.max_output
        seconds = time.perf_counter() - self._acted_at
        self._record(ActionTaken(self.view.turn, action, text, tokens, fits, seconds))
        if not fits:
            self.stop(StopReason.WINDOW)
        elif not action.calls:
            self._end(StopReason.FINISHED, ranking_of(action), empty_is_final=action.ranking == ())
        else:
            await self._turn(action)
        self._acted_at = time.perf_counter()
        return self.view

    def stop(self, reason: StopReason, *, error: str | None = None) -> None:
        """End the episode.

        If the policy can rank at any moment, its ranking is used. Otherwise the documents in view are ranked.

        Args:
            reason: Why the episode ends.
            error: The error, for the trajectory.
        """
        if self.stop_reason is not None:
            return
        self.open()
        self._end(reason, () if self._partial is None else self._partial(self.view), error=error)

    def _prompt(self, question: str, instructions: str | Instructions) -> tuple[Text, ...]:
        if not question.strip():
            raise ConfigError("the question is empty. Pass its text.")
        count = self.renderer.counter.count
        text = self.profile.question.format(question=escape_markers(question))
        tokens = count(text)
        if isinstance(instructions, str):
            instructions = Instructions(instructions)
        head = instructions.tokens if instructions.tokens is not None else count(instructions.text)
        if head + tokens >= self.budget.soft:
            raise BudgetError(
                f"the question and the instructions take {head + tokens:,} tokens, more than the soft threshold of "
                f"{self.budget.soft:,} in a window of {self.budget.window:,}. Shorten the question or raise the window."
            )
        segments = [Text(Role.PROMPT, instructions.text, head, turn=-1)] if instructions.text else []
        return (*segments, Text(Role.QUESTION, text, tokens, turn=-1))

    async def _turn(self, action: Action) -> None:
        calls = self._executor.check(action.calls, self.limits.calls)
        edit, replies = self._executor.edit(self.view, calls)
        if edit != NO_EDIT:
            self._record(EditApplied(self.view.turn, edit, self.view.cost(edit)))
        # Past the hard cutoff a search runs but its result is refused, and sub-agents get no tokens.
        tokens_left = 0 if self.view.tokens >= self.budget.hard else self.tokens_left
        answers = replies | await self._executor.run(calls, tokens_left=tokens_left)
        for call in calls:
            self._record(self._executor.result(self.view, call, answers[call.index]))
        self._close_turn()

    def _close_turn(self) -> None:
        """Add the usage line, and end the episode if a limit is reached."""
        used, window = self.view.tokens, self.budget.window
        past = used >= self.budget.soft
        advice = self.profile.soft_advice if past and not self._advised else ""
        self._advised = past
        text = self.profile.usage.format(used=used, window=window, share=used / window) + advice + "\n"
        tokens = self.renderer.counter.count(text)
        if used + tokens > window:
            text, tokens = "", 0
        self._record(TurnClosed(self.view.turn, Text(Role.USAGE, text, tokens, self.view.turn), used + tokens))
        if self.view.turn == self.limits.turns:
            self.stop(StopReason.TURNS)
        elif self.tokens_left == 0:
            self.stop(StopReason.TOKENS)
        elif self.view.max_output < LEAST_OUTPUT:
            self.stop(StopReason.WINDOW)

    def _end(
        self,
        reason: StopReason,
        ranked_ids: Sequence[RankedId],
        *,
        empty_is_final: bool = False,
        error: str | None = None,
    ) -> None:
        """End the episode.

        If the policy's ranking has no citable document, rank the documents in the view instead.
        """
        assessment = None if self._assess is None else self._assess()
        relevance = {} if assessment is None else assessment.relevance
        ranking = resolve(ranked_ids, self.view, self.profile.max_ranking, relevance)
        if not ranking.documents and not empty_is_final:
            ranking = fallback_ranking(self.view, ranking, self.profile.max_ranking)
            reason = StopReason.NO_RANKING if reason is StopReason.FINISHED else reason
        elif ranking.documents and self.profile.fill_ranking:
            ranking = with_shown_documents(ranking, self.view, self.profile.max_ranking)
        self.stop_reason = reason
        self.ranking = ranking
        self.confidence = None if assessment is None else assessment.confidence
        self._record(
            EpisodeEnded(
                stop_reason=reason.value,
                documents=ranking.documents,
                turns=self.view.turn,
                tokens=self.spent,
                digest=digest(self.view),
                dropped=dict(Counter(ranking.dropped)),
                mistakes=self._mistakes,
                error=error,
                seconds=time.perf_counter() - self._started,
                confidence=self.confidence,
            )
        )

    def _record(self, event: Event) -> None:
        self.view = fold(self.view, event)
        self._events.append(event)
        match event:
            case PromptShown():
                self.spent = self.view.tokens
            case ActionTaken():
                self.spent += event.tokens
            case ToolResult():
                self.spent += sum(segment.tokens for segment in event.segments)
                self._delegated += sum(sub_agent.tokens for sub_agent in event.delegated)
                self._mistakes += event.mistake is not None
            case EditApplied():
                self.spent += sum(summary.tokens for summary in event.edit.summaries)
            case TurnClosed():
                self.spent += event.segment.tokens
        if self.limits.tokens is not None:
            self.tokens_left = max(0, self.limits.tokens - self.spent - self._delegated)
        for listen in self._listeners:
            listen(event, self.view)
