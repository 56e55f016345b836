"""A passage and a question taken apart once, so that features are look-ups afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from context_agent.policies.bridge.entities import Mention, mentions, question_entities
from context_agent.policies.bridge.words import STOP, key, kin, without_brackets, words

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
