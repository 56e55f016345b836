"""Documents as the link tasks see them: their sentences, their names, and the kind of their subject.

The module uses heuristics for English, without a model. If the first sentence of a document does not classify its
subject (`X is a Y`), the document has no kind. A chain can start at such a document. The document cannot be a
bridge, because a question describes a bridge by its kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise

from context_agent.text.names import Mention, mentions
from context_agent.text.sentences import sentence_spans
from context_agent.text.words import STOP_WORDS, without_brackets, words
from context_agent.types import Chunk

LONGEST_SENTENCE = 34
"""The largest number of words of a sentence that is used as a clue."""
MOST_SENTENCES = 40
"""The number of sentences of a chunk that are examined."""

_OPENING = re.compile(r"[A-Z\"“'(]")
_BRACKETS = re.compile(r"(?:(?<!\s)\s++)?[(\[][^()\[\]]*+[)\]]")
_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]+)\]\]|\[([^\[\]]+)\]\([^()\s]*\)")
_BLOCK_ENDS = re.compile(r"\n\s*\n|^#{1,6} .*$|^[ \t]*(?:[-*+]|\d+\.)[ \t]+", re.MULTILINE)
"""The separators of sentences in Markdown besides punctuation: blank lines, headings, and the marks of lists."""
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
"""Kinds with years in brackets that are not persons."""
_LISTED_ADJECTIVES = re.compile(
    r"\b(?:film|television|stage|radio|screen|theatre|theater|opera|voice|record|club|political|social|cultural|economic|"
    r"administrative|licensed|best[\w-]{0,40})(?:,| and) (?=(?:\w+ and )?\w+ \w+)"
)
_SUPERLATIVE = re.compile(r"^(?:most \w+|[\w-]+est|first|last|only|second|third) ")
_PERSON = re.compile(r"\([^()]*\bborn\b")
_LIFE_YEARS = re.compile(r"\([^()]*\d{3,4}[^()]*[–—-][^()]*\d{3,4}[^()]*\)[^.]{0,40}\b(?:was|were)\b")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a chunk, unchanged. `index` is its position in the document, from 0."""

    text: str
    chunk: str
    index: int

    @property
    def unlinked(self) -> str:
        """The text without bold type, and with the words of links in place of Markdown links and wiki links."""
        return _LINK.sub(lambda link: link[1] or link[2], self.text.replace("**", ""))

    @property
    def plain(self) -> str:
        """The text without brackets and with clean spacing. A question quotes this form."""
        text = _BRACKETS.sub("", _BRACKETS.sub("", self.unlinked))
        text = re.sub(r"(?<!\s)\s++([,.;:!?'’])", r"\1", re.sub(r"\s+", " ", text))
        return text.strip().rstrip("\"”'").strip()


@dataclass(frozen=True)
class Page:
    """A document of a corpus.

    Attributes:
        id: The document's id.
        title: The document's title.
        chunks: The document's chunks in order.
    """

    id: str
    title: str
    chunks: Sequence[Chunk]

    @cached_property
    def text(self) -> str:
        """The text of all chunks."""
        return "\n".join(chunk.text for chunk in self.chunks)

    @cached_property
    def bare(self) -> str:
        """The title without bracketed parts."""
        return without_brackets(self.title)

    @cached_property
    def name(self) -> str:
        """The normalized words of the bare title. Empty if the title is not a name."""
        name = "" if self.title.startswith("List of ") else " ".join(words(self.bare))
        return "" if len(name) < 3 or name in STOP_WORDS or name.isdigit() else name

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """All normalized words of the text and the title."""
        return frozenset(words(self.text)) | frozenset(words(self.title))

    @cached_property
    def padded(self) -> str:
        """The normalized words of title and text between spaces, in which names can be found."""
        return f" {' '.join(words(self.title))} | {' '.join(words(self.text))} "

    @cached_property
    def sentences(self) -> list[Sentence]:
        """The sentences, chunk by chunk. If two chunks overlap, the sentences of the overlap appear twice."""
        located = [(text, chunk.id) for chunk in self.chunks for text in _sentences(chunk.text)]
        return [Sentence(text, chunk, index) for index, (text, chunk) in enumerate(located)]

    @cached_property
    def mentions(self) -> list[Mention]:
        """The names in the text."""
        return mentions(self.text)

    @cached_property
    def kind(self) -> str:
        """The noun phrase for the subject in the first sentence, such as `American film director`.

        If there is none, it is empty.
        """
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
        """True if the first sentence has a birth or the years of a life in brackets."""
        return bool(self.sentences) and (
            _PERSON.search(self.sentences[0].text) is not None
            or (_LIFE_YEARS.search(self.sentences[0].text) is not None and self.head not in _NOT_PERSONS)
        )

    @property
    def head(self) -> str:
        """The last word of the kind, such as `director`."""
        return self.kind.split()[-1] if self.kind else ""

    @cached_property
    def telling(self) -> frozenset[str]:
        """The words of the name that identify it: those that are not in its kind."""
        return frozenset(word for word in self.name.split() if word not in STOP_WORDS) - frozenset(words(self.kind))


def read_pages(chunks: Iterable[Chunk]) -> Iterator[Page]:
    """Yield the documents of a corpus. The chunks must come document by document."""
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
        and parts[-1] not in STOP_WORDS
        and len(parts[-1]) > 2
    )


def _sentences(text: str) -> list[str]:
    """Return the sentences unchanged, without headings. Each begins with a capital, a quotation mark or a bracket."""
    found: list[str] = []
    for block in _BLOCK_ENDS.split(text):
        starts = [start for start, _ in sentence_spans(block, wrapped=True) if _OPENING.match(block, start)]
        found += [block[start:end].strip() for start, end in pairwise([0, *starts, len(block)])]
    return [sentence for sentence in found if sentence][:MOST_SENTENCES]
