"""Relations that documents state in fixed phrases: `directed by`, `born in`, a date of birth in brackets.

Each relation has a question for its object, a description of the object by its subject, and a relative clause. The
patterns name kinds of facts. They are not specific to any corpus.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
DATE = rf"(?:\d{{1,2}}(?:st|nd|rd|th)? {MONTH},? \d{{3,4}}|{MONTH} \d{{1,2}},? \d{{3,4}}|{MONTH} \d{{4}}|\d{{4}})"
_OPENS = r"^[^(]{0,90}\("
"""A pattern for the start of a first sentence, up to its brackets."""
_WORD = r"[A-Z][\w.'’&-]*"
_NAME = rf"(?P<y>(?:the )?{_WORD}(?: (?:{_WORD}|of|the|de|la|von|van|and(?= {_WORD} (?:University|College|County))))*+)"


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
