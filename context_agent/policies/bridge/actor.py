"""The decisions of the embedded policy in one episode.

The policy searches for the question and for the names in it. If the results suffice, the search ends. Otherwise the
policy searches for the names that its best candidates mention, the most promising first. Without the reader, or for a
question without names, the search also ends if such a turn brings no new document among the best. If the question asks
for the newest text of a series or for those of a time, the policy first searches for further editions. Regression trees
that weigh all the evidence make the final ranking.

If a turn would pass the soft threshold, the policy first prunes the candidates with the lowest scores. At the end it
restores the best candidates, because a ranking may only cite passages in view.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from context_agent._support.onnx import PairModel
from context_agent.errors import CorpusError, RerankerError
from context_agent.harness.policy import Assessment
from context_agent.policies.bridge.amounts import Amounts
from context_agent.policies.bridge.candidates import (
    AnalyzedPassage,
    ChunkCandidate,
    Finding,
    Floats,
    Notes,
    WordWeights,
    document_rows,
)
from context_agent.policies.bridge.editions import Editions
from context_agent.policies.bridge.effort import Effort
from context_agent.policies.bridge.groups import with_comparisons, with_feedback
from context_agent.policies.bridge.links import Expansion, Lookup, promise_guess
from context_agent.policies.bridge.named_fields import named_fields
from context_agent.policies.bridge.networks import Scorer
from context_agent.policies.bridge.novelty import Novelty
from context_agent.policies.bridge.relevance import RelevanceJudgment
from context_agent.pruning.view import Block, View
from context_agent.retrieval.corpus import Corpus
from context_agent.text.editions import edition
from context_agent.text.words import months_in_digits
from context_agent.tokens import TokenCounter
from context_agent.types import Action, RankedId, ToolCall

SMALL_WINDOW = 8192
"""In a window of fewer tokens, less is searched."""
QUESTION_LIMIT, KEYWORDS_LIMIT, ENTITY_LIMIT, LOOKUP_LIMIT = 10, 6, 5, 4
"""Maximum number of chunks of a search: for the question, its keywords, a name in it, and a name in a passage."""
EDITION_LIMIT = 8
"""Maximum number of chunks of a search for other editions."""
SMALL_LIMIT = 2
"""Maximum number of chunks of a search in a small window, except for the question."""
ENTITIES, SMALL_ENTITIES = 6, 3
"""Names of the question that are searched, and in a small window."""
PAGES, SMALL_PAGES = 2, 4
"""How often the whole question is searched, and in a small window. Each time returns new text."""
MORE_PAGES = 1
"""Additional pages for a question that asks for several documents."""
LOOKUPS, SMALL_LOOKUPS = 7, 5
"""Maximum number of names that one turn looks up, and in a small window."""
MIN_PROMISE, STALE_PROMISE = 0.005, 0.05
"""A lookup must find something with at least this probability.

`STALE_PROMISE` holds after a turn that brought no new document among the best, and for a question that asks for no name
or relation.
"""
CALL_TOKENS, TURN_TOKENS, LINE_TOKENS = 20, 30, 14
"""Maximum number of tokens of a search, a turn, and a line of the ranking, without chunks and ids."""
ID_CHARACTERS = 1.4
"""Minimum number of characters of an id that make a token."""
INTERRUPTED_SECONDS = 1.0
"""Seconds that a ranking at a limit waits for the interrupted decision, which continues in its thread."""
TYPICAL_TOKENS = 160
"""Tokens of a chunk that are assumed before the first is seen."""
KEPT_BLOCKS = 1
"""Blocks with the highest scores that are not pruned during the search."""
KEPT_WITHOUT_RESTORE = 8
"""The number of those blocks in a profile without `restore_chunks`."""
RESTORE_TOOL = "restore_chunks"
BEST_DOCUMENTS = 5
"""If a turn after the first brings no new document among this many of the best, a search without the reader ends.

