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
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from context_agent.errors import BudgetError, ConfigError, EpisodeError
from context_agent.harness.policy import Assessment, Instructions
from context_agent.harness.profile import Profile, Renderer, action_text, default, parse_ranking
from context_agent.harness.tools.executor import ToolExecutor
from context_agent.harness.tools.tool import ReadContext, SubAgents
from context_agent.harness.trajectory import Header, Trajectory
from context_agent.pruning.budget import Budget
from context_agent.pruning.view import (
    NO_EDIT,
    ActionTaken,
    Block,
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
    named_id,
)
from context_agent.retrieval.corpus import Corpus
from context_agent.retrieval.filters import Where, check_where
from context_agent.retrieval.fusion import RRF_K
from context_agent.text.markers import escape_markers
from context_agent.tokens import HarmonyCounter, TokenCounter
from context_agent.types import Action, Hit, RankedChunk, RankedDocument, RankedId
from context_agent.version import __version__

LEAST_OUTPUT = 8
"""Tokens below which a policy has no room to act and the episode ends."""


class StopReason(StrEnum):
    """Why an episode ended."""

    FINISHED = "finished"
    """The policy gave its ranking."""
    NO_RANKING = "no_ranking"
    """The policy ended without a valid ranking; the documents in view were ranked instead."""
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

    turns: int | None = None
    """None: as many as the profile allows."""
    seconds: float | None = None
    tokens: int | None = None
    calls: int = 16
    """Calls of one turn that run; the rest are refused."""

    def __post_init__(self) -> None:
        for name in ("turns", "seconds", "tokens", "calls"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"limit {name} must be positive; got {value}")


@dataclass(frozen=True, slots=True)
class Ranking:
    """Documents best first, and why other ids were dropped: `pruned`, `summary` or `unseen`, one reason for each id."""

    documents: tuple[RankedDocument, ...] = ()
    dropped: tuple[str, ...] = ()


Partial = Callable[[View], tuple[RankedId, ...]]
"""Returns the ranking to end with when a limit is reached."""

Assess = Callable[[], Assessment | None]
"""Returns how good the evidence is when the episode ends; None if that is not known."""

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
        assess: Assess | None = None,
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
        of one profile and counter. `partial` ranks if a limit ends the episode; `assess` says how good the evidence is.
        `sub_agents` starts sub-agents if the profile has the tool for it. For the episode of a sub-agent, `parent` is
        the id of the episode that started it, and `excluded_ids` are the chunks that other episodes show: no search of
        this one returns them.
        """
        if where is not None:
            check_where(where)
        self.profile = profile or default()
        self.budget = budget or self.profile.budget()
        self.limits = limits if limits and limits.turns else replace(limits or Limits(), turns=self.profile.turns)
        self.renderer = renderer or Renderer(self.profile, counter or HarmonyCounter())
        self.stop_reason: StopReason | None = None
        self.ranking = Ranking()
        self.confidence: float | None = None
        """The probability that the corpus answers the question, once the episode has ended; None if not known."""
        context = ReadContext(
            corpus, self.profile, self.renderer, self.budget, question, where, excluded_ids, sub_agents=sub_agents
        )
        self._executor = ToolExecutor(context, executor)
        self._listeners = listeners
        self._partial, self._assess = partial, assess
        self._events: list[Event] = []
        self._started = self._acted_at = time.perf_counter()
        self.spent = 0
        """Tokens ever placed in the context, those of its sub-agents not counted."""
        self.tokens_left = self.limits.tokens
        """Tokens that the limit still allows, after those of sub-agents too; None without a limit."""
        self._delegated, self._mistakes, self._advised = 0, 0, False
        self.header = Header(
            id=id or uuid.uuid4().hex,
            question=question,
            profile=self.profile,
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
            assessed=assess is not None,
        )
        self._opening = self._prompt(question, self.profile.instructions() if instructions is None else instructions)
        self.view = View(question, self.budget, tools=self.profile.tools)

    def open(self) -> View:
        """Records the prompt and returns the first view. `step` does it if the caller has not."""
        if not self._events:
            self._record(PromptShown(self._opening))
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

    async def step(self, action: Action) -> View:
        """Runs one action and returns the next view (the last one when the episode is then `done`).

        Raises `EpisodeError` when the episode has ended, and what the corpus raises.
        """
        if self.stop_reason is not None:
            raise EpisodeError(f"the episode has ended ({self.stop_reason}); open a new one")
        self.open()
        text = action_text(action)
        tokens = action.tokens if action.tokens is not None else self.renderer.counter.count(text)
        fits = tokens <= self.view.max_output
        seconds = time.perf_counter() - self._acted_at
        self._record(ActionTaken(self.view.turn, action, text, tokens, fits, seconds))
        if not fits:
            self.stop(StopReason.WINDOW)
        elif not action.calls:
            ranked_ids = action.ranking if action.ranking is not None else parse_ranking(action.text)
            self._end(StopReason.FINISHED, ranked_ids, empty_is_final=action.ranking == ())
        else:
            await self._turn(action)
        self._acted_at = time.perf_counter()
        return self.view

    def stop(self, reason: StopReason, *, error: str | None = None) -> None:
        """Ends the episode with the policy's partial ranking if it has one, else with the best one from the view."""
        if self.stop_reason is not None:
            return
        self.open()
        self._end(reason, () if self._partial is None else self._partial(self.view), error=error)

    def _prompt(self, question: str, instructions: str | Instructions) -> tuple[Text, ...]:
        if not question.strip():
            raise ConfigError("the question is empty: pass its text")
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

    async def _turn(self, action: Action) -> None:
        calls = self._executor.check(action.calls, self.limits.calls)
        edit, replies = self._executor.edit(self.view, calls)
        if edit != NO_EDIT:
            self._record(EditApplied(self.view.turn, edit, self.view.cost(edit)))
        # Past the hard cutoff a search runs and is refused, and sub-agents get no tokens.
        tokens_left = 0 if self.view.tokens >= self.budget.hard else self.tokens_left
        answers = replies | await self._executor.run(calls, tokens_left=tokens_left)
        for call in calls:
            self._record(self._executor.result(self.view, call, answers[call.index]))
        self._close_turn()

    def _close_turn(self) -> None:
        """Adds the usage line, and ends the episode if a limit is reached."""
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
        """Ends the episode with the policy's ranking, or with one by the view if no document of it may be cited."""
        assessment = None if self._assess is None else self._assess()
        relevance = {} if assessment is None else assessment.relevance
        ranking = resolve(ranked_ids, self.view, self.profile.max_ranking, relevance)
        if not ranking.documents and not empty_is_final:
            ranking = fallback_ranking(self.view, ranking, self.profile.max_ranking)
            reason = StopReason.NO_RANKING if reason is StopReason.FINISHED else reason
        elif ranking.documents and self.profile.fill_ranking:
            ranking = filled(ranking, self.view, self.profile.max_ranking)
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


