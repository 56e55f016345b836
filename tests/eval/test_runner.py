"""A run: in processes of its own, gone on from after a kill, and the same figures however many work at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from context_agent import Chunk, Document, MemoryCorpus, ScriptedPolicy
from context_agent.errors import ConfigError, CorpusError, CorpusLockedError, DataError, TrajectoryError
from context_agent.eval import evaluation, runner
from context_agent.eval.benchmarks.registry import Benchmark, load_benchmark
from context_agent.eval.evaluation import Checked, Options, check, evaluate, publish, summary
from context_agent.eval.records import Record, differences, read_records, read_run
from context_agent.eval.systems import Answerer, Settings, asked
from context_agent.policies.factory import load_policy
from context_agent.trajectory_file import read
from tests.eval import faulty
from tests.eval.sample_benchmarks import house

ROOT = Path(__file__).parents[2]
BRIDGE = partial(load_policy, "bridge")
OPTIONS = Options(BRIDGE, windows=(1024, 4096))
SYSTEMS = asked(["hybrid", "agent", "agent-random"])


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> list[Checked]:
    """Two small benchmarks, indexed."""
    folder = tmp_path_factory.mktemp("data")
    made = [house(folder, 4, name="one"), house(folder, 3, name="two")]
    return [check(load_benchmark(str(one), data=folder), cache=folder / "cache") for one in made]


def worlds(checked: list[Checked], *questions: str) -> list[Checked]:
    """The first benchmark with other questions."""
    one = checked[0].benchmark
    asked = tuple(replace(one.questions[0], id=text, question=f"Vellmar {text}?") for text in questions)
    return [replace(checked[0], benchmark=replace(one, questions=asked))]


def timeless(records: list[Record]) -> list[Record]:
    return [replace(one, seconds=0.0) for one in records]


def figures(folder: Path) -> str:
    """The summary as JSON, wall time aside."""
    data = summary(folder).to_json()
    assert data["cells"]
    for cell in (*data["cells"], *data["pools"]):
        for values in (cell["metrics"], cell["differences"]):
            values.pop("seconds", None)
    text = json.dumps(data)
    assert '"recall"' in text
    return text


def test_one_and_eight_at_once_and_a_second_run_give_identical_figures(checked: list[Checked], tmp_path: Path) -> None:
    runs = {}
    for name, concurrency, processes in (("one", 1, 1), ("again", 1, 1), ("eight", 8, 2)):
        records = evaluate(
            checked, SYSTEMS, OPTIONS, folder=tmp_path / name, concurrency=concurrency, processes=processes
        )
        assert len(records) == (4 + 3) * (1 + 2 + 2)
        runs[name] = timeless(records)
    assert runs["one"] == runs["again"] == runs["eight"]
    assert figures(tmp_path / "one") == figures(tmp_path / "again") == figures(tmp_path / "eight")
    assert all(one.error is None for one in runs["one"])
    assert timeless(read_records(tmp_path / "eight")) == sorted(runs["eight"], key=lambda one: one.key)


def test_a_system_without_a_context_is_asked_once_whatever_the_windows_and_seeds(checked: list[Checked]) -> None:
    jobs = runner.plan(
        [one.benchmark for one in checked], asked(["bm25", "agent"]), windows=(1024, 2048, 1024), seeds=(3, 4)
    )
    assert {(job.window, job.seed) for job in jobs if job.system.name == "bm25"} == {(0, 3)}
    assert len([job for job in jobs if job.system.name == "agent"]) == 7 * 4
    assert len({job.key for job in jobs}) == len(jobs)


def test_two_benchmarks_of_one_name_are_refused(checked: list[Checked]) -> None:
    one = checked[0].benchmark
    with pytest.raises(ConfigError, match="two benchmarks are called 'one'"):
        runner.plan([one, one], SYSTEMS, windows=(1024,), seeds=(0,))


def test_an_episode_that_hangs_or_dies_or_fails_is_a_failure_and_the_rest_goes_on(
    checked: list[Checked], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "GRACE", 0.5)
    mine = worlds(
        checked,
        "first",
        faulty.HANGS,
        "second",
        faulty.DIES,
        "third",
        faulty.FAILS,
        faulty.ENDS,
        "last",
    )
    options = Options(faulty.scripted, windows=(2048,), time_limit=3.0, save=tmp_path / "saved")
    started = time.monotonic()
    records = evaluate(mine, asked(["agent"]), options, folder=tmp_path, concurrency=2, processes=1)
    assert time.monotonic() - started < 60
    errors = {one.question: one.error for one in records}
    assert "hung: no answer within 3 seconds" in str(errors[faulty.HANGS])
    assert "process died (SIGKILL, as the system sends it where memory runs out), 2 times" in str(errors[faulty.DIES])
    assert "unexpected RuntimeError: a bug in the policy" in str(errors[faulty.FAILS])
    assert "unexpected SystemExit: enough" in str(errors[faulty.ENDS])
    for fine in ("first", "second", "third", "last"):
        assert errors[fine] is None
    lost = next(one for one in records if one.question == faulty.HANGS)
    assert lost.scores["recall"] == 0.0
    assert lost.scores["trajectory_recall"] == 0.0
    assert sum(cell.failed for cell in summary(tmp_path).cells) == 4
    # Each question has one trajectory, the cut ones of those that were given up among them, and no remains.
    saved = sorted((tmp_path / "saved").rglob("*.jsonl"))
    assert sorted(read(one).header.question_id for one in saved) == sorted(errors)
    assert sorted(tmp_path / one for record in records for one in record.trajectories) == saved
    assert {read(tmp_path / one.trajectories[0]).end is None for one in records if one.error is None} == {False}
    assert not (tmp_path / "unfinished").exists()
    # The report leads to the trajectory of the episode that hung, as far as it got.
    publish(tmp_path)
    (kept,) = lost.trajectories
    assert f'<a href="trajectories.html#t={Path(kept).stem}">hangs</a>' in (tmp_path / "report.html").read_text("utf-8")
    assert (tmp_path / "trajectories.html").stat().st_size > 10_000


def test_a_trajectory_that_is_gone_or_damaged_costs_the_report_its_link_alone(
    checked: list[Checked], tmp_path: Path
) -> None:
    options = replace(OPTIONS, windows=(1024,), save=tmp_path / "saved")
    broken = replace(options, policy=faulty.scripted)
    first, second = evaluate(worlds(checked, faulty.FAILS, "fails too"), asked(["agent"]), broken, folder=tmp_path)
    (tmp_path / first.trajectories[0]).write_text("{", encoding="utf-8")
    (tmp_path / second.trajectories[0]).unlink()
    publish(tmp_path)
    assert "<a " not in (tmp_path / "report.html").read_text("utf-8")
    assert not (tmp_path / "trajectories.html").exists()


@pytest.mark.parametrize(("code", "said"), [(9, "exit code 9"), (None, "exit code None"), (-11, "SIGSEGV")])
def test_the_end_of_a_process_is_told_by_its_signal(code: int | None, said: str) -> None:
    assert runner.ending(code) == said


def test_what_a_killed_run_left_unfinished_is_removed_when_it_goes_on(checked: list[Checked], tmp_path: Path) -> None:
    remains = tmp_path / "unfinished" / "one" / "agent" / "1024-0" / "0.jsonl"
    remains.parent.mkdir(parents=True)
    remains.write_text('{"kind":"header"', encoding="utf-8")
    options = replace(OPTIONS, windows=(1024,), save=tmp_path / "saved")
    (record,) = evaluate(worlds(checked, "first"), asked(["agent"]), options, folder=tmp_path)
    assert not (tmp_path / "unfinished").exists()
    assert list((tmp_path / "saved").rglob("*.jsonl")) == [tmp_path / record.trajectories[0]]


def test_a_result_that_cannot_be_scored_is_a_failure_of_its_question_alone(
    checked: list[Checked], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsound(*_: object, **__: object) -> None:
        raise TrajectoryError("the digest differs")

    (job, *_) = runner.plan([checked[0].benchmark], asked(["bm25"]), windows=(1024,), seeds=(0,))
    answerer = Answerer(checked[0].open(), ScriptedPolicy([]), Settings())
    monkeypatch.setattr(runner, "_scored", unsound)
    record = runner.answered(job, answerer)
    assert record.error == "its result cannot be scored: the digest differs"
    assert record.scores["recall"] == 0.0


def test_gold_that_the_corpus_cannot_look_up_is_a_failure_of_its_question_alone(checked: list[Checked]) -> None:
    class Gone(MemoryCorpus):
        def read(self, document_id: str) -> list[Chunk]:
            raise CorpusError("the database is gone")

    (job, *_) = runner.plan([checked[0].benchmark], asked(["bm25"]), windows=(1024,), seeds=(0,))
    record = runner.answered(job, Answerer(Gone([Document("a", "text")]), ScriptedPolicy([]), Settings()))
    assert record.error == "the database is gone"


def test_what_cannot_be_opened_ends_the_run_with_its_reason(checked: list[Checked], tmp_path: Path) -> None:
    jobs = runner.plan([checked[0].benchmark], asked(["agent"]), windows=(2048,), seeds=(0,))
    kit = runner.Kit({"one": checked[0].open}, faulty.broken, Settings())
    with (
        evaluation.journal(tmp_path, {"a": 1}, {}) as opened,
        pytest.raises(RuntimeError, match="no weights here"),
    ):
        runner.run(jobs, kit, opened)


def test_a_run_goes_on_where_it_was_and_asks_nothing_twice(checked: list[Checked], tmp_path: Path) -> None:
    whole = evaluate(checked, SYSTEMS, OPTIONS, folder=tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    file = tmp_path / "cut" / "records.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    kept = b"".join(lines[:10])
    file.write_bytes(kept + lines[10][: len(lines[10]) // 2])
    assert len(read_records(tmp_path / "cut")) == 10
    seen: list[int] = []
    again = evaluate(checked, SYSTEMS, OPTIONS, folder=tmp_path / "cut", progress=lambda done, total: seen.append(done))
    assert seen[0] == 10
    assert timeless(again) == timeless(whole)
    assert file.read_bytes().startswith(kept)
    assert len(file.read_bytes().splitlines()) == len(lines)
    assert figures(tmp_path / "cut") == figures(tmp_path / "whole")


def test_a_finished_run_is_not_run_again(checked: list[Checked], tmp_path: Path) -> None:
    evaluate(checked, SYSTEMS[:1], OPTIONS, folder=tmp_path)
    before = (tmp_path / "records.jsonl").read_bytes()
    evaluate(checked, SYSTEMS[:1], OPTIONS, folder=tmp_path)
    assert (tmp_path / "records.jsonl").read_bytes() == before


PROGRAM = """
import sys
from functools import partial
from pathlib import Path
from context_agent.eval.benchmarks.registry import load_benchmark
from context_agent.eval.evaluation import Options, check, evaluate
from context_agent.eval.systems import Settings, asked
from tests.eval import faulty

