"""Gold of a question: what counts as found in a corpus, whether a text contains the answer, and checks of the data.

Gold ids may name documents or chunks. The corpus decides which, never the look of an id: `a_1` is chunk 1 of document
`a` in one corpus, a document in another, and both in a third.

A text contains an answer if it has the same words in the same order. Both are normalized first: Unicode NFKD without
combining marks, casefolded; apostrophes, and commas between digits, are dropped; every other character that is neither
a letter nor a digit separates words; the articles a, an and the are dropped unless the answer has no other word. In
scripts written without spaces (Chinese, Japanese, Thai) each character is a word. This tests presence only: a document
that uses the words in another sense passes too.

Two checks run before an evaluation, because figures from broken data are misleading. `missing_gold` lists gold that the
index does not contain: no system can find it, so recall drops for all of them. `leaks` lists questions and ids that
train and test share. Ids count because rows that are looked up by id would resolve to rows of the other split (the
published data of Context-1 has this fault).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from context_agent.retrieval.corpus import Corpus
from context_agent.text.normalization import normal_form
from context_agent.types import Chunk, Question

__all__ = [
    "CorpusLookup",
    "Gold",
    "Leaks",
    "MissingGold",
    "Question",
    "gold_of",
    "holds",
    "judgeable",
    "leaks",
    "listed",
    "missing_gold",
    "normalised",
    "words",
]

LISTED = 10
"""Ids that a message lists at most."""
_ARTICLES = frozenset({"a", "an", "the"})
_TRUTH_VALUES = frozenset({"yes", "no", "true", "false"})
_DROPPED = re.compile(r"['’ʼ`]|(?<=\d),(?=\d)")
_UNSPACED = re.compile(r"[\u0e01-\u0e3a\u0e40-\u0e4e\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_WORDS = re.compile(r"\w+")


class CorpusLookup(Protocol):
    """The part of a `Corpus` that tells which ids exist."""

    def read(self, document_id: str) -> list[Chunk]:
        """Return all chunks of a document; empty if there is no such document."""

    def get(self, chunk_ids: list[str]) -> list[Chunk]:
        """Return the chunks with these ids; unknown ids are left out."""


@dataclass(frozen=True, slots=True)
class Gold:
    """`needs` pieces of evidence to find, numbered from 0, and which of them each document or chunk provides.

    `missing` lists the ids that the corpus knows neither as a document nor as a chunk. Their evidence counts as not
    found.
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
        """Return the numbers of the evidence that a document and these chunks of it provide."""
        by_chunks = (self.chunks.get(chunk_id, ()) for chunk_id in chunk_ids)
        return self.documents.get(document_id, frozenset()).union(*by_chunks)


def gold_of(question: Question, corpus: CorpusLookup | None = None) -> Gold:
    """Return the question's gold: its facts if it has any, else its gold documents.

    Without a corpus, ids in `gold` are taken for documents and ids in `facts` for chunks. In a corpus that has both a
    document and a chunk of that id, an id in `gold` is the document and an id in `facts` the chunk.
    """
    facts = _facts(question)
    ids = list(dict.fromkeys(gold_id for fact in facts for gold_id in fact))
    documents, chunks = _documents_and_chunks(ids, bool(question.facts), corpus)
    missing = tuple(gold_id for gold_id in ids if gold_id not in documents and gold_id not in chunks)
    return Gold(len(facts), _fact_numbers(facts, documents), _fact_numbers(facts, chunks), missing)


def _facts(question: Question) -> tuple[tuple[str, ...], ...]:
    """Return the question's facts; without any, each gold document is a fact of one id."""
    return question.facts or tuple((document_id,) for document_id in dict.fromkeys(question.gold))


