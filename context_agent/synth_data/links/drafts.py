"""Ways through the links, put into words: descriptions that name where they start and hide all else.

A described page is a phrase (`the director of Alpha`, `that village`) and the sentences that must stand before it for
the phrase to mean anything. Each hop adds either a relation's noun around the phrase, or a sentence of the page before,
with the next page's name replaced by what it is (`a certain village`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from random import Random
from typing import NamedTuple

from context_agent.policies.bridge.words import words
from context_agent.synth_data.links.link_graph import (
    Fact,
    Link,
    LinkGraph,
    before_name,
    content_words,
    with_subject_slot,
    without_name,
)
from context_agent.synth_data.links.pages import LONGEST_SENTENCE, Sentence
from context_agent.synth_data.links.relations import EARLIER_QUESTIONS, SHARED_OBJECT, year_of

MOST_CONTEXT = 2
"""Sentences before a question."""


@dataclass(frozen=True, slots=True)
class Hop:
    """A page on the way: the sentence of it that leads on, and the hint at that sentence."""

    page: int
    sentence: Sentence
    clue: str


@dataclass(frozen=True, slots=True)
class DescribedPage:
    """A page in words that do not name it, and the pages that had to be read to know which it is."""

    page: int
    phrase: str
    context: tuple[str, ...] = ()
    hops: tuple[Hop, ...] = ()

    @property
    def seen(self) -> set[int]:
        """The pages on the way and this one."""
        return {self.page, *(hop.page for hop in self.hops)}


def named_page(atlas: LinkGraph, row: int) -> DescribedPage:
    """A page by its name; by its whole title where the bare one is another's too."""
    page = atlas.pages[row]
    return DescribedPage(row, page.bare if page.name in atlas.named else page.title)


def describe_pages(atlas: LinkGraph, row: int, hops: int, rng: Random) -> Iterator[DescribedPage]:
    """Descriptions that begin at a page and lead over so many links, in a random order."""
    yield from _follow_links(atlas, named_page(atlas, row), hops, rng)


def _follow_links(atlas: LinkGraph, here: DescribedPage, hops: int, rng: Random) -> Iterator[DescribedPage]:
    if hops == 0:
        yield here
        return
    links = atlas.ways(here.page)
    for link in rng.sample(links, len(links)):
        if link.target not in here.seen and (there := _follow_link(atlas, here, link)) is not None:
            yield from _follow_links(atlas, there, hops - 1, rng)


def _follow_link(atlas: LinkGraph, here: DescribedPage, link: Link) -> DescribedPage | None:
    target = atlas.pages[link.target]
    if link.relation is not None:
        phrase = link.relation.noun.format(x=here.phrase)
        clue = f"{capitalize(phrase)} is {article(target.kind)} {target.kind}."
        return replace(here, page=link.target, phrase=phrase, hops=(*here.hops, Hop(here.page, link.sentence, clue)))
    return _follow_sentence(atlas, here, link)


def _follow_sentence(atlas: LinkGraph, here: DescribedPage, link: Link) -> DescribedPage | None:
    """Through a sentence about the page at hand. `that village` must not have a second meaning."""
    target, plain = atlas.pages[link.target], link.sentence.plain
    if len(here.context) >= MOST_CONTEXT or len(plain.split()) > LONGEST_SENTENCE or ". " in plain:
        return None
    sentence = without_name(
        with_subject_slot(atlas.pages[here.page], plain), target, f"a certain {_kind_without_name(atlas, link)}"
    )
    phrase = f"that {target.head}"
    if not sentence or phrase == here.phrase or any(target.head in words(one) for one in here.context):
        return None
    if len(words(sentence)) < 6 or target.head in words(sentence.replace(f"a certain {target.kind}", "")):
        return None
    said = capitalize(sentence.replace("{x}", here.phrase)).rstrip(" .") + "."
    return DescribedPage(link.target, phrase, (*here.context, said), (*here.hops, Hop(here.page, link.sentence, said)))


def _kind_without_name(atlas: LinkGraph, link: Link) -> str:
    """What the target is, without words of its name."""
    page = atlas.pages[link.target]
    kind = page.kind
    return page.head if set(words(kind)) - {page.head} & set(page.name.split()) else kind


def question_for(here: DescribedPage, fact: Fact) -> str:
    """The question for a fact of the described page."""
    return " ".join([*here.context, capitalize(fact.asks.replace("{x}", here.phrase))])


def article(kind: str) -> str:
    """`a` or `an`."""
    return "an" if kind[:1].lower() in "aeio" else "a"


