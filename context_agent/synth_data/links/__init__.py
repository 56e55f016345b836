"""Tasks from the links between documents, without a language model. A question hides the name of a linked document.

The tasks are a stream of checked drafts, the same for the same corpus and settings. A draft is dropped, with a reason,
if it names what it should describe, contains its answer, reveals it before the last document, has a quote that is not
in its document, or fits another document as well. The checks use the corpus alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from random import Random
from typing import Any

from context_agent.errors import ConfigError, CorpusError
from context_agent.retrieval.index.bm25 import Bm25Entry, Bm25Index
from context_agent.synth_data.links.drafts import Draft, Hop, bridge_drafts, comparison_drafts, intersection_drafts
from context_agent.synth_data.links.link_graph import LinkGraph, content_words
from context_agent.synth_data.links.pages import MONTH, Page
from context_agent.synth_data.matching import find_quote
from context_agent.synth_data.stages import DropRow
from context_agent.synth_data.task import Support, Task
from context_agent.text.words import STOP_WORDS, words
from context_agent.types import Chunk

TYPES = ("bridge", "comparison", "intersection")
HOPS = {"bridge": range(2, 5), "comparison": range(2, 5), "intersection": range(2, 4)}
"""Documents that questions of a type can need."""
TASKS_PER_TURN = {"bridge": 4, "comparison": 1, "intersection": 2}
"""Consecutive tasks of a type, while all types last."""
COMPARISON_SHARES = {2: 0.1, 3: 0.2, 4: 0.2}
"""Most comparisons for each task of another type, by hops: named pages are easy to find, and there are many."""
TASKS_PER_DOCUMENT = 5
"""Most tasks that end in the same document."""

Progress = Callable[[int, int | None], None]
_DRAFTERS = {"bridge": bridge_drafts, "comparison": comparison_drafts, "intersection": intersection_drafts}


@dataclass(frozen=True, slots=True)
class LinkTaskSettings:
    """The settings that determine the tasks of a corpus, together with the corpus itself.

    `count=None` makes all tasks that pass; `name` starts their ids; `domain` is the kind of corpus.
    """

    count: int | None = None
    types: tuple[str, ...] = TYPES
    hops: tuple[int, int] = (2, 4)
    seed: int = 0
    distractors: int = 10
    name: str = "links"
    domain: str = "documents"

    def check(self) -> None:
        """Raises `ConfigError` for invalid settings."""
        unknown = [kind for kind in self.types if kind not in TYPES]
        if unknown or not self.types:
            raise ConfigError(f"no question type {', '.join(unknown) or '(empty)'}: choose from {', '.join(TYPES)}")
        if not 2 <= self.hops[0] <= self.hops[1] <= 4:
            raise ConfigError(f"hops must be within 2-4; got {self.hops[0]}-{self.hops[1]}")
        if self.count is not None and self.count < 1:
            raise ConfigError(f"count must be at least 1; got {self.count}")
        if self.distractors < 0:
            raise ConfigError(f"distractors must not be negative; got {self.distractors}")


@dataclass(slots=True)
class DraftCounts:
    """Counts of the accepted and dropped drafts."""

    documents: int
    links: int
    kept: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        """Return the counts as plain data: kept by type and hops, dropped by reason."""
        return {
            "documents": self.documents,
            "links": self.links,
            "tasks": self.kept.total(),
            "kept": dict(sorted(self.kept.items())),
            "dropped": dict(self.dropped.most_common()),
        }


class LinkTasks:
    """The tasks of one corpus. The constructor reads and links the corpus; `tasks` makes the tasks one by one."""

    def __init__(
        self, chunks: Iterable[Chunk], settings: LinkTaskSettings | None = None, report: Progress | None = None
    ) -> None:
        """`chunks` come document by document. Raises `ConfigError`, and `CorpusError` if nothing links."""
        self.settings = settings or LinkTaskSettings()
        self.settings.check()
        self._graph = LinkGraph(chunks, report)
        links = self._graph.link_all()
        if not links and self.settings.types != ("comparison",):
            raise CorpusError(
                f"none of the {len(self._graph.pages)} documents names the title of another one, so there are no links "
                "for questions: let a language model write them (--model)"
            )
        self._checks = DraftChecks(self._graph, self.settings.distractors)
        self.counts = DraftCounts(len(self._graph.pages), links)
        self._asked: set[str] = set()
        self._ends: Counter[int] = Counter()
        self._made: Counter[tuple[str, int]] = Counter()

    def tasks(self) -> Iterator[Task]:
        """At most `count` tasks; types and hops take turns as long as they last."""
        self.counts = DraftCounts(self.counts.documents, self.counts.links)
        self._asked, self._ends, self._made = set[str](), Counter[int](), Counter[tuple[str, int]]()
        for number, task in enumerate(islice(self._all(), self.settings.count), 1):
            self.counts.kept[f"{task.type}, {task.hops}"] += 1
            yield replace(task, id=f"{self.settings.name}-{number:06d}", domain=self.settings.domain)

    def shortcomings(self) -> list[str]:
        """Return what the documents have of what questions are made of: a line for each."""
        graph, rows = self._graph, range(len(self._graph.pages))
        links = [link for row in rows for link in graph.links(row)]
        described = sum(bool(page.kind) for page in graph.pages)
        usable = sum(bool(graph.pages[link.target].kind) for link in links)
        stating = sum(bool(graph.facts(row)) for row in rows)
        facts = "a fact to ask for: a year after 'in', a count, or a relation such as 'built by'"
        return [
            f"{described} of {len(rows)} documents begin by saying what their title is, as in 'Brasko is a village'",
            f"{usable} of {len(links)} links lead to such a document",
            f"{stating} of {len(rows)} documents state, in a sentence about their title, {facts}",
        ]

    def _all(self) -> Iterator[Task]:
        """Types and hops in turns until they are exhausted, with a limited share of comparisons."""
        fewest, most = self.settings.hops
        pairs = ((kind, hops) for hops in range(fewest, most + 1) for kind in self.settings.types if hops in HOPS[kind])
        lanes = {(kind, hops): self._lane(kind, hops) for kind, hops in pairs}
        while lanes:
            for (kind, hops), lane in list(lanes.items()):
                if kind == "comparison" and self._too_many_comparisons(hops):
                    if all(other_kind == "comparison" for other_kind, _ in lanes):
                        del lanes[kind, hops]
                    continue
                tasks = list(islice(lane, TASKS_PER_TURN[kind]))
                self._made[kind, hops] += len(tasks)
                yield from tasks
                if len(tasks) < TASKS_PER_TURN[kind]:
                    del lanes[kind, hops]

    def _too_many_comparisons(self, hops: int) -> bool:
        if self.settings.types == ("comparison",):
            return False
        other_count = sum(count for (kind, _), count in self._made.items() if kind != "comparison")
        return self._made["comparison", hops] > COMPARISON_SHARES[hops] * other_count + TASKS_PER_TURN["comparison"]

    def _lane(self, kind: str, hops: int) -> Iterator[Task]:
        for draft in self._drafts(kind, hops):
            try:
                self._check_new(draft)
                task = self._checks.task(draft)
            except DropRow as unfit:
                self.counts.dropped[unfit.dropped.reason] += 1
                continue
            self._asked.add(draft.question)
            self._ends[draft.hops[-1].page] += 1
            yield task

    def _check_new(self, draft: Draft) -> None:
        if draft.question in self._asked:
            raise DropRow("asked already")
        if self._ends[draft.hops[-1].page] >= TASKS_PER_DOCUMENT:
            raise DropRow("document used enough")

    def _drafts(self, kind: str, hops: int) -> Iterator[Draft]:
        rng = Random(f"links/{self.settings.seed}/{kind}/{hops}")
        rows = list(range(len(self._graph.pages)))
        rng.shuffle(rows)
        return _DRAFTERS[kind](self._graph, rows, hops, rng)


SAME_STATEMENT = 0.85
"""Share of a sentence's content words that another chunk must have to state the same."""
NEIGHBOURS = 40
"""Linking pages that are searched for the same statement."""
DISTRACTOR_HITS = 24
"""Hits of a query that are candidates for distractors."""
_DAY = re.compile(
    rf"(?:(?P<day>\d{{1,2}})(?:st|nd|rd|th)? (?P<month>{MONTH})|(?P<month2>{MONTH}) (?P<day2>\d{{1,2}}))"
    r",? (?P<year>\d{3,4})$"
)


