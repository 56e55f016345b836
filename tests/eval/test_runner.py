"""Jobs in worker processes: the same results for any number of processes, and a failure costs only its question."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from context_agent import Chunk, Document, MemoryCorpus, ScriptedPolicy
from context_agent._support import worker_pool
from context_agent.errors import ConfigError, CorpusError, TrajectoryError
from context_agent.eval import runner
from context_agent.eval.evaluation import (
    EvalOptions,
    evaluate,
    summarize_run,
)
from context_agent.eval.records import open_run, read_records
from context_agent.eval.systems import Answerer, AnswerSettings, find_systems
from context_agent.harness.trajectory_file import read
from context_agent.web.report import write_report
from tests.support import faulty_policies
from tests.support.evaluation_runs import OPTIONS, SYSTEMS, Benchmarks, summary_text, timeless, with_questions


def test_concurrency_and_repetition_do_not_change_the_results(benchmarks: Benchmarks, tmp_path: Path) -> None:
    runs = {}
    for name, concurrency, processes in (("one", 1, 1), ("again", 1, 1), ("eight", 8, 2)):
        records = evaluate(
            benchmarks, SYSTEMS, OPTIONS, folder=tmp_path / name, concurrency=concurrency, processes=processes
        )
        assert len(records) == (4 + 3) * (1 + 2 + 2)
        runs[name] = timeless(records)
    assert runs["one"] == runs["again"] == runs["eight"]
    assert summary_text(tmp_path / "one") == summary_text(tmp_path / "again") == summary_text(tmp_path / "eight")
    assert all(record.error is None for record in runs["one"])
    assert timeless(read_records(tmp_path / "eight")) == sorted(runs["eight"], key=lambda record: record.key)


def test_a_system_without_a_context_runs_once_for_all_windows_and_seeds(
    benchmarks: Benchmarks,
) -> None:
    jobs = runner.plan_jobs(
        [benchmark.benchmark for benchmark in benchmarks],
        find_systems(["bm25", "agent"]),
        windows=(1024, 2048, 1024),
        seeds=(3, 4),
    )
    assert {(job.window, job.seed) for job in jobs if job.system.name == "bm25"} == {(0, 3)}
    assert len([job for job in jobs if job.system.name == "agent"]) == 7 * 4
    assert len({job.key for job in jobs}) == len(jobs)


def test_two_benchmarks_of_one_name_are_refused(benchmarks: Benchmarks) -> None:
    benchmark = benchmarks[0].benchmark
    with pytest.raises(ConfigError, match="two benchmarks are called 'one'"):
        runner.plan_jobs([benchmark, benchmark], SYSTEMS, windows=(1024,), seeds=(0,))


def test_an_episode_that_hangs_dies_or_fails_is_a_failure_and_the_others_continue(
    benchmarks: Benchmarks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "GRACE_PERIOD", 0.5)
    prepared = with_questions(
        benchmarks,
        "first",
        faulty_policies.HANGS,
        "second",
        faulty_policies.DIES,
        "third",
        faulty_policies.FAILS,
        faulty_policies.ENDS,
        "last",
    )
    options = EvalOptions(faulty_policies.scripted, windows=(2048,), time_limit=3.0, save=tmp_path / "saved")
    started = time.monotonic()
    records = evaluate(prepared, find_systems(["agent"]), options, folder=tmp_path, concurrency=2, processes=1)
    assert time.monotonic() - started < 60
    errors = {record.question: record.error for record in records}
    assert "no answer came within 3 seconds" in str(errors[faulty_policies.HANGS])
    assert "process died 2 times (SIGKILL, which the system sends when memory runs out)" in str(
        errors[faulty_policies.DIES]
    )
    assert "unexpected RuntimeError: a bug in the policy" in str(errors[faulty_policies.FAILS])
    assert "unexpected SystemExit: enough" in str(errors[faulty_policies.ENDS])
    for question in ("first", "second", "third", "last"):
        assert errors[question] is None
    hung_record = next(record for record in records if record.question == faulty_policies.HANGS)
    assert hung_record.scores["recall"] == 0.0
    assert hung_record.scores["trajectory_recall"] == 0.0
    assert sum(cell.failed for cell in summarize_run(tmp_path).cells) == 4
    # Each question has one trajectory, including the cut ones of abandoned episodes, and nothing is left over.
    saved_paths = sorted((tmp_path / "saved").rglob("*.jsonl"))
    assert sorted(read(path).header.question_id for path in saved_paths) == sorted(errors)
    assert sorted(tmp_path / path for record in records for path in record.trajectories) == saved_paths
    assert {read(tmp_path / record.trajectories[0]).end is None for record in records if record.error is None} == {
        False
    }
    assert not (tmp_path / "unfinished").exists()
    # The report links to the trajectory of the episode that hung, as far as it got.
    write_report(tmp_path)
    (file,) = hung_record.trajectories
    assert f'<a href="trajectories.html#t={Path(file).stem}">hangs</a>' in (tmp_path / "report.html").read_text("utf-8")
    assert (tmp_path / "trajectories.html").stat().st_size > 10_000


def test_questions_that_failed_are_answered_again_and_no_others(benchmarks: Benchmarks, tmp_path: Path) -> None:
    prepared = with_questions(benchmarks, "first", faulty_policies.FAILS)
    options = EvalOptions(faulty_policies.scripted, windows=(2048,), save=tmp_path / "saved")
    systems = find_systems(["agent"])
    failed = evaluate(prepared, systems, options, folder=tmp_path, processes=1)
    assert [record.error is None for record in failed] == [True, False]
    again = evaluate(prepared, systems, replace(options, policy=faulty_policies.repaired), folder=tmp_path, processes=1)
    assert again[0] == failed[0]
    assert again[1].error is None
    assert read_records(tmp_path) == sorted(again, key=lambda record: record.key)
    assert {cell.failed for cell in summarize_run(tmp_path).cells} == {0}
    kept = [tmp_path / path for record in again for path in record.trajectories]
    assert sorted((tmp_path / "saved").rglob("*.jsonl")) == sorted(kept)
    assert all(read(path).end is not None for path in kept)


def test_a_result_that_cannot_be_scored_is_a_failure_of_its_question_alone(
    benchmarks: Benchmarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise TrajectoryError("the digest differs")

    (job, *_) = runner.plan_jobs([benchmarks[0].benchmark], find_systems(["bm25"]), windows=(1024,), seeds=(0,))
    answerer = Answerer(benchmarks[0].open(), ScriptedPolicy([]), AnswerSettings())
    monkeypatch.setattr(runner, "_scored_record", fail)
    record = runner.answer_job(job, answerer)
    assert record.error == "the result cannot be scored (the digest differs)"
    assert record.scores["recall"] == 0.0


def test_gold_that_the_corpus_cannot_look_up_is_a_failure_of_its_question_alone(
    benchmarks: Benchmarks,
) -> None:
    class BrokenCorpus(MemoryCorpus):
        def read(self, document_id: str) -> list[Chunk]:
            raise CorpusError("the database is gone")

    (job, *_) = runner.plan_jobs([benchmarks[0].benchmark], find_systems(["bm25"]), windows=(1024,), seeds=(0,))
    record = runner.answer_job(
        job, Answerer(BrokenCorpus([Document("a", "text")]), ScriptedPolicy([]), AnswerSettings())
    )
    assert record.error == "the database is gone"


def test_a_policy_that_cannot_be_opened_ends_the_run_with_the_reason(benchmarks: Benchmarks, tmp_path: Path) -> None:
    jobs = runner.plan_jobs([benchmarks[0].benchmark], find_systems(["agent"]), windows=(2048,), seeds=(0,))
    spec = runner.WorkerSpec({"one": benchmarks[0].open}, faulty_policies.broken, AnswerSettings())
    with (
        open_run(tmp_path, {"a": 1}, {}) as log,
        pytest.raises(RuntimeError, match="no weights here"),
    ):
        runner.run_jobs(jobs, spec, log)
