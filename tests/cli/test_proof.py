"""`ctx1 proof`: the bundled sample is sound and named, and the exit code follows the comparison."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from context_agent.cli import proof
from context_agent.eval.records import EvalRecord

NOTICE = Path(__file__).parents[2] / "NOTICE"


def records(**recalls: float) -> dict[str, list[EvalRecord]]:
    """A record of each way of searching, for the one question of `one_set`; 0.5 where no recall is given."""
    values = {system: recalls.get(system, 0.5) for system in proof.TABLE_HEADINGS}
    return {
        system: [EvalRecord("tiny", system, 0, 0, "q1", scores={proof.METRIC: value})]
        for system, value in values.items()
    }


@pytest.fixture
def one_set(monkeypatch):
    benchmark = replace(proof.sample()[-1], name="tiny")
    benchmark = replace(benchmark, questions=benchmark.questions[:1])
    monkeypatch.setattr(proof, "sample", lambda: [benchmark])
    return benchmark


def test_every_question_of_the_sample_has_its_gold_among_the_passages():
    benchmarks = proof.sample()
    assert sum(len(benchmark.questions) for benchmark in benchmarks) == 76
    for benchmark in benchmarks:
        ids = {document.id for document in benchmark.documents}
        assert not benchmark.problems
        assert not benchmark.ungraded
        for question in benchmark.questions:
            assert set(question.gold) <= ids


def test_the_sample_is_small_and_the_notice_names_its_public_sources():
    folder = Path(str(files("context_agent.cli") / "proof_data"))
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 1.1e6
    notice = NOTICE.read_text(encoding="utf-8").split("context_agent/cli/proof_data")[1]
    public = [benchmark for benchmark in proof.sample() if benchmark.source != proof.OWN_SOURCE]
    assert len(public) == 3
    assert all(benchmark.source in notice for benchmark in public)
    assert "CC BY-SA 4.0" in notice


def test_the_table_has_every_way_of_searching_beside_the_agent(inside, one_set):
    process = inside("proof")
    assert process.returncode == 0, process.stderr
    heading, row, total = process.stdout.splitlines()[:3]
    assert [name in heading for name in proof.TABLE_HEADINGS.values()] == [True] * 5
    assert row.startswith("tiny (1)")
    assert total.startswith("all (1)")
    assert "The sample: 1 question" in process.stdout


def test_json_has_the_figures_and_describes_the_sample(inside, one_set):
    process = inside("proof", "--json")
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout)
    (row,) = report["sets"]
    assert row["best_one_shot"] in proof.ONE_SHOT_SYSTEMS
    assert row["careful"]["low"] <= row["careful"]["mean"] <= row["careful"]["high"]
    assert report["sample"][0]["passages"] == len(one_set.documents)
    assert report["passed"] is True


@pytest.mark.parametrize(("careful", "code"), [(0.9, 0), (0.5, 0), (0.4, 1)], ids=["above", "equal", "below"])
@pytest.mark.usefixtures("one_set")
def test_the_exit_code_is_1_if_the_agent_finds_less(inside, monkeypatch, careful, code):
    monkeypatch.setattr(proof, "_answer", lambda benchmarks, folder: records(careful=careful))
    process = inside("proof")
    assert process.returncode == code
    assert ("the agent finds less than" in process.stderr) == bool(code)


def test_a_failed_question_fails_the_proof_and_is_named(inside, one_set, monkeypatch):
    answers = records(careful=1.0)
    answers["fast"] = [replace(answers["fast"][0], error="the policy failed")]
    monkeypatch.setattr(proof, "_answer", lambda benchmarks, folder: answers)
    process = inside("proof", "--json")
    assert process.returncode == 1
    assert json.loads(process.stdout)["failed_questions"] == ["q1"]
    assert "the policy failed" in process.stderr
