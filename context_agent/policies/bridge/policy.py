"""The embedded policy: `BridgePolicy`, the bounds of its search, and its decisions in one episode.

It searches the question and its names, then the names that its best candidates mention, the most promising first.
Before a turn would pass the soft threshold, it prunes the candidates with the lowest scores. At the end it restores the
best candidates, since a ranking may only cite what is in view.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from context_agent.errors import ConfigError, CorpusError
from context_agent.harness.profile import Profile
from context_agent.policies.bridge.candidates import Candidate, Floats, Notes, Passage, WordWeights
from context_agent.policies.bridge.expansion import Expansion, Lookup, promise_guess
from context_agent.policies.bridge.networks import RelevanceJudgement, Scorer
from context_agent.pruning.view import Block, View
from context_agent.retrieval.corpus import Corpus
from context_agent.tokens import TokenCounter
from context_agent.types import Action, RankedId, ToolCall


@dataclass(frozen=True, slots=True)
class Effort:
    """Bounds of an episode's search. More searches find more and take longer."""

    searches: int = 28
    """Searches of an episode."""
    turns: int = 12
    """Turns with searches; a last one may follow that brings pruned chunks back."""
    lookups: int = 7
    """Names looked up in one turn."""
    pages: int = 2
    """Times the whole question is searched: each time brings new text."""
    ranking: int = 10
    """Documents of the final ranking."""
    promise: float = 0.005
    """Lookups less likely than this to find something are not made."""
    prune: bool = True
    """Whether the view is edited. Without it an episode ends when the view is full."""

    def __post_init__(self) -> None:
        for name in ("searches", "turns", "lookups", "pages", "ranking"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} of the bridge policy must be at least 1; got {getattr(self, name)}")


SMALL = 8192
"""Windows under this many tokens are searched sparingly."""
QUESTION_SHOWN, KEYWORDS_SHOWN, ENTITY_SHOWN, LOOKUP_SHOWN = 10, 6, 5, 4
"""Chunks that a search may show."""
SPARING_SHOWN = 2
"""The same in a small window, but for the question."""
ENTITIES, SPARING_ENTITIES = 6, 3
"""Names of the question that are searched."""
SPARING_LOOKUPS = 5
SPARING_PAGES = 4
CALL_TOKENS, TURN_TOKENS, LINE_TOKENS = 20, 30, 14
"""What a search, a turn, and a line of the ranking cost beside the chunks and ids, at most."""
ID_CHARACTERS = 1.4
"""Characters a token of an id has at least."""
INTERRUPTED = 1.0
"""Seconds that a ranking at a limit waits for the decision which the limit cut short; it runs on in its thread."""
TYPICAL = 160
"""Tokens of a chunk before any was seen."""
HELD = 1
"""Best blocks in view that are not pruned while the search goes on."""
IRREVOCABLE = 8
"""The same in a profile without `restore_chunks`."""
RESTORE = "restore_chunks"
RESERVED = 5
"""Best candidates for whose return room is kept."""


