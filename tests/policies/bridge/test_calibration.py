"""Probabilities of the embedded policy: what they say, what they leave as it is, and weights without them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from context_agent import BridgePolicy, Document, MemoryCorpus, SearchAgent, SearchResult
from context_agent.policies.bridge import Scorer
from context_agent.policies.bridge.calibration import EVIDENCE, ScoreCalibration, log_odds, sigmoid
from tests.policies.bridge.test_policy import world
from tests.retrieval.fakes import HashEmbedder

TRUSTING = ScoreCalibration(np.array([-2, 0.3, 4, -6], dtype=np.float32), np.array([-0.5, 0.3, 0.6], dtype=np.float32))


def calibrated(calibration: ScoreCalibration | None = TRUSTING) -> BridgePolicy:
    shipped = Scorer.shipped()
    assert shipped is not None
    return BridgePolicy(Scorer.of(shipped.networks, calibration))


@pytest.fixture(scope="module")
def films() -> MemoryCorpus:
    return MemoryCorpus(world()[0], embedder=HashEmbedder())


def search(corpus: MemoryCorpus, question: str, calibration: ScoreCalibration | None = TRUSTING) -> SearchResult:
    return SearchAgent(corpus, calibrated(calibration)).search(question)


@given(
    arrays(np.float32, st.integers(1, 20), elements=st.floats(0, 1, width=32)),
    st.floats(0, 1),
    arrays(np.float32, 3, elements=st.floats(-3, 3, width=32)),
)
def test_calibration_keeps_the_order(scores: np.ndarray, confidence: float, relevance: np.ndarray) -> None:
    calibration = ScoreCalibration(np.zeros(1 + len(EVIDENCE), dtype=np.float32), relevance)
    probabilities = calibration.probabilities(scores, confidence)
    order = np.argsort(scores)
    assert np.all(np.diff(probabilities[order]) >= 0)
    assert np.all((probabilities >= 0) & (probabilities <= 1))


def test_log_odds_and_sigmoid_undo_each_other() -> None:
    probabilities = np.array([0.001, 0.5, 0.99], dtype=np.float32)
    np.testing.assert_allclose(sigmoid(log_odds(probabilities)), probabilities, rtol=1e-4)
    assert np.isfinite(log_odds(np.array([0.0, 1.0], dtype=np.float32))).all()


def test_a_question_with_an_answer_is_more_certain_than_one_without(films: MemoryCorpus) -> None:
    _, questions = world()
    answered, unanswered = search(films, questions[7][0]), search(films, "Which rivers flow past Zagreb and Ljubljana?")
    assert answered.confidence is not None
    assert unanswered.confidence is not None
    assert answered.confidence > 0.5 > unanswered.confidence
    assert answered.sufficient is True
    assert unanswered.sufficient is False
    assert unanswered.documents, "the nearest are still offered"
    assert max(document.score for document in unanswered.documents) < answered.documents[0].score


def test_documents_and_passages_have_scores_of_one_kind() -> None:
    text = "The lighthouse of Orm Skerry was designed by Ketil Varga. " * 60
    corpus = MemoryCorpus([Document("a", text, "Orm Skerry Light"), Document("b", "Ketil Varga was born in Brasko.")])
    result = search(corpus, "Where was the designer of Orm Skerry Light born?")
    assert any(len(document.chunks) > 1 for document in result.documents)
    for document in result.documents:
        assert document.score == max(chunk.score for chunk in document.chunks)
        assert all(0 <= chunk.score <= 1 for chunk in document.chunks)


def test_weights_without_a_calibration_rank_the_same_and_are_not_confident(films: MemoryCorpus) -> None:
    question = world()[1][3][0]
    plain, scored = search(films, question, None), search(films, question)
    assert [document.id for document in plain.documents] == [document.id for document in scored.documents]
    assert (plain.confidence, plain.sufficient) == (None, None)
    assert scored.confidence is not None


def test_a_calibration_survives_a_file(tmp_path: Path) -> None:
    policy = calibrated()
    assert policy.scorer is not None
    policy.scorer.save(tmp_path / "weights")
    loaded = Scorer.load(tmp_path / "weights")
    assert loaded.digest == policy.scorer.digest != calibrated(None).name.removeprefix("bridge@")
    assert loaded.calibration is not None
    np.testing.assert_allclose(loaded.calibration.evidence, TRUSTING.evidence, rtol=1e-3)
    np.testing.assert_allclose(loaded.calibration.relevance, TRUSTING.relevance, rtol=1e-3)


def test_a_calibration_of_other_features_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = calibrated().scorer
    assert scorer is not None
    monkeypatch.setattr("context_agent.policies.bridge.networks.EVIDENCE", ("another", "feature"))
    scorer.save(tmp_path / "weights")
    monkeypatch.undo()
    assert Scorer.load(tmp_path / "weights").calibration is None


@pytest.mark.parametrize("question", ["Кто построил маяк?", "誰が灯台を設計しましたか", "?", "the of and"])
@pytest.mark.parametrize("count", [1, 5])
def test_odd_questions_and_corpora_get_a_confidence(question: str, count: int) -> None:
    same = [Document(f"d{number}", "The lighthouse was designed by Ketil Varga.", "Light") for number in range(count)]
    result = search(MemoryCorpus(same, embedder=HashEmbedder()), question)
    assert result.confidence is not None
    assert 0 <= result.confidence <= 1
    assert all(0 <= document.score <= 1 for document in result.documents)


def test_one_document_can_suffice_in_a_small_corpus() -> None:
    corpus = MemoryCorpus(
        [
            Document("1", "Rope is a film of 1948 by Alfred Hitchcock.", "Rope"),
            Document("2", "Alfred Hitchcock received the AFI Life Achievement Award.", "Alfred Hitchcock"),
        ]
    )
    agent = SearchAgent(corpus, BridgePolicy())
    assert agent.search("When was Rope made?").sufficient
    assert not agent.search("Who founded Rome?").sufficient


@pytest.mark.parametrize(
    ("question", "sufficient"),
    [("When does the office close on Fridays?", True), ("Who composed the opera about the lighthouse?", False)],
)
def test_a_corpus_of_one_document_answers_or_does_not(question: str, sufficient: bool):
    corpus = MemoryCorpus([Document("1", "The office closes at six on Fridays.", "hours.md")])
    assert SearchAgent(corpus).search(question).sufficient is sufficient
