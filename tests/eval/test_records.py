"""Records as rows of a run's file, and the files of an earlier version."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from context_agent.errors import DataError
from context_agent.eval.evaluation import summarize_run
from context_agent.eval.records import EvalRecord, TurnState, open_run, read_records, read_run, record_from_json
from context_agent.eval.summary import summary_from_json
from context_agent.harness.trajectory_folder import read_all

RECORD = EvalRecord(
    "musique",
    "agent",
    8192,
    1,
    "q7",
    type="bridge",
    hops=3,
    scores={"recall": 0.5, "answer_found": None, "turns": 4.0},
    stop_reason="finished",
    seconds=0.25,
    curve=(TurnState(1, 900, 800, 0.5, 0.5), TurnState(2, 1900, 700, 0.5, 0.0, 3, 1)),
    ranking=("d1", "d2"),
)


def test_a_record_comes_back_from_a_line_as_it_was() -> None:
    assert record_from_json(json.loads(json.dumps(RECORD.to_json())), "here") == RECORD
    failed = EvalRecord("b", "s", 0, 0, "q", scores={"recall": 0.0}, error="down")
    assert record_from_json(json.loads(json.dumps(failed.to_json())), "here") == failed


def test_fields_of_a_newer_version_are_passed_over() -> None:
    row = RECORD.to_json() | {"weather": "fine"}
    row["curve"] = [{**turn, "mood": 1} for turn in row["curve"]]
    assert record_from_json(row, "here") == RECORD


@pytest.mark.parametrize(
    "change",
    [
        {"window": "8k"},
        {"question": 7},
        {"scores": {"recall": "high"}},
        {"scores": {"recall": float("nan")}},
        {"scores": 5},
        {"scores": {"recall": 10**400}},
        {"curve": [{"turn": 1}]},
        {"curve": [[1]]},
        {"curve": [{"turn": 1, "tokens": "x", "view": 0, "seen": 0.0, "held": 0.0}]},
        {"curve": [{"turn": 1, "tokens": 10**400, "view": 0, "seen": 0.0, "held": 0.0}]},
        {"seconds": float("inf")},
        {"error": 3},
    ],
)
def test_an_invalid_record_is_reported_with_its_location(change: dict[str, object]) -> None:
    with pytest.raises(DataError, match=r"^run\.jsonl:3: "):
        record_from_json(RECORD.to_json() | change, "run.jsonl:3")


def test_a_row_that_is_no_object_or_lacks_a_field() -> None:
    for row in ([], None, {"benchmark": "b"}):
        with pytest.raises(DataError, match="not a record"):
            record_from_json(row, "here")


SETTINGS = {"benchmarks": {"b": {}}, "systems": ["bm25", "agent"], "windows": [32768], "seeds": [0]}
NOTE = {"split": "", "questions": 1, "chunks": 1, "source": "", "ids": ["q1"]}
RUN: dict[str, object] = {"schema": 1, "settings": SETTINGS, "notes": {"benchmarks": {"b": NOTE}}}
"""The contents of a sound `run.json`."""


def test_a_run_without_records_lists_all_of_them_as_missing(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    (tmp_path / "records.jsonl").write_text("")
    assert sorted(gap.system for gap in summarize_run(tmp_path).missing) == ["agent", "bm25"]


@pytest.mark.parametrize("wrong", [{"seed": "x" * 100_000}, {"scores": {"recall": "x" * 100_000}}, {"x" * 100_000: 1}])
def test_a_refused_record_quotes_a_part_of_a_long_value(wrong: dict[str, object]) -> None:
    row = {"benchmark": "b", "system": "s", "window": 0, "seed": 0, "question": "q", "seconds": "1", **wrong}
    with pytest.raises(DataError, match="not a record") as caught:
        record_from_json(row, "here")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "run",
    [
        {"schema": 1},
        {"schema": "1", "settings": {}, "notes": {}},
        {"schema": 1, "settings": [], "notes": {}},
        {"schema": 1, "settings": {}, "notes": {}},
        {"schema": 1, "settings": {"systems": ["bm25"]}, "notes": {"benchmarks": {"b": {}}}},
        {"schema": 1, "settings": {"systems": 5}, "notes": {"benchmarks": {}}},
        {**RUN, "settings": {**SETTINGS, "seeds": ["<b>0</b>"]}},
        {**RUN, "settings": {**SETTINGS, "seeds": [[0]]}},
        {**RUN, "settings": {**SETTINGS, "windows": ["\ud800"]}},
        {**RUN, "notes": {"benchmarks": {"b": {**NOTE, "ids": [["q1"]]}}}},
    ],
)
def test_a_damaged_run_file_is_refused_by_its_name(tmp_path: Path, run: dict[str, object]) -> None:
    (tmp_path / "run.json").write_text(json.dumps(run))
    with pytest.raises(DataError, match=r"run\.json is damaged .*Restore the file"):
        summarize_run(tmp_path)


OLD_RUN = Path(__file__).parent / "old_run"
"""A run folder as version 0.1.0 wrote it before its modules were renamed."""


def test_a_run_of_an_earlier_version_has_the_same_summary() -> None:
    old_summary = json.loads((OLD_RUN / "summary.json").read_text(encoding="utf-8"))
    summary = json.loads(json.dumps(summarize_run(OLD_RUN).to_json()))
    floors = summary.pop("floors")
    assert {**summary, "definitions": None} == {**old_summary, "definitions": None}
    assert [floor["benchmark"] for floor in floors] == ["world"]
    assert summary_from_json(old_summary) == replace(summarize_run(OLD_RUN), floors=())


def test_a_run_of_an_earlier_version_can_be_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(OLD_RUN, folder)
    run = read_run(folder)
    with open_run(folder, run["settings"], run["notes"]) as log:
        assert sorted(log.records) == [record.key for record in read_records(OLD_RUN)]
        log.add(RECORD)
    assert RECORD in read_records(folder)


def test_the_trajectories_of_an_earlier_version_are_refused_with_the_remedy() -> None:
    with pytest.raises(DataError, match=r"schema 1.*Search again"):
        read_all([OLD_RUN / "trajectories"])
