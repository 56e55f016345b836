"""`ctx1 synth filter`: tasks in, the worthwhile ones out."""

import json

import pytest

from context_agent.cli.app import run
from context_agent.cli.synth_filter import AttemptOptions
from context_agent.synth_data.task import load_tasks, write_tasks
from tests.support.demo_corpus import passages
from tests.support.tasks import task


@pytest.fixture
def tasks(tmp_path):
    """Tasks about a passage and another that its text names; a near-copy, one with unknown gold, and a broken row."""
    documents = passages()
    pairs = [
        (passage, linked)
        for passage in documents
        for linked in documents
        if linked["title"] in passage["text"] and passage is not linked
    ]
    linked_tasks = [
        task(
            f"{passage['id']}-{linked['id']}",
            passage["id"],
            linked["id"],
            question=f"What is told of {passage['title']} and then?",
        )
        for passage, linked in pairs[:4]
    ]
    extra = [
        task("copy", *linked_tasks[0].gold, question=f"{linked_tasks[0].question[:-1]} ?"),
        task("gone", "nowhere"),
    ]
    path = tmp_path / "tasks.jsonl"
    write_tasks(path, [*linked_tasks, *extra])
    path.write_text(path.read_text(encoding="utf-8") + "{broken\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """An index whose documents have the passages' own ids."""
    folder = tmp_path_factory.mktemp("user")
    rows = folder / "corpus.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in passages()), encoding="utf-8")
    assert run(["index", str(rows), "--path", str(folder / "index"), "--embedder", "minilm"]) == 0
    return folder / "index"


def test_tasks_are_filtered_attempted_and_labeled(inside, tmp_path, tasks, corpus):
    command = (
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
    filter_run = inside(*command)
    assert filter_run.returncode == 1, "a row could not be read"
    assert "tasks.jsonl:7: the line is not valid JSON" in filter_run.stderr
    report = json.loads(filter_run.stdout)
    kept_tasks = load_tasks(tmp_path / "kept.jsonl")
    assert (report["inputs"], report["unreadable"], report["kept"]) == (6, 1, len(kept_tasks))
    assert kept_tasks
    assert report["dropped"]["gold is not in the index"] == 1
    assert report["dropped"]["near-duplicate"] >= 1
    for kept_task in kept_tasks:
        assert kept_task.labels["passes"]["attempts"] == ["searches 1", "searches 28"]
        assert kept_task.labels["difficulty"]["level"] in {"easy", "medium", "hard"}
    assert kept_tasks[0].labels["passes"]["recalls"][1] == 1
    before = (tmp_path / "kept.jsonl").read_bytes()
    again = json.loads(inside(*command).stdout)
    assert again["resumed"] == 6
    assert (tmp_path / "kept.jsonl").read_bytes() == before
    parallel = inside(*command[:6], "spread.jsonl", *command[7:], "--processes", 2)
    assert {**json.loads(parallel.stdout), "out": "kept.jsonl"} == report
    assert (tmp_path / "spread.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("drop", "extremes"),
    [("both", {"always", "never"}), ("always", {"always"}), ("never", {"never"}), ("none", set())],
)
def test_drop_names_the_results_for_which_a_task_is_dropped(drop, extremes):
    assert AttemptOptions(drop=drop).extremes == extremes


def test_tasks_that_one_search_solves_are_dropped(inside, tmp_path, tasks, corpus):
    filter_run = inside(
        *("synth", "filter", tasks, "--path", corpus, "--out", "kept.jsonl"),
        *("--passes", 2, "--drop", "always", "--recall", 0.5, "--json"),
    )
    report = json.loads(filter_run.stdout)
    assert report["dropped"]["always solved"] >= 1
    rows = [json.loads(line) for line in (tmp_path / "kept.jsonl.dropped.jsonl").read_text().split("\n") if line]
    details = [row["detail"] for row in rows if row["reason"] == "always solved"]
    assert all("searches 1: recall" in detail for detail in details)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--passes", 2, "--vary", "seed"), "deterministic and ignores the seed"),
        (("--passes", 99), "cannot all differ"),
        (("--recall", 0), "recall"),
        (("--drop", "sometimes"), "--drop"),
        (("--window", "-1"), "--window is about the attempts"),
        (("--policy", "chat", "--base-url", "http://127.0.0.1:9"), "Pass --passes N, or remove --"),
    ],
)
def test_what_cannot_work_is_refused_at_once(capsys, tasks, corpus, flags, told):
    out = tasks.with_name("kept.jsonl")
    assert run(["synth", "filter", str(tasks), "--path", str(corpus), "--out", str(out), *map(str, flags)]) == 2
    assert told in capsys.readouterr().err
    assert not out.exists()


def test_an_empty_file_comes_to_nothing_and_a_missing_one_is_told(inside, tmp_path, corpus):
    (tmp_path / "empty.jsonl").write_text("")
    filter_run = inside("synth", "filter", "empty.jsonl", "--path", corpus, "--out", "kept.jsonl")
    assert filter_run.returncode == 0
    assert "0 of 0 tasks kept" in filter_run.stdout
    filter_run = inside("synth", "filter", "none.jsonl", "--path", corpus, "--out", "kept.jsonl")
    assert filter_run.returncode == 2
    assert '"none.jsonl" does not exist. Pass an existing file.' in filter_run.stderr
