"""The fit of the embedded policy's calibration, which turns its scores and its evidence into probabilities.

For each question, a policy that did not learn from it plays an episode on the question's corpus. The policy then plays
a question that the corpus cannot answer. Two kinds of such questions alternate. One kind is the same question on the
corpus without its gold documents. The other kind is a question of another source that has no gold in this corpus. One
logistic model learns from the evidence which questions have an answer. A second model uses the first one's result and
learns which of the ranked documents are gold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from context_agent.budget import Budget
from context_agent.errors import DataError
from context_agent.harness.profile import default
from context_agent.harness.rendering import Renderer
from context_agent.policies.bridge import BridgePolicy, Scorer
from context_agent.policies.bridge.candidates import Floats, document_rows
from context_agent.policies.bridge.score_calibration import ScoreCalibration, log_odds
from context_agent.retrieval.corpus import Corpus
from context_agent.tokens import HarmonyCounter
from context_agent.train.bridge.episodes import BridgeSource, OnBridgeProgress, fold_of, play
from context_agent.train.bridge.withheld_corpus import WithheldCorpus
from context_agent.types import Question

if TYPE_CHECKING:
    from context_agent.train.bridge.training import TrainedBridge

QUESTIONS = 120
"""Largest number of questions of a source that are played."""


RANKED = 10
"""Number of documents of an episode to which the relevance is fitted. A ranking has as many."""


RIDGE = 1.0
"""Penalty on the squared coefficients of the logistic models."""


LEAST_SPREAD = 0.25
"""Smallest standard deviation by which an input is divided.

A few similar questions say little about an input that hardly varies among them. With this bound, the penalty keeps its
coefficient small.
"""


NEWTON_STEPS = 25
"""Number of steps of Newton's method."""


@dataclass(frozen=True, slots=True)
class AssessedEpisode:
    """An episode with its evidence, and with a label for each of its documents.

    Attributes:
        answerable: True if the corpus has the question's gold.
        features: The features of its evidence, shape (features,).
        unread: The same features, computed without the reader's scores, shape (features,).
        scores: The scores of its best documents, shape (documents,).
        labels: 1 for a gold document, otherwise 0, shape (documents,).
        weight: Weight of the episode. In each source, all episodes with an answer have one weight, and all without an
            answer another.
    """

    answerable: bool
    features: Floats
    unread: Floats
    scores: Floats
    labels: Floats
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class CalibrationTask:
    """A question to play on a corpus.

    Attributes:
        question: The question.
        corpus: The corpus.
        gold: The ids of its gold documents in the corpus. Empty if the corpus has none.
    """

    question: Question
    corpus: Corpus
    gold: AbstractSet[str] = frozenset()


def calibrate(
    trained: TrainedBridge, sources: Sequence[BridgeSource], report: OnBridgeProgress, questions: int = QUESTIONS
) -> TrainedBridge:
    """Return the trained networks with a calibration, fitted on the sources that they were trained on.

    Args:
        trained: The networks, with a policy for each fold.
        sources: The sources.
        report: A function that receives the progress.
        questions: Largest number of questions of a source that are played.

    Returns:
        A copy of `trained`. Its scorer has the calibration.

    Raises:
        DataError: If no episode saw a passage, or if every question has an answer.
    """
    calibration = fit_calibration(assessed_episodes(sources, trained.folds, report, questions))
    return replace(
        trained, scorer=Scorer.of(trained.scorer.networks, calibration, trained.scorer.head, trained.scorer.ranker)
    )


def assessed_episodes(
    sources: Sequence[BridgeSource],
    policies: Mapping[int, BridgePolicy],
    report: OnBridgeProgress,
    questions: int = QUESTIONS,
) -> list[AssessedEpisode]:
    """Play the sources' questions, with and without their gold.

    Args:
        sources: The sources.
        policies: For each fold, a policy that did not learn from its questions.
        report: A function that receives the progress.
        questions: Largest number of questions of a source that are played.

    Returns:
        The episodes that saw at least one passage.
    """
    episodes: list[AssessedEpisode] = []
    for number, source in enumerate(sources):
        tasks = list(calibration_tasks(source, sources, questions))
        played = []
        for done, task in enumerate(tasks, start=1):
            played.append(_assessed(task, policies[fold_of(task.question.id)]))
            report("confidence: playing episodes", (number + done / len(tasks)) / len(sources))
        episodes += _weighted([episode for episode in played if episode is not None], source.weight)
    return episodes


def calibration_tasks(
    source: BridgeSource, sources: Sequence[BridgeSource], most: int = QUESTIONS
) -> Iterator[CalibrationTask]:
    """Yield the tasks of a source: each question with gold, followed by a question that the corpus cannot answer.

    Args:
        source: The source.
        sources: All sources. Questions that the corpus cannot answer come from them in every second case.
        most: Largest number of questions of the source.

    Yields:
        The tasks.
    """
    questions = [question for question in source.questions if question.gold][:most]
    foreign = cycle(
        [
            question
            for other in sources
            for question in other.questions
            if question.gold and not any(source.corpus.read(document) for document in question.gold)
        ]
        or [None]
    )
    for number, question in enumerate(questions):
        yield CalibrationTask(question, source.corpus, frozenset(question.gold))
        stranger = next(foreign) if number % 2 else None
        if stranger is not None:
            yield CalibrationTask(stranger, source.corpus)
        else:
            yield CalibrationTask(question, WithheldCorpus(source.corpus, question.gold))


