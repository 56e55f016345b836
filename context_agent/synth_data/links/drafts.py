"""Draft questions over the links of a corpus, before they are checked: bridge, comparison and intersection."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from random import Random
from typing import NamedTuple

from context_agent.synth_data.links.descriptions import (
    DescribedPage,
    Hop,
    article,
    describe_pages,
    named_page,
    question_for,
)
from context_agent.synth_data.links.link_graph import (
    Fact,
    LinkGraph,
    before_name,
    content_words,
)
from context_agent.synth_data.links.pages import LONGEST_SENTENCE
from context_agent.synth_data.links.relations import EARLIER_QUESTIONS, SHARED_OBJECT, year_of
from context_agent.text.sentences import capitalize
from context_agent.text.words import words

FACTS_PER_PAGE = 3
"""The number of facts of one page that questions ask for, per description."""
PAIRS_PER_PAGE = 3
"""The number of pages that one page is compared with."""
PATHS_PER_PAGE = 12
"""The number of paths that are tried from one page."""
FEWEST_CONTENT_WORDS = 2
"""The number of content words that an intersection must say of its answer, besides the linked page."""


@dataclass(frozen=True, slots=True)
class IntersectionClues:
    """The clues that an intersection gives about its answer.

    Attributes:
        content: Content words of the answer's first sentence.
        via: The row of the linked page.
        answer: The answer of the linked page's fact.
    """

    content: frozenset[str]
    via: int
    answer: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A question that was not checked yet, with its material.

    Attributes:
        type: The type of the question.
        question: The question.
        answer: The answer.
        truth: The type of the answer.
        hops: The pages on the path to the answer.
        hidden: The rows of the pages that the question must not name.
        fact: The statement of the answer.
        clues: The clues of an intersection. None for other types.
    """

    type: str
    question: str
    answer: str
    truth: str
    hops: tuple[Hop, ...]
    hidden: tuple[int, ...]
    fact: Fact
    clues: IntersectionClues | None = None


def bridge_drafts(graph: LinkGraph, rows: Sequence[int], hops: int, rng: Random) -> Iterator[Draft]:
    """Yield questions for a fact of a page that is described over `hops` pages.

    With two pages, also yield questions for a page that shares an object with a named page.
    """
    for row in rows:
        if hops == 2:
            yield from _shared_object_drafts(graph, row, rng)
        for number, described in enumerate(describe_pages(graph, row, hops - 1, rng)):
            if number == PATHS_PER_PAGE:
                break
            facts = graph.facts(described.page)
            stated_facts = [fact for fact in facts if fact.pattern is not None] or facts
            for fact in rng.sample(stated_facts, min(FACTS_PER_PAGE, len(stated_facts))):
                yield _bridge(described, fact)


def _bridge(described: DescribedPage, fact: Fact) -> Draft:
    question = question_for(described, fact)
    clue = capitalize(fact.asks.replace("{x}", described.phrase))
    return Draft(
        type="bridge",
        question=question,
        answer=fact.answer,
        truth=fact.truth,
        hops=(*described.hops, Hop(described.page, fact.sentence, clue)),
        hidden=(described.page, *(hop.page for hop in described.hops[1:])),
        fact=fact,
    )


def _shared_object_drafts(graph: LinkGraph, row: int, rng: Random) -> Iterator[Draft]:
    """Yield questions for a page that shares the object of a relation with the given page.

    No other page of its kind has the same object.
    """
    page = named_page(graph, row)
    for fact in graph.facts(row):
        if fact.pattern is None or fact.pattern.name not in SHARED_OBJECT:
            continue
        name = " ".join(words(fact.answer))
        candidates = [
            (other_row, its)
            for other_row in sorted(graph.mentioned_in.get(name, ()))
            if other_row != row and graph.pages[other_row].kind
            for its in graph.facts(other_row)
            if its.pattern is fact.pattern and " ".join(words(its.answer)) == name
        ]
        if not candidates:
            continue
        other_row, its = rng.choice(candidates)
        target = graph.pages[other_row]
        rivals = [
            named_row
            for named_row in graph.mentioned_in[name]
            if named_row not in {row, other_row} and graph.pages[named_row].head == target.head
        ]
        if rivals or target.name == graph.pages[row].name:
            continue
        clue = f"It has the same {SHARED_OBJECT[fact.pattern.name]} as {page.phrase}."
        yield Draft(
            type="bridge",
            question=f"Which {target.kind} has the same {SHARED_OBJECT[fact.pattern.name]} as {page.phrase}?",
            answer=target.bare,
            truth="name",
            hops=(
                Hop(row, fact.sentence, capitalize(fact.asks.replace("{x}", page.phrase))),
                Hop(other_row, its.sentence, f"{clue} It is {article(target.kind)} {target.kind}."),
            ),
            hidden=(other_row,),
            fact=Fact(other_row, target.bare, its.sentence, "", "name"),
        )


