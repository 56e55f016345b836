"""What counts as found for a question: its facts where it has some, else its gold documents.

Gold ids may name documents or chunks. Which they name is decided by what the corpus knows, never by the look of an
id: `a_1` is chunk 1 of document `a` in one corpus and a document in another, and both in a third.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from context_agent.questions import Question
from context_agent.retrieval.protocol import Corpus
from context_agent.types import Chunk


class Shelf(Protocol):
    """The part of a `Corpus` that says which ids there are."""

    def read(self, document_id: str) -> list[Chunk]:
        """All chunks of a document; empty when there is no such document."""

    def get(self, chunk_ids: list[str]) -> list[Chunk]:
        """The chunks with these ids; unknown ids are left out."""


@dataclass(frozen=True, slots=True)
class Gold:
    """`needs` things to find, numbered from 0, and which of them each document or chunk finds.

    `missing` are the ids that the corpus knows neither as a document nor as a chunk; what they stand for still counts
    as not found.
    """

    needs: int
    documents: Mapping[str, frozenset[int]] = field(default_factory=dict)
    chunks: Mapping[str, frozenset[int]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.needs > 0

    @property
    def ids(self) -> frozenset[str]:
        """All gold ids, of documents and of chunks."""
        return frozenset(self.documents) | frozenset(self.chunks)

    def found_by(self, document_id: str, chunk_ids: Iterable[str]) -> frozenset[int]:
        """The needs that a document met, of which these chunks were seen."""
        return self.documents.get(document_id, frozenset()).union(*(self.chunks.get(one, ()) for one in chunk_ids))


def gold_of(question: Question, corpus: Shelf | None = None) -> Gold:
    """The question's gold in a corpus. Without one, `gold` are taken for documents and `facts` for chunks.

    An id in `gold` that the corpus knows both as a document and as a chunk is the document; one in `facts` the chunk.
    """
    facts = question.facts or tuple((one,) for one in dict.fromkeys(question.gold))
    ids = list(dict.fromkeys(one for fact in facts for one in fact))
    documents, chunks = _sorted_out(ids, bool(question.facts), corpus)
    missing = tuple(one for one in ids if one not in documents and one not in chunks)
    return Gold(len(facts), _numbered(facts, documents), _numbered(facts, chunks), missing)


def _sorted_out(ids: list[str], chunks_first: bool, corpus: Shelf | None) -> tuple[frozenset[str], frozenset[str]]:
    """The ids that are documents, and those that are chunks."""
    if corpus is None:
        return (frozenset(), frozenset(ids)) if chunks_first else (frozenset(ids), frozenset())
    if chunks_first:
        chunks = _chunks_among(ids, corpus)
        return frozenset(one for one in ids if one not in chunks and corpus.read(one)), chunks
    documents = frozenset(one for one in ids if corpus.read(one))
    return documents, _chunks_among([one for one in ids if one not in documents], corpus)


def _chunks_among(ids: list[str], corpus: Shelf) -> frozenset[str]:
    return frozenset(chunk.id for chunk in corpus.get(ids)) if ids else frozenset()


def _numbered(facts: Iterable[Iterable[str]], kept: frozenset[str]) -> dict[str, frozenset[int]]:
    numbers: dict[str, set[int]] = {}
    for number, fact in enumerate(facts):
        for one in fact:
            if one in kept:
                numbers.setdefault(one, set()).add(number)
    return {one: frozenset(found) for one, found in numbers.items()}


_ARTICLES = frozenset({"a", "an", "the"})
_TRUTH_VALUES = frozenset({"yes", "no", "true", "false"})
_DROPPED = re.compile(r"['’ʼ`]|(?<=\d),(?=\d)")
_UNSPACED = re.compile(r"[\u0e01-\u0e3a\u0e40-\u0e4e\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")


def words(text: str) -> list[str]:
    """The text's words, normalised, articles and all."""
    plain = "".join(one for one in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(one))
    spaced = _UNSPACED.sub(r" \g<0> ", _DROPPED.sub("", plain))
    return re.findall(r"[^\W_]+", spaced)