def fit_calibration(episodes: Sequence[AssessedEpisode]) -> ScoreCalibration:
    """Fit the two logistic models to episodes.

    Args:
        episodes: The episodes.

    Returns:
        The calibration.

    Raises:
        DataError: If there are no episodes with an answer, or no episodes without one.
    """
    answerable = np.array([episode.answerable for episode in episodes])
    if not answerable.any():
        raise DataError(
            "the corpus answers no question, so there is nothing to calibrate with. Add questions that the corpus "
            "answers."
        )
    if answerable.all():
        raise DataError(
            "every episode can find an answer, so there is nothing to calibrate with. To make a question without an "
            "answer, calibration hides its gold documents, but the corpus has no others. Add documents that are not "
            "gold."
        )
    weights = np.array([episode.weight for episode in episodes])
    unread = np.stack([episode.unread[:-1] for episode in episodes])
    evidence = np.tile(np.append(logistic_regression(unread, answerable, weights), np.float32(0)), (2, 1))
    features = np.stack([episode.features for episode in episodes])
    read = np.isfinite(features[:, -1])
    if 0 < answerable[read].sum() < read.sum():
        evidence[1] = logistic_regression(features[read], answerable[read], weights[read])
    calibration = ScoreCalibration(evidence, np.array([0, 0, 1], dtype=np.float32))
    rows, labels, row_weights = [], [], []
    for episode in episodes:
        trust = log_odds(np.array([calibration.confidence(episode.features)]))[0]
        rows += [[trust, score] for score in log_odds(episode.scores)]
        labels += episode.labels.tolist()
        row_weights += [episode.weight] * len(episode.scores)
    relevance = logistic_regression(np.array(rows), np.array(labels), np.array(row_weights))
    return replace(calibration, relevance=relevance)


def logistic_regression(rows: Floats, labels: NDArray[np.generic], weights: Floats) -> Floats:
    """Fit a logistic model by Newton's method.

    Each input is divided by its standard deviation, or by `LEAST_SPREAD` if the deviation is smaller. The penalty
    `RIDGE` applies to the squared coefficients of these scaled inputs. The constant is penalized very little, so the
    mean prediction equals the mean label.

    Args:
        rows: The inputs, shape (n_rows, n_features).
        labels: 1 or 0, shape (n_rows,).
        weights: The weights of the rows, shape (n_rows,).

    Returns:
        The constant and the coefficients, shape (1 + n_features,).
    """
    mean, spread = rows.mean(axis=0), np.maximum(rows.std(axis=0), LEAST_SPREAD)
    inputs = np.concatenate([np.ones((len(rows), 1)), (rows - mean) / spread], axis=1)
    penalty = np.diag([1e-6, *[RIDGE] * rows.shape[1]])
    target, beta = np.asarray(labels, dtype=np.float64), np.zeros(inputs.shape[1])
    for _ in range(NEWTON_STEPS):
        share = 1 / (1 + np.exp(-np.clip(inputs @ beta, -30, 30)))
        slope = inputs.T @ (weights * (target - share)) - penalty @ beta
        curvature = (inputs * (weights * share * (1 - share))[:, None]).T @ inputs + penalty
        beta += np.linalg.solve(curvature, slope)
    factors = beta[1:] / spread
    return np.array([beta[0] - factors @ mean, *factors], dtype=np.float32)


def _assessed(task: CalibrationTask, policy: BridgePolicy) -> AssessedEpisode | None:
    """Play a task and return its episode. If the episode saw no passage, return None."""
    renderer = Renderer(default(), HarmonyCounter())
    actor = asyncio.run(play(task.question.question, task.corpus, policy, Budget(), renderer))
    if not len(actor.notes):
        return None
    scores = actor.scores
    rows = document_rows(actor.notes, scores)[:RANKED]
    documents = [actor.notes.candidates[row].document_id for row in rows]
    labels = np.array([document in task.gold for document in documents], dtype=np.float32)
    judgment = actor.judgment
    unread = judgment.evidence(judgment.unread_scores(), read=False)
    return AssessedEpisode(bool(task.gold), judgment.evidence(scores), unread, scores[rows], labels)


def _weighted(episodes: Sequence[AssessedEpisode], weight: float) -> list[AssessedEpisode]:
    """Return the episodes with new weights. Episodes with and without an answer have the same total weight.

    The mean of all weights is `weight`.
    """
    counts = {kind: sum(episode.answerable is kind for episode in episodes) for kind in (True, False)}
    return [replace(e, weight=weight * len(episodes) / (2 * counts[e.answerable])) for e in episodes]
