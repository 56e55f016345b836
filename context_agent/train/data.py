"""The corpus and the questions of a run. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from context_agent._support.question_files import load_questions
from context_agent.errors import ConfigError, DataError
from context_agent.eval.gold import MissingGold, missing_gold
from context_agent.retrieval.corpus import Corpus
from context_agent.train.config import DataConfig, Notify
from context_agent.train.toy.environment import ToyEnvironment, make_environment
from context_agent.types import Question


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Corpus and questions of the episodes. `world` is the toy environment that they come from, if any."""

    corpus: Corpus
    questions: Sequence[Question]
    dev: Sequence[Question]
    world: ToyEnvironment | None = None


def environment_of(data: DataConfig) -> ToyEnvironment | None:
    """Return the toy environment of the run file; None if it has none."""
    return None if data.world is None else make_environment(data.world)


@contextmanager
def open_data(data: DataConfig, note: Notify, world: ToyEnvironment | None = None) -> Iterator[TrainingData]:
    """Corpus and questions, checked against each other.

    Raises `ConfigError` if the run file names no questions, and `DataError` for gold that is not in the index, unless
    such questions are to be dropped.
    """
    if world is not None:
        yield TrainingData(world.corpus, world.questions["train"], world.questions["dev"], world)
        return
    if not data.questions:
        raise ConfigError("the run file names no questions: set data.questions to question files")
    with ExitStack() as stack:
        corpus = stack.enter_context(open_corpus(data))
        questions, dev = (_questions(files, note) for files in (data.questions, data.dev))
        yield TrainingData(
            corpus, _with_indexed_gold(corpus, questions, data, note), _with_indexed_gold(corpus, dev, data, note)
        )


@contextmanager
def open_corpus(data: DataConfig) -> Iterator[Corpus]:
    """Yield the index, or the documents in memory. Raise `ConfigError` if the run file names neither."""
    from context_agent.retrieval.rerankers import load_reranker

    if data.documents:
        from context_agent.retrieval.loaders import load
        from context_agent.retrieval.memory import MemoryCorpus

        yield MemoryCorpus(load(data.documents), embedder=data.embedder, reranker=load_reranker(data.reranker))
        return
    from context_agent.retrieval.chroma.corpus import ChromaCorpus

    if data.path is None and data.url is None:
        raise ConfigError(
            "the run file names no index: set data.path (a folder of `ctx1 index`), data.url, or data.documents"
        )
    with ChromaCorpus.open(
        data.path,
        url=data.url,
        collection=data.collection,
        embedder=data.embedder,
        reranker=load_reranker(data.reranker),
    ) as corpus:
        yield corpus


def _questions(files: Sequence[str], note: Notify) -> list[Question]:
    problems: list[str] = []
    questions = [question for file in files for question in load_questions(file, problems=problems)]
    for problem in problems:
        note(f"skipped: {problem}")
    return questions


def _with_indexed_gold(corpus: Corpus, questions: Sequence[Question], data: DataConfig, note: Notify) -> list[Question]:
    """Return the questions whose gold is in the index. Raises `DataError` unless the others are to be dropped."""
    lost: MissingGold = missing_gold(corpus, questions)
    if lost and data.missing_gold == "refuse":
        raise DataError(
            f"{lost}. No episode can retrieve it: index the documents, or set data.missing_gold to drop these questions"
        )
    if lost:
        note(f"{len(lost.questions)} of {len(questions)} questions dropped: {lost}")
    return [question for question in questions if question.id not in lost.questions]
