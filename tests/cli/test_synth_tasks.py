"""`ctx1 synth tasks`: an index in, a file of tasks out."""

import json

import pytest

from tests.synth_data.links.test_tasks import films


@pytest.fixture
def indexed(inside, tmp_path):
    rows = [json.dumps({"id": one.id, "title": one.title, "text": one.text}) for one in films(count=30)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(rows), encoding="utf-8")
    assert inside("index", "corpus.jsonl", "--path", "i").returncode == 0


def test_tasks_are_written_and_counted(inside, tmp_path, indexed):
    done = inside("synth", "tasks", "--path", "i", "--out", "t.jsonl", "--report", "r/report.json", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert told["tasks"] == len(rows) > 20
    assert json.loads((tmp_path / "r/report.json").read_text())["kept"] == told["kept"]
    assert {row["origin"] for row in rows} == {"links"}
    again = inside("synth", "tasks", "--path", "i", "--out", "u.jsonl", "--count", 5, "--distractors", 1)
    assert again.returncode == 0, again.stderr
    first = [json.loads(line) for line in (tmp_path / "u.jsonl").read_text().splitlines()]
    assert [row["question"] for row in first] == [row["question"] for row in rows[:5]]
    assert "5 tasks" in again.stdout


def test_what_cannot_be_is_told_in_a_line(inside, tmp_path, indexed):
    url = ["--base-url", "http://127.0.0.1:9"]
    wrongs = (
        ["--types", "riddle"],
        ["--hops", "7"],
        ["--hops", "x"],
        url,
        [*url, "--model", "m", "--report", "r.json"],
    )
    for wrong in wrongs:
        done = inside("synth", "tasks", "--path", "i", "--out", "t.jsonl", *wrong)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
    done = inside("synth", "tasks", "--path", "nowhere", "--out", "t.jsonl")
    assert done.returncode == 1
    assert "ctx1 index" in done.stderr
    assert not (tmp_path / "t.jsonl").exists()


def test_a_world_is_made_indexed_and_searched(inside, tmp_path):
    done = inside("synth", "world", "--entities", 60, "--seed", 3, "--out", "w", "--json")
    assert done.returncode == 0, done.stderr
    about = json.loads(done.stdout)
    assert about["documents"] == 60
    assert sum(counted["all"] for counted in about["tasks"].values()) == 120
    assert inside("index", "w/corpus.jsonl.gz", "--path", "i").returncode == 0
    found = inside("search", "--questions", "w/queries.dev.jsonl", "--path", "i", "--json")
    assert found.returncode == 0, found.stderr
    assert len(found.stdout.splitlines()) == about["tasks"]["dev"]["all"]


def test_what_was_asked_for_is_what_is_made(inside, tmp_path):
    done = inside(
        "synth", "world", "--entities", 80, "--tasks", 30, "--hops", "2-3", "--distractors", 2, "--out", "w",
        "--vocabulary", "small",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [
        json.loads(row) for split in ("train", "dev", "test") for row in (tmp_path / f"w/queries.{split}.jsonl").open()
    ]
    assert len(rows) == 30
    assert {row["hops"] for row in rows} == {2, 3}
    assert all(len(row["distractors"]) <= 2 for row in rows)
    assert "ctx1 index" in done.stdout


def test_wrong_calls_end_with_code_2(inside, tmp_path):
    assert inside("synth", "world", "--entities", 60).returncode == 2
    for wrong in (["--entities", 10], ["--entities", 60, "--hops", "4-2"], ["--entities", 60, "--tasks", 999_999]):
        done = inside("synth", "world", "--out", "w", *wrong)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    done = inside("synth", "world", "--entities", 60, "--out", "full")
    assert done.returncode == 2
    assert "--force" in done.stderr


NOTES = {
    "lena-ortiz": "Lena Ortiz (born 4 May 1961) is a Kestral engineer. She moved to the coast in 1988 after a storm.",
    "brasko-weir": "Brasko Weir is a weir built by [Lena Ortiz](lena-ortiz.md). It was raised in 1994 after a flood.",
    "mirrow-bridge": "Mirrow Bridge is a bridge designed by [[Lena Ortiz]]. It was painted in 2003 by the town.",
    "tide-log": "Tide Log is a journal about [Brasko Weir](brasko-weir.md) that the keepers wrote.",
}


def noted(folder, notes):
    folder.mkdir()
    for number, (name, text) in enumerate(notes.items(), 1):
        front = f"---\ntags: [notes]\ndate: 2024-05-0{number}\npeople: [Ada, Bo]\n---\n"
        heading = f"# {name.replace('-', ' ').title()}"
        (folder / f"{name}.md").write_text(f"{front}{heading}\n\n{text}\n", encoding="utf-8")


def test_notes_with_front_matter_and_markdown_links_give_tasks(inside, tmp_path):
    noted(tmp_path / "n", NOTES)
    assert inside("index", "n", "--path", "i").returncode == 0
    done = inside("synth", "tasks", "--path", "i", "--out", "t.jsonl", "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert len(rows) == json.loads(done.stdout)["tasks"] > 0
    assert not any(mark in row["question"] for row in rows for mark in ("#", "](", "[["))


def test_notes_that_give_no_task_are_told_what_they_lack(inside, tmp_path):
    noted(tmp_path / "n", dict.fromkeys(NOTES, "Talked with Lena about Brasko Weir."))
    assert inside("index", "n", "--path", "i").returncode == 0
    done = inside("synth", "tasks", "--path", "i", "--out", "t.jsonl")
    assert done.returncode == 1
    assert "0 tasks from 3 links between 4 documents" in done.stdout
    prefix = "ctx1 synth tasks: "
    assert [line.removeprefix(prefix) for line in done.stderr.splitlines()] == [
        "no task: a question describes a document that another one names, and asks for a fact of it. Of these",
        "  0 of 4 documents begin by saying what their title is, as in 'Brasko is a village'",
        "  0 of 3 links lead to such a document",
        (
            "  0 of 4 documents state, in a sentence about their title, a fact to ask for: a year after 'in', a count, "
            "or a relation such as 'built by'"
        ),
        "add such sentences to the documents, or let a language model write the questions: pass --model",
    ]
