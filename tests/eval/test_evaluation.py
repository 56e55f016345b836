"""An evaluation in its folder: it resumes, refuses other settings and bad data, and reports what is missing."""

from __future__ import annotations

import os
import shutil
import signal
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from context_agent.errors import ConfigError, CorpusLockedError, DataError
from context_agent.eval.benchmarks.loading import Benchmark, load_benchmark
from context_agent.eval.evaluation import PreparedBenchmark, evaluate, prepare, require_sound_data, summarize_run
from context_agent.eval.records import open_run, read_records, read_run
from context_agent.eval.systems import find_systems
from context_agent.web.report import write_report
from tests.support import faulty_policies
from tests.support.evaluation_runs import OPTIONS, SYSTEMS, Benchmarks, summary_text, timeless, with_questions
from tests.support.forked_programs import PATIENCE, ForkedProgram, run_path
from tests.support.forked_workers import ForkedProcess
from tests.support.sample_benchmarks import native_folder


def test_a_missing_or_damaged_trajectory_only_loses_its_link(benchmarks: Benchmarks, tmp_path: Path) -> None:
    options = replace(OPTIONS, windows=(1024,), save=tmp_path / "saved")
    failing = replace(options, policy=faulty_policies.scripted)
    first, second = evaluate(
        with_questions(benchmarks, faulty_policies.FAILS, "fails too"),
        find_systems(["agent"]),
        failing,
        folder=tmp_path,
    )
    (tmp_path / first.trajectories[0]).write_text("{", encoding="utf-8")
    (tmp_path / second.trajectories[0]).unlink()
    write_report(tmp_path)
    assert "<a " not in (tmp_path / "report.html").read_text("utf-8")
    assert not (tmp_path / "trajectories.html").exists()


def test_unfinished_trajectories_of_a_killed_run_are_removed_on_resume(benchmarks: Benchmarks, tmp_path: Path) -> None:
    partial = tmp_path / "unfinished" / "one" / "agent" / "1024-0" / "0.jsonl"
    partial.parent.mkdir(parents=True)
    partial.write_text('{"kind":"header"', encoding="utf-8")
    options = replace(OPTIONS, windows=(1024,), save=tmp_path / "saved")
    (record,) = evaluate(with_questions(benchmarks, "first"), find_systems(["agent"]), options, folder=tmp_path)
    assert not (tmp_path / "unfinished").exists()
    assert list((tmp_path / "saved").rglob("*.jsonl")) == [tmp_path / record.trajectories[0]]


