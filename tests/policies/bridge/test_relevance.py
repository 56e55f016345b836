"""The scores of the embedded policy: what they say, what they leave as it is, and weights without them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from context_agent import Document, MemoryCorpus, SearchAgent, SearchResult
from context_agent._support.shipped_models import shipped_reader
from context_agent.errors import RerankerError
from context_agent.policies.bridge import BridgePolicy, Scorer
from context_agent.policies.bridge.candidates import AnalyzedPassage, ChunkCandidate, Notes, WordWeights, document_rows
from context_agent.policies.bridge.ranking import RANKING, Trees, identifier_odds
from context_agent.policies.bridge.relevance import Cosines, RelevanceJudgment
from context_agent.policies.bridge.score_calibration import (
    EVIDENCE,
    STOPPING,
    Evidence,
    ScoreCalibration,
    log_odds,
    sigmoid,
)
from context_agent.retrieval.corpus import Corpus
from context_agent.retrieval.retriever_weights import Calibration
from context_agent.testing.embedders import HashEmbedder
from context_agent.train.bridge.withheld_corpus import WithheldCorpus
from tests.support.two_hop_films import TRUSTING, calibrated, world


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
    calibration = ScoreCalibration(np.zeros((2, 1 + len(EVIDENCE)), dtype=np.float32), relevance)
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


PASSAGES = (
    ("Orm Skerry Light", "The lighthouse was designed by Ketil Varga."),
    ("Ketil Varga", "Ketil Varga was born in Brasko."),
    ("Ferry", "The ferry leaves at noon."),
)


def judgment_of(
    question: str, scorer: Scorer | None, passages: Sequence[tuple[str, str]] = PASSAGES, seen: int | None = None
) -> RelevanceJudgment:
    """The judgment of the first passages of a corpus. Two of them belong together, and one is beside them."""
    corpus = MemoryCorpus([Document(str(number), text, title) for number, (title, text) in enumerate(passages)])
    notes = Notes.of(question, WordWeights(corpus))
    for number, (title, text) in enumerate(passages[:seen]):
        notes.add(ChunkCandidate(f"{number}_0", str(number), AnalyzedPassage(title, text), 9, 0))
    return RelevanceJudgment(notes, corpus, scorer, shipped_reader())


def test_documents_are_ranked_by_their_best_passages_and_equal_ones_as_they_were_found() -> None:
    notes = Notes.of("Who designed it?", WordWeights(MemoryCorpus([Document("1", "text")])))
    for number in range(200):
        passage = AnalyzedPassage("", f"Text {number}.")
        notes.add(ChunkCandidate(f"{number}_0", str(number % 100), passage, 9, 0))
    scores = np.full(200, 0.5, np.float32)
    scores[[130, 30]] = 0.9, 0.1
    assert document_rows(notes, scores) == [130, *(row for row in range(100) if row != 30)]


def test_the_reader_changes_the_scores_and_not_those_without_it() -> None:
    judgment = judgment_of("Where was the designer of Orm Skerry Light born?", Scorer.shipped())
    scores = judgment.scores()
    unread = judgment.unread_scores()
    np.testing.assert_array_equal(judgment.combined_scores(), scores)
    read = judgment.read(scores)
    assert not np.allclose(read, scores, atol=1e-3)
    np.testing.assert_array_equal(judgment.combined_scores(), read)
    np.testing.assert_array_equal(judgment.unread_scores(), unread)


def test_candidates_that_were_not_scored_are_scored_before_they_are_read() -> None:
    scores = np.array([0.1, 0.2, 0.3], np.float32)
    fresh, scored = (judgment_of("Where was Ketil Varga born?", Scorer.shipped()) for _ in range(2))
    scored.scores()
    np.testing.assert_array_equal(fresh.read(scores), scored.read(scores))


def test_without_weights_the_reader_leaves_the_scores_as_they_are() -> None:
    judgment = judgment_of("Where was the designer of Orm Skerry Light born?", None)
    scores = judgment.scores()
    np.testing.assert_array_equal(judgment.read(scores), scores)
    np.testing.assert_array_equal(judgment.combined_scores(), scores)


def test_without_weights_a_passage_that_the_best_one_names_is_nearly_as_good() -> None:
    others = [(f"Note {number}", f"Note {number} is about paper.") for number in range(20)]
    question = "Where was the designer of Orm Skerry Light born?"
    scores = judgment_of(question, None, [*PASSAGES, *others]).scores()
    assert scores[:2].tolist() == pytest.approx([0.9, 0.85])
    assert max(scores[2:]) < 0.1


BY_ODDS = Trees(
    feature=np.array([[RANKING.index("odds"), 0, 0]], np.int16),
    threshold=np.zeros((1, 3), np.float32),
    left=np.array([[1, 1, 2]], np.int16),
    right=np.array([[2, 1, 2]], np.int16),
    missing_left=np.zeros((1, 3), np.int8),
    value=np.array([[0, -5, 5]], np.float32),
    depth=1,
)
"""A ranker with log-odds of 5 for a candidate that the second network finds likely, and of -5 for others."""


def scorer_with(**parts: Any) -> Scorer:
    """The shipped weights with the ranker `BY_ODDS`, a calibration that always stops, and these parts."""
    shipped = Scorer.shipped()
    assert shipped.calibration is not None
    always = np.array([[9.0, *[0] * len(STOPPING)]] * 2, np.float32)
    calibration = dataclasses.replace(shipped.calibration, stopping=always)
    return dataclasses.replace(shipped, **{"ranker": BY_ODDS, "calibration": calibration, **parts})


@pytest.mark.parametrize(
    ("question", "suffices"),
    [
        ("Where was Ketil Varga born?", True),
        ("When did Ketil Varga die of hunger?", False),  # The best passage leaves most of it open.
        ("when does the ferry leave", True),  # A question without names may stay open.
    ],
)
def test_the_first_turn_suffices_if_the_best_passage_covers_a_question_with_names(
    question: str, suffices: bool
) -> None:
    judgment = judgment_of(question, scorer_with())
    assert judgment.suffices() == 0, "nothing is scored yet"
    judgment.scores()
    assert judgment.suffices() == pytest.approx(float(sigmoid(np.array(9.0))) if suffices else 0)


def test_nothing_suffices_for_weights_that_cannot_tell() -> None:
    trusting = ScoreCalibration(TRUSTING.evidence, TRUSTING.relevance)
    for scorer in (scorer_with(calibration=None), scorer_with(calibration=trusting), scorer_with(ranker=None), None):
        judgment = judgment_of("Where was Ketil Varga born?", scorer)
        judgment.scores()
        assert judgment.suffices() == 0


def test_the_ranker_makes_the_final_scores_if_there_is_one() -> None:
    question = "Where was Ketil Varga born?"
    judgment = judgment_of(question, scorer_with())
    assert len(judgment.ranking_scores(judgment.scores()[:0], 16)) == 0
    for scores in (judgment.ranking_scores(judgment.scores(), 16), judgment.unread_scores()):
        np.testing.assert_allclose(scores, sigmoid(np.array([-5, 5, -5])), rtol=1e-5)
    for scorer in (scorer_with(ranker=None), None):
        judgment = judgment_of(question, scorer)
        scores = judgment.scores()
        np.testing.assert_array_equal(judgment.ranking_scores(scores, 16), scores)
    judgment = judgment_of(question, scorer_with(ranker=None))
    scores = judgment.scores()
    np.testing.assert_array_equal(judgment.unread_scores(), scores)


def test_an_identifier_of_the_question_decides_what_is_compared_and_raises_the_final_score() -> None:
    equal = dataclasses.replace(BY_ODDS, value=np.array([[0, 5, 5]], np.float32))
    passages = (("Pumps", "The pump shows a fault."), ("Pumps", "The pump shows E-1074."))
    judgment = judgment_of("pump E-1074", scorer_with(ranker=equal), passages)
    scores = judgment.scores()
    assert judgment.suffices() > 0.9, "the passage with the identifier is the best one, and covers the question"
    assert np.isnan(judgment.late_interaction(scores, 0)).all(), "nothing is compared yet"
    odds = log_odds(judgment.ranking_scores(scores, 1))
    assert odds[0] == pytest.approx(5, rel=1e-3)
    assert odds[1] > 6
    assert np.isfinite(judgment.late_interaction(scores, 0)).tolist() == [False, True]
    assert np.isfinite(judgment.late_interaction(np.array([0.9, 0.1], np.float32), 1)).all()


def test_without_weights_late_interaction_compares_as_well() -> None:
    judgment = judgment_of("Where was Ketil Varga born?", None)
    late = judgment.late_interaction(judgment.scores(), 1)
    assert np.isfinite(late).tolist().count(True) == 1
    assert len(late) == len(judgment.notes)


def test_late_interaction_of_the_final_ranking_counts_in_the_evidence_and_without_the_reader() -> None:
    late = np.array([[RANKING.index("late"), 0, 0]], np.int16)
    by_late = dataclasses.replace(BY_ODDS, feature=late, missing_left=np.array([[1, 0, 0]], np.int8))
    judgment = judgment_of("Where was Ketil Varga born?", scorer_with(ranker=by_late))
    scores = judgment.scores()
    position = EVIDENCE.index("late")
    assert judgment.evidence(scores)[position] == 0
    np.testing.assert_allclose(judgment.unread_scores(), sigmoid(np.array([-5, -5, -5])), rtol=1e-5)
    judgment.ranking_scores(scores, 2)
    assert judgment.evidence(scores)[position] > 0
    np.testing.assert_allclose(np.sort(judgment.unread_scores()), sigmoid(np.array([-5, 5, 5])), rtol=1e-5)
    judgment.ranking_scores(scores, 3)
    assert judgment.evidence(judgment.scores())[position] == 0, "scored again, and not compared"


@pytest.mark.parametrize(("question", "gain"), [("pump E-1074", False), ("pump E1074", True)])
def test_an_identifier_in_another_notation_counts_where_the_reader_judges(question: str, gain: bool) -> None:
    judgment = judgment_of(question, scorer_with(), (("Pumps", "The pump shows E-1074."),))
    scores = judgment.scores()
    judgment.read_alone()
    (read,) = judgment.ranking_inputs()[:, RANKING.index("alone")]
    (added,) = identifier_odds(judgment.notes)
    assert added > 0
    assert judgment.evidence(scores)[EVIDENCE.index("read")] == pytest.approx(read + added * gain, rel=1e-5)


def known(judgment: RelevanceJudgment, *, read: bool = True) -> set[str]:
    """The reader's inputs of the ranker that are known."""
    rows = judgment.ranking_inputs(read=read)
    return {name for name in ("combined", "read", "alone") if np.isfinite(rows[:, RANKING.index(name)]).any()}


