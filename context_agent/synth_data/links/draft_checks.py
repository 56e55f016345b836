"""Checks of draft questions over links. The checks also find the quotes, facts and distractors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from context_agent.retrieval.index.bm25 import Bm25Entry, Bm25Index
from context_agent.synth_data.links.descriptions import Hop
from context_agent.synth_data.links.drafts import Draft
from context_agent.synth_data.links.link_graph import LinkGraph, content_words
from context_agent.synth_data.links.pages import Page
from context_agent.synth_data.links.relations import MONTH
from context_agent.synth_data.quotes import find_quote
from context_agent.synth_data.stages import DropRow
from context_agent.synth_data.task import Support, Task
from context_agent.text.words import STOP_WORDS, words

SAME_STATEMENT = 0.85
"""The share of a sentence's content words that a chunk must have to state the same."""


NEIGHBORS = 40
"""The number of linking pages that are searched for the same statement."""


DISTRACTOR_HITS = 24
"""The number of hits of a query that are candidates for distractors."""


_DAY = re.compile(
    rf"(?:(?P<day>\d{{1,2}})(?:st|nd|rd|th)? (?P<month>{MONTH})|(?P<month2>{MONTH}) (?P<day2>\d{{1,2}}))"
    r",? (?P<year>\d{3,4})$"
)


