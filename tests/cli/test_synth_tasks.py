"""`ctx1 synth tasks` by links: an index in, a file of tasks out."""

import json

import pytest

from tests.support.film_pages import films


@pytest.fixture
def indexed(inside, tmp_path):
    rows = [json.dumps({"id": film.id, "title": film.title, "text": film.text}) for film in films(count=30)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(rows), encoding="utf-8")
    assert inside("index", "corpus.jsonl", "--path", "i").returncode == 0


def test_tasks_are_written_and_counted(inside, tmp_path, indexed):
    tasks_run = inside("synth", "tasks", "--path", "i", "--out", "t.jsonl", "--report", "r/report.json", "--json")
    assert tasks_run.returncode == 0, tasks_run.stderr
    report = json.loads(tasks_run.stdout)
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert report["tasks"] == len(rows) > 20
    assert json.loads((tmp_path / "r/report.json").read_text())["kept"] == report["kept"]
    assert all(kind.endswith(" hops") for kind in report["kept"])
    assert {row["origin"] for row in rows} == {"links"}
    again = inside("synth", "tasks", "--path", "i", "--out", "u.jsonl", "--count", 5, "--distractors", 1)
    assert again.returncode == 0, again.stderr
    first = [json.loads(line) for line in (tmp_path / "u.jsonl").read_text().splitlines()]
    assert [row["question"] for row in first] == [row["question"] for row in rows[:5]]
    assert "5 tasks" in again.stdout


def test_wrong_options_are_reported_in_one_line(inside, tmp_path, indexed):
    url = ["--base-url", "http://127.0.0.1:9"]
    wrong_options = (
        ["--types", "riddle"],
        ["--name", ""],
        ["--name", "a\udcff"],
        ["--hops", "7"],
        ["--hops", "x"],
        url,
        [*url, "--model", "m", "--report", "r.json"],
        ["--processes", "2"],
        ["--temperature", "5"],
        ["--max-cost", "1"],
        ["--window", "1"],
    )
    for options in wrong_options:
        tasks_run = inside("synth", "tasks", "--path", "i", "--out", "t.jsonl", *options)
        assert tasks_run.returncode == 2
        assert len(tasks_run.stderr.splitlines()) == 1
    tasks_run = inside("synth", "tasks", "--path", "nowhere", "--out", "t.jsonl")
    assert tasks_run.returncode == 1
    assert "ctx1 index" in tasks_run.stderr
    assert not (tmp_path / "t.jsonl").exists()


NOTES = {
    "lena-ortiz": "Lena Ortiz (born 4 May 1961) is a Kestral engineer. She moved to the coast in 1988 after a storm.",
    "brasko-weir": "Brasko Weir is a weir built by [Lena Ortiz](lena-ortiz.md). It was raised in 1994 after a flood.",
    "mirrow-bridge": "Mirrow Bridge is a bridge designed by [[Lena Ortiz]]. It was painted in 2003 by the town.",
    "tide-log": "Tide Log is a journal about [Brasko Weir](brasko-weir.md) that the keepers wrote.",
}


def write_notes(folder, notes):
    folder.mkdir()
    for number, (name, text) in enumerate(notes.items(), 1):
        front = f"---\ntags: [notes]\ndate: 2024-05-0{number}\npeople: [Ada, Bo]\n---\n"
        heading = f"# {name.replace('-', ' ').title()}"
        (folder / f"{name}.md").write_text(f"{front}{heading}\n\n{text}\n", encoding="utf-8")


def test_notes_with_front_matter_and_markdown_links_give_tasks(inside, tmp_path):
    write_notes(tmp_path / "n", NOTES)
    assert inside("index", "n", "--path", "i").returncode == 0
    tasks_run = inside("synth", "tasks", "--path", "i", "--out", "t.jsonl", "--json")
    assert tasks_run.returncode == 0, tasks_run.stderr
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert len(rows) == json.loads(tasks_run.stdout)["tasks"] > 0
    assert not any(mark in row["question"] for row in rows for mark in ("#", "](", "[["))


def test_notes_that_give_no_task_are_told_what_they_lack(inside, tmp_path):
    write_notes(tmp_path / "n", dict.fromkeys(NOTES, "Talked with Lena about Brasko Weir."))
    assert inside("index", "n", "--path", "i").returncode == 0
    (tmp_path / "t.jsonl").write_text("made before\n")
    tasks_run = inside("synth", "tasks", "--path", "i", "--out", "t.jsonl")
    assert tasks_run.returncode == 1
    assert "0 tasks from 3 links between 4 documents" in tasks_run.stdout
    assert (tmp_path / "t.jsonl").read_text() == "made before\n"
    prefix = "ctx1 synth tasks: "
    assert [line.removeprefix(prefix) for line in tasks_run.stderr.splitlines()] == [
        (
            "no task was made, because a question needs a document that another one names, and a fact about it. "
            "What was found:"
        ),
        "  0 of 4 documents begin by saying what their title is, as in 'Brasko is a village'",
        "  0 of 3 links lead to such a document",
        (
            "  0 of 4 documents state, in a sentence about their title, a fact to ask for: a year after 'in', a count, "
            "or a relation such as 'built by'"
        ),
        "Add such sentences to the documents. To let a language model write the questions, pass --model.",
    ]
