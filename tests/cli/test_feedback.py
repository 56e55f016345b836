"""`ctx1 feedback` and `ctx1 synth from-feedback`."""

import json

import pytest

QUESTION = "Which river flows past the birthplace of the engineer who designed Orm Skerry Light?"


@pytest.fixture
def found(inside, index):
    """A search whose trajectory was kept in `kept`."""
    done = inside("search", QUESTION, "--path", index, "--json", "--save", "kept")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def trajectory(found):
    return found["trajectory"].rpartition("/")[2].removesuffix(".jsonl")


def test_judgements_become_tasks(inside, index, found, tmp_path):
    ids = [one["id"] for one in found["documents"]]
    judge = ("feedback", trajectory(found), "--trajectories", "kept", "--relevant", ids[0], "--relevant", ids[1],
             "--irrelevant", ids[2], "--rating", 4, "--user", "ann", "--json")  # fmt: skip
    first, again = inside(*judge), inside(*judge)
    assert (first.returncode, json.loads(first.stdout)["created"]) == (0, True)
    assert (again.returncode, json.loads(again.stdout)["created"]) == (0, False)
    assert len((tmp_path / "kept" / "feedback.jsonl").read_text().splitlines()) == 1
    with (tmp_path / "kept" / "feedback.jsonl").open("a") as log:
        log.write("no json\n")
    done = inside("synth", "from-feedback", "kept/feedback.jsonl", "--trajectories", "kept", "--path", index,
                "--out", "out/tasks.jsonl", "--json")  # fmt: skip
    report = json.loads(done.stdout)
    assert (done.returncode, report["tasks"], report["judgements"], report["unreadable"]) == (1, 1, 1, 1)
    assert "feedback.jsonl:2: not valid JSON" in done.stderr
    task = json.loads((tmp_path / "out" / "tasks.jsonl").read_text())
    assert (task["question"], task["gold"], task["distractors"]) == (QUESTION, ids[:2], ids[2:3])
    told = inside("synth", "from-feedback", "kept/feedback.jsonl", "--trajectories", "kept", "--path", index,
                "--out", "tasks.jsonl")  # fmt: skip
    assert "1 tasks from 1 judgements in tasks.jsonl. Dropped: none." in told.stdout


def test_judgements_in_bulk(inside, found, tmp_path):
    name = trajectory(found)
    rows = [{"trajectory": name, "rating": 3}, {"trajectory": "absent", "rating": 3}, {"rating": "x"}]
    given = "".join(json.dumps(row) + "\n" for row in rows) * 2
    done = inside("feedback", "--file", "-", "--trajectories", "kept", "--json", stdin=given)
    assert done.returncode == 1
    assert json.loads(done.stdout) == {"written": 1, "known": 0, "refused": 5}
    assert "no trajectory 'absent'" in done.stderr


def test_what_cannot_be_judged(inside, found):
    absent = inside("feedback", "absent", "--trajectories", "kept", "--rating", 3)
    assert absent.returncode == 1
    assert "'absent'" in absent.stderr
    nothing = inside("feedback", trajectory(found), "--trajectories", "kept")
    assert (nothing.returncode, "the judgement is empty" in nothing.stderr) == (2, True)
    neither = inside("feedback", "--trajectories", "kept", "--rating", 3)
    assert (neither.returncode, "one TRAJECTORY" in neither.stderr) == (2, True)