def test_the_ranker_and_the_evidence_see_what_the_reader_has_read() -> None:
    judgment = judgment_of("Where was the designer of Orm Skerry Light born?", Scorer.shipped())
    scores = judgment.scores()
    position = EVIDENCE.index("read")
    assert known(judgment) == set()
    assert np.isnan(judgment.evidence(scores)[position])
    judgment.read_alone()
    assert known(judgment) == {"alone"}
    alone = judgment.evidence(scores)[position]
    assert np.isfinite(alone)
    judgment.read(scores)
    assert known(judgment) == {"combined", "read", "alone"}
    assert judgment.evidence(scores)[position] > alone, "the better of both readings counts"
    assert known(judgment, read=False) == set()
    assert np.isnan(judgment.evidence(scores, read=False)[position])


def test_a_head_corrects_both_readings() -> None:
    head = Scorer.shipped().head
    assert head is not None
    raised = np.array([*head[:-1], head[-1] + 2], np.float32)
    rows = []
    for corrected in (head, raised):
        judgment = judgment_of("Where was Ketil Varga born?", scorer_with(head=corrected))
        judgment.read(judgment.scores())
        judgment.read_alone()
        rows.append(judgment.ranking_inputs()[:, [RANKING.index(name) for name in ("read", "alone")]])
    assert np.isfinite(rows[0]).all()
    np.testing.assert_allclose(rows[1], rows[0] + 2, rtol=1e-4)


