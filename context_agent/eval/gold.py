"""Gold of a question: what counts as found in a corpus, and whether a text contains the answer.

A gold id may name a document or a chunk. The corpus decides which, never the spelling of the id. The id `a_1` may be
chunk 1 of document `a` in one corpus, a document in another, and both in a third.

A text contains an answer if it has the same words in the same order. Both are normalized first:

- Letters are decomposed (Unicode NFKD) and casefolded, and combining marks are dropped.
- Apostrophes, and commas between digits, are dropped. Every other character that is neither a letter nor a digit
  separates words.
- The articles a, an and the are dropped, unless the answer has no other word.
- In scripts without spaces (Chinese, Japanese, Thai) each character is a word.

The test finds words, not meanings. A document that uses the words in another sense passes too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Protocol

from context_agent.text.normalization import normal_form
from context_agent.types import Chunk, Question

__all__ = [
    "CorpusLookup",
    "Gold",
    "Question",
    "contains_answer",
    "gold_of",
    "is_checkable",
    "normalized",
    "question_key",
    "words",
]

_ARTICLES = frozenset({"a", "an", "the"})
_TRUTH_VALUES = frozenset({"yes", "no", "true", "false"})
_DROPPED = re.compile(r"['’ʼ`]|(?<=\d),(?=\d)")
_UNSPACED = re.compile(r"[\u0e01-\u0e3a\u0e40-\u0e4e\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_WORDS = re.compile(r"\w+")


class CorpusLookup(Protocol):
    """The part of a `Corpus` that shows which ids exist."""

    def read(self, document_id: str) -> list[Chunk]:
        """Return all chunks of a document. If the document does not exist, return an empty list."""

    def get(self, chunk_ids: list[str]) -> list[Chunk]:
        """Return the chunks with these ids. Unknown ids are left out."""


@dataclass(frozen=True, slots=True)
class Gold:
    """The evidence that a question needs, and the documents and chunks that provide it.

    Attributes:
        needs: The number of pieces of evidence to find. The pieces are numbered from 0.
        documents: The numbers of the evidence that each document provides, by document id.
        chunks: The numbers of the evidence that each chunk provides, by chunk id.
        missing: Ids that the corpus knows neither as a document nor as a chunk. Their evidence counts as not found.
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
    """Return the question's gold: its facts if it has any, or else its gold documents.

    Args:
        question: The question.
        corpus: The corpus that says whether an id is a document or a chunk. If an id is both, an id in `gold` means the
            document and an id in `facts` means the chunk. Without a corpus, all ids in `gold` are taken as documents
            and all ids in `facts` as chunks.
    """
    facts = facts_of(question)
    ids = list(dict.fromkeys(gold_id for fact in facts for gold_id in fact))
    documents, chunks = _documents_and_chunks(ids, bool(question.facts), corpus)
    missing = tuple(gold_id for gold_id in ids if gold_id not in documents and gold_id not in chunks)
    return Gold(len(facts), _fact_numbers(facts, documents), _fact_numbers(facts, chunks), missing)


def facts_of(question: Question) -> tuple[tuple[str, ...], ...]:
    """Return the question's facts. If it has none, return each gold document as a fact with one id."""
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
    """Return the numbers of the facts that name each id."""
    numbers: dict[str, set[int]] = {}
    for number, fact in enumerate(facts):
        for gold_id in fact:
            if gold_id in ids:
                numbers.setdefault(gold_id, set()).add(number)
    return {gold_id: frozenset(facts_of_id) for gold_id, facts_of_id in numbers.items()}


def words(text: str) -> list[str]:
    """Return the normalized words of a text, including articles."""
    letters = (letter for letter in normal_form("NFKD", text).casefold() if not unicodedata.combining(letter))
    spaced = _UNSPACED.sub(r" \g<0> ", _DROPPED.sub("", "".join(letters)))
    return re.findall(r"[^\W_]+", spaced)


def is_checkable(answer: str) -> bool:
    """Return True if a search for the answer's words can show that the answer was found.

    An empty answer has no words, and the words yes, no, true and false occur by chance.
    """
    answer_words = words(answer)
    return bool(answer_words) and not (len(answer_words) == 1 and answer_words[0] in _TRUTH_VALUES)


def contains_answer(texts: Iterable[str], answer: str) -> bool:
    """Return True if one of the texts contains the answer, which must be `is_checkable`."""
    answer_words = words(answer)
    content = [word for word in answer_words if word not in _ARTICLES]
    dropped = _ARTICLES if content else frozenset()
    phrase = f" {' '.join(content or answer_words)} "
    return any(phrase in f" {' '.join(word for word in words(text) if word not in dropped)} " for text in texts)


def normalized(text: str) -> str:
    """Return the words of a text in Unicode NFKC, casefolded, without punctuation, separated by single spaces."""
    return " ".join(_WORDS.findall(normal_form("NFKC", text).casefold()))


def question_key(text: str) -> str:
    """Return a key that equal questions share: the normalized words, or the text itself if it has no words."""
    return normalized(text) or text.strip()


def questions_digest(questions: Iterable[Question]) -> str:
    """Return a digest of questions in their order, with their answers and gold."""
    digest = sha256()
    for question in questions:
        digest.update(repr((question.id, question.question, question.answer, question.gold, question.facts)).encode())
    return digest.hexdigest()[:16]


def has_gold(question: Question) -> bool:
    """Return True if the question has gold documents or facts, so that recall can be measured."""
    return bool(question.gold or question.facts)


def questions_with_gold(questions: Sequence[Question]) -> list[Question]:
    """Return the questions that have gold."""
    return [question for question in questions if has_gold(question)]
