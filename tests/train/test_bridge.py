"""Training the embedded policy on a corpus of one's own."""

from __future__ import annotations

import json

import numpy as np
import pytest

from context_agent import BridgePolicy, MemoryCorpus, SearchAgent
from context_agent._support.question_files import Question
from context_agent.errors import DataError
from context_agent.eval.statistics import Figure
from context_agent.policies.bridge import Effort, Scorer
from context_agent.train.bridge import FOLDS, BridgeSource, FitRecipe, fold_of, train
from tests.policies.bridge.test_policy import recall, world
from tests.retrieval.fakes import HashEmbedder

QUICK = FitRecipe(hidden=(8,), members=1, epochs=6)


@pytest.fixture(scope="module")
def source():
    documents, questions = world()
    corpus = MemoryCorpus(documents, embedder=HashEmbedder())
    asked = [Question(str(number), text, gold=tuple(sorted(gold))) for number, (text, gold) in enumerate(questions)]
    return BridgeSource("films", corpus, asked)


def test_it_learns_from_scratch_and_reports_what_it_measured(source, tmp_path):
    said = []
    few = BridgeSource(source.name, source.corpus, source.questions[:60])
    effort = Effort(searches=10)
    trained = train([few], policy=BridgePolicy(untrained=True, effort=effort), effort=effort, rounds=1, recipe=QUICK,
                    report=lambda what, share: said.append((what, share)))  # fmt: skip
    assert trained.recall["films"].mean > 0.9
    assert trained.seen["films"].mean >= trained.recall["films"].mean
    assert {what for what, _ in said} == {"round 1: episodes", "round 1: networks"}
    assert all(0 <= share <= 1 for _, share in said)
    trained.scorer.save(tmp_path / "weights", trained.notes())
    policy = BridgePolicy(Scorer.load(tmp_path / "weights"))
    asked = source.questions[80]
    assert recall(SearchAgent(source.corpus, policy).search(asked.question), set(asked.gold)) == 1.0
    assert json.loads(trained.notes()["cross_validated_recall_at_5"])["films"][0] > 0.9


def test_too_few_questions_with_gold_are_refused(source):
    with pytest.raises(DataError, match=r"films: 3 of 4 questions name gold documents; training needs 20"):
        train([BridgeSource("films", source.corpus, [*source.questions[:3], Question("x", "no gold")])])


def test_gold_of_another_corpus_is_refused_with_the_question_s_id(source):
    strange = [Question(f"q{number}", "who", gold=("elsewhere",)) for number in range(30)]
    with pytest.raises(DataError, match=r"question 'q0': the corpus holds none of \['elsewhere'\]"):
        train([BridgeSource("films", source.corpus, strange)])


def test_a_question_stays_in_its_fold():
    folds = [fold_of(str(number)) for number in range(200)]
    assert folds == [fold_of(str(number)) for number in range(200)]
    assert set(folds) == set(range(FOLDS))


def test_a_figure_holds_its_mean_between_its_bounds():
    figure = Figure.of([0.0, 1.0] * 50)
    assert figure.low < figure.mean == 0.5 < figure.high
    assert str(Figure.of(np.ones(9).tolist())) == "1.000 [1.000, 1.000]"