def test_without_candidates_nothing_is_scored_and_the_answer_is_missing() -> None:
    judgment = judgment_of("Who?", scorer_with(), seen=0)
    assert judgment.scores().shape == judgment.read(judgment.scores()).shape == (0,)
    confidence, probabilities = judgment.calibrated(judgment.scores())
    assert (confidence, len(probabilities)) == (0, 0)


def test_without_a_calibration_the_scores_stay_and_the_confidence_is_unknown() -> None:
    for scorer in (scorer_with(calibration=None), None):
        judgment = judgment_of("Where was Ketil Varga born?", scorer)
        scores = judgment.scores()
        confidence, unchanged = judgment.calibrated(scores)
        assert confidence is None
        np.testing.assert_array_equal(unchanged, scores)


@pytest.mark.parametrize(("weights", "trusted"), [({"dense": 0.6}, True), ({"dense": 0.0}, False), ({}, True)])
def test_cosines_are_unknown_if_the_corpus_does_not_trust_its_vectors(
    films: MemoryCorpus, weights: dict[str, float], trusted: bool
) -> None:
    class Calibrated:
        calibration = Calibration({}, weights)

        def __getattr__(self, name: str) -> object:
            return getattr(films, name)

    corpus = cast("MemoryCorpus", Calibrated())
    notes = Notes.of("Who?", WordWeights(films))
    cosines = Cosines(notes, corpus)
    assert cosines.of("film").shape == (0,)
    for document in ("f1", "d1"):
        notes.add(ChunkCandidate(f"{document}_0", document, AnalyzedPassage("", "text"), 9, 0))
        values = cosines.of("film")
        assert np.isfinite(values).tolist() == [trusted] * len(notes)
    if trusted:
        np.testing.assert_allclose(values, films.similarity("film", ["f1_0", "d1_0"]), rtol=1e-6)


