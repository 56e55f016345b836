"""`ctx1 synth filter`: tasks in, the worthwhile ones out."""

import json

import pytest

from context_agent.cli.app import run
from context_agent.synth_data.task import encode_row, load_tasks, write_tasks
from tests.cli import process
from tests.cli.conftest import passages
from tests.synth_data.tasks import task


@pytest.fixture
def tasks(tmp_path):
    """Tasks about a passage of the notes and one that its text names; a copy, one about nothing, and a broken row."""
    found = passages()
    pairs = [(one, other) for one in found for other in found if other["title"] in one["text"] and one is not other]
    made = [
        task(f"{one['id']}-{other['id']}", one["id"], other["id"], question=f"What is told of {one['title']} and then?")
        for one, other in pairs[:8]
    ]
    extra = [task("copy", *made[0].gold, question=f"{made[0].question[:-1]} ?"), task("gone", "nowhere")]
    path = tmp_path / "tasks.jsonl"
    write_tasks(path, [*made, *extra])
    path.write_text(path.read_text(encoding="utf-8") + "{broken\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """An index whose documents have the passages' own ids."""
    folder = tmp_path_factory.mktemp("user")
    rows = folder / "corpus.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in passages()), encoding="utf-8")
    assert process.run("index", rows, "--path", "index", cwd=folder).returncode == 0
    return folder / "index"


def test_tasks_are_filtered_attempted_and_labelled(inside, tmp_path, tasks, corpus):
    line = (
        "synth",
        "filter",
        tasks,
        "--path",
        corpus,
        "--out",
        "kept.jsonl",
        "--passes",
        2,
        "--drop",
        "none",
        "--json",
    )
    done = inside(*line)
    assert done.returncode == 1, "a row could not be read"
    assert "tasks.jsonl:11: not valid JSON" in done.stderr
    report = json.loads(done.stdout)
    kept = load_tasks(tmp_path / "kept.jsonl")
    assert (report["inputs"], report["unreadable"], report["kept"]) == (10, 1, len(kept))
    assert report["dropped"]["gold not in the index"] == 1
    assert report["dropped"]["near-duplicate"] >= 1
    for one in kept:
        assert one.labels["passes"]["attempts"] == ["searches 1", "searches 28"]
        assert one.labels["difficulty"]["level"] in {"easy", "medium", "hard"}
    assert all(one.labels["passes"]["recalls"][1] == 1 for one in kept[:1])
    before = (tmp_path / "kept.jsonl").read_bytes()
    again = json.loads(inside(*line).stdout)
    assert again["resumed"] == 10
    assert (tmp_path / "kept.jsonl").read_bytes() == before


def test_what_is_solved_by_one_search_goes(inside, tmp_path, tasks, corpus):
    done = inside(
        *("synth", "filter", tasks, "--path", corpus, "--out", "kept.jsonl"),
        *("--passes", 2, "--drop", "always", "--recall", 0.5, "--json"),
    )
    report = json.loads(done.stdout)
    assert report["dropped"]["always solved"] >= 1
    rows = [json.loads(line) for line in (tmp_path / "kept.jsonl.dropped.jsonl").read_text().split("\n") if line]
    told = [row["detail"] for row in rows if row["reason"] == "always solved"]
    assert all("searches 1: recall" in one for one in told)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--passes", 2, "--vary", "seed"), "deterministic and ignores the seed"),
        (("--passes", 99), "cannot differ"),
        (("--recall", 0), "recall"),
        (("--drop", "sometimes"), "--drop"),
    ],
)
def test_what_cannot_work_is_refused_at_once(capsys, tasks, corpus, flags, told):
    out = tasks.with_name("kept.jsonl")
    assert run(["synth", "filter", str(tasks), "--path", str(corpus), "--out", str(out), *map(str, flags)]) == 2
    assert told in capsys.readouterr().err
    assert not out.exists()


def test_an_empty_file_comes_to_nothing_and_a_missing_one_is_told(inside, tmp_path, corpus):
    (tmp_path / "empty.jsonl").write_text("")
    done = inside("synth", "filter", "empty.jsonl", "--path", corpus, "--out", "kept.jsonl")
    assert done.returncode == 0
    assert "0 of 0 tasks kept" in done.stdout
    done = inside("synth", "filter", "none.jsonl", "--path", corpus, "--out", "kept.jsonl")
    assert done.returncode == 1
    assert "none.jsonl: cannot be read" in done.stderr


