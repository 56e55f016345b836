"""The corpus and the questions of a run, and how to open them.

This module does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256

from context_agent._support.question_files import load_questions
from context_agent.errors import ConfigError, DataError
from context_agent.eval.data_checks import MAX_LISTED, leaks, missing_gold, with_similar_ids
from context_agent.retrieval.corpus import Corpus
from context_agent.text.counts import counted
from context_agent.train.config import DataConfig, Notify
from context_agent.train.toy.environment import make_environment
from context_agent.types import Question


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The corpus and the questions of a run's episodes.

    Attributes:
        corpus: The corpus that episodes search.
        questions: Questions for training.
        dev: Questions for evaluation.
    """

    corpus: Corpus
    questions: Sequence[Question]
    dev: Sequence[Question]


@contextmanager
def open_data(data: DataConfig, note: Notify) -> Iterator[TrainingData]:
    """Open the corpus and the questions of a run, and check that the gold is in the corpus.

    Args:
        data: The data table of the run file. If it describes a toy environment, both come from there.
        note: A function that receives messages about skipped and dropped questions.

    Yields:
        The corpus and the questions.

    Raises:
        ConfigError: If the run file names no questions or no index.
        DataError: If there are no questions, or two files have a question of the same id. Also if a question's gold is
            not in the index and `data.missing_gold` does not allow dropping the question.
    """
    if data.world is None and not data.questions:
        raise ConfigError("the run file names no questions. Set data.questions to question files.")
    with open_corpus(data) as corpus:
        if data.world is not None:
            questions = make_environment(data.world).questions
            yield TrainingData(corpus, questions["train"], questions["dev"])
            return
        train, dev = (_read_questions(files, note) for files in (data.questions, data.dev))
        if known := leaks(train, dev).questions:
            note(
                f"data.dev and data.questions share {counted(len(known), 'question')}, so the evaluation partly "
                "measures what was trained"
            )
        yield TrainingData(
            corpus, _with_indexed_gold(corpus, train, data, note), _with_indexed_gold(corpus, dev, data, note)
        )


@contextmanager
def open_corpus(data: DataConfig) -> Iterator[Corpus]:
    """Open the index of a run, load its documents into memory, or make its toy environment.

    Args:
        data: The data table of the run file.

    Yields:
        The corpus.

    Raises:
        ConfigError: If the run file names no index, no documents and no toy environment.
    """
    if data.world is not None:
        yield make_environment(data.world).corpus
        return
    from context_agent.retrieval.rerankers import load_reranker

    if data.documents:
        from context_agent.retrieval.loaders import load
        from context_agent.retrieval.memory import MemoryCorpus

        yield MemoryCorpus(load(data.documents), embedder=data.embedder, reranker=load_reranker(data.reranker))
        return
    from context_agent.retrieval.chroma.corpus import ChromaCorpus

    if data.path is None and data.url is None:
        raise ConfigError(
            "the run file names no index. Set data.path to a folder of `ctx1 index`, data.url to the address of a "
            "Chroma server, or data.documents to files or folders to index in memory."
        )
    with ChromaCorpus.open(
        data.path,
        url=data.url,
        collection=data.collection,
        embedder=data.embedder,
        reranker=load_reranker(data.reranker),
    ) as corpus:
        yield corpus


def corpus_digest(corpus: Corpus) -> str:
    """Return a digest of all that a policy can read in a corpus: the ids, titles and texts of its chunks."""
    digest = sha256()
    for chunk in corpus.walk():
        digest.update(repr((chunk.id, chunk.title, chunk.text)).encode())
    return digest.hexdigest()[:16]


def _read_questions(files: Sequence[str], note: Notify) -> list[Question]:
    """Return the questions of the files. Skip invalid rows with a note.

    Raises:
        DataError: If two files have the same id, because the id of a question names its gold and its group. Also if
            there are files, but no questions.
    """
    problems: list[str] = []
    questions: dict[str, Question] = {}
    file_of_id: dict[str, str] = {}
    for file in files:
        for question in load_questions(file, problems=problems):
            if not question.question.strip():
                problems.append(f"{file}: the question with the id {question.id!r} is empty")
                continue
            if question.id in questions:
                raise DataError(
                    f"{file} and {file_of_id[question.id]} both have a question with the id {question.id!r}, which is "
                    "the number of the line if a question names no id. Give each question an id of its own."
                )
            questions[question.id], file_of_id[question.id] = question, file
    for problem in problems[:MAX_LISTED]:
        note(f"skipped: {problem}")
    if len(problems) > MAX_LISTED:
        note(f"skipped: {len(problems) - MAX_LISTED:,} more rows")
    if files and not questions:
        raise DataError(
            f"{', '.join(files)} {'has' if len(files) == 1 else 'have'} no questions. Write questions with `gold`, or "
            "make some with `ctx1 synth tasks`."
        )
    return list(questions.values())


def _with_indexed_gold(corpus: Corpus, questions: Sequence[Question], data: DataConfig, note: Notify) -> list[Question]:
    """Return the questions that have their gold in the index. If the other questions may not be dropped, raise
    `DataError`.
    """
    lost = with_similar_ids(missing_gold(corpus, questions), corpus)
    if lost and data.missing_gold == "refuse":
        raise DataError(
            f'{lost}. No episode can retrieve it. Index the documents, or set data.missing_gold = "drop" to leave '
            "these questions out."
        )
    if lost:
        note(f"{len(lost.questions)} of {len(questions)} questions are dropped, because {lost}")
    return [question for question in questions if question.id not in lost.questions]