if __name__ == "__main__":
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    checked = [check(load_benchmark(str(data / "big"), data=data), cache=data / "cache")]
    evaluate(checked, asked(["agent"]), Options(faulty.slow, windows=(2048,)), folder=out, concurrency=2, processes=1)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_or_interrupted_process_leaves_a_run_to_go_on_with(tmp_path: Path, end: signal.Signals) -> None:
    house(tmp_path, 16, name="big")
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
    out = tmp_path / "out"
    command = [sys.executable, str(program), str(tmp_path), str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL) as child:
        wait_for(lambda: len(records_in(out)) >= 3, child)
        child.send_signal(end)
        child.wait(30)
    left = len(records_in(out))
    assert 3 <= left < 16
    with (out / "records.jsonl").open("ab") as file:
        file.write(b'{"benchmark": "big", "system": "ag')
    assert subprocess.run(command, env=environment, cwd=tmp_path, timeout=120, check=False).returncode == 0
    records = read_records(out)
    assert len(records) == 16
    assert {one.question for one in records} == {f"dev-{number}" for number in range(16)}
    assert all(one.error is None for one in records)
    wait_for(lambda: not children_of(program))


def records_in(out: Path) -> list[bytes]:
    file = out / "records.jsonl"
    return (
        [line for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")] if file.exists() else []
    )


def children_of(program: Path) -> list[str]:
    """Processes that still run for the program: workers that their parent left behind."""
    found = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"PWD={program.parent}" in place.read_bytes().decode(errors="replace").split("\0"):
                found.append(place.parent.name)
        except OSError:
            continue
    return [one for one in found if int(one) != os.getpid()]


def wait_for(true, child: subprocess.Popen[bytes] | None = None) -> None:
    ends = time.monotonic() + 60
    while not true():
        assert time.monotonic() < ends, "waited for nothing"
        assert child is None or child.poll() is None, "the program ended by itself"
        time.sleep(0.05)


def test_another_setting_is_refused_with_the_difference_named(checked: list[Checked], tmp_path: Path) -> None:
    evaluate(checked, SYSTEMS[:1], OPTIONS, folder=tmp_path)
    with pytest.raises(ConfigError, match=r"k was 10, is 5") as caught:
        evaluate(checked, SYSTEMS[:1], replace(OPTIONS, k=5), folder=tmp_path)
    assert "windows" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"systems was \[.hybrid.\]"):
        evaluate(checked, SYSTEMS, OPTIONS, folder=tmp_path)
    other = worlds(checked, "first")
    with pytest.raises(ConfigError, match=r"benchmarks.one.questions was 4, is 1"):
        evaluate([*other, checked[1]], SYSTEMS[:1], OPTIONS, folder=tmp_path)


