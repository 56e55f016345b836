"""`ctx1 synth review`: a page of tasks, and the judgments of people on them."""

import json

import pytest

from context_agent.synth_data.json_files import encode_row
from context_agent.synth_data.task import load_tasks, write_tasks
from tests.support.demo_corpus import passages
from tests.support.tasks import task


@pytest.fixture
def six(tmp_path):
    write_tasks(tmp_path / "tasks.jsonl", [task(f"t{number}", passages()[number]["id"]) for number in range(6)])
    return tmp_path / "tasks.jsonl"


@pytest.fixture
def dropped(tmp_path):
    rows = [
        {"reason": "no quotes", "detail": "", "input": task("lost", "d", clues="a\u2028b").to_json()},
        {"reason": "no documents", "detail": "", "input": {"topic": "no task"}},
    ]
    (tmp_path / "verified.jsonl.dropped.jsonl").write_text(
        "".join(f"{encode_row(row)}\n" for row in rows), encoding="utf-8"
    )
    return tmp_path / "verified.jsonl.dropped.jsonl"


def write_judgments(path, **verdicts):
    path.write_text(
        "".join(json.dumps({"task": task_id, "verdict": verdict}) + "\n" for task_id, verdict in verdicts.items()),
        encoding="utf-8",
    )


def test_the_page_holds_the_sample(inside, tmp_path, six, index):
    for name in ("a.html", "b.html"):
        review_run = inside(
            "synth", "review", six, "--path", index, "--sample", 4, "--seed", 1, "--out", name, "--json"
        )
        assert json.loads(review_run.stdout) == {"page": name, "tasks": 4}, review_run.stderr
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    assert "Content-Security-Policy" in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_dropped_tasks_can_be_reviewed_too(inside, tmp_path, six, index, dropped):
    review_run = inside("synth", "review", six, "--path", index, "--dropped", dropped, "--out", "p.html", "--json")
    assert json.loads(review_run.stdout)["tasks"] == 7
    assert review_run.returncode == 1
    assert "dropped.jsonl:2: not a dropped task" in review_run.stderr


def test_a_dropped_task_that_is_not_utf_8_is_told_and_a_byte_order_mark_is_not_part_of_it(
    inside, tmp_path, six, index, dropped
):
    task_line = dropped.read_bytes().split(b"\n")[0]
    dropped.write_bytes(b"\xef\xbb\xbf" + task_line + b"\n" + b'{"input": "caf\xe9"}\n')
    review_run = inside("synth", "review", six, "--path", index, "--dropped", dropped, "--out", "p.html", "--json")
    assert json.loads(review_run.stdout)["tasks"] == 7
    assert "dropped.jsonl:2: the line is not UTF-8" in review_run.stderr


def test_judgments_are_applied_and_compared(inside, tmp_path, six, dropped):
    write_judgments(tmp_path / "ann.jsonl", t0="accept", t1="reject", t2="accept", lost="reject")
    write_judgments(tmp_path / "ben.jsonl", t0="accept", t1="accept", t2="accept", lost="reject")
    command = (
        "synth",
        "review",
        six,
        "--dropped",
        dropped,
        "--judgments",
        "ann.jsonl",
        "ben.jsonl",
        "--out",
        "kept.jsonl",
    )
    report = json.loads(inside(*command, "--json").stdout)
    assert report["rejected"] == ["t1"]
    assert [kept_task.id for kept_task in load_tasks(tmp_path / "kept.jsonl")] == ["t0", "t2", "t3", "t4", "t5"]
    agreement = report["agreement"]
    assert agreement["judges"]["ann"]["accepted"] == 2
    assert agreement["judges"]["ann"]["verification"]["value"] == 0.75
    assert agreement["judges"]["ben"]["kappa"]["value"] == 1
    assert agreement["equal"]["ann, ben"]["value"] == 0.75
    assert agreement["kappa"]["ann, ben"]["value"] == pytest.approx(0.5)
    assert agreement["alpha"]["n"] == 4
    output = inside(*command, "--reject-by", "majority", "--judged-only").stdout
    assert "ann, ben: equal 0.750" in output
    assert "Krippendorff's alpha" in output
    assert [kept_task.id for kept_task in load_tasks(tmp_path / "kept.jsonl")] == ["t0", "t2"]


def test_unknown_tasks_and_second_thoughts_are_told(inside, tmp_path, six):
    (tmp_path / "ann.jsonl").write_text(
        '{"task": "t0", "verdict": "accept"}\n{"task": "t0", "verdict": "reject"}\n{"task": "x", "verdict": "accept"}\n'
    )
    review_run = inside("synth", "review", six, "--judgments", "ann.jsonl", "--out", "kept.jsonl", "--json")
    report = json.loads(review_run.stdout)
    assert report["rejected"] == ["t0"]
    assert report["lines"] == {"unknown": 1, "changed": 1, "undecided": 0, "bad": 0}
    assert "task 'x' is not among those reviewed" in review_run.stderr


def test_what_cannot_work_is_refused(inside, tmp_path, six, index):
    write_judgments(tmp_path / "ann.jsonl", unknown="accept")
    review_run = inside("synth", "review", six, "--judgments", "ann.jsonl", "--out", "kept.jsonl")
    assert review_run.returncode == 1
    assert "none of these tasks has a judgment" in review_run.stderr
    assert not (tmp_path / "kept.jsonl").exists()
    review_run = inside("synth", "review", six, "ann.jsonl", "--out", "kept.jsonl")
    assert review_run.returncode == 2
    assert "--judgments" in review_run.stderr
    (tmp_path / "empty.jsonl").write_text("")
    review_run = inside("synth", "review", "empty.jsonl", "--path", index, "--out", "p.html")
    assert review_run.returncode == 1
    assert "'Review of empty.jsonl' has no tasks, so there is nothing to review" in review_run.stderr
