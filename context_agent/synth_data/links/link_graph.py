"""The links between the documents of a corpus, and the facts that the documents state: the material for questions."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from context_agent.errors import CorpusError
from context_agent.synth_data.links.pages import Page, Sentence, read_pages
from context_agent.synth_data.links.relations import PATTERNS, WORK_HEADS, RelationPattern, date_preposition
from context_agent.synth_data.stages import ProgressCallback
from context_agent.text.names import Mention, mentions
from context_agent.text.words import STOP_WORDS, words
from context_agent.types import Chunk

FEWEST_PAGES = 3
LONGEST_QUESTION = 24
"""The largest number of words of a sentence that becomes a question."""
LONGEST_MATCHED = 700
"""The largest number of characters of a sentence that is matched against the patterns."""
_LIST_CONTINUES = re.compile(r"\s*(?:,|and|&|or)\s+(?:(?:and|the|by)\s+)?[A-Z]")
_NAME_CONTINUES = re.compile(
    r" (?!(?:and|or|in|on|at|of|near|by|to|from|with|for|who|which|that|when|where|as|is|was|after|during|into|until|"
    r"since|before|between|under|about|but|then|through|via|because|while|starring|featuring|along|released|published|"
    r"based|set|aired|made|produced|written)\b)[a-z]+"
)
_TITLE_BEFORE = re.compile(
    r"(?:\b[Tt]he (?:(?!(?:of|in|by|and|to|for|with|from|on|at|as|or)\b)[\w-]+ ){0,4})?[\"“”]?\s*$"
)
"""Text before a name that belongs to it: `the poet`, or an opening quotation mark."""
_NAME_MAY_FOLLOW = re.compile(
    r"(?:^|[^\w\s]|\b(?:of|in|by|and|to|for|with|from|on|at|as|or|near|is|was|are|were|be|starring|featuring|called|named|"
    r"titled|married|including|like|between|against|under|than|after|before|that|where|when|who|via|through|joined|met|"
    r"playing|into|over|during|since|until|toward|towards|about|without|within|among))\s*$"
)
"""Text that may precede a name. After other text, the name is probably the second half of a title or noun."""
_WORD_MISSING = re.compile(r"\b(?:of|in|by|and|the|an?|to|for|with|from)\s*[,.;]")
"""A place where a text lacks a word. Formulas and foreign names are often lost in conversion to plain text."""
_PREPOSITION = re.compile(r"\b(?:in|at|near|from|to)\s+$")
_CLOSING = ("", *",.;:!?'’")
_PRONOUN = re.compile(r"(He|She|It|They|His|Her|Its|Their)\b")
_COUNTED = re.compile(
    r"(?<![\d.,$£€-])(?<!\b[Tt]he )\b(?P<y>\d{1,3}(?:,\d{3})++|\d{1,3}) (?P<what>[a-z]{3,}s)\b(?! ago)"
)
_LOWER = re.compile(r"(?<![\w'’])[a-z]{3,}(?![\w'’])")
_IN_YEAR = re.compile(r"\b[Ii]n (?P<y>(?:1[0-9]|20)\d\d)\b(?![–—/-])")
_UNITS = frozenset("years months days weeks hours minutes seconds times was has is metres feet miles".split())


@dataclass(frozen=True, slots=True)
class Link:
    """A sentence of one page that names another page.

    If a fixed phrase states how the pages are related, `relation` is set.
    """

    source: int
    target: int
    sentence: Sentence
    surface: str
    relation: RelationPattern | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """A statement of a page about its subject.

    Attributes:
        page: The row of the page.
        answer: The object of the statement.
        sentence: The sentence that states it.
        asks: The question for the answer, with {x} for the subject.
        truth: The type of the answer.
        clause: A relative clause that states the fact. Empty if no clause reads well.
        pattern: The pattern that found the fact. If None, the sentence itself becomes the question, with a question
            word for the answer.
    """

    page: int
    answer: str
    sentence: Sentence
    asks: str
    truth: str
    clause: str = ""
    pattern: RelationPattern | None = None


class LinkGraph:
    """The pages of a corpus, their links and their facts. Links and facts are computed on first use."""

    def __init__(self, chunks: Iterable[Chunk], report: ProgressCallback | None = None) -> None:
        """Read the pages of a corpus.

        Args:
            chunks: The chunks of the corpus, document by document.
            report: A function that is called with the number of pages read so far, and None for the total.

        Raises:
            CorpusError: If the corpus has too few documents, or if its documents have no titles.
        """
        self.pages: list[Page] = []
        for page in read_pages(chunks):
            self.pages.append(page)
            if report is not None:
                report(len(self.pages), None)
        if len(self.pages) < FEWEST_PAGES:
            raise CorpusError(
                f"tasks from links need at least {FEWEST_PAGES} documents; got {len(self.pages)}. Index more documents."
            )
        self.rows = {page.id: row for row, page in enumerate(self.pages)}
        self.rows_by_name = self._index()
        if not self.rows_by_name:
            raise CorpusError("no document has a title, and links are found by titles. Index documents with titles.")
        self.linked_from: dict[int, set[int]] = defaultdict(set)
        self.mentioned_in: dict[str, set[int]] = defaultdict(set)
        """For each normalized name, the pages that mention it. The name need not be a title."""
        self._common = {word for page in self.pages for word in _LOWER.findall(page.text) if word in self.rows_by_name}
        self._links: dict[int, list[Link]] = {}
        self._usable_links: dict[int, list[Link]] = {}
        self._facts: dict[int, list[Fact]] = {}

    def link_all(self) -> int:
        """Compute the links of every page, and return the number of links."""
        for row in range(len(self.pages)):
            for link in self.links(row):
                self.linked_from[link.target].add(row)
        return sum(map(len, self._links.values()))

    def _index(self) -> dict[str, list[int]]:
        """Return pages by normalized bare title.

        If different titles share a bare title (`Get Low`, `Get Low (song)`), it is left out.
        """
        rows_by_name: dict[str, list[int]] = defaultdict(list)
        for row, page in enumerate(self.pages):
            if page.name:
                rows_by_name[page.name].append(row)
        return {name: rows for name, rows in rows_by_name.items() if len({self.pages[row].title for row in rows}) == 1}

    def links(self, row: int) -> list[Link]:
        """Return the links of a page. For each target, there is at most one link with a relation and one without."""
        if row not in self._links:
            links: dict[tuple[int, bool], Link] = {}
            for sentence in self.pages[row].sentences:
                for link in self._sentence_links(row, sentence):
                    links.setdefault((link.target, link.relation is not None), link)
            self._links[row] = list(links.values())
        return self._links[row]

    def _sentence_links(self, row: int, sentence: Sentence) -> list[Link]:
        own_name, links = self.pages[row].name, []
        related = self._sentence_relations(row, sentence)
        text = sentence.unlinked
        for mention in mentions(text):
            rows = self.rows_by_name.get(mention.name, [])
            self.mentioned_in[mention.name].add(row)
            if not rows or mention.name == own_name or row in rows:
                continue
            if self._is_ambiguous(mention, rows[0], text):
                continue
            pattern = related.get(mention.name)
            links += [Link(row, target, sentence, mention.surface, pattern) for target in rows]
        return links

    def _is_ambiguous(self, mention: Mention, row: int, text: str) -> bool:
        """Return True if the name probably means something else, such as the place in a film's title."""
        single, work = " " not in mention.name, self.pages[row].head in WORK_HEADS
        if single and mention.name in self._common:
            return True
        quoted = text[max(0, mention.start - 2) : mention.start].strip()[-1:] in {*"\"“«'‘"}
        return work and not quoted and (single or _PREPOSITION.search(text[: mention.start]) is not None)

    def usable_links(self, row: int) -> list[Link]:
        """Return the links that a question can follow.

        Their targets have a kind, and no other page of that kind is named in the same sentence.
        """
        if row not in self._usable_links:
            self._usable_links[row] = [
                link for link in self.links(row) if self.pages[link.target].kind and not self._has_rival(link)
            ]
        return self._usable_links[row]

    def _has_rival(self, link: Link) -> bool:
        """Return True if the sentence names another page of the same kind.

        A description could mean that page as well.
        """
        page = self.pages[link.target]
        return any(
            rival.sentence.index == link.sentence.index
            and rival.target != link.target
            and self.pages[rival.target].name != page.name
            and self.pages[rival.target].head == page.head
            and rival.relation is link.relation
            for rival in self.links(link.source)
        )

    def _sentence_relations(self, row: int, sentence: Sentence) -> dict[str, RelationPattern]:
        """Return the relations that the sentence states about the page's subject, by the normalized object."""
        page, relations = self.pages[row], {}
        for pattern in PATTERNS:
            if not pattern.noun:
                continue
            if (match := match_relation(page, sentence, pattern)) is not None:
                relations[" ".join(words(match["y"]))] = pattern
        return relations

    def facts(self, row: int) -> list[Fact]:
        """Return the facts of a page.

        Facts from the patterns come first, then facts from sentences with one year or one count.
        """
        if row not in self._facts:
            self._facts[row] = [*self._pattern_facts(row), *self._sentence_facts(row)]
        return self._facts[row]

    def _pattern_facts(self, row: int) -> list[Fact]:
        page = self.pages[row]
        facts: dict[str, Fact] = {}
        twice: Counter[str] = Counter()
        for sentence in page.sentences:
            for pattern in PATTERNS:
                if (match := match_relation(page, sentence, pattern)) is None:
                    continue
                answer = match["y"].strip(" ,.")
                if pattern.name in facts and facts[pattern.name].answer != answer:
                    twice[pattern.name] += 1
                clause = pattern.clause.replace("{on}", date_preposition(answer)).replace("{y}", answer)
                facts.setdefault(
                    pattern.name, Fact(row, answer, sentence, pattern.asks, pattern.truth, clause, pattern)
                )
        return [fact for name, fact in facts.items() if not twice[name]]

    def _sentence_facts(self, row: int) -> list[Fact]:
        """Return facts from sentences about the subject with one year or one count.

        In the question, a question word replaces the year or count.
        """
        page = self.pages[row]
        facts = []
        for sentence in page.sentences[1:]:
            plain = sentence.plain
            if (
                not 6 <= len(plain.split()) <= LONGEST_QUESTION
                or ". " in plain
                or not (statement := with_subject_slot(page, plain))
            ):
                continue
            years, counts = list(_IN_YEAR.finditer(statement)), list(_COUNTED.finditer(statement))
            if len(years) == 1 and len(re.findall(r"\b\d{4}\b", statement)) == 1:
                match, what, truth = years[0], "in what year", "date"
            elif len(counts) == 1 and counts[0]["what"] not in _UNITS:
                match, what, truth = counts[0], f"how many {counts[0]['what']}", "number"
            else:
                continue
            after = statement[match.end() :].partition(", ")[0]
            asks = f"{statement[: match.start()]}{what}{after}".rstrip(" .") + "?"
            if match.start() > 0:
                facts.append(Fact(row, match["y"], sentence, asks, truth))
        return facts


