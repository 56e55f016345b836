"""Training the embedded policy on your own corpus."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from context_agent import BridgePolicy, MemoryCorpus, SearchAgent
from context_agent.errors import DataError
from context_agent.eval.statistics import Figure
from context_agent.policies.bridge import Effort, Scorer
from context_agent.testing.embedders import HashEmbedder
from context_agent.train.bridge.episodes import FOLDS, BridgeSource, fold_of
from context_agent.types import Question
from tests.support.two_hop_films import recall, world

pytest.importorskip("torch", reason="needs the train extra")

from context_agent.train.bridge.listwise import FitRecipe
from context_agent.train.bridge.reader_head import fit_head
from context_agent.train.bridge.training import train

QUICK = FitRecipe(hidden=(8,), members=1, steps=(70, 70))


class OverlapReader:
    """A reader that counts the words that question and passage share, and returns the count twice."""

    width = 2

    def encode_pairs(self, pairs):
        shared = [len(set(first.lower().split()) & set(second.lower().split())) for first, second in pairs]
        return np.array([[count, count] for count in shared], dtype=np.float32).reshape(-1, 2)


@pytest.fixture(autouse=True)
def _quick_expansion(monkeypatch):
    """Train the networks that choose names to look up as briefly as the others."""
    monkeypatch.setattr("context_agent.train.bridge.training.EXPANSION_RECIPE", QUICK)


READERS = dict.fromkeys(range(FOLDS), OverlapReader())


@pytest.fixture(scope="module")
def source():
    documents, questions = world()
    corpus = MemoryCorpus(documents, embedder=HashEmbedder())
    question_rows = [
        Question(str(number), text, gold=tuple(sorted(gold))) for number, (text, gold) in enumerate(questions)
    ]
    return BridgeSource("films", corpus, question_rows)


@pytest.mark.slow
def test_it_learns_from_scratch_and_reports_what_it_measured(source, tmp_path):
    reports = []
    few = BridgeSource(source.name, source.corpus, source.questions[:60])
    effort = Effort(searches=10)
    result = train([few], policy=BridgePolicy(untrained=True, effort=effort), effort=effort, rounds=1, recipe=QUICK,
                   readers=READERS, report=lambda what, share: reports.append((what, share)))  # fmt: skip
    assert result.recall["films"].mean > 0.9
    assert result.seen["films"].mean >= result.recall["films"].mean
    assert set(result.unread) == {"films"}
    assert {what for what, _ in reports} == {
        "round 1: playing episodes",
        "round 1: training networks",
        "reading passages",
    }
    assert all(0 <= share <= 1 for _, share in reports)
    result.scorer.save(tmp_path / "weights", result.notes())
    policy = BridgePolicy(Scorer.load(tmp_path / "weights"))
    question = source.questions[80]
    assert recall(SearchAgent(source.corpus, policy).search(question.question), set(question.gold)) == 1.0
    assert json.loads(result.notes()["cross_validated_recall_at_5"])["films"][0] > 0.9


def without_head(scorer: Scorer) -> Scorer:
    """Return the scorer without its correction of the shipped reader, for tests with a reader of their own."""
    return Scorer.of(scorer.networks, scorer.calibration, ranker=scorer.ranker)


def test_too_few_questions_with_gold_are_refused_if_there_is_nothing_to_keep(source):
    few = BridgeSource("films", source.corpus, [*source.questions[:3], Question("x", "no gold")])
    with pytest.raises(DataError, match=r"training needs at least 60 questions that name gold documents; got 3"):
        train([few])
    with pytest.raises(DataError, match="none of the 1 questions about films has gold"):
        train([BridgeSource("films", source.corpus, [Question("x", "no gold")])])


def test_with_few_questions_the_present_networks_are_kept(source, monkeypatch):
    monkeypatch.setattr("context_agent.train.bridge.training.shipped_reader", OverlapReader)
    present = without_head(Scorer.shipped())
    result = train([BridgeSource("films", source.corpus, source.questions[:21])], fallback=present)
    assert result.kept
    assert result.scorer.networks is present.networks
    assert result.recall["films"].mean > 0.5
    assert result.before["films"].mean > 0.5


def test_worse_networks_do_not_replace_the_present_ones(source, monkeypatch):
    monkeypatch.setattr("context_agent.train.bridge.training.shipped_reader", OverlapReader)
    few = BridgeSource("films", source.corpus, source.questions[:60])
    blind = FitRecipe(hidden=(1,), members=1, epochs=1, steps=(1, 1))
    present = without_head(Scorer.shipped())
    compared = []
    monkeypatch.setattr(
        "context_agent.policies.bridge.ranking.late_interaction",
        lambda query, texts, longest: compared.append(len(texts)) or np.zeros(len(texts), dtype=np.float32),
    )
    result = train([few], fallback=present, effort=Effort(searches=6), rounds=1, recipe=blind, readers=READERS)
    assert compared == [1] * 60, "nobody sees the rankings of exploring policies"
    assert result.kept
    assert result.before["films"].mean > 0.5


def test_a_correction_of_the_reader_is_learned_only_if_it_helps_on_other_questions():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4_000, 3)).astype(np.float32)
    labels = (rng.random(4_000) < 1 / (1 + np.exp(-(rows[:, 0] - 2 * rows[:, 2])))).astype(np.float32)
    head = fit_head(rows, labels, 30.0)
    assert head is not None
    np.testing.assert_allclose(head[:3], [0, 0, -2], atol=0.25)
    assert fit_head(rows, labels, math.inf) is None


def test_gold_of_another_corpus_is_refused_with_the_question_s_id(source):
    strange = [Question(f"q{number}", "who", gold=("elsewhere",)) for number in range(30)]
    with pytest.raises(DataError, match=r"none of the gold documents \['elsewhere'\] of question 'q0'"):
        train([BridgeSource("films", source.corpus, strange)])


def test_an_empty_question_is_refused_by_its_id_before_any_episode(source):
    questions = [*source.questions, replace(source.questions[0], id="blank", question=" ")]
    with pytest.raises(DataError, match="the question 'blank' about films is empty"):
        train([BridgeSource("films", source.corpus, questions)])


def test_a_question_stays_in_its_fold():
    folds = [fold_of(str(number)) for number in range(200)]
    assert fold_of("a lone surrogate \ud800") in range(FOLDS)
    assert folds == [fold_of(str(number)) for number in range(200)]
    assert set(folds) == set(range(FOLDS))


def test_a_figure_holds_its_mean_between_its_bounds():
    figure = Figure.of([0.0, 1.0] * 50)
    assert figure.low < figure.mean == 0.5 < figure.high
    assert str(Figure.of(np.ones(9).tolist())) == "1.000 [1.000, 1.000]"
