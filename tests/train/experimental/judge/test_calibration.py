"""A judge compared with gold: which judges are trusted, and whether the figures match their textbook definitions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_agent import MemoryCorpus, ScriptedPolicy, SearchAgent
from context_agent.errors import ConfigError, DataError
from context_agent.testing.actions import call, rank, search
from context_agent.train.experimental.judge.calibration import (
    STATISTICS,
    JudgeCalibration,
    JudgedPair,
    calibrate,
    save_calibration,
)
from context_agent.train.experimental.judge.calibration_check import check_calibration
from context_agent.train.experimental.judge.judge import JudgedRanking
from context_agent.train.experimental.judge.labeled_rankings import (
    LabeledRanking,
    recorded_rankings,
    synthetic_rankings,
)
from context_agent.types import Question
from tests.support.judges import judge, serving


@pytest.fixture(scope="module")
def asked() -> list[Question]:
    """Questions about two entries each, named by the marks at the ends of their texts."""
    pairs = [(n, n + 30) for n in range(16)]
    return [
        Question(f"q{a}", f"Which close with SENTINEL-{a:04d} and SENTINEL-{b:04d}?", gold=(f"d{a}", f"d{b}"))
        for a, b in pairs
    ]


@pytest.fixture(scope="module")
def labeled(corpus: MemoryCorpus, asked: list[Question]) -> list[LabeledRanking]:
    return list(synthetic_rankings(corpus, asked))


def calibrate_character(character: str, labeled: list[LabeledRanking], folder: Path) -> JudgeCalibration:
    with serving(character) as url, judge(url, folder) as ranking_judge:
        return calibrate(labeled, ranking_judge)


def test_rankings_made_of_a_corpus_have_all_half_and_none_of_the_gold(
    corpus: MemoryCorpus, asked: list[Question], labeled: list[LabeledRanking]
) -> None:
    assert len(labeled) == 48
    assert [example.recall for example in labeled[:3]] == [1.0, 0.5, 0.0]
    assert {len(example.ranking.documents) for example in labeled} == {5}
    assert [example.precision for example in labeled[:3]] == [0.4, 0.2, 0.0]
    assert list(synthetic_rankings(corpus, asked)) == labeled
    chunk_question = Question("f", "Which?", facts=(("d3_0", "d5_0"),))
    examples = list(
        synthetic_rankings(corpus, [chunk_question, Question("g", "Gone?", gold=("nowhere",)), Question("h", "Bare?")])
    )
    assert [(example.question_id, example.recall) for example in examples][::2] == [("f", 1.0), ("f", 0.0)]
    single = synthetic_rankings(corpus, [Question("s", "Which?", gold=("d3",))])
    assert [example.recall for example in single] == [1.0, 0.0]


def test_an_honest_judge_is_trusted(labeled: list[LabeledRanking], tmp_path: Path) -> None:
    calibration = calibrate_character("honest", labeled, tmp_path)
    assert calibration.discriminates
    assert (calibration.questions, calibration.rankings, calibration.good, calibration.warnings) == (16, 48, 16, ())
    assert calibration.figures["auc"].value == 1.0
    assert calibration.figures["correlation_recall"].value == pytest.approx(1.0)
    # Half of the gold scores 2 of 3. That counts as a yes, but the labels want all of the gold: a mistake.
    assert calibration.figures["accuracy"].value == pytest.approx(2 / 3)
    assert [(row.found, row.rankings, row.score) for row in calibration.table] == [
        ("none", 16, 0.0), ("some", 16, pytest.approx(2 / 3)), ("all", 16, 1.0),
    ]  # fmt: skip
    assert calibration.cost["judge/calls"] == 48
    save_calibration(tmp_path / "judge.json", calibration)
    assert check_calibration(tmp_path / "judge.json", calibration.identity) == []
    with pytest.raises(ConfigError, match="model was 'scripted' and is 'other'"):
        check_calibration(tmp_path / "judge.json", {**calibration.identity, "model": "other"})


def test_a_judge_that_always_says_yes_is_found_out(labeled: list[LabeledRanking], tmp_path: Path) -> None:
    calibration = calibrate_character("yes", labeled, tmp_path)
    assert not calibration.discriminates
    assert calibration.problems[0].startswith("it cannot tell good rankings from bad ones")
    assert calibration.warnings == ("it always says yes, even to 100% of the bad rankings",)
    assert (calibration.figures["auc"].value, calibration.figures["kappa"].value) == (0.5, 0.0)
    assert calibration.figures["correlation_recall"].value is None
    save_calibration(tmp_path / "judge.json", calibration)
    with pytest.raises(ConfigError, match="says not to trust this judge"):
        check_calibration(tmp_path / "judge.json", calibration.identity)


def test_a_judge_without_verdicts_is_refused(labeled: list[LabeledRanking], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the judge gave no verdict .6 × the reply has no JSON"):
        calibrate_character("prose", labeled[:6], tmp_path)
    with pytest.raises(DataError, match="no labeled ranking"):
        calibrate_character("honest", [], tmp_path / "none")


def test_too_few_rankings_prove_nothing(labeled: list[LabeledRanking], tmp_path: Path) -> None:
    calibration = calibrate_character("honest", labeled[:9], tmp_path)
    assert calibration.problems == ("there are 3 good and 6 bad rankings, but at least 10 of each are needed",)


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 9}', '{"schema": 1}'])
def test_an_invalid_calibration_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "judge.json").write_text(text)
    with pytest.raises(ConfigError, match=r"not a report|has schema 9"):
        check_calibration(tmp_path / "judge.json", {})
    with pytest.raises(ConfigError, match="not a report"):
        check_calibration(tmp_path / "absent.json", {})


def test_recorded_episodes_are_labeled_by_their_rankings(
    corpus: MemoryCorpus, asked: list[Question], tmp_path: Path
) -> None:
    steps = [call("read_document", doc_id="d0"), search("gardens"), rank("d0")]
    with SearchAgent(corpus, ScriptedPolicy(steps), trajectories=tmp_path / "kept") as agent:
        agent.search(asked[0].question)
        agent.search(asked[1].question, question_id=asked[1].id)
        agent.search("a question of another set?", question_id=asked[2].id)
        agent.search("nobody's question")
    torn = tmp_path / "kept" / "torn.jsonl"
    torn.write_text("{")
    notes: list[str] = []
    by_question = {
        example.question_id: example
        for example in recorded_rankings(sorted((tmp_path / "kept").glob("*.jsonl")), asked, corpus, notes.append)
    }
    assert {question_id: example.recall for question_id, example in by_question.items()} == {"q0": 0.5, "q1": 0.0}
    assert [document.id for document in by_question["q0"].ranking.documents] == ["d0"]
    assert len(notes) == 2
    assert "2 trajectories are left out, because they are incomplete or belong to no question with gold" in notes[1]


def judged_pair(recall: float, score: float) -> JudgedPair:
    return JudgedPair(recall, recall, score, recall >= 1, score >= 0.5)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.25, 0.5, 1.0])), min_size=2, max_size=30
    )
)
def test_figures_by_their_definitions(samples: list[tuple[float, float]]) -> None:
    pairs = [judged_pair(*sample) for sample in samples]
    good = [pair.score for pair in pairs if pair.good]
    bad = [pair.score for pair in pairs if not pair.good]
    wins = [(a > b) + (a == b) / 2 for a in good for b in bad]
    auc = STATISTICS["auc"](pairs)
    assert auc == (pytest.approx(np.mean(wins)) if wins else None)
    correlation = STATISTICS["correlation_recall"](pairs)
    assert correlation is None or -1.0000001 <= correlation <= 1.0000001
    negated_pairs = [replace(pair, recall=-pair.recall) for pair in pairs]
    negated_correlation = STATISTICS["correlation_recall"](negated_pairs)
    assert negated_correlation == (None if correlation is None else pytest.approx(-correlation))


def test_spearman_of_a_known_case() -> None:
    recalls, scores = [1, 2, 3, 4, 5], [5, 6, 7, 8, 7]
    pairs = [JudgedPair(r, r, s, False, False) for r, s in zip(recalls, scores, strict=True)]
    # Ranks 1 2 3 4 5 and 1 2 3.5 5 3.5.
    assert STATISTICS["correlation_recall"](pairs) == pytest.approx(0.8207826816681233)


def test_rankings_of_a_question_are_resampled_together(tmp_path: Path) -> None:
    example = LabeledRanking("q", JudgedRanking("SENTINEL-0001?", ()), 0.0, 0.0)
    with serving("honest") as url, judge(url, tmp_path) as ranking_judge:
        calibration = calibrate([example] * 40, ranking_judge)
    accuracy = calibration.figures["accuracy"]
    assert (calibration.questions, calibration.rankings, accuracy.n) == (1, 40, 1)
    assert json.loads(json.dumps(calibration.to_json()))["figures"]["accuracy"]["value"] == 1.0
