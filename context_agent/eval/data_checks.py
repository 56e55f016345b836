"""Checks of questions before an evaluation, because figures from broken data are misleading.

`missing_gold` lists gold that the index does not contain. No system can find it, so it lowers every system's recall.
`leaks` lists questions and ids that the train and test splits share. Shared ids matter because looking up a row by its
id could find a row of the other split. The published data of Context-1 has this fault.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from context_agent.eval.gold import facts_of, gold_of, question_key
from context_agent.retrieval.corpus import Corpus
from context_agent.text.counts import counted
from context_agent.types import Question

MAX_LISTED = 10
"""The maximum number of ids that a message lists."""


@dataclass(frozen=True, slots=True)
class MissingGold:
    """Gold that a corpus lacks.

    Attributes:
        questions: The missing ids by question id. If a corpus lacks every id of a fact, the fact's first id is listed.
        total: The number of all pieces of gold that the questions have.
        similar: For some of the missing ids, the id of a document that was probably meant.
    """

    questions: dict[str, tuple[str, ...]]
    total: int
    similar: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.questions)

    @property
    def ids(self) -> tuple[str, ...]:
        """The missing ids, each once, in the order of the questions."""
        return tuple(dict.fromkeys(gold_id for ids in self.questions.values() for gold_id in ids))

    def __str__(self) -> str:
        """Return one sentence that says how much is missing, and lists the first ids."""
        count = sum(map(len, self.questions.values()))
        verb = "is" if count == 1 else "are"
        text = f"{count} of {self.total} gold ids {verb} not in the index: {_listed(self.ids)}"
        if not self.similar:
            return text
        meant = next(iter(self.similar))
        found = self.similar[meant]
        same = unicodedata.normalize("NFC", meant) == unicodedata.normalize("NFC", found)
        return f"{text} (for {meant}, the index has {found}{' in another Unicode form' if same else ''})"


@dataclass(frozen=True, slots=True)
class Leaks:
    """Ids and questions that two splits share.

    Attributes:
        ids: Question ids that both splits have.
        questions: Pairs of ids (train, test) whose questions have the same normalized text.
    """

    ids: tuple[str, ...]
    questions: tuple[tuple[str, str], ...]

    def __bool__(self) -> bool:
        return bool(self.ids or self.questions)

    def __str__(self) -> str:
        """Return one sentence that says how many questions and ids are shared, and lists the first of them."""
        parts = []
        if self.questions:
            parts.append(f"{counted(len(self.questions), 'question')} ({_listed(test for _, test in self.questions)})")
        if self.ids:
            parts.append(f"{counted(len(self.ids), 'id')} ({_listed(self.ids)})")
        return f"train and test share {' and '.join(parts)}"


def missing_gold(corpus: Corpus, questions: Iterable[Question]) -> MissingGold:
    """Return the gold of the questions that the corpus has neither as a document nor as a chunk."""
    missing: dict[str, tuple[str, ...]] = {}
    total = 0
    for question in questions:
        gold = gold_of(question, corpus)
        total += gold.needs
        present = frozenset[int]().union(*gold.documents.values(), *gold.chunks.values())
        if ids := tuple(fact[0] for number, fact in enumerate(facts_of(question)) if number not in present):
            missing[question.id] = ids
    return MissingGold(missing, total)


def with_similar_ids(missing: MissingGold, corpus: Corpus) -> MissingGold:
    """Return what is missing with the ids of the corpus that were probably meant.

    An id is similar if only its case, its Unicode form, its folder or its ending differs.
    """
    if not missing:
        return missing
    wanted: dict[str, str] = {}
    for missing_id in missing.ids:
        for name in _names_of(missing_id):
            wanted.setdefault(name, missing_id)
    similar: dict[str, str] = {}
    for document_id in dict.fromkeys(chunk.document_id for chunk in corpus.walk()):
        for name in _names_of(document_id):
            if name in wanted:
                similar.setdefault(wanted[name], document_id)
    return replace(missing, similar=similar)


def _names_of(document_id: str) -> tuple[str, ...]:
    """Return the names under which people may know a document."""
    whole = unicodedata.normalize("NFC", document_id).casefold()
    name = whole.rpartition("/")[2]
    return tuple(dict.fromkeys(filter(None, (whole, name, name.rpartition(".")[0]))))


def leaks(train: Sequence[Question], test: Sequence[Question]) -> Leaks:
    """Return the ids that two splits share, and the questions with the same `question_key`."""
    train_ids = {question.id for question in train}
    first_of_text: dict[str, str] = {}
    for question in train:
        first_of_text.setdefault(question_key(question.question), question.id)
    texts = [(question_key(question.question), question.id) for question in test]
    same_text = tuple((first_of_text[text], test_id) for text, test_id in texts if text in first_of_text)
    same_id = dict.fromkeys(question.id for question in test if question.id in train_ids)
    return Leaks(tuple(same_id), same_text)


def _listed(items: Iterable[str]) -> str:
    """Join the first `MAX_LISTED` items with commas, and add how many more there are."""
    names = list(items)
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(islice(names, MAX_LISTED)) + more