def comparison_drafts(graph: LinkGraph, rows: Sequence[int], hops: int, rng: Random) -> Iterator[Draft]:
    """Yield questions that compare two pages by a date.

    With 2 hops, both pages are named. With 3 hops, one page is described. With 4 hops, both pages are described.
    """
    left_size, right_size = {2: (1, 1), 3: (1, 2), 4: (2, 2)}[hops]
    ends = {size: _dated_pages(graph, rows, size, rng) for size in {left_size, right_size}}
    for name, question in EARLIER_QUESTIONS.items():
        for key in sorted(ends[left_size]):
            if key[0] != name:
                continue
            left_pages, right_pages = ends[left_size][key], ends[right_size].get(key, [])
            for turn, index in product(range(PAIRS_PER_PAGE if right_pages else 0), range(len(left_pages))):
                (page_a, fact_a), (page_b, fact_b) = (
                    left_pages[index],
                    right_pages[(index + 1 + turn + len(right_pages) // 2) % len(right_pages)],
                )
                if not page_a.seen & page_b.seen and year_of(fact_a.answer) != year_of(fact_b.answer):
                    yield _comparison(graph, question, (page_a, fact_a), (page_b, fact_b))


def _dated_pages(
    graph: LinkGraph, rows: Sequence[int], size: int, rng: Random
) -> dict[tuple[str, str], list[tuple[DescribedPage, Fact]]]:
    """Return descriptions that need `size` pages, each with a date of the described page.

    They are grouped by the date's relation and the page's kind.
    """
    dated: dict[tuple[str, str], list[tuple[DescribedPage, Fact]]] = defaultdict(list)
    for row in rows:
        for described in describe_pages(graph, row, size - 1, rng):
            page = graph.pages[described.page]
            if described.context or not page.kind:
                continue
            for fact in graph.facts(described.page):
                if fact.pattern is not None and fact.pattern.name in EARLIER_QUESTIONS:
                    people = fact.pattern.name in {"born", "died"}
                    dated[fact.pattern.name, "person" if people else page.head].append((described, fact))
    return dated


def _comparison(
    graph: LinkGraph, question: str, side_a: tuple[DescribedPage, Fact], side_b: tuple[DescribedPage, Fact]
) -> Draft:
    sides = sorted((side_a, side_b), key=lambda side: year_of(side[1].answer))
    first, fact = sides[0]
    hops = [
        hop
        for described, dated in (side_a, side_b)
        for hop in (
            *described.hops,
            Hop(described.page, dated.sentence, capitalize(dated.asks.replace("{x}", described.phrase))),
        )
    ]
    described_ones = [described.page for described, _ in (side_a, side_b) if described.hops]
    return Draft(
        type="comparison",
        question=question.format(a=side_a[0].phrase, b=side_b[0].phrase),
        answer=graph.pages[first.page].bare,
        truth="name",
        hops=tuple(hops),
        hidden=tuple(described_ones),
        fact=fact,
    )


def intersection_drafts(graph: LinkGraph, rows: Sequence[int], hops: int, rng: Random) -> Iterator[Draft]:
    """Yield questions about a page whose first sentence names another page. The question describes that other page."""
    for row in rows:
        page = graph.pages[row]
        if not page.kind or not page.sentences:
            continue
        for link in graph.links(row):
            if link.sentence.index == 0 and (before := _first_sentence_opening(graph, row, link.target)):
                for clause in islice(_clauses(graph, link.target, hops, rng), FACTS_PER_PAGE):
                    yield _intersection(graph, row, link.target, before, clause)


def _first_sentence_opening(graph: LinkGraph, row: int, via: int) -> str:
    """Return the words about the page that precede the linked name: `1929 American film directed by`.

    They are taken from the first sentence.
    """
    page, target = graph.pages[row], graph.pages[via]
    match = re.search(r"\b(?:is|was|are|were) (?:an?|the) (?P<rest>.+)$", page.sentences[0].plain.rstrip("."), re.S)
    if match is None or not target.kind:
        return ""
    before, name, after = match["rest"].partition(target.bare)
    before = before_name(before)
    if not before.strip() or before.rstrip()[-1] in ",:;" or len(before.split()) > LONGEST_SENTENCE // 2:
        return ""
    if not name or re.match(r"['’\w-]", after):
        return ""
    return before if len(content_words(before)) >= FEWEST_CONTENT_WORDS else ""


def _intersection(graph: LinkGraph, row: int, via: int, before: str, clause: _PageClause) -> Draft:
    page, target = graph.pages[row], graph.pages[via]
    kind = f"{article(target.kind)} {target.kind}"
    return Draft(
        type="intersection",
        question=f"What is the name of the {before}{kind} {clause.clause}?",
        answer=page.bare,
        truth="name",
        hops=(*clause.hops, Hop(row, page.sentences[0], f"The one asked for is the {before}{kind}.")),
        hidden=(row, *(hop.page for hop in clause.hops)),
        fact=Fact(row, page.bare, page.sentences[0], "", "name"),
        clues=IntersectionClues(frozenset(content_words(before)), via, clause.answer),
    )


class _PageClause(NamedTuple):
    """A relative clause about a page, the pages that it needs, and the answer by which the page can be found."""

    clause: str
    hops: tuple[Hop, ...]
    answer: str


def _clauses(graph: LinkGraph, row: int, hops: int, rng: Random) -> Iterator[_PageClause]:
    """Yield clauses about a page.

    With 2 hops, they state the page's own facts. With 3 hops, they state a relation to another page and a fact of that
    page.
    """
    kind = f"{capitalize(article(graph.pages[row].kind))} {graph.pages[row].kind}"
    if hops == 2:
        facts = [fact for fact in graph.facts(row) if fact.clause]
        for fact in rng.sample(facts, len(facts)):
            yield _PageClause(fact.clause, (Hop(row, fact.sentence, f"{kind} {fact.clause}."),), fact.answer)
        return
    for link in graph.links(row):
        target = graph.pages[link.target]
        if link.relation is None or not link.relation.clause or not target.kind:
            continue
        target_kind = f"{article(target.kind)} {target.kind}"
        hop = Hop(row, link.sentence, f"{kind} {link.relation.clause.format(y=target_kind)}.")
        for further in _clauses(graph, link.target, hops - 1, rng):
            yield _PageClause(
                link.relation.clause.format(y=f"{target_kind} {further.clause}"), (*further.hops, hop), further.answer
            )
