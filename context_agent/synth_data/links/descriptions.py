"""Descriptions of pages that do not name them.

A page is described by a phrase, such as `the director of Alpha` or `that village`, and by the sentences that must
precede the phrase. A description names the page where it starts, and hides all others. Each hop extends the description
in one of two ways. It wraps the phrase in the noun of a relation, or it adds a sentence of the previous page. In that
sentence, the next page's kind replaces its name (`a certain village`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from context_agent.synth_data.links.link_graph import Fact, Link, LinkGraph, with_subject_slot, without_name
from context_agent.synth_data.links.pages import LONGEST_SENTENCE, Sentence
from context_agent.text.sentences import capitalize
from context_agent.text.words import words

MOST_CONTEXT = 2
"""The largest number of sentences before a question."""


@dataclass(frozen=True, slots=True)
class Hop:
    """A page on the path. It has the sentence that leads to the next page, and the clue that describes the sentence."""

    page: int
    sentence: Sentence
    clue: str


@dataclass(frozen=True, slots=True)
class DescribedPage:
    """A description of a page that does not name it.

    Attributes:
        page: The row of the page in the graph.
        phrase: The phrase that describes the page.
        context: The sentences that must precede the phrase.
        hops: The pages that a reader must read to identify the page.
    """

    page: int
    phrase: str
    context: tuple[str, ...] = ()
    hops: tuple[Hop, ...] = ()

    @property
    def seen(self) -> set[int]:
        """The rows of the pages on the path, including this one."""
        return {self.page, *(hop.page for hop in self.hops)}


def named_page(graph: LinkGraph, row: int) -> DescribedPage:
    """Return a page with its bare title as the description. If the bare title is ambiguous, use the whole title."""
    page = graph.pages[row]
    return DescribedPage(row, page.bare if page.name in graph.rows_by_name else page.title)


def describe_pages(graph: LinkGraph, row: int, hops: int, rng: Random) -> Iterator[DescribedPage]:
    """Yield descriptions that start at a page and follow this many links, in random order.

    Args:
        graph: The links of the corpus.
        row: The row of the page where the descriptions start.
        hops: The number of links to follow.
        rng: The source of randomness.
    """
    yield from _follow_links(graph, named_page(graph, row), hops, rng)


def _follow_links(graph: LinkGraph, page: DescribedPage, hops: int, rng: Random) -> Iterator[DescribedPage]:
    if hops == 0:
        yield page
        return
    links = graph.usable_links(page.page)
    for link in rng.sample(links, len(links)):
        if link.target not in page.seen and (target_page := _follow_link(graph, page, link)) is not None:
            yield from _follow_links(graph, target_page, hops - 1, rng)


def _follow_link(graph: LinkGraph, page: DescribedPage, link: Link) -> DescribedPage | None:
    target = graph.pages[link.target]
    if link.relation is not None:
        phrase = link.relation.noun.format(x=page.phrase)
        clue = f"{capitalize(phrase)} is {article(target.kind)} {target.kind}."
        return replace(page, page=link.target, phrase=phrase, hops=(*page.hops, Hop(page.page, link.sentence, clue)))
    return _follow_sentence(graph, page, link)


def _follow_sentence(graph: LinkGraph, page: DescribedPage, link: Link) -> DescribedPage | None:
    """Follow a link by a sentence about the current page.

    If a phrase such as `that village` could mean two things, return None.
    """
    target, plain = graph.pages[link.target], link.sentence.plain
    if len(page.context) >= MOST_CONTEXT or len(plain.split()) > LONGEST_SENTENCE or ". " in plain:
        return None
    sentence = without_name(
        with_subject_slot(graph.pages[page.page], plain), target, f"a certain {_kind_without_name(graph, link)}"
    )
    phrase = f"that {target.head}"
    if not sentence or phrase == page.phrase or any(target.head in words(context) for context in page.context):
        return None
    if len(words(sentence)) < 6 or target.head in words(sentence.replace(f"a certain {target.kind}", "")):
        return None
    sentence_text = capitalize(sentence.replace("{x}", page.phrase)).rstrip(" .") + "."
    return DescribedPage(
        link.target, phrase, (*page.context, sentence_text), (*page.hops, Hop(page.page, link.sentence, sentence_text))
    )


def _kind_without_name(graph: LinkGraph, link: Link) -> str:
    """Return the target's kind. If the kind contains words of the target's name, return only its last word."""
    page = graph.pages[link.target]
    kind = page.kind
    return page.head if set(words(kind)) - {page.head} & set(page.name.split()) else kind


def question_for(page: DescribedPage, fact: Fact) -> str:
    """Return the question that asks for a fact of the described page."""
    return " ".join([*page.context, capitalize(fact.asks.replace("{x}", page.phrase))])


def article(kind: str) -> str:
    """Return the indefinite article, `a` or `an`."""
    return "an" if kind[:1].lower() in "aeio" else "a"