@pytest.fixture
def six(tmp_path):
    write_tasks(tmp_path / "tasks.jsonl", [task(f"t{at}", passages()[at]["id"]) for at in range(6)])
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


def judged(path, **verdicts):
    path.write_text(
        "".join(json.dumps({"task": t, "verdict": v}) + "\n" for t, v in verdicts.items()), encoding="utf-8"
    )


def test_the_page_holds_the_sample(inside, tmp_path, six, index):
    for name in ("a.html", "b.html"):
        done = inside("synth", "review", six, "--path", index, "--sample", 4, "--seed", 1, "--out", name, "--json")
        assert json.loads(done.stdout) == {"page": name, "tasks": 4}, done.stderr
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    assert "Content-Security-Policy" in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_dropped_tasks_are_among_them(inside, tmp_path, six, index, dropped):
    done = inside("synth", "review", six, "--path", index, "--dropped", dropped, "--out", "p.html", "--json")
    assert json.loads(done.stdout)["tasks"] == 7
    assert done.returncode == 1
    assert "dropped.jsonl:2: not a dropped task" in done.stderr


def test_judgements_are_applied_and_compared(inside, tmp_path, six, dropped):
    judged(tmp_path / "ann.jsonl", t0="accept", t1="reject", t2="accept", lost="reject")
    judged(tmp_path / "ben.jsonl", t0="accept", t1="accept", t2="accept", lost="reject")
    line = (
        "synth",
        "review",
        six,
        "--dropped",
        dropped,
        "--judgements",
        "ann.jsonl",
        "ben.jsonl",
        "--out",
        "kept.jsonl",
    )
    report = json.loads(inside(*line, "--json").stdout)
    assert report["rejected"] == ["t1"]
    assert [one.id for one in load_tasks(tmp_path / "kept.jsonl")] == ["t0", "t2", "t3", "t4", "t5"]
    found = report["agreement"]
    assert found["judges"]["ann"]["accepted"] == 2
    assert found["judges"]["ann"]["verification"]["value"] == 0.75
    assert found["judges"]["ben"]["kappa"]["value"] == 1
    assert found["equal"]["ann, ben"]["value"] == 0.75
    assert found["kappa"]["ann, ben"]["value"] == pytest.approx(0.5)
    assert found["alpha"]["n"] == 4
    told = inside(*line, "--reject-by", "majority", "--judged-only").stdout
    assert "ann, ben: equal 0.750" in told
    assert "Krippendorff's alpha" in told
    assert [one.id for one in load_tasks(tmp_path / "kept.jsonl")] == ["t0", "t2"]


def test_unknown_tasks_and_second_thoughts_are_told(inside, tmp_path, six):
    (tmp_path / "ann.jsonl").write_text(
        '{"task": "t0", "verdict": "accept"}\n{"task": "t0", "verdict": "reject"}\n{"task": "x", "verdict": "accept"}\n'
    )
    done = inside("synth", "review", six, "--judgements", "ann.jsonl", "--out", "kept.jsonl", "--json")
    report = json.loads(done.stdout)
    assert report["rejected"] == ["t0"]
    assert report["lines"] == {"unknown": 1, "changed": 1, "undecided": 0, "bad": 0}
    assert "task 'x' is not among those reviewed" in done.stderr


def test_what_cannot_work_is_refused(inside, tmp_path, six, index):
    judged(tmp_path / "ann.jsonl", unknown="accept")
    done = inside("synth", "review", six, "--judgements", "ann.jsonl", "--out", "kept.jsonl")
    assert done.returncode == 1
    assert "none of these tasks has a judgement" in done.stderr
    assert not (tmp_path / "kept.jsonl").exists()
    done = inside("synth", "review", six, "ann.jsonl", "--out", "kept.jsonl")
    assert done.returncode == 2
    assert "--judgements" in done.stderr
    (tmp_path / "empty.jsonl").write_text("")
    done = inside("synth", "review", "empty.jsonl", "--path", index, "--out", "p.html")
    assert done.returncode == 1
    assert "no task to review" in done.stderr
