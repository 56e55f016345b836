"""Documents as the link tasks see them: their sentences, their names, the kind of their subject, and relations.

The module uses heuristics for English, without a model. If the first sentence of a document does not classify its
subject (`X is a Y`), the document has no kind. A chain can start at such a document. It cannot be a bridge, because a
bridge is described by its kind.

Relations are stated in fixed phrases: `directed by`, `born in`, a date of birth in brackets. Each has a question for
its object, a description of the object by its subject, and a relative clause. The patterns name kinds of facts. They
are not specific to any corpus.
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

MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
DATE = rf"(?:\d{{1,2}}(?:st|nd|rd|th)? {MONTH},? \d{{3,4}}|{MONTH} \d{{1,2}},? \d{{3,4}}|{MONTH} \d{{4}}|\d{{4}})"
_OPENS = r"^[^(]{0,90}\("
"""A pattern for the start of a first sentence, up to its brackets."""
_WORD = r"[A-Z][\w.'’&-]*"
_NAME = rf"(?P<y>(?:the )?{_WORD}(?: (?:{_WORD}|of|the|de|la|von|van|and(?= {_WORD} (?:University|College|County))))*)"


@dataclass(frozen=True, slots=True)
class RelationPattern:
    """A phrase that states a relation.

    In the texts, {x} is the subject and {y} is the object.

    Attributes:
        name: The name of the relation.
        stated: The expression that finds the phrase. Its group `y` is the object.
        asks: The question for the object.
        noun: A description of the object by its subject.
        clause: A relative clause that states the relation.
        truth: The type of the object.
        of: The kinds of subject for which the relation is valid. Empty means any.
        first: True if only the document's first sentence counts.
    """

    name: str
    stated: re.Pattern[str]
    asks: str
    noun: str = ""
    clause: str = ""
    truth: str = "name"
    of: frozenset[str] = frozenset()
    first: bool = False


def _by_agent(name: str, verb: str, asks: str, noun: str, of: str = "") -> RelationPattern:
    stated = re.compile(rf"\b{verb} by (?:[a-z-]+ )?{_NAME}")
    participle = verb.split("|", maxsplit=1)[0].removeprefix("(?:")
    return RelationPattern(name, stated, asks, noun, f"that was {participle} by {{y}}", of=frozenset(of.split()))


WORK_HEADS = frozenset(
    """film movie drama comedy thriller series novel book play song single album opera documentary musical western
    episode magazine newspaper game poem painting sitcom soundtrack ep mixtape track journal""".split()
)
"""Kinds of works. A person cannot be born in one."""
WORKS = "film movie drama comedy thriller series novel book play song single album opera documentary musical western"
PLACES = frozenset(
    """village town city commune municipality river lake mountain school university settlement suburb hospital college
    museum island locality community gmina district airport church building station tributary bridge park neighborhood
    neighbourhood hamlet township castle stadium hotel cemetery library theatre theater fort mine peak valley""".split()
)
PATTERNS = (
    RelationPattern(
        "born", re.compile(
            rf"{_OPENS}(?:[^()\d]*?[;,] )?\s*+(?:born \s*+)?(?:c\. )?(?P<y>{DATE})(?=\s*(?:[–—-]|in |\)|,|;))"
        ),
        "When was {x} born?", clause="who was born {on} {y}", truth="date", first=True,
    ),
    RelationPattern(
        "died", re.compile(
            rf"{_OPENS}[^()]*?{DATE}[^()]{{0,40}}?\s*[–—-]\s*(?:[A-Z][\w ,]*?, )?(?:c\. )?(?P<y>{DATE})"
        ),
        "When did {x} die?", clause="who died {on} {y}", truth="date", first=True,
    ),
    RelationPattern(
        "birthplace",
        re.compile(rf"\bborn (?:(?:on )?{DATE},? )?(?:in|at|near) (?:the (?:village|town|city) of )?{_NAME}"),
        "Where was {x} born?", "the birthplace of {x}", "who was born in {y}", truth="place",
    ),
    RelationPattern(
        "deathplace", re.compile(rf"\bdied (?:(?:on )?{DATE},? )?(?:in|at|near) {_NAME}"),
        "Where did {x} die?", "the place where {x} died", "who died in {y}", truth="place",
    ),
    _by_agent("director", "directed", "Who directed {x}?", "the director of {x}", WORKS),
    _by_agent("writer", "written", "Who wrote {x}?", "the writer of {x}"),
    _by_agent("producer", "produced", "Who produced {x}?", "the producer of {x}", WORKS),
    _by_agent("composer", "composed", "Who composed {x}?", "the composer of {x}"),
    _by_agent("performer", "(?:recorded|performed|sung)", "Who performed {x}?", "the performer of {x}", WORKS),
    _by_agent("creator", "created", "Who created {x}?", "the creator of {x}"),
    _by_agent("founder", "founded", "Who founded {x}?", "the founder of {x}"),
    _by_agent("developer", "developed", "Who developed {x}?", "the developer of {x}"),
    _by_agent("publisher", "published", "Who published {x}?", "the publisher of {x}"),
    RelationPattern(
        "artist", re.compile(rf"\b(?:album|song|single|track|EP|mixtape) by (?:[\w-]+ ){{0,6}}?{_NAME}"),
        "Who performed {x}?", "the performer of {x}", "that was performed by {y}",
        of=frozenset("album song single track ep mixtape".split()), first=True,
    ),
    RelationPattern(
        "spouse", re.compile(rf"\b(?:was married to|married|wife of|husband of) (?:[a-z-]+ ){{0,3}}?{_NAME}"),
        "Who was married to {x}?", clause="who was married to {y}",
    ),
    RelationPattern(
        "parent", re.compile(rf"\b(?:son|daughter|child) of (?:[a-z-]+ ){{0,3}}?{_NAME}"),
        "Whose child was {x}?", clause="who was a child of {y}",
    ),
    RelationPattern(
        "location", re.compile(
            rf"\b(?:village|town|city|commune|municipality|river|lake|mountain|school|university|settlement|suburb|"
            rf"hospital|college|museum|island|located|situated)(?: (?:located|situated))? in {_NAME}"
        ),
        "Where does {x} lie?", "the place where {x} lies", "that lies in {y}", truth="place", of=PLACES, first=True,
    ),
    RelationPattern(
        "school", re.compile(rf"\b(?:studied at|educated at|graduated from|attended) {_NAME}"),
        "Where did {x} study?", "the place where {x} studied", "who studied at {y}", truth="place",
    ),
    RelationPattern(
        "year", re.compile(
            r"\b(?:is|was) (?:an?|the) (?P<y>1[89]\d\d|20\d\d) (?:[\w-]+ ){0,5}?(?:film|album|song|novel|game|book)\b"
        ),
        "In what year did {x} come out?", clause="that came out in {y}", truth="date", first=True,
    ),
    RelationPattern(
        "released", re.compile(rf"\breleased (?:\w+ ){{0,3}}?(?:on|in) (?P<y>{DATE})"),
        "When was {x} released?", clause="that was released {on} {y}", truth="date",
    ),
    RelationPattern(
        "founded",
        re.compile(rf"\b(?:founded|established|formed|opened|incorporated) (?:\w+ ){{0,2}}?(?:on|in) (?P<y>{DATE})"),
        "When was {x} founded?", clause="that was founded {on} {y}", truth="date",
    ),
    RelationPattern(
        "population", re.compile(r"\bpopulation (?:of|was|is) (?:about |approximately |around )?(?P<y>\d[\d,.]*\d)"),
        "How many people live in {x}?", clause="that has {y} inhabitants", truth="number",
    ),
)  # fmt: skip

SHARED_OBJECT = {
    "director": "director",
    "writer": "writer",
    "producer": "producer",
    "composer": "composer",
    "performer": "performer",
    "artist": "performer",
    "creator": "creator",
    "founder": "founder",
    "developer": "developer",
    "publisher": "publisher",
    "birthplace": "birthplace",
    "deathplace": "place of death",
    "school": "place of study",
}
"""The noun for the object that two subjects of a relation share, by relation."""

EARLIER_QUESTIONS = {
    "born": "Who was born earlier, {a} or {b}?",
    "died": "Who died earlier, {a} or {b}?",
    "year": "Which came out earlier, {a} or {b}?",
    "released": "Which was released earlier, {a} or {b}?",
    "founded": "Which was founded earlier, {a} or {b}?",
}
"""The question that compares two subjects by the date of a relation."""


def date_preposition(date: str) -> str:
    """Return the preposition of a date: `on` for a day, `in` for a month or a year."""
    return "on" if re.search(r"\b\d{1,2}\b", date) else "in"


def year_of(date: str) -> int:
    """Return the year of a date."""
    digits: str = re.findall(r"\d{3,4}", date)[-1]
    return int(digits)


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