def resolve(
    ranked_ids: Iterable[RankedId], view: View, limit: int, relevance: Mapping[str, float] | None = None
) -> Ranking:
    """Return the documents of a policy's ranking, in its order; later mentions of a document only add passages.

    A ranking may cite documents in the final view, with a block of theirs or through a summary that stands for one, by
    document id, by chunk id, or by a block's label. An id that was pruned, or never seen, is dropped; so is the id of a
    summary, which is no document's. `relevance` maps chunk ids to scores of passages; a passage without one has its
    document's score.
    """
    citable = view.citable_blocks
    blocks_by_document = _by_document(citable)
    owner = {block.label: block for block in citable} | {block.id: block for block in citable}
    known = owner.keys() | blocks_by_document.keys()
    order: dict[str, tuple[RankedId, list[str]]] = {}
    dropped = []
    for item in ranked_ids:
        if item.id in blocks_by_document:
            order.setdefault(item.id, (item, []))[1].append(item.id)
        elif (block := owner.get(named_id(item.id, known))) is not None:
            order.setdefault(block.document_id, (item, []))[1].append(block.id)
        else:
            dropped.append(_dropped_because(named_id(item.id, ()), view))
    documents = tuple(
        _document(blocks_by_document[document], item, ids, rank, relevance or {})
        for rank, (document, (item, ids)) in enumerate(list(order.items())[:limit], start=1)
    )
    return Ranking(documents, tuple(dropped))


def fallback_ranking(view: View, failed: Ranking, limit: int) -> Ranking:
    """Return the best ranking without the policy: each document in view by the summed reciprocal ranks of its hits."""
    blocks_by_document = _by_document(view.citable_blocks)
    scores = {
        document: sum(1.0 / (RRF_K + block.hit.rank) for block in blocks)
        for document, blocks in blocks_by_document.items()
    }
    best = sorted(scores, key=lambda document: (-scores[document], document))[:limit]
    ranked = [
        _document(blocks_by_document[d], RankedId(d, scores[d]), [], rank, {}) for rank, d in enumerate(best, start=1)
    ]
    return Ranking(tuple(ranked), failed.dropped)


def filled(ranking: Ranking, view: View, limit: int) -> Ranking:
    """Return the ranking, followed by the other documents that were shown, pruned or not, in the order of their first
    hit.

    So the hits of the first search, which is the question's own, come first. The ranking names a document at least.
    """
    named = {document.id for document in ranking.documents}
    shown = _by_document(block for block in (*view.pruned, *view.citable_blocks) if block.document_id not in named)
    order = sorted(shown, key=lambda document: min(block.key for block in shown[document]))
    documents = list(ranking.documents)
    for rank, document in enumerate(order[: limit - len(documents)], start=len(documents) + 1):
        blocks = list({block.id: block for block in shown[document]}.values())
        score = min(1.0 / rank, documents[-1].score)
        documents.append(_document(blocks, RankedId(document, score), [], rank, {}))
    return replace(ranking, documents=tuple(documents))


def _by_document(blocks: Iterable[Block]) -> dict[str, list[Block]]:
    blocks_by_document: dict[str, list[Block]] = {}
    for block in blocks:
        blocks_by_document.setdefault(block.hit.chunk.document_id, []).append(block)
    return blocks_by_document


def _dropped_because(ranked_id: str, view: View) -> str:
    if any(summary.id == ranked_id for summary in view.summaries):
        return "summary"
    return (
        "pruned" if any(ranked_id in (block.id, block.document_id, block.label) for block in view.pruned) else "unseen"
    )


def _document(
    blocks: list[Block], item: RankedId, cited_ids: list[str], rank: int, relevance: Mapping[str, float]
) -> RankedDocument:
    """Return a document of the ranking; cited passages come first, in that order, then the others by score."""
    place, last = {chunk_id: index for index, chunk_id in enumerate(cited_ids)}, len(cited_ids)

    def order(hit: Hit) -> tuple[float, ...]:
        chunk = hit.chunk
        return place.get(chunk.id, last), -relevance.get(chunk.id, 0.0), -hit.score, chunk.index

    chunks = [hit.chunk for hit in sorted((block.hit for block in blocks), key=order)]
    document_score = item.score if item.score is not None else 1.0 / rank
    first = chunks[0]
    return RankedDocument(
        id=first.document_id,
        title=first.title,
        score=document_score,
        chunks=tuple(RankedChunk(chunk.id, chunk.text, relevance.get(chunk.id, document_score)) for chunk in chunks),
        justification=item.justification,
        metadata=first.metadata,
    )