@pytest.mark.parametrize(
    ("question", "named"), [("Who designed the Orm Skerry Light?", True), ("how do I light a fire", False)]
)
def test_the_best_score_counts_by_the_share_of_the_question_that_is_names(question: str, named: bool) -> None:
    notes = Notes.of(question, WordWeights(MemoryCorpus([Document("1", "A fire is lit by rubbing.", "Fire")])))
    passage = AnalyzedPassage("Orm Skerry Light", "It was designed by Ketil Varga.")
    notes.add(ChunkCandidate("a_0", "a", passage, 9, 0))
    coverage, unread = np.stack([notes.question.coverage(passage)]), np.full(1, np.nan, dtype=np.float32)
    question = notes.question

    def evidence(score: float) -> Evidence:
        scores = np.array([score], np.float32)
        return Evidence(question.weight, question.in_name, coverage, scores, unread, scores, unread, unread, 1)

    low, high = (dict(zip(EVIDENCE, evidence(score).features(), strict=True)) for score in (0.1, 0.9))
    assert bool(high["best_named"] > low["best_named"]) is named
    assert bool(low["named"] > 0) is named


@pytest.mark.parametrize("question", ["Кто построил маяк?", "誰が灯台を設計しましたか", "?", "the of and"])
@pytest.mark.parametrize("count", [1, 5])
def test_odd_questions_and_corpora_get_a_confidence(question: str, count: int) -> None:
    copies = [Document(f"d{number}", "The lighthouse was designed by Ketil Varga.", "Light") for number in range(count)]
    result = search(MemoryCorpus(copies, embedder=HashEmbedder()), question)
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


