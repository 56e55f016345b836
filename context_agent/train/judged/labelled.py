"""Rankings with labels, to compare a judge with: those of recorded episodes, or some made of the corpus."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from context_agent.errors import ContextAgentError
from context_agent.eval import metrics
from context_agent.eval.gold import Gold, gold_of, normalised
from context_agent.harness.trajectory_file import read
from context_agent.questions import Question
from context_agent.retrieval.protocol import Corpus
from context_agent.train.judged.calibration import Labelled
from context_agent.train.judged.judge import Ranking
from context_agent.train.judged.terms import golden, ranking
from context_agent.types import RankedChunk, RankedDocument

PLACES = 5
"""Documents of a ranking that is made up."""


def played(
    paths: Iterable[Path], questions: Sequence[Question], corpus: Corpus | None, note: Callable[[str], None]
) -> Iterator[Labelled]:
    """The rankings that recorded episodes ended with, for questions with gold; others are passed over, and counted."""
    by_id = {one.id: one for one in questions if golden(one)}
    by_text = {normalised(one.question): one for one in by_id.values()}
    foreign = 0
    for path in paths:
        try:
            trajectory = read(path)
        except ContextAgentError as error:
            note(f"left out: {error}")
            continue
        header = trajectory.header
        question = by_id.get(header.question_id or "") or by_text.get(normalised(header.question))
        if question is None or trajectory.end is None:
            foreign += 1
            continue
        yield _labelled(question, ranking(question, trajectory), gold_of(question, corpus))
    if foreign:
        note(f"{foreign} trajectories are cut, or of no question with gold here")


def made_up(corpus: Corpus, questions: Iterable[Question], *, seed: int = 0) -> Iterator[Labelled]:
    """Three rankings a question, of `PLACES` documents each: with all its gold, with half of it, and with none.

    The other places have what a search for the question brings up and is not gold; the order is drawn. Questions whose
    gold is not in the corpus are passed over.
    """
    for question in questions:
        gold = gold_of(question, corpus) if golden(question) else Gold(0)
        found = _gold_documents(gold, corpus)
        if not found or gold.missing:
            continue
        others = _lookalikes(question, gold, corpus)
        for share in (1.0, 0.5, 0.0):
            kept = found[: round(len(found) * share)] if share else []
            documents = [*kept, *others[: max(1, PLACES - len(kept))]]
            random.Random(f"{seed}:{question.id}:{share}").shuffle(documents)
            shown = Ranking(question.question, tuple(documents), question.answer)
            yield _labelled(question, shown, gold)


def _labelled(question: Question, shown: Ranking, gold: Gold) -> Labelled:
    found = [gold.found_by(one.id, (chunk.id for chunk in one.chunks)) for one in shown.documents]
    return Labelled(question.id, shown, metrics.recall_of(found, gold.needs), metrics.precision_of(found))


def _gold_documents(gold: Gold, corpus: Corpus) -> list[RankedDocument]:
    """Each gold document, or the document of a gold chunk with that chunk first; as many as the gold has needs."""
    made: dict[str, RankedDocument] = {}
    for one in gold.documents:
        made[one] = _document(corpus, one, ())
    for chunk in corpus.get(list(gold.chunks)):
        made.setdefault(chunk.document_id, _document(corpus, chunk.document_id, (chunk.id,)))
    return list(made.values())


def _lookalikes(question: Question, gold: Gold, corpus: Corpus) -> list[RankedDocument]:
    hits = corpus.search(question.question, limit=8 * PLACES)
    ids = dict.fromkeys(
        hit.chunk.document_id for hit in hits if not gold.found_by(hit.chunk.document_id, (hit.chunk.id,))
    )
    # A document with a gold chunk that the search did not bring up is gold all the same.
    golden_documents = {chunk.document_id for chunk in corpus.get(list(gold.chunks))} | set(gold.documents)
    return [_document(corpus, one, ()) for one in ids if one not in golden_documents][:PLACES]


def _document(corpus: Corpus, document_id: str, first: Sequence[str]) -> RankedDocument:
    chunks = sorted(corpus.read(document_id), key=lambda chunk: chunk.id not in first)[:2]
    ranked = tuple(RankedChunk(chunk.id, chunk.text, 1.0) for chunk in chunks)
    return RankedDocument(document_id, chunks[0].title if chunks else "", 1.0, ranked)
