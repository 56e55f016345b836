"""Fitting the calibration: withheld documents, questions without an answer, and what is learned from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from context_agent import BridgePolicy, MemoryCorpus, SearchAgent
from context_agent.errors import DataError
from context_agent.policies.bridge import Effort, Scorer
from context_agent.retrieval.corpus import Corpus
from context_agent.testing.embedders import HashEmbedder
from context_agent.train.bridge.calibration_fit import (
    AssessedEpisode,
    assessed_episodes,
    calibration_tasks,
    fit_calibration,
    logistic_regression,
)
from context_agent.train.bridge.episodes import FOLDS, BridgeSource
from context_agent.train.bridge.withheld_corpus import WithheldCorpus
from context_agent.types import Question
from tests.support.two_hop_films import world


def source(name: str, questions: Sequence[Question], corpus: MemoryCorpus) -> BridgeSource:
    return BridgeSource(name, corpus, questions)


@pytest.fixture(scope="module")
def films() -> BridgeSource:
    documents, questions = world()
    rows = [Question(str(number), text, gold=tuple(sorted(gold))) for number, (text, gold) in enumerate(questions)]
    return BridgeSource("films", MemoryCorpus(documents, embedder=HashEmbedder()), rows)


def test_a_corpus_can_do_without_some_documents(films: BridgeSource) -> None:
    corpus = WithheldCorpus(films.corpus, ["d3"])
    (withheld,) = films.corpus.read("d3")
    assert isinstance(corpus, Corpus)
    assert corpus.count() == films.corpus.count() - 1
    assert films.corpus.search(withheld.title, k=1)[0].chunk.id == withheld.id
    assert withheld.id not in {hit.chunk.id for hit in corpus.search(withheld.title)}
    assert corpus.read("d3") == corpus.get([withheld.id]) == corpus.grep(withheld.text) == []
    assert withheld.id not in {chunk.id for chunk in corpus.walk()}
    assert (films.corpus.document_frequency(["carpenter"]) - corpus.document_frequency(["carpenter"])).tolist() == [1]


def test_every_question_comes_with_one_that_has_no_answer(films: BridgeSource) -> None:
    strange = [Question(f"x{number}", "Who?", gold=("elsewhere",)) for number in range(3)]
    other = BridgeSource("other", films.corpus, [*strange, films.questions[0]])
    few = BridgeSource("films", films.corpus, films.questions[:6])
    tasks = list(calibration_tasks(few, [few, other]))
    assert [task.question.id for task in tasks] == ["0", "0", "1", "x0", "2", "2", "3", "x1", "4", "4", "5", "x2"]
    assert [bool(task.gold) for task in tasks] == [True, False] * 6
    alone = list(calibration_tasks(few, [few]))
    assert [task.question.id for task in alone] == [str(number // 2) for number in range(12)]
    assert all(isinstance(task.corpus, WithheldCorpus) for task in alone[1::2])


def test_logistic_regression_finds_the_model_that_made_the_data() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(4000, 2)) * [1, 10] + [0, 50]
    logits = 1.0 + 2.0 * rows[:, 0] - 0.1 * (rows[:, 1] - 50)
    labels = rng.random(4000) < 1 / (1 + np.exp(-logits))
    fitted = logistic_regression(rows, labels, np.ones(4000))
    np.testing.assert_allclose(fitted, [6.0, 2.0, -0.1], rtol=0.15)
    predicted = 1 / (1 + np.exp(-(fitted[0] + rows @ fitted[1:])))
    assert predicted.mean() == pytest.approx(labels.mean(), abs=1e-3)


def test_separable_and_constant_data_have_a_model() -> None:
    rows = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0], [3.0, 1.0]])
    fitted = logistic_regression(rows, np.array([0, 0, 1, 1]), np.ones(4))
    assert np.isfinite(fitted).all()
    assert fitted[1] > 0


def test_the_calibration_tells_questions_without_an_answer(films: BridgeSource) -> None:
    few = BridgeSource("films", films.corpus, films.questions[:4])
    shipped = Scorer.shipped()
    policy = BridgePolicy(shipped, effort=Effort(searches=8))
    shares: list[float] = []
    episodes = assessed_episodes([few], dict.fromkeys(range(FOLDS), policy), lambda _, share: shares.append(share))
    assert len(episodes) == 8
    assert shares[-1] == 1.0
    assert sum(e.weight for e in episodes if e.answerable) == pytest.approx(4)
    agent = SearchAgent(few.corpus, BridgePolicy(Scorer.of(shipped.networks, fit_calibration(episodes))))
    answered, unanswered = agent.search(films.questions[50].question), agent.search("Who painted the Night Watch?")
    assert answered.sufficient
    assert not unanswered.sufficient


def test_episodes_of_one_kind_calibrate_nothing() -> None:
    episode = AssessedEpisode(True, *(np.zeros(size, np.float32) for size in (5, 5, 2, 2)))
    with pytest.raises(DataError, match="every episode can find an answer, so there is nothing to calibrate with"):
        fit_calibration([episode])
    with pytest.raises(DataError, match="the corpus answers no question, so there is nothing to calibrate with"):
        fit_calibration([])