def judgeable(answer: str) -> bool:
    """Whether finding the words means anything: not for an empty answer, nor for yes, no, true and false."""
    said = words(answer)
    return bool(said) and not (len(said) == 1 and said[0] in _TRUTH_VALUES)


def holds(texts: Iterable[str], answer: str) -> bool:
    """Whether one of the texts holds the answer, which must be `judgeable`."""
    wanted = words(answer)
    content = [one for one in wanted if one not in _ARTICLES]
    dropped = _ARTICLES if content else frozenset()
    phrase = f" {' '.join(content or wanted)} "
    return any(phrase in f" {' '.join(one for one in words(text) if one not in dropped)} " for text in texts)


LISTED = 10
"""Ids that a message names; the rest is counted."""
_WORDS = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class MissingGold:
    """Per question id the gold that the corpus lacks; a fact of which no id is there stands under its first one.

    `wanted` counts the gold looked for, over all questions.
    """

    questions: dict[str, tuple[str, ...]]
    wanted: int

    def __bool__(self) -> bool:
        return bool(self.questions)

    @property
    def ids(self) -> tuple[str, ...]:
        """What is missing, each id once, in the order of the questions."""
        return tuple(dict.fromkeys(one for ids in self.questions.values() for one in ids))

    def __str__(self) -> str:
        """One sentence: how much of what is missing, for how many questions, and the first ids."""
        lacking = sum(map(len, self.questions.values()))
        return (
            f"{lacking} of {self.wanted} gold items, of {len(self.questions)} questions, are not in the index: "
            f"{listed(self.ids)}"
        )


@dataclass(frozen=True, slots=True)
class Leaks:
    """What two splits share: ids, and pairs of ids (train, test) whose questions are the same text when normalised."""

    ids: tuple[str, ...]
    questions: tuple[tuple[str, str], ...]

    def __bool__(self) -> bool:
        return bool(self.ids or self.questions)

    def __str__(self) -> str:
        """One sentence: how many, and the first of them."""
        parts = []
        if self.questions:
            parts.append(f"{len(self.questions)} questions ({listed(test for _, test in self.questions)})")
        if self.ids:
            parts.append(f"{len(self.ids)} ids ({listed(self.ids)})")
        return f"train and test share {' and '.join(parts)}"


def missing_gold(corpus: Corpus, questions: Iterable[Question]) -> MissingGold:
    """The gold of the questions that the corpus does not hold, neither as a document nor as a chunk."""
    lacking: dict[str, tuple[str, ...]] = {}
    wanted = 0
    for one in questions:
        gold = gold_of(one, corpus)
        wanted += gold.needs
        met = frozenset[int]().union(*gold.documents.values(), *gold.chunks.values())
        facts = one.facts or tuple((document,) for document in dict.fromkeys(one.gold))
        if lost := tuple(fact[0] for need, fact in enumerate(facts) if need not in met):
            lacking[one.id] = lost
    return MissingGold(lacking, wanted)


def leaks(train: Sequence[Question], test: Sequence[Question]) -> Leaks:
    """What the two splits share: ids, and questions of the same normalised text."""
    trained = {one.id for one in train}
    first: dict[str, str] = {}
    for one in train:
        first.setdefault(normalised(one.question), one.id)
    same = tuple((first[text], one.id) for one in test if (text := normalised(one.question)) in first)
    return Leaks(tuple(dict.fromkeys(one.id for one in test if one.id in trained)), same)


def normalised(text: str) -> str:
    """The words of a text without case, accents of writing (NFKC), punctuation and spacing."""
    return " ".join(_WORDS.findall(unicodedata.normalize("NFKC", text).casefold()))


def listed(items: Iterable[str]) -> str:
    """The first items, and how many more there are."""
    every = list(items)
    more = f" and {len(every) - LISTED} more" if len(every) > LISTED else ""
    return ", ".join(islice(every, LISTED)) + more
