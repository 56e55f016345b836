"""Judgments: how they are read, which problems are reported, and what they decide."""

import json

import pytest

from context_agent.errors import DataError
from context_agent.synth_data import judgments as judgments_module
from context_agent.synth_data.judgments import Judgments, apply_judgments, load_judgments
from tests.support.tasks import task


def write_rows(path, *rows):
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def verdict_row(name, verdict="accept", **fields):
    return {"task": name, "verdict": verdict, **fields}


def test_the_judge_is_named_in_the_row_or_by_the_file(tmp_path):
    file = write_rows(
        tmp_path / "ben.jsonl", verdict_row("a", judge="Ann"), verdict_row("b", "reject"), verdict_row("c", judge="  ")
    )
    judgments = load_judgments([file], {"a", "b", "c"})
    assert judgments.verdicts == {"Ann": {"a": True}, "ben": {"b": False, "c": True}}
    assert not judgments.problems


def test_an_unknown_task_is_told_and_passed_over(tmp_path):
    file = write_rows(tmp_path / "ann.jsonl", verdict_row("a"), verdict_row("gone"))
    judgments = load_judgments([file], {"a"})
    assert judgments.counts == {"unknown": 1}
    assert judgments.problems == [f"{file}:2: task 'gone' is not among those reviewed"]


def test_a_judge_who_judges_twice_changed_their_mind(tmp_path):
    first = write_rows(tmp_path / "one.jsonl", verdict_row("a", judge="ann"), verdict_row("b", judge="ann"))
    second = write_rows(tmp_path / "two.jsonl", verdict_row("a", "reject", judge="ann"), verdict_row("a", judge="ben"))
    judgments = load_judgments([first, second], {"a", "b"})
    assert judgments.verdicts == {"ann": {"a": False, "b": True}, "ben": {"a": True}}
    assert judgments.counts == {"changed": 1}
    assert "ann judged 'a' twice; the later verdict counts" in judgments.problems[0]


def test_what_is_no_judgment_is_told_with_its_line(tmp_path):
    bad_lines = ["{broken", "[]", '{"verdict": "accept"}', '{"task": 3, "verdict": "accept"}']
    bad_lines += ['{"task": "a", "verdict": "maybe"}', '{"task": "a", "verdict": ["accept"]}']
    file = write_rows(tmp_path / "ann.jsonl", "", *bad_lines, verdict_row("a"))
    judgments = load_judgments([file], {"a"})
    assert judgments.counts == {"bad": 6}
    assert judgments.problems[0].startswith(f"{file}:2: ")
    assert judgments.verdicts == {"ann": {"a": True}}


def test_a_comment_alone_decides_nothing(tmp_path):
    file = write_rows(tmp_path / "ann.jsonl", verdict_row("a", None, comment="hm"), verdict_row("b", comment="fine"))
    judgments = load_judgments([file], {"a", "b"})
    assert judgments.verdicts == {"ann": {"b": True}}
    assert judgments.counts == {"undecided": 1}
    (a, b), rejected = apply_judgments([task("a"), task("b")], judgments)
    assert not rejected
    assert a.labels["review"] == {"accepted": [], "rejected": [], "comments": {"ann": "hm"}}
    assert b.labels["review"] == {"accepted": ["ann"], "rejected": [], "comments": {"ann": "fine"}}


def test_the_size_of_a_file_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(judgments_module, "MAX_JUDGMENTS_BYTES", 1_000)
    file = write_rows(tmp_path / "ann.jsonl", verdict_row("a", comment="x" * 1_000))
    with pytest.raises(DataError, match=r"ann\.jsonl cannot be read .*1,000 bytes"):
        load_judgments([file], {"a"})


def test_a_file_may_have_the_line_ends_of_any_system(tmp_path):
    for end in ("\n", "\r\n", "\r"):
        file = tmp_path / "ann.jsonl"
        file.write_bytes(end.join(json.dumps(verdict_row(name)) for name in "ab").encode("utf-8-sig"))
        assert load_judgments([file], {"a", "b"}).verdicts == {"ann": {"a": True, "b": True}}


def test_files_without_a_judgment_on_these_tasks_are_refused(tmp_path):
    with pytest.raises(DataError, match="not among those reviewed"):
        load_judgments([write_rows(tmp_path / "ann.jsonl", verdict_row("gone"))], {"a"})
    with pytest.raises(DataError, match="none of these tasks has a judgment"):
        load_judgments([write_rows(tmp_path / "empty.jsonl")], {"a"})
    with pytest.raises(DataError, match="cannot be read"):
        load_judgments([tmp_path / "none.jsonl"], {"a"})
    (tmp_path / "latin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not UTF-8"):
        load_judgments([tmp_path / "latin"], {"a"})


def test_one_rejection_or_half_of_them():
    verdicts = {"ann": {"a": True, "b": False}, "ben": {"a": True, "b": True}, "cem": {"a": False}}
    tasks = [task("a"), task("b"), task("c")]
    accepted, rejected = apply_judgments(tasks, Judgments(verdicts=verdicts))
    assert ([item.id for item in accepted], [item.id for item in rejected]) == (["c"], ["a", "b"])
    accepted, rejected = apply_judgments(tasks, Judgments(verdicts=verdicts), "majority")
    assert ([item.id for item in accepted], [item.id for item in rejected]) == (["a", "c"], ["b"])
    assert accepted[0].labels["review"]["rejected"] == ["cem"]
    assert accepted[1] == task("c")