class DraftChecks:
    """The checks over one corpus. Its BM25 index finds distractors, and documents that a clue might fit as well."""

    def __init__(self, graph: LinkGraph, distractors: int) -> None:
        self._graph, self._distractor_count = graph, distractors
        chunks = [(chunk, row) for row, page in enumerate(graph.pages) for chunk in page.chunks]
        self._row = {chunk.id: row for chunk, row in chunks}
        self._index = Bm25Index.of(Bm25Entry(chunk.id, chunk.title, chunk.text) for chunk, _ in chunks)

    def task(self, draft: Draft) -> Task:
        """Return the task of a draft, without an id. Raises `DropRow` with the reason if a check fails."""
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
            raise DropRow("answer in the question")
        for row in draft.hidden:
            page = self._graph.pages[row]
            if f" {page.name} " in question or page.telling & set(question.split()):
                raise DropRow("names what it hides")

    def _check_path(self, draft: Draft, pages: list[Page]) -> None:
        if len({page.id for page in pages}) < len(pages):
            raise DropRow("one document twice")
        names = [page.name for page in pages]
        if len(set(names)) < len(names):
            raise DropRow("two documents of one title")
        if draft.type != "comparison" and any(holds_answer(page.padded, draft.answer) for page in pages[:-1]):
            raise DropRow("answer before the last document")

    def _check_unique(self, draft: Draft) -> None:
        if draft.fact.pattern is not None and draft.type == "bridge":
            for row in self._graph.rows_by_name.get(self._graph.pages[draft.fact.page].name, ()):
                for fact in self._graph.facts(row):
                    if fact.pattern is draft.fact.pattern and fact.answer != draft.fact.answer:
                        raise DropRow("another document of that title says otherwise")
        if draft.clues is None:
            return
        if any(self._fits(draft, row) for row in self._search(" ".join(sorted(draft.clues.content)))):
            raise DropRow("fits another document")

    def _fits(self, draft: Draft, row: int) -> bool:
        """Return whether another page fits what an intersection says: it names the same page, or one with the same
        fact.
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
            raise DropRow("no document holds the answer")

    def _support(self, hop: Hop, answer: str) -> Support:
        page = self._graph.pages[hop.page]
        # Folded words first: the cascade takes its time to say that something is not there.
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
        """Chunks that state the same as the sentence, on pages of the same title or pages that link to it."""
        page = self._graph.pages[hop.page]
        near = [
            *self._graph.rows_by_name.get(page.name, ()),
            *sorted(self._graph.linked_from.get(hop.page, ()))[:NEIGHBOURS],
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
        """Documents that the question and the hidden titles bring up, and that lack the answer in every form."""
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
    """Return whether the padded words contain the answer's words."""
    sought = " ".join(words(answer))
    return bool(sought) and f" {sought} " in padded


def answer_variants(answer: str) -> list[str]:
    """Return the answer, a date in both orders, a name without stop words, and a number without separators."""
    variants = [answer]
    if (match := _DAY.match(answer)) is not None:
        day, month = match["day"] or match["day2"], match["month"] or match["month2"]
        variants += [f"{day} {month} {match['year']}", f"{month} {day} {match['year']}"]
    parts = [word for word in words(answer) if word not in STOP_WORDS]
    return list(dict.fromkeys([*variants, " ".join(parts), answer.replace(",", "")]))
