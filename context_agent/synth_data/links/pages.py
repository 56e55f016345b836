"""Documents as the link tasks see them: sentences, what a document calls its subject, and the names in it.

English heuristics without a model. A document whose first sentence does not say what its subject is (`X is a Y`) has no
kind. A chain can start at it, but it cannot be a bridge, since a bridge is described by its kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from context_agent.policies.bridge.text import STOP, Mention, mentions, without_brackets, words
from context_agent.types import Chunk

LONGEST_SENTENCE = 34
"""Most words of a sentence used as a clue."""
MOST_SENTENCES = 40
"""Sentences of a chunk that are examined."""

_END = re.compile(r"(?<=[.!?])[\"”']?\s+(?=[A-Z\"“'(])")
_ABBREVIATED = re.compile(
    r"(?:\b[A-Z]|\b(?:St|Dr|Mr|Mrs|Ms|Jr|Sr|Mt|No|vs|c|ca|Lt|Col|Gen|Prof|Rev|Hon|Inc|Co|Ltd|Op))\.$"
)
_BRACKETS = re.compile(r"\s*[(\[][^()\[\]]*[)\]]")
_IS_A = re.compile(r"\b(?:is|was|are|were)\s+(?:an?|the|one of the)\s+(?P<class>.{3,90})", re.S)
_CLASS_ENDS = re.compile(
    r"[,.;:(\[\"“”]|\s[-–—]\s|\s(?:who|which|that|whose|where|when|from|of|in|by|on|at|for|to|as|with|and|or|near|based|born|"
    r"directed|written|produced|released|recorded|starring|located|situated|known|created|founded|published|developed|"
    r"composed|formed|held|set|made|built|named|found|used|owned|who's|broadcast|performed|between|during|under|"
    r"affiliated|fought|active|serving|specializing|specialising|living|consisting|containing|belonging|operating|including|"
    r"responsible|available|native|common|typically|featuring|played|adapted|co-written|co-produced|designed|about|into|is|was|are|were|has|had)\b"
)
_EMPTY_CLASSES = frozenset(
    """best licensed administrative television stage upcoming following body well leading one part member name term type
    kind list form number series set group first second third last son daughter child brother sister wife husband father
    mother most only same result use way time site home area former""".split()
)
_NOT_PERSONS = frozenset(
    """war battle rebellion siege revolution campaign conflict uprising ship steamer dynasty kingdom empire state
    republic period era company band club team newspaper magazine school expedition railway league competition
    tournament event movement organization organisation party crisis strike locomotive series programme program show
    season station ferry aircraft festival government ministry""".split()
)
"""Kinds with years in brackets that are no persons."""
_LISTED_ADJECTIVES = re.compile(
    r"\b(?:film|television|stage|radio|screen|theatre|theater|opera|voice|record|club|political|social|cultural|economic|"
    r"administrative|licensed|best[\w-]*)(?:,| and) (?=(?:\w+ and )?\w+ \w+)"
)
_SUPERLATIVE = re.compile(r"^(?:most \w+|[\w-]+est|first|last|only|second|third) ")
_PERSON = re.compile(r"\(\s*[^()]*\bborn\b")
_LIFE_YEARS = re.compile(r"\([^()]*\d{3,4}[^()]*[–—-][^()]*\d{3,4}[^()]*\)[^.]{0,40}\b(?:was|were)\b")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a chunk, unchanged; `index` counts from 0 in the document."""

    text: str
    chunk: str
    index: int

    @property
    def plain(self) -> str:
        """Without bracketed text and with clean spacing: the form that a question quotes."""
        text = _BRACKETS.sub("", _BRACKETS.sub("", self.text))
        text = re.sub(r"\s+([,.;:!?'’])", r"\1", re.sub(r"\s+", " ", text))
        return text.strip().rstrip("\"”'").strip()


@dataclass(frozen=True)
class Page:
    """A document of a corpus."""

    id: str
    title: str
    chunks: Sequence[Chunk]

    @cached_property
    def text(self) -> str:
        """All chunks."""
        return "\n".join(chunk.text for chunk in self.chunks)

    @cached_property
    def bare(self) -> str:
        """The title without bracketed parts."""
        return without_brackets(self.title)

    @cached_property
    def name(self) -> str:
        """The normalised words of the bare title; empty if the title is no name."""
        name = "" if self.title.startswith("List of ") else " ".join(words(self.bare))
        return "" if len(name) < 3 or name in STOP or name.isdigit() else name

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """All normalised words, with those of the title."""
        return frozenset(words(self.text)) | frozenset(words(self.title))

    @cached_property
    def padded(self) -> str:
        """Title and text as normalised words between spaces, for the search of names."""
        return f" {' '.join(words(self.title))} | {' '.join(words(self.text))} "

    @cached_property
    def sentences(self) -> list[Sentence]:
        """The sentences, chunk by chunk; the overlap of two chunks appears twice."""
        located = [(text, chunk.id) for chunk in self.chunks for text in _sentences(chunk.text)]
        return [Sentence(text, chunk, index) for index, (text, chunk) in enumerate(located)]

    @cached_property
    def mentions(self) -> list[Mention]:
        """The names in the text."""
        return mentions(self.text)

    @cached_property
    def kind(self) -> str:
        """What the first sentence calls the subject, for example `American film director`; empty if it does not say."""
        if not self.sentences or not self.name:
            return ""
        first = self.sentences[0].plain
        if not set(words(first.partition(" is ")[0].partition(" was ")[0])) & set(self.name.split()):
            return ""
        match = _IS_A.search(_LISTED_ADJECTIVES.sub("", first))
        kind = _CLASS_ENDS.split(match["class"], maxsplit=1)[0].strip() if match else ""
        kind = _SUPERLATIVE.sub("", kind)
        if _is_class(kind):
            return kind
        return "person" if _PERSON.search(self.sentences[0].text) else ""

    @cached_property
    def is_person(self) -> bool:
        """Whether the first sentence gives a birth, or the years of a life, in brackets."""
        return bool(self.sentences) and (
            _PERSON.search(self.sentences[0].text) is not None
            or (_LIFE_YEARS.search(self.sentences[0].text) is not None and self.head not in _NOT_PERSONS)
        )

    @property
    def head(self) -> str:
        """The last word of the kind: `director`."""
        return self.kind.split()[-1] if self.kind else ""

    @cached_property
    def telling(self) -> frozenset[str]:
        """The words of the name that identify it: those that its kind does not have."""
        return frozenset(word for word in self.name.split() if word not in STOP) - frozenset(words(self.kind))


def read_pages(chunks: Iterable[Chunk]) -> Iterator[Page]:
    """The documents of a corpus, whose chunks come document by document."""
    for document, group in groupby(chunks, key=lambda chunk: chunk.document_id):
        document_chunks = list(group)
        yield Page(document, document_chunks[0].title, document_chunks)


def _is_class(text: str) -> bool:
    parts = text.split()
    return (
        0 < len(parts) <= 6
        and parts[-1].isalpha()
        and parts[-1].islower()
        and parts[-1] not in _EMPTY_CLASSES
        and parts[-1] not in STOP
        and len(parts[-1]) > 2
    )


def _sentences(text: str) -> list[str]:
    """The sentences, unchanged; an abbreviation does not end a sentence."""
    sentences: list[str] = []
    start = 0
    for match in _END.finditer(text):
        if _ABBREVIATED.search(text[start : match.start()]):
            continue
        sentences.append(text[start : match.start()].strip())
        start = match.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence][:MOST_SENTENCES]