def capitalize(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


FACTS_PER_PAGE = 3
"""Facts of one page that are asked over one way to it."""
PAIRS_PER_PAGE = 3
"""Others that one page is compared with."""
PATHS_PER_PAGE = 12
"""Ways that one page is looked at to begin."""
FEWEST_CONTENT_WORDS = 2
"""Words that an intersection must tell of its answer, beside the page it is met by."""


@dataclass(frozen=True, slots=True)
class IntersectionClues:
    """What an intersection tells of its answer: words of its first sentence, the page that names, and a fact."""

    told: frozenset[str]
    via: int
    answer: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A question with what it was built from. `hidden` are the pages whose names it must not tell."""

    type: str
    question: str
    answer: str
    truth: str
    hops: tuple[Hop, ...]
    hidden: tuple[int, ...]
    fact: Fact
    """What the answer is stated by."""
    meeting: IntersectionClues | None = None


def bridge_drafts(atlas: LinkGraph, rows: Sequence[int], hops: int, rng: Random) -> Iterator[Draft]:
    """A fact of a page that is only described, the last of so many; over two pages also what they have in common."""
    for row in rows:
        if hops == 2:
            yield from _shared_object_drafts(atlas, row, rng)
        for number, there in enumerate(describe_pages(atlas, row, hops - 1, rng)):
            if number == PATHS_PER_PAGE:
                break
            facts = atlas.facts(there.page)
            known = [fact for fact in facts if fact.pattern is not None] or facts
            for fact in rng.sample(known, min(FACTS_PER_PAGE, len(known))):
                yield _bridge(there, fact)


def _bridge(there: DescribedPage, fact: Fact) -> Draft:
    question = question_for(there, fact)
    clue = capitalize(fact.asks.replace("{x}", there.phrase))
    return Draft(
        type="bridge",
        question=question,
        answer=fact.answer,
        truth=fact.truth,
        hops=(*there.hops, Hop(there.page, fact.sentence, clue)),
        hidden=(there.page, *(hop.page for hop in there.hops[1:])),
        fact=fact,
    )


def _shared_object_drafts(atlas: LinkGraph, row: int, rng: Random) -> Iterator[Draft]:
    """The only other page of its kind that has the same object of a relation, itself a page or not."""
    page = named_page(atlas, row)
    for fact in atlas.facts(row):
        if fact.pattern is None or fact.pattern.name not in SHARED_OBJECT:
            continue
        name = " ".join(words(fact.answer))
        others = [
            (other, its)
            for other in sorted(atlas.naming.get(name, ()))
            if other != row and atlas.pages[other].kind
            for its in atlas.facts(other)
            if its.pattern is fact.pattern and " ".join(words(its.answer)) == name
        ]
        if not others:
            continue
        other, its = rng.choice(others)
        target = atlas.pages[other]
        alike = [one for one in atlas.naming[name] if one not in {row, other} and atlas.pages[one].head == target.head]
        if alike or target.name == atlas.pages[row].name:
            continue
        clue = f"It has the same {SHARED_OBJECT[fact.pattern.name]} as {page.phrase}."
        yield Draft(
            type="bridge",
            question=f"Which {target.kind} has the same {SHARED_OBJECT[fact.pattern.name]} as {page.phrase}?",
            answer=target.bare,
            truth="name",
            hops=(
                Hop(row, fact.sentence, capitalize(fact.asks.replace("{x}", page.phrase))),
                Hop(other, its.sentence, f"{clue} It is {article(target.kind)} {target.kind}."),
            ),
            hidden=(other,),
            fact=Fact(other, target.bare, its.sentence, "", "name"),
        )


def comparison_drafts(atlas: LinkGraph, rows: Sequence[int], hops: int, rng: Random) -> Iterator[Draft]:
    """Two pages by a date: both named (2), one described (3), or both (4)."""
    left, right = {2: (1, 1), 3: (1, 2), 4: (2, 2)}[hops]
    ends = {size: _dated_pages(atlas, rows, size, rng) for size in {left, right}}
    for name, question in EARLIER_QUESTIONS.items():
        for key in sorted(ends[left]):
            if key[0] != name:
                continue
            ones, others = ends[left][key], ends[right].get(key, [])
            for turn, place in product(range(PAIRS_PER_PAGE if others else 0), range(len(ones))):
                (one, its), (other, that) = ones[place], others[(place + 1 + turn + len(others) // 2) % len(others)]
                if not one.seen & other.seen and year_of(its.answer) != year_of(that.answer):
                    yield _comparison(atlas, question, (one, its), (other, that))


def _dated_pages(
    atlas: LinkGraph, rows: Sequence[int], size: int, rng: Random
) -> dict[tuple[str, str], list[tuple[DescribedPage, Fact]]]:
    """Descriptions over so many pages with a date each, by the date's relation and the last noun of the description."""
    found: dict[tuple[str, str], list[tuple[DescribedPage, Fact]]] = defaultdict(list)
    for row in rows:
        for there in describe_pages(atlas, row, size - 1, rng):
            page = atlas.pages[there.page]
            if there.context or not page.kind:
                continue
            for fact in atlas.facts(there.page):
                if fact.pattern is not None and fact.pattern.name in EARLIER_QUESTIONS:
                    people = fact.pattern.name in {"born", "died"}
                    found[fact.pattern.name, "person" if people else page.head].append((there, fact))
    return found


def _comparison(
    atlas: LinkGraph, question: str, one: tuple[DescribedPage, Fact], other: tuple[DescribedPage, Fact]
) -> Draft:
    sides = sorted((one, other), key=lambda side: year_of(side[1].answer))
    first, fact = sides[0]
    hops = [
        hop
        for there, dated in (one, other)
        for hop in (*there.hops, Hop(there.page, dated.sentence, capitalize(dated.asks.replace("{x}", there.phrase))))
    ]
    described_ones = [there.page for there, _ in (one, other) if there.hops]
    return Draft(
        type="comparison",
        question=question.format(a=one[0].phrase, b=other[0].phrase),
        answer=atlas.pages[first.page].bare,
        truth="name",
        hops=tuple(hops),
        hidden=tuple(described_ones),
        fact=fact,
    )


def intersection_drafts(atlas: LinkGraph, rows: Sequence[int], hops: int, rng: Random) -> Iterator[Draft]:
    """The page whose first sentence names a page that is described: by a fact (2), or by a link on (3) and a fact."""
    for row in rows:
        page = atlas.pages[row]
        if not page.kind or not page.sentences:
            continue
        for link in atlas.links(row):
            if link.sentence.place == 0 and (before := _first_sentence_opening(atlas, row, link.target)):
                for told in islice(_clauses(atlas, link.target, hops, rng), FACTS_PER_PAGE):
                    yield _intersection(atlas, row, link.target, before, told)


def _first_sentence_opening(atlas: LinkGraph, row: int, via: int) -> str:
    """What the first sentence says its page is, up to where it names the other: `1929 American film directed by`."""
    page, target = atlas.pages[row], atlas.pages[via]
    match = re.search(r"\b(?:is|was|are|were) (?:an?|the) (?P<rest>.+)$", page.sentences[0].plain.rstrip("."))
    if match is None or not target.kind:
        return ""
    before, name, after = match["rest"].partition(target.bare)
    before = before_name(before)
    if not before.strip() or before.rstrip()[-1] in ",:;" or len(before.split()) > LONGEST_SENTENCE // 2:
        return ""
    if not name or re.match(r"['’\w-]", after):
        return ""
    return before if len(content_words(before)) >= FEWEST_CONTENT_WORDS else ""


def _intersection(atlas: LinkGraph, row: int, via: int, before: str, told: _PageClause) -> Draft:
    page, target = atlas.pages[row], atlas.pages[via]
    kind = f"{article(target.kind)} {target.kind}"
    return Draft(
        type="intersection",
        question=f"What is the name of the {before}{kind} {told.clause}?",
        answer=page.bare,
        truth="name",
        hops=(*told.hops, Hop(row, page.sentences[0], f"The one asked for is the {before}{kind}.")),
        hidden=(row, *(hop.page for hop in told.hops)),
        fact=Fact(row, page.bare, page.sentences[0], "", "name"),
        meeting=IntersectionClues(frozenset(content_words(before)), via, told.answer),
    )


class _PageClause(NamedTuple):
    """What is told of a page: in words, the pages it takes, and the answer it could be looked up by."""

    clause: str
    hops: tuple[Hop, ...]
    answer: str


def _clauses(atlas: LinkGraph, row: int, hops: int, rng: Random) -> Iterator[_PageClause]:
    """What can be told of a page by facts of its own (2), or by a relation to another one and a fact of that (3)."""
    kind = f"{capitalize(article(atlas.pages[row].kind))} {atlas.pages[row].kind}"
    if hops == 2:
        facts = [fact for fact in atlas.facts(row) if fact.clause]
        for fact in rng.sample(facts, len(facts)):
            yield _PageClause(fact.clause, (Hop(row, fact.sentence, f"{kind} {fact.clause}."),), fact.answer)
        return
    for link in atlas.links(row):
        target = atlas.pages[link.target]
        if link.relation is None or not link.relation.clause or not target.kind:
            continue
        other = f"{article(target.kind)} {target.kind}"
        hop = Hop(row, link.sentence, f"{kind} {link.relation.clause.format(y=other)}.")
        for further in _clauses(atlas, link.target, hops - 1, rng):
            yield _PageClause(
                link.relation.clause.format(y=f"{other} {further.clause}"), (*further.hops, hop), further.answer
            )