def _documents_and_chunks(
    ids: list[str], chunks_first: bool, corpus: CorpusLookup | None
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the ids that name documents, and those that name chunks."""
    if corpus is None:
        return (frozenset(), frozenset(ids)) if chunks_first else (frozenset(ids), frozenset())
    if chunks_first:
        chunks = _chunks_among(ids, corpus)
        return frozenset(gold_id for gold_id in ids if gold_id not in chunks and corpus.read(gold_id)), chunks
    documents = frozenset(gold_id for gold_id in ids if corpus.read(gold_id))
    return documents, _chunks_among([gold_id for gold_id in ids if gold_id not in documents], corpus)


def _chunks_among(ids: list[str], corpus: CorpusLookup) -> frozenset[str]:
    return frozenset(chunk.id for chunk in corpus.get(ids)) if ids else frozenset()


def _fact_numbers(facts: Iterable[Iterable[str]], ids: frozenset[str]) -> dict[str, frozenset[int]]:
    """For each of the ids the numbers of the facts that name it."""
    numbers: dict[str, set[int]] = {}
    for number, fact in enumerate(facts):
        for gold_id in fact:
            if gold_id in ids:
                numbers.setdefault(gold_id, set()).add(number)
    return {gold_id: frozenset(facts_of_id) for gold_id, facts_of_id in numbers.items()}


def words(text: str) -> list[str]:
    """Return the text's normalized words, with articles."""
    letters = (letter for letter in normal_form("NFKD", text.casefold()) if not unicodedata.combining(letter))
    spaced = _UNSPACED.sub(r" \g<0> ", _DROPPED.sub("", "".join(letters)))
    return re.findall(r"[^\W_]+", spaced)


def judgeable(answer: str) -> bool:
    """Return whether looking for the words makes sense: not for an empty answer, nor for yes, no, true and false."""
    answer_words = words(answer)
    return bool(answer_words) and not (len(answer_words) == 1 and answer_words[0] in _TRUTH_VALUES)


def holds(texts: Iterable[str], answer: str) -> bool:
    """Return whether one of the texts contains the answer, which must be `judgeable`."""
    answer_words = words(answer)
    content = [word for word in answer_words if word not in _ARTICLES]
    dropped = _ARTICLES if content else frozenset()
    phrase = f" {' '.join(content or answer_words)} "
    return any(phrase in f" {' '.join(word for word in words(text) if word not in dropped)} " for text in texts)


@dataclass(frozen=True, slots=True)
class MissingGold:
    """Gold that a corpus lacks, by question id. A fact of which no id exists is listed under its first id.

    `total` counts all pieces of gold that the questions have.
    """

    questions: dict[str, tuple[str, ...]]
    total: int

    def __bool__(self) -> bool:
        return bool(self.questions)

    @property
    def ids(self) -> tuple[str, ...]:
        """The missing ids, each once, in the order of the questions."""
        return tuple(dict.fromkeys(gold_id for ids in self.questions.values() for gold_id in ids))

    def __str__(self) -> str:
        """One sentence: how much is missing, for how many questions, and the first ids."""
        count = sum(map(len, self.questions.values()))
        return (
            f"{count} of {self.total} gold items, of {len(self.questions)} questions, are not in the index: "
            f"{listed(self.ids)}"
        )


@dataclass(frozen=True, slots=True)
class Leaks:
    """What two splits share: ids, and pairs of ids (train, test) whose questions have the same normalized text."""

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
    """Return the gold of the questions that the corpus has neither as a document nor as a chunk."""
    missing: dict[str, tuple[str, ...]] = {}
    total = 0
    for question in questions:
        gold = gold_of(question, corpus)
        total += gold.needs
        present = frozenset[int]().union(*gold.documents.values(), *gold.chunks.values())
        if ids := tuple(fact[0] for number, fact in enumerate(_facts(question)) if number not in present):
            missing[question.id] = ids
    return MissingGold(missing, total)


def leaks(train: Sequence[Question], test: Sequence[Question]) -> Leaks:
    """Return what the two splits share: ids, and questions with the same normalized text."""
    train_ids = {question.id for question in train}
    first_of_text: dict[str, str] = {}
    for question in train:
        first_of_text.setdefault(normalised(question.question), question.id)
    texts = [(normalised(question.question), question.id) for question in test]
    same_text = tuple((first_of_text[text], test_id) for text, test_id in texts if text in first_of_text)
    same_id = dict.fromkeys(question.id for question in test if question.id in train_ids)
    return Leaks(tuple(same_id), same_text)


def normalised(text: str) -> str:
    """Return the words of a text in Unicode NFKC, casefolded, without punctuation, one space between two."""
    return " ".join(_WORDS.findall(normal_form("NFKC", text).casefold()))


def listed(items: Iterable[str]) -> str:
    """Return the first items, and how many more there are."""
    names = list(items)
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(islice(names, LISTED)) + more


def has_gold(question: Question) -> bool:
    """Return whether there is gold to measure by."""
    return bool(question.gold or question.facts)


def questions_with_gold(questions: Sequence[Question]) -> list[Question]:
    """Those that can be measured."""
    return [question for question in questions if has_gold(question)]