class DraftChecks:
    """The checks of drafts over one corpus.

    A BM25 index of the corpus finds distractors. It also finds documents that a clue might fit as well.
    """

    def __init__(self, graph: LinkGraph, distractors: int) -> None:
        self._graph, self._distractor_count = graph, distractors
        chunks = [(chunk, row) for row, page in enumerate(graph.pages) for chunk in page.chunks]
        self._row = {chunk.id: row for chunk, row in chunks}
        self._index = Bm25Index.of(Bm25Entry(chunk.id, chunk.title, chunk.text) for chunk, _ in chunks)

    def task(self, draft: Draft) -> Task:
        """Return the task of a draft, without an id.

        Raises:
            DropRow: If a check fails. The error has the reason.
        """
        pages = [self._graph.pages[hop.page] for hop in draft.hops]
        self._check_words(draft)
        self._check_path(draft, pages)
        self._check_unique(draft)
        supporting = tuple(self._support(hop, draft.answer) for hop in draft.hops)
        facts = tuple((hop.sentence.chunk, *self._restating_chunks(hop)) for hop in draft.hops)
        clues = "\n".join(dict.fromkeys(hop.clue for hop in draft.hops))
        self._check_quotes(supporting, clues)
        return Task(
            id="",
            question=draft.question,
            answer=draft.answer,
            gold=tuple(page.id for page in pages),
            type=draft.type,
            hops=len(pages),
            facts=facts,
            clues=clues,
            truth_type=draft.truth,
            supporting=supporting,
            distractors=tuple(self._distractors(draft, facts)),
            origin="links",
        )

    def _check_words(self, draft: Draft) -> None:
        question = f" {' '.join(words(draft.question))} "
        if draft.type != "comparison" and holds_answer(question, draft.answer):
            raise DropRow("the question contains the answer")
        for row in draft.hidden:
            page = self._graph.pages[row]
            if f" {page.name} " in question or page.telling & set(question.split()):
                raise DropRow("the question names a hidden document")

    def _check_path(self, draft: Draft, pages: list[Page]) -> None:
        if len({page.id for page in pages}) < len(pages):
            raise DropRow("a document occurs twice")
        names = [page.name for page in pages]
        if len(set(names)) < len(names):
            raise DropRow("two documents have the same title")
        if draft.type != "comparison" and any(holds_answer(page.padded, draft.answer) for page in pages[:-1]):
            raise DropRow("an earlier document contains the answer")

    def _check_unique(self, draft: Draft) -> None:
        if draft.fact.pattern is not None and draft.type == "bridge":
            for row in self._graph.rows_by_name.get(self._graph.pages[draft.fact.page].name, ()):
                for fact in self._graph.facts(row):
                    if fact.pattern is draft.fact.pattern and fact.answer != draft.fact.answer:
                        raise DropRow("another document of the same title has another answer")
        if draft.clues is None:
            return
        if any(self._fits(draft, row) for row in self._search(" ".join(sorted(draft.clues.content)))):
            raise DropRow("another document fits the clues")

    def _fits(self, draft: Draft, row: int) -> bool:
        """Return True if another page also fits the clues of an intersection.

        Such a page links to the same page, or to a page with the same fact.
        """
        assert draft.clues is not None
        page, clues = self._graph.pages[row], draft.clues
        if row == draft.fact.page or not clues.content <= page.vocabulary:
            return False
        targets = [link.target for link in self._graph.links(row)]
        return clues.via in targets or any(
            holds_answer(self._graph.pages[target].padded, clues.answer) for target in targets
        )

    def _check_quotes(self, supporting: Iterable[Support], clues: str) -> None:
        for item in supporting:
            text = self._graph.pages[self._graph.rows[item.id]]
            page_text = f"{text.title}\n{text.text}"
            if not all(find_quote(quote, clues) for quote in item.clue_quotes):
                raise DropRow("a clue's quote is missing")
            if not all(find_quote(quote, page_text) for quote in (*item.item_quotes, *item.truth_quotes)):
                raise DropRow("a document's quote is missing")
        if not any(item.contains_truth for item in supporting):
            raise DropRow("no document contains the answer")

    def _support(self, hop: Hop, answer: str) -> Support:
        page = self._graph.pages[hop.page]
        # The folded words are compared first, because `find_quote` is slow if the quote is absent.
        states_answer = (
            holds_answer(page.padded, answer) and find_quote(answer, f"{page.title}\n{page.text}") is not None
        )
        return Support(
            id=page.id,
            chunks=(hop.sentence.chunk,),
            clue_quotes=(hop.clue,),
            item_quotes=(hop.sentence.text,),
            contains_truth=states_answer,
            truth_quotes=(answer,) if states_answer else (),
        )

    def _restating_chunks(self, hop: Hop) -> Iterator[str]:
        """Yield the chunks that restate the sentence.

        They are searched for on pages with the same name, and on pages that link to the page of the sentence.
        """
        page = self._graph.pages[hop.page]
        near = [
            *self._graph.rows_by_name.get(page.name, ()),
            *sorted(self._graph.linked_from.get(hop.page, ()))[:NEIGHBORS],
        ]
        stated = content_words(hop.sentence.plain)
        for row in dict.fromkeys(near):
            if len(stated & self._graph.pages[row].vocabulary) < SAME_STATEMENT * len(stated):
                continue
            for chunk in self._graph.pages[row].chunks:
                if chunk.id != hop.sentence.chunk and len(
                    stated & set(words(chunk.indexed_text))
                ) >= SAME_STATEMENT * len(stated):
                    yield chunk.id

    def _distractors(self, draft: Draft, facts: tuple[tuple[str, ...], ...]) -> list[str]:
        """Return distractors: documents that a search finds and that contain no form of the answer.

        The search is for the question and the hidden titles.
        """
        used = {hop.page for hop in draft.hops} | {self._row[chunk] for fact in facts for chunk in fact}
        hidden = " ".join(self._graph.pages[row].title for row in draft.hidden)
        distractors: list[str] = []
        for row in dict.fromkeys(self._search(f"{draft.question} {hidden}")):
            if len(distractors) == self._distractor_count:
                break
            if row not in used and not any(
                holds_answer(self._graph.pages[row].padded, form) for form in answer_variants(draft.answer)
            ):
                distractors.append(self._graph.pages[row].id)
        return distractors

    def _search(self, query: str) -> list[int]:
        return [self._row[chunk] for chunk, _ in self._index.search(query, DISTRACTOR_HITS)]


def holds_answer(padded: str, answer: str) -> bool:
    """Return True if the words, which are padded with spaces, contain the answer's words."""
    sought = " ".join(words(answer))
    return bool(sought) and f" {sought} " in padded


def answer_variants(answer: str) -> list[str]:
    """Return forms of the answer: a date in both orders, a name without stop words, and a number without separators."""
    variants = [answer]
    if (match := _DAY.match(answer)) is not None:
        day, month = match["day"] or match["day2"], match["month"] or match["month2"]
        variants += [f"{day} {month} {match['year']}", f"{month} {day} {match['year']}"]
    parts = [word for word in words(answer) if word not in STOP_WORDS]
    return list(dict.fromkeys([*variants, " ".join(parts), answer.replace(",", "")]))