def test_differences_are_found_below_and_named_by_path() -> None:
    assert differences({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 5}}) == [
        "a.c was 2, is 5",
        "d was 3, is null",
    ]


def test_two_runs_do_not_write_to_one_folder(checked: list[Checked], tmp_path: Path) -> None:
    with (
        evaluation.journal(tmp_path, {}, {}),
        pytest.raises(CorpusLockedError, match="another evaluation"),
        evaluation.journal(tmp_path, {}, {}),
    ):
        pass
    assert checked


def test_a_line_that_is_no_record_is_named(checked: list[Checked], tmp_path: Path) -> None:
    evaluate(checked, SYSTEMS[:1], OPTIONS, folder=tmp_path)
    file = tmp_path / "records.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + b"{]\n" + b"".join(lines[1:]))
    with pytest.raises(DataError, match=r"records.jsonl:2: "):
        read_records(tmp_path)


def test_a_stopped_run_is_summarised_with_what_is_missing(checked: list[Checked], tmp_path: Path) -> None:
    evaluate(checked, SYSTEMS[:1], OPTIONS, folder=tmp_path)
    file = tmp_path / "records.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:5]))
    (missing,) = summary(tmp_path).missing
    assert (missing.benchmark, missing.count, missing.first) == ("two", 2, ("dev-1", "dev-2"))