def match_relation(page: Page, sentence: Sentence, pattern: RelationPattern) -> re.Match[str] | None:
    """Return the match of the relation's pattern in the sentence.

    If the sentence does not state this relation between the page's subject and a single object, return None.
    """
    text = sentence.unlinked
    if len(text) > LONGEST_MATCHED or (pattern.first and sentence.index):
        return None
    if pattern.of and page.head not in pattern.of:
        return None
    if sentence.index and not _PRONOUN.match(text) and words(text)[:2] != page.name.split()[:2]:
        return None
    match = pattern.stated.search(text)
    if match is None or (pattern.truth in {"name", "place"} and _continues(pattern, text, match)):
        return None
    if pattern.name in {"born", "died"} and not page.is_person:
        return None
    return match


def _continues(pattern: RelationPattern, text: str, match: re.Match[str]) -> bool:
    """Return True if the object is the first of a list, or the start of a longer name (`the Canadian singer …`)."""
    if pattern.truth == "name" and _LIST_CONTINUES.match(text, match.end()):
        return True
    return match["y"].endswith("-based") or _NAME_CONTINUES.match(text, match.end()) is not None


def with_subject_slot(page: Page, plain: str) -> str:
    """Return the sentence with {x} in place of its subject.

    A sentence about the subject contains the bare title, or starts with a person's last name or a pronoun. If the
    sentence is not about the subject, return an empty text.
    """
    plain = plain.replace("{", "(").replace("}", ")")
    if _WORD_MISSING.search(plain):
        return ""
    last = page.bare.split()[-1] if page.is_person and page.bare.split() else ""
    for name in (page.bare, last):
        if len(name) > 2 and plain.startswith(name) and not plain[len(name) : len(name) + 1].isalnum():
            return "{x}" + plain[len(name) :]
    if (at := _find_words(plain, page.bare)) >= 0:
        return f"{plain[:at]}{{x}}{plain[at + len(page.bare) :]}"
    match = _PRONOUN.match(plain)
    if match is None:
        return ""
    return ("{x}" if match[1] in {"He", "She", "It", "They"} else "{x}'s") + plain[match.end() :]