def test_a_run_resumes_where_it_stopped_and_repeats_no_question(benchmarks: Benchmarks, tmp_path: Path) -> None:
    first = evaluate(benchmarks, SYSTEMS, OPTIONS, folder=tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    file = tmp_path / "cut" / "records.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    first_lines = b"".join(lines[:10])
    file.write_bytes(first_lines + lines[10][: len(lines[10]) // 2])
    assert len(read_records(tmp_path / "cut")) == 10
    done_counts: list[int] = []
    second = evaluate(
        benchmarks, SYSTEMS, OPTIONS, folder=tmp_path / "cut", progress=lambda done, total: done_counts.append(done)
    )
    assert done_counts[0] == 10
    assert timeless(second) == timeless(first)
    assert file.read_bytes().startswith(first_lines)
    assert len(file.read_bytes().splitlines()) == len(lines)
    assert summary_text(tmp_path / "cut") == summary_text(tmp_path / "whole")


def test_a_complete_run_is_not_repeated(benchmarks: Benchmarks, tmp_path: Path) -> None:
    evaluate(benchmarks, SYSTEMS[:1], OPTIONS, folder=tmp_path)
    before = (tmp_path / "records.jsonl").read_bytes()
    evaluate(benchmarks, SYSTEMS[:1], OPTIONS, folder=tmp_path)
    assert (tmp_path / "records.jsonl").read_bytes() == before


PROGRAM = """
import sys
from functools import partial
from pathlib import Path
from context_agent.eval.benchmarks.loading import load_benchmark
from context_agent.eval.evaluation import EvalOptions, evaluate, prepare
from context_agent.eval.systems import AnswerSettings, find_systems
from tests.support import faulty_policies

if __name__ == "__main__":
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    benchmarks = [prepare(load_benchmark(str(data / "big"), data=data), cache=data / "cache")]
    options = EvalOptions(faulty_policies.slow, windows=(2048,))
    evaluate(benchmarks, find_systems(["agent"]), options, folder=out, concurrency=2, processes=1)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_or_interrupted_run_can_be_resumed(tmp_path: Path, end: signal.Signals) -> None:
    native_folder(tmp_path, 16, name="big")
    path, out = tmp_path / "program.py", tmp_path / "out"
    path.write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
    program = ForkedProgram(run_path, str(path), (str(tmp_path), str(out)), folder=tmp_path)
    first = program.start(tmp_path / "stdout", tmp_path / "stderr")
    assert first.pid is not None
    wait_for(lambda: len(records_in(out)) >= 3, first)
    assert first.pid in processes_of_session(first.pid)
    os.kill(first.pid, end)
    first.join(PATIENCE)
    count = len(records_in(out))
    assert 3 <= count < 16
    with (out / "records.jsonl").open("ab") as file:
        file.write(b'{"benchmark": "big", "system": "ag')
    second = program.start(tmp_path / "stdout", tmp_path / "stderr")
    second.join(PATIENCE)
    assert second.exitcode == 0, (tmp_path / "stderr").read_text()
    records = read_records(out)
    assert len(records) == 16
    assert {record.question for record in records} == {f"dev-{number}" for number in range(16)}
    assert all(record.error is None for record in records)
    wait_for(lambda: not any(processes_of_session(process.pid) for process in (first, second)))


def records_in(out: Path) -> list[bytes]:
    file = out / "records.jsonl"
    return (
        [line for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")] if file.exists() else []
    )


def processes_of_session(leader: int | None) -> list[int]:
    """The ids of the living processes of a session, which are its leader and what this has started."""
    pids = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError):
            if os.getsid(int(path.name)) == leader:
                pids.append(int(path.name))
    return pids


def wait_for(condition: Callable[[], bool], child: ForkedProcess | None = None) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited for nothing"
        assert child is None or child.is_alive(), "the program ended by itself"
        time.sleep(0.05)


def test_other_settings_are_refused_with_the_differences(benchmarks: Benchmarks, tmp_path: Path) -> None:
    evaluate(benchmarks, SYSTEMS[:1], OPTIONS, folder=tmp_path)
    with pytest.raises(ConfigError, match=r"k was 10 and is 5") as caught:
        evaluate(benchmarks, SYSTEMS[:1], replace(OPTIONS, k=5), folder=tmp_path)
    assert "windows" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"systems was \[.hybrid.\]"):
        evaluate(benchmarks, SYSTEMS, OPTIONS, folder=tmp_path)
    one_question = with_questions(benchmarks, "first")
    with pytest.raises(ConfigError, match=r"benchmarks.one.questions was 4 and is 1"):
        evaluate([*one_question, benchmarks[1]], SYSTEMS[:1], OPTIONS, folder=tmp_path)


@pytest.mark.parametrize(("name", "value"), [("version", "0.0.9"), ("benchmarks.one.corpus", "chroma:documents@1")])
def test_what_no_option_sets_back_asks_for_another_folder(name: str, value: str, tmp_path: Path) -> None:
    settings = {"version": "1.0", "k": 10, "benchmarks.one.corpus": "chroma:documents@2"}
    with open_run(tmp_path, settings | {name: value}, {}):
        pass
    with (
        pytest.raises(ConfigError, match=rf"{name} was .* changed since, so choose another --out"),
        open_run(tmp_path, settings, {}),
    ):
        pass


def test_two_runs_do_not_write_to_one_folder(benchmarks: Benchmarks, tmp_path: Path) -> None:
    with (
        open_run(tmp_path, {}, {}),
        pytest.raises(CorpusLockedError, match="another evaluation"),
        open_run(tmp_path, {}, {}),
    ):
        pass
    assert benchmarks


def test_a_damaged_line_is_reported_with_its_number(benchmarks: Benchmarks, tmp_path: Path) -> None:
    evaluate(benchmarks, SYSTEMS[:1], OPTIONS, folder=tmp_path)
    file = tmp_path / "records.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + b"{]\n" + b"".join(lines[1:]))
    with pytest.raises(DataError, match=r"records.jsonl, line 2 is damaged"):
        read_records(tmp_path)


def test_the_summary_of_a_stopped_run_lists_missing_records(benchmarks: Benchmarks, tmp_path: Path) -> None:
    evaluate(benchmarks, SYSTEMS[:1], OPTIONS, folder=tmp_path)
    file = tmp_path / "records.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:5]))
    (missing,) = summarize_run(tmp_path).missing
    assert (missing.benchmark, missing.count, missing.first) == ("two", 2, ("dev-1", "dev-2"))


def test_the_folder_records_license_split_and_problems_of_the_data(tmp_path: Path) -> None:
    folder = native_folder(tmp_path, name="musique")
    with (folder / "queries.dev.jsonl").open("a") as file:
        file.write("not json\n")
    benchmark = prepare(load_benchmark("musique", data=tmp_path), cache=tmp_path / "cache")
    evaluate([benchmark], find_systems(["bm25"]), OPTIONS, folder=tmp_path / "out")
    notes = read_run(tmp_path / "out")["notes"]["benchmarks"]["musique"]
    assert (notes["license"], notes["split"], notes["questions"]) == ("CC BY 4.0", "dev", 4)
    (problem,) = summarize_run(tmp_path / "out").problems
    assert "queries.dev.jsonl:5" in problem


def test_missing_gold_is_refused_or_lowers_recall_and_is_reported(tmp_path: Path) -> None:
    benchmark = with_missing_gold(tmp_path)
    with pytest.raises(DataError, match=r"1 of 8 gold ids.*nowhere.*--allow-missing-gold"):
        require_sound_data([benchmark])
    require_sound_data([benchmark], allow_missing_gold=True)
    records = evaluate([benchmark], find_systems(["bm25"]), OPTIONS, folder=tmp_path / "out")
    first_record = next(record for record in records if record.question == "dev-0")
    assert first_record.scores["recall"] is not None
    assert first_record.scores["recall"] <= 0.5
    assert any("not in the index: nowhere" in line for line in summarize_run(tmp_path / "out").problems)


def with_missing_gold(tmp_path: Path) -> PreparedBenchmark:
    benchmark: Benchmark = load_benchmark(str(native_folder(tmp_path)), data=tmp_path)
    question = replace(benchmark.questions[0], gold=("ada quill", "nowhere"))
    questions = (question, *benchmark.questions[1:])
    return prepare(replace(benchmark, questions=questions), cache=tmp_path / "cache")


def test_shared_questions_are_refused(tmp_path: Path) -> None:
    benchmark = load_benchmark(str(native_folder(tmp_path)), data=tmp_path)
    leaky = prepare(replace(benchmark, train=benchmark.questions[:1]), cache=tmp_path / "cache")
    with pytest.raises(DataError, match=r"train and test share 1 question .dev-0. and 1 id "):
        require_sound_data([leaky])
    require_sound_data([leaky], allow_leaks=True)


def test_trajectories_have_folders_by_benchmark_system_and_window(benchmarks: Benchmarks, tmp_path: Path) -> None:
    options = replace(OPTIONS, windows=(2048,), save=tmp_path / "saved")
    evaluate(benchmarks, find_systems(["agent"]), options, folder=tmp_path / "out")
    assert len(list((tmp_path / "saved" / "one" / "agent" / "2048-0").glob("*.jsonl"))) == 4