class BridgeActor:
    """One episode. `notes` holds what it has seen."""

    def __init__(
        self,
        question: str,
        corpus: Corpus,
        scorer: Scorer | None,
        effort: Effort,
        passages: Callable[[str, str], Passage] = Passage,
    ) -> None:
        """`passages` takes a title and a text apart."""
        self.notes = Notes.of(question, WordWeights(corpus))
        self.judgement = RelevanceJudgement(self.notes, corpus, scorer)
        self.expansion = Expansion(self.notes)
        self.made: list[tuple[Lookup, Floats]] = []
        """Lookups made, each with its features at that time."""
        self._passages = passages
        self._scorer = scorer
        self._effort = effort
        self._blocking = corpus.blocking
        self._sources: dict[int, tuple[int, int]] = {}
        """Of the last turn's calls by index: hop and number of the lookup."""
        self._done: set[Lookup] = set()
        self._searches = self._turns = self._pages = 0
        self._scores = np.zeros(0, dtype=np.float32)
        """The candidates' scores, by row of the notes."""
        self._ending = False
        self._deciding = threading.Lock()

    def knows(self, candidates: Iterable[Candidate]) -> None:
        """Takes note of what another actor saw, before anything is shown to this one: it is judged by, never ranked."""
        for candidate in candidates:
            self.notes.add(candidate)
        self._scores = np.zeros(len(self.notes), dtype=np.float32)

    async def act(self, view: View) -> Action:
        """The next searches, the last edits, or the ranking."""
        return await asyncio.to_thread(self._decide, view) if self._blocking else self._decide(view)

    def partial(self, view: View) -> tuple[RankedId, ...]:
        """The documents in view by the latest scores; new blocks count too, unless the corpus fails to judge them.

        Nothing where a decision that was cut short does not come to its end.
        """
        if not self._deciding.acquire(timeout=INTERRUPTED):
            return ()
        try:
            with contextlib.suppress(CorpusError):
                self._read(view)
            return self._ranking(view)
        finally:
            self._deciding.release()

    def _decide(self, view: View) -> Action:
        with self._deciding:
            return self._decided(view)

    def _decided(self, view: View) -> Action:
        self._read(view)
        if not self._ending:
            calls = self._opening(view) if self._turns == 0 else self._next(view)
            if calls:
                self._turns += 1
                return Action(calls=calls)
            self._ending = True
            if edits := self._last_edits(view):
                return Action(calls=edits)
        return Action(ranking=self._ranking(view))

    def _read(self, view: View) -> None:
        """Takes note of the blocks that the last turn showed, and scores all candidates anew."""
        before = len(self.notes)
        for block in view.latest:
            if isinstance(block, Block) and block.id not in self.notes.rows:
                passage = self._passages(block.hit.chunk.title, block.body)
                hop, lookup = self._sources.get(block.call, (0, -1))
                self.notes.add(Candidate(block.id, block.document_id, passage, block.tokens, hop, lookup))
        if len(self.notes) > before:
            self._scores = self.judgement.scores()

    def _opening(self, view: View) -> tuple[ToolCall, ...]:
        """The question, its names, and its content words alone."""
        question, small = self.notes.question, view.budget.window < SMALL
        shown = SPARING_SHOWN if small else ENTITY_SHOWN
        calls = [lookup_search(question.text, QUESTION_SHOWN)]
        calls += [lookup_search(name, shown) for name in question.entities[: SPARING_ENTITIES if small else ENTITIES]]
        keywords = " ".join(question.terms)
        if not small and keywords:
            calls.append(lookup_search(keywords, KEYWORDS_SHOWN))
        self._pages = 1
        return self._count(calls[: self._effort.searches], {})

    def _next(self, view: View) -> tuple[ToolCall, ...]:
        """The next page of the question and the most promising lookups, with the prunes that they need."""
        effort, small = self._effort, view.budget.window < SMALL
        left = effort.searches - self._searches
        if not len(self.notes) or self._turns >= effort.turns or left <= 0:
            return ()
        paging = self._pages < (SPARING_PAGES if small else effort.pages)
        calls = [lookup_search(self.notes.question.text, QUESTION_SHOWN)] if paging else []
        lookups, rows = self._promising()
        most = min(left, SPARING_LOOKUPS if small else effort.lookups + len(calls)) - len(calls)
        shown = SPARING_SHOWN if small else LOOKUP_SHOWN
        calls += [lookup_search(lookup.query(self.notes), shown) for lookup in lookups[: max(0, most)]]
        calls = calls[: self._affordable(view, calls)]
        if not calls:
            return ()
        self._pages += paging
        edits = self._make_room(view, calls)
        sources = {}
        for at in range(len(calls) - paging):
            hop = self.notes.candidates[lookups[at].parent].hop + 1
            sources[len(edits) + paging + at] = (hop, len(self.made))
            self.made.append((lookups[at], rows[at]))
            self._done.add(lookups[at])
        return (*edits, *self._count(calls, sources))

    def _promising(self) -> tuple[list[Lookup], Floats]:
        """The lookups that are worth making and not yet made, best first, each name once; with their features."""
        lookups, rows = self.expansion.lookups(self._scores, self._done)
        worth = self._scorer.networks["expansion"](rows) if self._scorer and lookups else promise_guess(rows)
        names: set[str] = set()
        kept = []
        for at in np.argsort(-worth, kind="stable"):
            if worth[at] >= self._effort.promise and lookups[at].bare not in names:
                names.add(lookups[at].bare)
                kept.append(int(at))
        return [lookups[at] for at in kept], rows[kept]

    def _count(self, calls: Sequence[ToolCall], sources: dict[int, tuple[int, int]]) -> tuple[ToolCall, ...]:
        self._searches += len(calls)
        self._sources = sources
        return tuple(calls)

    def _affordable(self, view: View, calls: Sequence[ToolCall]) -> int:
        """How many of the calls there is room for.

        What they leave behind for good (their own text, the ids of a later prune, which names what goes or what stays)
        must not take the room that the best candidates need at the end; what they show must fit beside the blocks that
        are held.
        """
        hard, blocks = view.budget.hard, view.blocks
        texts = view.tokens - sum(block.tokens for block in blocks)
        best = np.argsort(-self._scores, kind="stable")[:RESERVED]
        lasting = hard - texts - sum(self.notes.candidates[int(row)].tokens for row in best) - 3 * TURN_TOKENS
        most = _held(view)
        held = sorted(blocks, key=lambda block: -self._score_of(block.id))[: most if self._effort.prune else None]
        at_once = hard - texts - sum(block.tokens for block in held) - TURN_TOKENS
        named = 0
        for made, call in enumerate(calls):
            shown, count = self._shown(view, call)
            named, before = min(named + count, most), named
            lasting -= _call_cost(call) + (named - before) * self._id_tokens()
            at_once -= _call_cost(call) + shown
            if (lasting < 0 and self._effort.prune) or (at_once < 0 and (made or not self._effort.prune)):
                return made
        return len(calls)

    def _make_room(self, view: View, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        """A prune of the lowest-scored blocks that frees what the calls will show; none where there is room.

        In a small window all but the best go at once: naming the few that stay takes the fewest tokens.
        """
        if not self._effort.prune:
            return ()
        small = view.budget.window < SMALL
        need = TURN_TOKENS + sum(_call_cost(call) + self._shown(view, call)[0] for call in calls)
        over = view.tokens + need - (view.budget.hard if small else view.budget.soft)
        return self._prune(view, view.tokens if small and over > 0 else over, _held(view))

    def _prune(self, view: View, over: float, held: int, kept: Iterable[str] = ()) -> tuple[ToolCall, ...]:
        """Drops low-scored blocks until `over` tokens are freed, ids' own cost counted; names the shorter list."""
        safe = set(kept)
        order = sorted(view.blocks, key=lambda block: self._score_of(block.id))
        dropped: list[str] = []
        for block in order[: max(0, len(order) - held)]:
            if over <= 0:
                break
            if block.id not in safe:
                dropped.append(block.id)
                over -= block.tokens - self._id_tokens()
        if not dropped:
            return ()
        gone = set(dropped)
        staying = [one.id for one in view.editable if one.id not in gone]
        named = {"all_but": staying} if 0 < len(staying) < len(dropped) else {"chunk_ids": dropped}
        return (ToolCall("prune_chunks", named),)

    def _shown(self, view: View, call: ToolCall) -> tuple[int, int]:
        """Tokens and chunks that a search will probably show."""
        sizes = [candidate.tokens for candidate in self.notes.candidates]
        typical = int(np.quantile(sizes, 0.7)) if sizes else TYPICAL
        limit = int(call.arguments["limit"]) if isinstance(call.arguments, dict) else 1
        tokens = min(view.budget.per_call, limit * typical)
        return tokens, max(1, tokens // typical)

    def _id_tokens(self) -> int:
        longest = max((len(one.id) for one in self.notes.candidates[-20:]), default=20)
        return int(longest / ID_CHARACTERS) + 3

    def _score_of(self, chunk_id: str) -> float:
        row = self.notes.rows.get(chunk_id)
        return float(self._scores[row]) if row is not None else 0.0

    def _best(self) -> list[Candidate]:
        """The best candidate of each document, best first."""
        found: dict[str, Candidate] = {}
        for row in np.argsort(-self._scores, kind="stable"):
            candidate = self.notes.candidates[int(row)]
            found.setdefault(candidate.document_id, candidate)
        return list(found.values())

    def _last_edits(self, view: View) -> tuple[ToolCall, ...]:
        """Restores the best of what was pruned, in place of worse blocks; nothing where all of it is in view."""
        standing = {block.id for block in view.citable_blocks}
        hidden = {block.id: block.tokens for block in view.pruned if block.id not in standing}
        shown = {block.id: block.tokens for block in view.blocks}
        texts = view.tokens - sum(shown.values())
        wanted = self._best()[: self._effort.ranking]
        left = view.budget.hard - texts - 2 * TURN_TOKENS - self._id_tokens() * (len(shown) // 2)
        restored: list[str] = []
        kept: set[str] = set()
        for one in wanted:
            size = hidden.get(one.id, 0) + self._id_tokens() if one.id in hidden else shown.get(one.id, 0)
            if size and size <= left:
                left -= size
                (restored.append if one.id in hidden else kept.add)(one.id)
        if not restored or not self._effort.prune or RESTORE not in view.tools:
            return ()
        need = sum(hidden[one] + self._id_tokens() for one in restored) + 2 * TURN_TOKENS
        edits = self._prune(view, view.tokens + need - view.budget.hard, 0, kept)
        return (*edits, ToolCall(RESTORE, {"chunk_ids": restored}))

    def _ranking(self, view: View) -> tuple[RankedId, ...]:
        shown = {block.id for block in view.citable_blocks}
        lines: list[RankedId] = []
        room = view.max_output - TURN_TOKENS
        named: set[str] = set()
        for row in np.argsort(-self._scores, kind="stable"):
            one = self.notes.candidates[int(row)]
            room -= self._id_tokens() + LINE_TOKENS
            if len(lines) >= self._effort.ranking or (lines and room < 0):
                break
            if one.id in shown and one.document_id not in named:
                named.add(one.document_id)
                lines.append(RankedId(one.id, float(self._scores[row])))
            else:
                room += self._id_tokens() + LINE_TOKENS
        return tuple(lines)


def _held(view: View) -> int:
    """Best blocks that are not pruned while the search goes on: more where a prune could not be taken back."""
    return HELD if RESTORE in view.tools else IRREVOCABLE


def lookup_search(query: str, shown: int) -> ToolCall:
    """A search that may show that many chunks."""
    return ToolCall("search_corpus", {"query": query, "limit": shown})


def _call_cost(call: ToolCall) -> int:
    query = call.arguments["query"] if isinstance(call.arguments, dict) else ""
    return CALL_TOKENS + len(str(query)) // 4


REMEMBERED = 4096
"""Passages that a policy keeps taken apart: analysing a text costs more than scoring it."""


class BridgePolicy:
    """Searches by following names, and ranks by a learned scorer. Deterministic; safe to share between episodes."""

    def __init__(
        self,
        scorer: Scorer | None = None,
        *,
        effort: Effort | None = None,
        untrained: bool = False,
        remembered: int | None = REMEMBERED,
    ) -> None:
        """`scorer` defaults to the weights that ship. `untrained=True` scores by a rule of thumb instead of weights.

        `remembered` is how many passages stay in memory analysed; None for all.
        """
        self.passages = lru_cache(maxsize=remembered)(Passage)
        """Takes a title and a text apart."""
        self.scorer = None if untrained else scorer or _shipped()
        self.effort = effort or Effort()

    @classmethod
    def load(cls, path: str | Path, *, effort: Effort | None = None) -> BridgePolicy:
        """The policy with the weights of a file that `ctx1 train bridge` wrote. Raises `ConfigError`."""
        return cls(Scorer.load(path), effort=effort)

    @property
    def name(self) -> str:
        """`bridge@<digest of the weights>`."""
        return f"bridge@{self.scorer.digest if self.scorer else 'untrained'}"

    @property
    def counter(self) -> TokenCounter | None:
        """None: it has no tokenizer of its own."""
        return None

    def instructions(self, profile: Profile) -> str:
        """Nothing: it reads no prompt."""
        return ""

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> BridgeActor:
        """An actor for one episode; `seed` changes nothing."""
        return BridgeActor(question, corpus, self.scorer, self.effort, self.passages)


@cache
def _shipped() -> Scorer | None:
    return Scorer.shipped()