def found(words: list[float], read: list[float], chunks: int) -> dict[str, float]:
    """The features of an episode with two candidates, and three that match nothing, by name."""
    nothing = [0.0] * 3
    evidence = Evidence(
        weight=np.array([0.5, 0.3, 0.2], np.float32),
        in_name=np.array([True, True, False]),
        coverage=np.array([[1, 0, 0.5], [0, 0.2, 1], nothing, nothing, nothing], np.float32),
        scores=np.array([0.8, 0.4, *nothing], np.float32),
        cosines=np.array([0.9, 0.7, 0.2, 0.1, 0.0], np.float32),
        words=np.array(words, np.float32),
        late=np.array([0.3, np.nan, 0.4, np.nan, np.nan], np.float32),
        read=np.array([*read, np.nan, np.nan, np.nan], np.float32),
        chunks=chunks,
    )
    return dict(zip(EVIDENCE, evidence.features().tolist(), strict=True))


def test_the_features_of_evidence_have_these_values() -> None:
    """Computed by hand from the definitions in `EVIDENCE`: each value, and so each sign."""
    features = found([5, 4, 3, 2, 1], [np.nan, 2.0], 1_000)
    covered, best, size = 0.5 * 0.8 + 0.3 * 0.08 + 0.2 * 0.4, np.log(0.8 / 0.2), np.log(1_000)
    expected = {
        "log_covered": np.log(covered + 0.02),
        "size": size,
        "names_unseen": 0.3,
        "named": 0.8,
        "best_named": best * 0.8,
        "covered_named": covered * 0.8,
        "size_named": size * 0.8,
        "best": best,
        "rare_covered": 0.5 * 0.8 + 0.2 * 0.4,
        "late": 0.4,
        "read": 2.0,
    }
    assert {name: features[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    assert features["agreement"] > 0.9
    assert features["cosine_lead"] > 0
    assert found([1, 2, 3, 4, 5], [np.nan, 2.0], 1_000)["agreement"] < -0.9
    nothing_read = found([5, 4, 3, 2, 1], [np.nan, np.nan], 10)
    assert np.isnan(nothing_read["read"])
    assert nothing_read["size"] == pytest.approx(np.log(300)), "a small corpus counts as one of 300 chunks"


def test_each_feature_moves_the_confidence_by_its_own_factor() -> None:
    factors = np.array([0.5, 1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12, 13], np.float32)
    calibration = ScoreCalibration(np.stack([factors, -factors]), np.array([-0.5, 0.3, 0.6], np.float32))
    read = EVIDENCE.index("read")
    for position in range(len(EVIDENCE)):
        features = np.zeros(len(EVIDENCE), np.float32)
        features[position] = 0.1
        # With the reader the second model applies, whose factors are the opposite here.
        expected = 1 / (1 + np.exp(0.5 + 0.1 * factors[1 + position]))
        assert calibration.confidence(features) == pytest.approx(expected, rel=1e-5)
        features[read] = np.nan
        if position != read:
            assert calibration.confidence(features) == pytest.approx(1 - expected, rel=1e-5)


def test_probabilities_rise_with_the_confidence_and_the_score() -> None:
    calibration = ScoreCalibration(np.zeros((2, 1 + len(EVIDENCE)), np.float32), np.array([-0.5, 0.3, 0.6], np.float32))
    scores, confidence = np.array([0.2, 0.9], np.float32), 0.7
    logits = -0.5 + 0.3 * np.log(0.7 / 0.3) + 0.6 * np.log(scores / (1 - scores))
    np.testing.assert_allclose(calibration.probabilities(scores, confidence), 1 / (1 + np.exp(-logits)), rtol=1e-5)


class Preferring:
    """A reranker that prefers texts with a word. After `working` calls, it fails."""

    name = "preferring"

    def __init__(self, word: str, working: int = 99) -> None:
        self.word, self.working = word, working
        self.read: list[int] = []

    def score(self, query: str, texts: Sequence[str]) -> np.ndarray:
        if len(self.read) == self.working:
            raise RerankerError("the reranker is down")
        self.read.append(len(texts))
        return np.array([9.0 * (self.word in text) for text in texts], np.float32)


class PreferringHits(Preferring):
    """The same, but its scores of hits also count their order."""

    def score_hits(self, query: str, texts: Sequence[str]) -> np.ndarray:
        return self.score(query, texts)


def test_the_reranker_of_the_corpus_counts_in_the_final_ranking() -> None:
    documents = [Document(str(number), f"Tea {number} is grown on a hill.") for number in range(8)]

    def first(reranker: Preferring) -> str:
        corpus = MemoryCorpus(documents, embedder=HashEmbedder(), reranker=reranker)
        return SearchAgent(corpus, BridgePolicy(effort="fast")).search("Which tea is grown on a hill?").documents[0].id

    assert {first(Preferring(f"Tea {number}")) for number in (2, 5, 7)} == {"2", "5", "7"}


def test_a_reranker_reads_the_best_candidates_with_the_question_once_more() -> None:
    documents = [Document(str(number), f"Tea {number} is grown on a hill.") for number in range(8)]
    counts = []
    for reranker in (Preferring("Tea 5"), PreferringHits("Tea 5")):
        corpus = MemoryCorpus(documents, embedder=HashEmbedder(), reranker=reranker)
        SearchAgent(corpus, BridgePolicy(effort="fast")).search("Which tea is grown on a hill?")
        counts.append(len(reranker.read))
    assert counts[0] == counts[1] + 1, "a reranker of hits counts the order of a search, so it reads no candidates"


def test_if_the_reranker_fails_at_the_end_the_ranking_of_the_trees_remains() -> None:
    documents = [Document(str(number), f"Tea {number} is grown on a hill.") for number in range(8)]

    def searched(reranker: Preferring) -> SearchResult:
        corpus = MemoryCorpus(documents, embedder=HashEmbedder(), reranker=reranker)
        return SearchAgent(corpus, BridgePolicy(effort="fast")).search("Which tea is grown on a hill?")

    by_trees = PreferringHits("Tea 5")
    expected = searched(by_trees)
    result = searched(Preferring("Tea 5", working=len(by_trees.read)))
    assert result.error is not None
    assert "the reranker is down" in result.error
    assert [document.id for document in result.documents] == [document.id for document in expected.documents]


def test_without_a_reranker_or_chunks_to_read_the_scores_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [Document(str(number), f"Tea {number}.") for number in range(3)]
    scores = np.array([0.2, 0.7, 0.1], np.float32)
    reranked = MemoryCorpus(documents, embedder=HashEmbedder(), reranker=Preferring("Tea 0"))
    notes = Notes.of("Which tea?", WordWeights(reranked))
    for chunk in reranked.walk():
        notes.add(ChunkCandidate(chunk.id, chunk.document_id, AnalyzedPassage("", chunk.text), 10, 0))

    def scores_in(corpus: Corpus) -> list[float]:
        return cast("list[float]", RelevanceJudgment(notes, corpus, None, shipped_reader()).reranked(scores).tolist())

    assert scores_in(reranked) == scores[[1, 0, 2]].tolist()
    assert scores_in(WithheldCorpus(reranked, ())) == scores.tolist(), "a corpus that does not know of rerankers"
    assert scores_in(MemoryCorpus(documents, embedder=HashEmbedder())) == scores.tolist()
    monkeypatch.setattr(reranked, "get", lambda chunk_ids: [])
    assert scores_in(reranked) == scores.tolist(), "the chunks were deleted since the search"