With the reader, later turns still improve the ranking, because a reading can make other names promising. However, a
question that asks for no name or relation is rarely answered by following names, so its search ends, too.
"""
COMPARED_FOR_SEVERAL = 64
"""Maximum number of candidates that late interaction compares if the question asks for several documents."""
COMMON_WEIGHT = math.log(10)
"""The weight of a word that is in a tenth of the chunks."""
RESTORED_CANDIDATES = 5
"""Candidates with the highest scores that must fit into the view again at the end."""


class SharedParts(Protocol):
    """The parts of a `BridgePolicy` that its actors share."""

    @property
    def name(self) -> str:
        """The name that trajectories store."""

    @property
    def counter(self) -> TokenCounter | None:
        """The token counter. None means the default."""

    @property
    def passages(self) -> Callable[[str, str], AnalyzedPassage]:
        """The function that analyzes a title and a text."""

    @property
    def scorer(self) -> Scorer | None:
        """The networks that score candidates. If None, a rule of thumb scores them."""

    @property
    def reader(self) -> PairModel:
        """The cross-encoder that reads the best candidates."""

    @property
    def effort(self) -> Effort:
        """The bounds of the search."""


class BridgeActor:
    """The decisions of one episode.

    `notes` holds what the actor has seen. The effort defaults to the policy's effort.
    """

    def __init__(self, policy: SharedParts, question: str, corpus: Corpus, effort: Effort | None = None) -> None:
        self.notes = Notes.of(question, WordWeights(corpus))
        self._asks_for_several = self.notes.question.asks_for_several
        self._page = search_call(question, QUESTION_LIMIT)
        """The search for the question itself. Each time it returns new text."""
        self.judgment = RelevanceJudgment(self.notes, corpus, policy.scorer, policy.reader)
        self.lookups: list[tuple[Lookup, Floats]] = []
        """The lookups so far, each with its features at that time."""
        self._policy = policy
        self._effort = effort or policy.effort
        self._expansion = Expansion(self.notes)
        self._novelty = Novelty(self.notes)
        self._editions = Editions.of(self.notes)
        self._amounts = Amounts.of(self.notes)
        self._lookup_of_call: dict[int, tuple[int, int]] = {}
        """For each call of the last turn that looks a name up, by its index: the hop, and the number of the lookup."""
        self._search_of_call: dict[int, tuple[int, int]] = {}
        """For each search of the last turn, by its index: its number, and how many hits it showed in earlier turns."""
        self._searches = self._turns = self._pages = self._readings = 0
        self._typical = 0, TYPICAL_TOKENS
        """The number of candidates, and the tokens of their typical chunk."""
        self._scores = np.zeros(0, dtype=np.float32)
        """The scores of the candidates, by row of the notes."""
        self._concluded = False
        self._deciding = threading.Lock()

    @property
    def scores(self) -> Floats:
        """The latest scores of the candidates in `notes`, shape (n_candidates,)."""
        return self._scores

    def add_background(self, candidates: Iterable[ChunkCandidate]) -> None:
        """Add another actor's candidates before the first turn.

        These candidates count as context and are never ranked.
        """
        for candidate in candidates:
            self.notes.add(candidate)
        self._scores = np.zeros(len(self.notes), dtype=np.float32)

    async def act(self, view: View) -> Action:
        """Return the next searches, the last edits, or the ranking."""
        return await asyncio.to_thread(self._decide, view)

    def partial(self, view: View) -> tuple[RankedId, ...]:
        """Rank the documents in view by their latest scores, and return them.

        New blocks are scored first, unless the corpus or its reranker fails. If an interrupted decision does not end in
        time, return no documents.
        """
        if not self._deciding.acquire(timeout=INTERRUPTED_SECONDS):
            return ()
        try:
            with contextlib.suppress(CorpusError, RerankerError):
                self._add_shown(view)
                self._conclude()
            return self.ranking(view)
        finally:
            self._deciding.release()

    def assess(self) -> Assessment | None:
        """Return the assessment of the candidates by their latest scores.

        While an interrupted decision is still running, return None.
        """
        if not self._deciding.acquire(blocking=False):
            return None
        try:
            return self._assessment()
        finally:
            self._deciding.release()

    def _assessment(self) -> Assessment:
        """Return calibrated probabilities.

        If the weights have no calibration, return the scores unchanged and no confidence.
        """
        confidence, scores = self.judgment.calibrated(self._scores)
        return Assessment(confidence, {chunk_id: float(scores[row]) for chunk_id, row in self.notes.rows.items()})

    def _decide(self, view: View) -> Action:
        with self._deciding:
            known = len(self.notes)
            self._add_shown(view)
            if not self._concluded:
                if calls := self._turn_calls(view, known):
                    self._turns += 1
                    return Action(calls=calls)
                self._conclude()
                if edits := self._last_edits(view):
                    return Action(calls=edits)
            return Action(ranking=self.ranking(view))

    def _add_shown(self, view: View) -> None:
        """Add the blocks that the last turn showed, and score all candidates again."""
        before = len(self.notes)
        for block in view.latest:
            if isinstance(block, Block) and block.id not in self.notes.rows:
                chunk = block.hit.chunk
                passage = self._policy.passages(chunk.title, block.body)
                if named := list(named_fields(self.notes.question, chunk, passage)):
                    passage = self._policy.passages(chunk.title, "\n".join((block.body, *named)))
                hop, lookup = self._lookup_of_call.get(block.call, (0, -1))
                finding = self._finding(block)
                candidate = ChunkCandidate(block.id, block.document_id, passage, block.tokens, hop, lookup, finding)
                if self._editions:
                    place = edition(passage.heading, block.body, chunk.metadata, block.document_id)
                    candidate = replace(candidate, edition=place)
                self.notes.add(candidate)
                if self._amounts:
                    self._amounts.read(block.id, block.body, chunk.metadata)
        if len(self.notes) > before:
            self._scores = self._novelty.discounted(self.judgment.scores())
            if self._turns == 1 and self._effort.readings:
                self.judgment.read_alone()

    def _finding(self, block: Block) -> Finding:
        search, shown = self._search_of_call.get(block.call, (-1, 0))
        hit = block.hit
        dense, sparse = (math.nan if score is None else score for score in (hit.dense, hit.sparse))
        return Finding(search, shown + hit.rank - 1, hit.score, dense, sparse)

    def _turn_calls(self, view: View, known: int) -> tuple[ToolCall, ...]:
        """Return the next searches and the prunes that make room for them.

        If the search should end, return no calls. The first `known` candidates were there before the last turn.
        """
        if self._turns == 0:
            return self.opening(view)
        if calls := self._edition_searches(view):
            return calls
        if self._turns == 1 and self._may_end() and self.judgment.suffices() >= self._effort.sufficient:
            return ()
        asks_about_names = self._asks_about_names()
        is_stale = self._turns > 1 and not self._found_better(known)
        if is_stale and not (self._effort.readings and asks_about_names):
            return ()
        promise = STALE_PROMISE if is_stale or not asks_about_names else MIN_PROMISE
        return self.next_searches(view, promise) or self._after_reading(view, promise)

    def opening(self, view: View) -> tuple[ToolCall, ...]:
        """Return the searches of the first turn.

        They search for the question, for its names, and for its content words alone.
        """
        question, small = self.notes.question, view.budget.window < SMALL_WINDOW
        names = question.entities[: SMALL_ENTITIES if small else ENTITIES]
        calls = [self._page]
        calls += [search_call(name, SMALL_LIMIT if small else ENTITY_LIMIT) for name in names]
        if question.terms and not small:
            calls.append(search_call(" ".join((*question.terms, *months_in_digits(question.text))), KEYWORDS_LIMIT))
        self._pages = 1
        return self.numbered(calls[: self._effort.searches], {})

    def _edition_searches(self, view: View) -> tuple[ToolCall, ...]:
        """Return searches for the asked editions of a series and the prunes that make room for them.

        If the question asks for no such edition, return no calls.
        """
        searches_left = self._effort.searches - self._searches
        if not self._editions or self._turns >= self._effort.turns or searches_left <= 0 or not self._unseen():
            return ()
        calls = [search_call(query, EDITION_LIMIT) for query in self._editions.queries(self._scores)[:searches_left]]
        calls = calls[: self.affordable(view, calls)]
        edits = self._make_room(view, calls) if calls else ()
        return (*edits, *self.numbered(calls, {}, len(edits)))

    def next_searches(self, view: View, promise: float = MIN_PROMISE) -> tuple[ToolCall, ...]:
        """Return the search for the question's next page and the most promising lookups.

        The prunes that make room for them are also returned. Each lookup finds something with the probability `promise`
        or more.
        """
        effort, small = self._effort, view.budget.window < SMALL_WINDOW
        searches_left = effort.searches - self._searches
        if not len(self.notes) or not self._unseen() or self._turns >= effort.turns or searches_left <= 0:
            return ()
        pages = PAGES + MORE_PAGES * self._asks_for_several
        paging = self._pages < (SMALL_PAGES if small else pages)
        calls = [self._page] if paging else []
        lookups, features = self.promising_lookups(promise)
        most = min(searches_left, SMALL_LOOKUPS if small else LOOKUPS + len(calls)) - len(calls)
        limit = SMALL_LIMIT if small else LOOKUP_LIMIT
        calls += [search_call(lookup.query(self.notes), limit) for lookup in lookups[: max(0, most)]]
        calls = calls[: self.affordable(view, calls)]
        if not calls:
            return ()
        self._pages += paging
        edits = self._make_room(view, calls)
        sources = {}
        for index, lookup in enumerate(lookups[: len(calls) - paging]):
            hop = self.notes.candidates[lookup.parent].hop + 1
            sources[len(edits) + paging + index] = (hop, len(self.lookups))
            self.lookups.append((lookup, features[index]))
        return (*edits, *self.numbered(calls, sources, len(edits)))

    def _after_reading(self, view: View, promise: float) -> tuple[ToolCall, ...]:
        """If no search is promising, let the reader read the best candidates.

        With the new scores, other searches may be promising.
        """
        if self._effort.readings <= self._readings:
            return ()
        self._readings += 1
        self._scores = self._novelty.discounted(self.judgment.read(self._scores))
        return self.next_searches(view, promise)

    def promising_lookups(self, least: float = MIN_PROMISE) -> tuple[list[Lookup], Floats]:
        """Return the lookups that were not made yet and promise at least this much, best first, with their features.

        Each name occurs once.
        """
        lookups, features = self._expansion.lookups(self._scores, {lookup for lookup, _ in self.lookups})
        scorer = self._policy.scorer
        promise = scorer.networks["expansion"](features) if scorer and lookups else promise_guess(features)
        best: dict[str, int] = {}
        for index in np.argsort(-promise, kind="stable"):
            if promise[index] >= least:
                best.setdefault(lookups[index].bare, int(index))
        rows = list(best.values())
        return [lookups[row] for row in rows], features[rows]

    def numbered(
        self, calls: Sequence[ToolCall], sources: dict[int, tuple[int, int]], first: int = 0
    ) -> tuple[ToolCall, ...]:
        """Number the searches, and return them.

        The calls start at index `first` of the turn. Only the first call can be a page of the question.
        """
        self._search_of_call = {first + index: (self._searches + index, 0) for index in range(len(calls))}
        if calls and calls[0] == self._page:
            self._search_of_call[first] = (0, (self._pages - 1) * QUESTION_LIMIT)
        self._searches += len(calls)
        self._lookup_of_call = sources
        return tuple(calls)

    def _asks_about_names(self) -> bool:
        """Return True if names may lead to the answer.

        Then the question has a name, or the title of a candidate, which people may write in lower case. Or it asks for
        a relation, such as somebody's father. A word that many chunks have leads nowhere, such as "HTTP" in the manual
        of a web server, unless it has a number, as "HTTP 1.0" has.
        """
        question = self.notes.question
        passages = [candidate.passage for candidate in self.notes.candidates]
        named = [term for term, in_name in zip(question.terms, question.in_name, strict=True) if in_name]
        titles = (it for it in passages if it.padded_title and it.padded_title in question.padded)
        return (
            question.asks_relation
            or question.has_numbered_name
            or any(self._leads([term]) and not self._is_ordinary(term, passages) for term in named)
            or any(self._leads(passage.title.split()) for passage in titles)
        )

    def _leads(self, words: Sequence[str]) -> bool:
        """Return True if a word is in few chunks, so that a search for it finds the texts about it."""
        weights = self.notes.weights.learn(words)
        return any(weights[word] > COMMON_WEIGHT for word in words)

    def _is_ordinary(self, term: str, passages: Iterable[AnalyzedPassage]) -> bool:
        """Return True if the term only begins a sentence, and a passage writes it in lower case."""
        return term in self.notes.question.openers and any(term in passage.text.split() for passage in passages)

    def _may_end(self) -> bool:
        """Return True if the search for this question may end after the first turn.

        If the caller wants a long ranking, the first turn must have found as many documents.
        """
        wanted = self._effort.ranking
        documents = len({candidate.document_id for candidate in self.notes.candidates})
        return not self._asks_for_several and (wanted <= Effort().ranking or documents >= wanted)

    def _found_better(self, known: int) -> bool:
        """Return True if one of the best documents is new, that is, not among the first `known` candidates.

        If the question asks for several documents or the caller wants a long ranking, compare as many documents as the
        ranking has. Otherwise, compare `BEST_DOCUMENTS`.
        """
        wanted = self._effort.ranking
        count = wanted if self._asks_for_several or wanted > Effort().ranking else BEST_DOCUMENTS
        candidates = self.notes.candidates
        before = {candidate.document_id for candidate in candidates[:known]}
        best = document_rows(self.notes, self._scores)[:count]
        return any(candidates[row].document_id not in before for row in best)

    def affordable(self, view: View, calls: Sequence[ToolCall]) -> int:
        """Return how many of the calls fit in the context.

        Each call adds tokens that no prune removes: its own text, and the ids in a later prune. After these tokens,
        there must be room to restore the best candidates at the end. The results must also fit beside the blocks that
        are not pruned.
        """
        prunes, hard, blocks = self._effort.prune, view.budget.hard, view.blocks
        text_tokens = view.tokens - sum(block.tokens for block in blocks)
        reserved = sum(candidate.tokens for candidate in self._by_score()[:RESTORED_CANDIDATES])
        lasting_room = hard - text_tokens - reserved - 3 * TURN_TOKENS
        unpruned = _unpruned(view)
        staying = sorted(blocks, key=lambda block: -self.score_of(block.id))[: unpruned if prunes else None]
        room = hard - text_tokens - sum(block.tokens for block in staying) - TURN_TOKENS
        ids = 0
        for count, call in enumerate(calls):
            tokens, chunks = self.expected_size(view, call)
            ids, before = min(ids + chunks, unpruned), ids
            lasting_room -= _call_cost(call) + (ids - before) * self._id_tokens()
            room -= _call_cost(call) + tokens
            if (lasting_room < 0 and prunes) or (room < 0 and (count or not prunes)):
                return count
        return len(calls)

    def _make_room(self, view: View, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        """Return a prune that frees room for the results of the calls. If there is room already, return no prune.

        A search returns only unseen chunks, so the results of a small corpus are soon small. Results of the mean size
        must stay below the soft threshold, and large results below the hard one.

        The blocks with the lowest scores are pruned. In a small window, all but the best blocks are pruned at once. The
        call then names only the few blocks that stay, which takes the fewest tokens.
        """
        if not self._effort.prune:
            return ()
        costs = TURN_TOKENS + sum(map(_call_cost, calls))
        sizes = [self.expected_size(view, call) for call in calls]
        most = min(sum(tokens for tokens, _ in sizes), self._unseen() * self._typical_tokens())
        excess: float = view.tokens + costs + most - view.budget.hard
        if view.budget.window < SMALL_WINDOW:
            return self._prune(view, view.tokens if excess > 0 else 0, _unpruned(view))
        chunks = min(sum(count for _, count in sizes), self._unseen())
        mean = sum(candidate.tokens for candidate in self.notes.candidates) / len(self.notes)
        excess = max(excess, view.tokens + costs + chunks * mean - view.budget.soft)
        return self._prune(view, excess, _unpruned(view))

    def _prune(self, view: View, excess: float, unpruned: int, safe: Iterable[str] = ()) -> tuple[ToolCall, ...]:
        """Return a prune of blocks with low scores that frees `excess` tokens, not counting the tokens of its own ids.

        The prune names the removed blocks or the blocks that stay, whichever list is shorter.
        """
        safe_ids = set(safe)
        order = sorted(view.blocks, key=lambda block: self.score_of(block.id))
        dropped: list[str] = []
        for block in order[: max(0, len(order) - unpruned)]:
            if excess <= 0:
                break
            if block.id not in safe_ids:
                dropped.append(block.id)
                excess -= block.tokens - self._id_tokens()
        if not dropped:
            return ()
        dropped_ids = set(dropped)
        staying = [block.id for block in view.editable if block.id not in dropped_ids]
        arguments = {"all_but": staying} if 0 < len(staying) < len(dropped) else {"chunk_ids": dropped}
        return (ToolCall("prune_chunks", arguments),)

    def _unseen(self) -> int:
        """Return how many chunks of the corpus no search has returned yet."""
        return max(0, self.judgment.corpus_size - len(self.notes))

    def expected_size(self, view: View, call: ToolCall) -> tuple[int, int]:
        """Return the tokens and chunks that a search will probably show."""
        typical = self._typical_tokens()
        limit = int(call.arguments["limit"]) if isinstance(call.arguments, dict) else 1
        tokens = min(view.budget.per_call, limit * typical)
        return tokens, max(1, tokens // typical)

    def _typical_tokens(self) -> int:
        """Return the tokens of a typical chunk. They are computed again if there are new candidates."""
        known, typical = self._typical
        if known < len(self.notes):
            sizes = [candidate.tokens for candidate in self.notes.candidates]
            typical = int(np.quantile(sizes, 0.7))
            self._typical = len(sizes), typical
        return typical

    def _id_tokens(self) -> int:
        longest = max((len(candidate.id) for candidate in self.notes.candidates[-20:]), default=20)
        return int(longest / ID_CHARACTERS) + 3

    def _conclude(self) -> None:
        """Compute the scores of the final ranking, once.

        The trees score the candidates, and then the caller's reranker, if there is one. Then come the rules for
        questions that ask for an order of their own. Each rule starts from the scores of the one before. Repeats get
        low scores before the rules for fields, editions and amounts, because these raise some repeats again.
        """
        if self._concluded:
            return
        self._concluded = True
        # If the reranker fails, the ranking of the trees remains.
        self._scores = self.judgment.ranking_scores(self._scores, self._effort.compared)
        scores = self.judgment.reranked(self._scores)
        self._scores = self._novelty.discounted(scores)
        fed = with_feedback(self.notes, scores, self._scores)
        if fed is not scores:
            self._scores = self._novelty.discounted(fed)
        if self._asks_for_several and self._effort.readings and len(fed):
            late = self.judgment.late_interaction(fed, COMPARED_FOR_SEVERAL)
            self._scores = self._novelty.discounted(with_comparisons(self.notes, fed, self._scores, late))
        if self._editions:
            self._scores = self._editions.reordered(self._scores)
        if self._amounts:
            self._scores = self._amounts.reordered(self._scores)

    def score_of(self, chunk_id: str) -> float:
        """Return the latest score of a chunk. If the chunk was not seen, return 0."""
        row = self.notes.rows.get(chunk_id)
        return float(self._scores[row]) if row is not None else 0.0

    def ranked(self) -> list[tuple[ChunkCandidate, float]]:
        """Return the candidates with their latest scores, best first."""
        order = np.argsort(-self._scores, kind="stable").tolist()
        return [(self.notes.candidates[row], float(self._scores[row])) for row in order]

    def _by_score(self) -> list[ChunkCandidate]:
        return [candidate for candidate, _ in self.ranked()]

    def _last_edits(self, view: View) -> tuple[ToolCall, ...]:
        """Return the edits that restore the best pruned blocks and prune worse blocks instead.

        The best blocks are the best one of each document in the ranking, and as many others as the ranking has
        documents. If all of them are in view, return no edits.
        """
        if not self._effort.prune or RESTORE_TOOL not in view.tools:
            return ()
        citable = {block.id for block in view.citable_blocks}
        hidden = {block.id: block.tokens for block in view.pruned if block.id not in citable}
        visible = {block.id: block.tokens for block in view.blocks}
        text_tokens = view.tokens - sum(visible.values())
        room = view.budget.hard - text_tokens - 2 * TURN_TOKENS - self._id_tokens() * (len(visible) // 2)
        restored: list[str] = []
        safe: set[str] = set()
        for candidate in self._shown_last():
            restore = candidate.id in hidden
            size = hidden[candidate.id] + self._id_tokens() if restore else visible.get(candidate.id, 0)
            if size and size <= room:
                room -= size
                (restored.append if restore else safe.add)(candidate.id)
        if not restored:
            return ()
        needed = sum(hidden[chunk_id] + self._id_tokens() for chunk_id in restored) + 2 * TURN_TOKENS
        edits = self._prune(view, view.tokens + needed - view.budget.hard, 0, safe)
        return (*edits, ToolCall(RESTORE_TOOL, {"chunk_ids": restored}))

    def _shown_last(self) -> list[ChunkCandidate]:
        """Return the candidates that the final view should show: the best of each document first, then the others."""
        order, count = self._by_score(), self._effort.ranking
        best: dict[str, ChunkCandidate] = {}
        for candidate in order:
            best.setdefault(candidate.document_id, candidate)
        documents = list(best.values())[:count]
        shown = {candidate.id for candidate in documents}
        return [*documents, *(candidate for candidate in order[:count] if candidate.id not in shown)]

    def ranking(self, view: View) -> tuple[RankedId, ...]:
        """Return the citable documents by score.

        The ranking has as many documents as the output has room for, but at least one.
        """
        citable = {block.id for block in view.citable_blocks}
        room = (view.max_output - TURN_TOKENS) // (self._id_tokens() + LINE_TOKENS)
        relevance = self._assessment().relevance
        ranking: dict[str, RankedId] = {}
        for candidate in self._by_score():
            if candidate.id in citable:
                ranking.setdefault(candidate.document_id, RankedId(candidate.id, relevance[candidate.id]))
        return tuple(ranking.values())[: min(self._effort.ranking, max(1, room))]


def _unpruned(view: View) -> int:
    """Return how many of the best blocks are not pruned during the search.

    If a prune cannot be undone, the number is larger.
    """
    return KEPT_BLOCKS if RESTORE_TOOL in view.tools else KEPT_WITHOUT_RESTORE


def search_call(query: str, limit: int) -> ToolCall:
    """Return a search that may show `limit` chunks."""
    return ToolCall("search_corpus", {"query": query, "limit": limit})


def _call_cost(call: ToolCall) -> int:
    query = call.arguments["query"] if isinstance(call.arguments, dict) else ""
    return CALL_TOKENS + len(str(query)) // 4
