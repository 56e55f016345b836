"""Records as rows of a run's file."""

from __future__ import annotations

import json

import pytest

from context_agent.errors import DataError
from context_agent.eval.records import Record, Turn, record_of

RECORD = Record(
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
    curve=(Turn(1, 900, 800, 0.5, 0.5), Turn(2, 1900, 700, 0.5, 0.0, 3, 1)),
    ranking=("d1", "d2"),
)


def test_a_record_comes_back_from_a_line_as_it_was() -> None:
    assert record_of(json.loads(json.dumps(RECORD.to_json())), "here") == RECORD
    failed = Record("b", "s", 0, 0, "q", scores={"recall": 0.0}, error="down")
    assert record_of(json.loads(json.dumps(failed.to_json())), "here") == failed


def test_fields_of_a_newer_version_are_passed_over() -> None:
    row = RECORD.to_json() | {"weather": "fine"}
    row["curve"] = [{**turn, "mood": 1} for turn in row["curve"]]
    assert record_of(row, "here") == RECORD


@pytest.mark.parametrize(
    "change",
    [
        {"window": "8k"},
        {"question": 7},
        {"scores": {"recall": "high"}},
        {"scores": {"recall": float("nan")}},
        {"scores": 5},
        {"curve": [{"turn": 1}]},
        {"error": 3},
    ],
)
def test_what_is_no_record_says_where_it_stands(change: dict[str, object]) -> None:
    with pytest.raises(DataError, match=r"^run\.jsonl:3: "):
        record_of(RECORD.to_json() | change, "run.jsonl:3")


def test_a_row_that_is_no_object_or_lacks_a_field() -> None:
    for row in ([], None, {"benchmark": "b"}):
        with pytest.raises(DataError, match="not a record"):
            record_of(row, "here")