def test_the_folder_says_what_the_data_is(tmp_path: Path) -> None:
    folder = house(tmp_path, name="musique")
    with (folder / "queries.dev.jsonl").open("a") as file:
        file.write("not json\n")
    made = check(load_benchmark("musique", data=tmp_path), cache=tmp_path / "cache")
    evaluate([made], asked(["bm25"]), OPTIONS, folder=tmp_path / "out")
    note = read_run(tmp_path / "out")["notes"]["benchmarks"]["musique"]
    assert (note["licence"], note["split"], note["questions"]) == ("CC BY 4.0", "dev", 4)
    (problem,) = summary(tmp_path / "out").problems
    assert "queries.dev.jsonl:5" in problem


def test_missing_gold_is_refused_or_counts_against_recall_and_is_told(tmp_path: Path) -> None:
    made = found_lacking(tmp_path)
    with pytest.raises(DataError, match=r"1 of 8 gold items.*nowhere.*--allow-missing-gold"):
        evaluation.refuse([made])
    evaluation.refuse([made], missing=False)
    records = evaluate([made], asked(["bm25"]), OPTIONS, folder=tmp_path / "out")
    lacking = next(one for one in records if one.question == "dev-0")
    assert lacking.scores["recall"] is not None
    assert lacking.scores["recall"] <= 0.5
    assert any("not in the index: nowhere" in line for line in summary(tmp_path / "out").problems)


def found_lacking(tmp_path: Path) -> Checked:
    benchmark: Benchmark = load_benchmark(str(house(tmp_path)), data=tmp_path)
    first = replace(benchmark.questions[0], gold=("ada quill", "nowhere"))
    asked = (first, *benchmark.questions[1:])
    return check(replace(benchmark, questions=asked), cache=tmp_path / "cache")


def test_shared_questions_are_refused(tmp_path: Path) -> None:
    benchmark = load_benchmark(str(house(tmp_path)), data=tmp_path)
    made = check(replace(benchmark, train=benchmark.questions[:1]), cache=tmp_path / "cache")
    with pytest.raises(DataError, match=r"train and test share 1 questions .dev-0. and 1 ids"):
        evaluation.refuse([made])
    evaluation.refuse([made], shared=False)


def test_trajectories_are_kept_apart_by_benchmark_system_and_window(checked: list[Checked], tmp_path: Path) -> None:
    options = replace(OPTIONS, windows=(2048,), save=tmp_path / "saved")
    evaluate(checked, asked(["agent"]), options, folder=tmp_path / "out")
    assert len(list((tmp_path / "saved" / "one" / "agent" / "2048-0").glob("*.jsonl"))) == 4