def _find_words(text: str, name: str) -> int:
    """Return the position of the name in the text at word boundaries, or -1."""
    at = text.find(name) if name else -1
    while at >= 0:
        end = at + len(name)
        if not (text[at - 1 : at].isalnum() if at else False) and not text[end : end + 1].isalnum():
            return at
        at = text.find(name, at + 1)
    return -1


def before_name(before: str) -> str:
    """Return the text before a name, without the words that belong to the name, such as `the poet`.

    If the two cannot be separated, return an empty text.
    """
    titled = _TITLE_BEFORE.search(before, max(0, len(before) - 500))
    prefix = before[: titled.start()] if titled else before
    return prefix.rstrip() + " " if _NAME_MAY_FOLLOW.search(prefix) else ""


def content_words(text: str) -> set[str]:
    """Return the normalized words that are not stop words."""
    return {word for word in words(text) if word not in STOP_WORDS}


def without_name(plain: str, target: Page, by: str) -> str:
    """Return the sentence with `by` in place of the target's name.

    If a part of the name remains, return an empty text.
    """
    if (at := _find_words(plain, target.bare)) < 0:
        return ""
    before, after = plain[:at], plain[at + len(target.bare) :].lstrip('"“” ')
    before = before_name(before)
    if not before.strip() and at:
        return ""
    text = f"{before.rstrip()} {by}{'' if after[:1] in _CLOSING else ' '}{after}".strip()
    return "" if target.telling & set(words(text.replace(by, ""))) else text
