"""The candidates of an episode: passages and the question, analyzed once so that features become look-ups."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from context_agent.policies.bridge.text import (
    STOP,
    Mention,
    key,
    kin,
    mentions,
    question_entities,
    without_brackets,
    words,
)
from context_agent.retrieval.corpus import Corpus

Floats = NDArray[np.float32]

_SENTENCE = re.compile(r"(?<=[.!?;])\s+(?=[A-Z\"'(])")
_COMPARES = re.compile(r"\b(both|same|or|older|younger|first|earlier|later|more|in common)\b")
_CUES = (
    re.compile(r"\bwho(se|m)?\b"),
    re.compile(r"\b(when|year|date|born|birth|died|death|older|younger|first|earlier|later)\b"),
    re.compile(r"\b(where|place|city|country|state|county|located|birthplace)\b"),
    re.compile(r"\b(director|performer|composer)"),
    re.compile(r"\b(father|mother|wife|husband|spouse|child|son|daughter|sibling|brother|sister|grand\w+|married)\b"),
)
_LEAST_TITLE = 3


class Passage:
    """A chunk's title and text. Nothing in it depends on a question."""

    def __init__(self, title: str, text: str) -> None:
        self.text = text
        self.words = words(text)
        self.title_words = words(title)
        self.title_keys = frozenset(map(key, self.title_words))
        self.keys = frozenset(map(key, self.words)) | self.title_keys
        self.full_title = " ".join(self.title_words)
        self.bare = without_brackets(title)
        """The title as written, without bracketed parts."""
        self.title = " ".join(words(self.bare)) or self.full_title
        self.bare_keys = frozenset(map(key, words(self.bare)))
        self.padded = f" {' '.join(self.words)} "
        named = len(self.title) >= _LEAST_TITLE and self.title not in STOP and not self.title.isdigit()
        self.padded_title = f" {self.title} " if named else ""
        """The folded title between blanks, to be looked for in `padded` texts; empty where it names nothing."""
        self.short_titles = _short_titles(self.title) if named else ()

    @cached_property
    def mentions(self) -> list[Mention]:
        """The names in the text."""
        return mentions(self.text)

    @cached_property
    def sentences(self) -> list[frozenset[str]]:
        """The keys of each sentence."""
        return [frozenset(map(key, words(part))) for part in _SENTENCE.split(self.text)]

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """All words, the title's too."""
        return frozenset(self.words) | frozenset(self.title_words)

    @cached_property
    def first_sentence(self) -> int:
        """Characters of the first sentence."""
        return len(_SENTENCE.split(self.text, maxsplit=1)[0])


def _short_titles(title: str) -> tuple[str, ...]:
    """A longer name by its first and last word, and by its last two, between blanks; none for one with digits."""
    parts = title.split()
    if len(parts) < 3 or any(map(str.isdigit, parts)):
        return ()
    return f" {parts[0]} {parts[-1]} ", f" {parts[-2]} {parts[-1]} "


