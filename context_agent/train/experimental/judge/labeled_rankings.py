"""Rankings with labels from gold. Some were recorded, and others are synthetic."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from context_agent.errors import ContextAgentError
from context_agent.eval import metrics
from context_agent.eval.gold import Gold, gold_of, has_gold, normalized
from context_agent.eval.metrics import f_beta
from context_agent.harness.trajectory_file import read
from context_agent.retrieval.corpus import Corpus
from context_agent.train.experimental.judge.judge import JudgedRanking
from context_agent.train.experimental.judge.pool import final_ranking
from context_agent.types import Question, RankedChunk, RankedDocument


@dataclass(frozen=True, slots=True)
class LabeledRanking:
    """A ranking with its label.

    Attributes:
        question_id: The id of the question.
        ranking: The ranking.
        recall: Recall of the ranking.
        precision: Precision of the ranking.
    """

    question_id: str
    ranking: JudgedRanking
    recall: float
    precision: float

    @property
    def f1(self) -> float:
        """Harmonic mean of recall and precision."""
        return f_beta(self.precision, self.recall)


RANKING_LENGTH = 5
"""Number of documents in a synthetic ranking."""


def recorded_rankings(
    paths: Iterable[Path], questions: Sequence[Question], corpus: Corpus | None, note: Callable[[str], None]
) -> Iterator[LabeledRanking]:
    """Yield the final rankings of recorded episodes. If the question of an episode has no gold, the episode is counted
    and skipped.

    Args:
        paths: Files of trajectories.
        questions: The questions. Those without gold are ignored.
        corpus: The corpus in which gold is looked up. If it is None, the gold that the questions name is used.
        note: A function that receives messages about skipped files.

    Yields:
        The labeled rankings.
    """
    by_id = {question.id: question for question in questions if has_gold(question)}
    by_text = {normalized(item.question): item for item in by_id.values()}
    foreign = 0
    for path in paths:
        try:
            trajectory = read(path)
        except ContextAgentError as error:
            note(f"skipped: {error}")
            continue
        header = trajectory.header
        question = by_id.get(header.question_id or "")
        # Two sets of questions may use the same ids.
        if question is None or normalized(question.question) != normalized(header.question):
            question = by_text.get(normalized(header.question))
        if question is None or trajectory.end is None:
            foreign += 1
            continue
        yield _label_ranking(question, final_ranking(question, trajectory), gold_of(question, corpus))
    if foreign:
        note(f"{foreign} trajectories are left out, because they are incomplete or belong to no question with gold")


def synthetic_rankings(corpus: Corpus, questions: Iterable[Question], *, seed: int = 0) -> Iterator[LabeledRanking]:
    """Yield three rankings for each question: with all of its gold, half of it, and none. A single gold document has no
    half.

    A ranking has `RANKING_LENGTH` documents. If it has at least as many gold documents, it is longer. The other
    documents come from a search for the question. The order is random. If a question's gold is not in the corpus, the
    question is skipped.

    Args:
        corpus: The corpus.
        questions: The questions.
        seed: Seed of the order.

    Yields:
        The labeled rankings.
    """
    for question in questions:
        gold = gold_of(question, corpus) if has_gold(question) else Gold(0)
        gold_documents = _gold_documents(gold, corpus)
        if not gold_documents or gold.missing:
            continue
        rest = _distractors(question, gold, corpus)
        for share in (1.0, 0.5, 0.0) if len(gold_documents) > 1 else (1.0, 0.0):
            included = gold_documents[: round(len(gold_documents) * share)]
            documents = [*included, *rest[: max(1, RANKING_LENGTH - len(included))]]
            random.Random(f"{seed}:{question.id}:{share}").shuffle(documents)
            ranking = JudgedRanking(question.question, tuple(documents), question.answer)
            yield _label_ranking(question, ranking, gold)


def _label_ranking(question: Question, ranking: JudgedRanking, gold: Gold) -> LabeledRanking:
    relevance = [gold.found_by(document.id, (chunk.id for chunk in document.chunks)) for document in ranking.documents]
    recall, precision = metrics.recall_of(relevance, gold.needs), metrics.precision_of(relevance)
    return LabeledRanking(question.id, ranking, recall, precision)


def _gold_documents(gold: Gold, corpus: Corpus) -> list[RankedDocument]:
    """Return the gold documents. If gold is a chunk, its document is returned with that chunk first."""
    result: dict[str, RankedDocument] = {}
    for document in gold.documents:
        result[document] = _document(corpus, document, ())
    for chunk in corpus.get(list(gold.chunks)):
        result.setdefault(chunk.document_id, _document(corpus, chunk.document_id, (chunk.id,)))
    return list(result.values())


def _distractors(question: Question, gold: Gold, corpus: Corpus) -> list[RankedDocument]:
    hits = corpus.search(question.question, k=8 * RANKING_LENGTH)
    ids = dict.fromkeys(
        hit.chunk.document_id for hit in hits if not gold.found_by(hit.chunk.document_id, (hit.chunk.id,))
    )
    # A document is gold even if the search did not find its gold chunk.
    golden_documents = {chunk.document_id for chunk in corpus.get(list(gold.chunks))} | set(gold.documents)
    return [_document(corpus, item, ()) for item in ids if item not in golden_documents][:RANKING_LENGTH]


def _document(corpus: Corpus, document_id: str, first: Sequence[str]) -> RankedDocument:
    chunks = sorted(corpus.read(document_id), key=lambda chunk: chunk.id not in first)[:2]
    ranked = tuple(RankedChunk(chunk.id, chunk.text, 1.0) for chunk in chunks)
    return RankedDocument(document_id, chunks[0].title if chunks else "", 1.0, ranked)