@dataclass(frozen=True)
class Question:
    """A question's content words with their weights, its names, and cues of its kind. T is the number of terms."""

    text: str
    terms: tuple[str, ...]
    idf: Floats
    """Inverse document frequency of each term, shape (T,)."""
    weight: Floats
    """`idf` divided by its sum, shape (T,)."""
    named: NDArray[np.bool_]
    """Which terms stand in a name, shape (T,)."""
    padded: str
    entities: tuple[str, ...]
    names: tuple[str, ...]
    """The entities' folded words."""
    pairs: tuple[str, ...]
    """Neighbouring words, padded with blanks."""
    cues: tuple[float, ...]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The terms' keys."""
        return tuple(map(key, self.terms))

    @cached_property
    def kin(self) -> tuple[frozenset[str], ...]:
        """The keys that answer each term."""
        return tuple(map(kin, self.terms))

    @cached_property
    def key_set(self) -> frozenset[str]:
        """The terms' keys as a set."""
        return frozenset(self.keys)

    def coverage(self, passage: Passage) -> Floats:
        """How well the passage holds each term, shape (T,): 1 for its key, 0.6 for kin, else 0."""
        held = passage.keys
        found = [
            1.0 if k in held else 0.6 if s and not s.isdisjoint(held) else 0.0
            for k, s in zip(self.keys, self.kin, strict=True)
        ]
        return np.array(found, dtype=np.float32)

    def near(self, around: frozenset[str], skip: frozenset[str]) -> float:
        """Weight of the terms whose key or kin stands in `around`, leaving out the keys in `skip`."""
        found = 0.0
        for weight, k, s in zip(self.weight.tolist(), self.keys, self.kin, strict=True):
            if k not in skip and (k in around or not s.isdisjoint(around)):
                found += weight
        return found

    def rest(self, passage: Passage) -> str:
        """The terms that the passage does not hold: what is left to be asked once it is read."""
        return " ".join(term for term, k in zip(self.terms, self.keys, strict=True) if k not in passage.keys)


def take_apart(text: str, idf: Callable[[Sequence[str]], Floats]) -> Question:
    """The question's analysis; `idf` maps words to their weights, shape (n,)."""
    every = words(text)
    terms = tuple(dict.fromkeys(word for word in every if word not in STOP)) or tuple(dict.fromkeys(every))
    weights = idf(terms) if terms else np.zeros(0, dtype=np.float32)
    in_names = {word for mention in mentions(text) for word in mention.name.split()}
    entities = tuple(question_entities(text))
    low = text.lower()
    compares = bool(_COMPARES.search(low)) and (" or " in low or " and " in low)
    pairs = tuple(f" {a} {b} " for a, b in pairwise(every) if not (a in STOP and b in STOP))
    return Question(
        text=text,
        terms=terms,
        idf=weights,
        weight=weights / max(float(weights.sum()), 1e-6),
        named=np.array([term in in_names for term in terms], dtype=bool),
        padded=f" {' '.join(every)} ",
        entities=entities,
        names=tuple(" ".join(words(entity)) for entity in entities),
        pairs=pairs,
        cues=(float(compares), *(float(bool(cue.search(low))) for cue in _CUES), len(terms) / 10, len(entities) / 4),
    )


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk seen in the episode. `hop` counts the names followed to it; `lookup` numbers the one that found it.

    A chunk that no lookup found has hop 0 and lookup -1.
    """

    id: str
    document_id: str
    passage: Passage
    tokens: int
    hop: int
    lookup: int = -1


class WordWeights:
    """Inverse document frequency in one corpus, ln(1 + (N - df + 0.5) / (df + 0.5)) as BM25 has it; remembered."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._count = corpus.count()
        self._known: dict[str, float] = {}

    def __call__(self, words: Sequence[str]) -> Floats:
        """The weight of each word, shape (n,)."""
        self.learn(words)
        return np.array([self._known[word] for word in words], dtype=np.float32)

    def learn(self, words: Sequence[str]) -> dict[str, float]:
        """All weights known by now, those of `words` among them."""
        if fresh := [word for word in dict.fromkeys(words) if word not in self._known]:
            frequency = np.minimum(self._corpus.document_frequency(fresh), self._count)
            weight = np.log1p((self._count - frequency + 0.5) / (frequency + 0.5))
            self._known.update(zip(fresh, weight.tolist(), strict=True))
        return self._known


@dataclass
class Notes:
    """The candidates of one episode in the order seen; `rows` gives a chunk's place among them."""

    question: Question
    weights: WordWeights
    candidates: list[Candidate] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, question: str, weights: WordWeights) -> Notes:
        """Empty notes on a question."""
        return cls(take_apart(question, weights), weights)

    def add(self, candidate: Candidate) -> None:
        """Appends a candidate whose chunk is new."""
        self.rows[candidate.id] = len(self.candidates)
        self.candidates.append(candidate)

    def __len__(self) -> int:
        return len(self.candidates)
