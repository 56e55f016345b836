"""`ctx1 synth tasks`: an index in, a file of tasks out.

The stages as commands, run one after another as a user runs them, against a server process.
"""

import json
from dataclasses import dataclass

import pytest

from context_agent._support.question_files import load_questions
from context_agent.cli.app import run
from tests.cli import process
from tests.synth_data.links.test_tasks import films
from tests.synth_data.llm_stages.scripted_writer import documents
from tests.synth_data.llm_stages.writing import serving


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
        ["--processes", "2"],
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


@dataclass(frozen=True, slots=True)
class Done:
    """What a command did."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with an index of the scripted writer's documents, and the server."""
    folder = tmp_path_factory.mktemp("desk")
    rows = [json.dumps({"id": one.id, "title": one.title, "text": one.text}) for one in documents()]
    (folder / "corpus.jsonl").write_text("\n".join(rows) + "\n")
    done = process.run("index", "corpus.jsonl", cwd=folder)
    assert done.returncode == 0, done.stderr
    with serving(folder) as server:
        yield folder, server


@pytest.fixture
def synth(desk, monkeypatch, capsys):
    """Runs `ctx1 synth` in this process, in the desk's folder: a process of its own would mostly import."""
    folder, server = desk
    monkeypatch.chdir(folder)

    def command(*arguments, model=True, replies="replies.jsonl"):
        asked = ["--base-url", server.url, "--model", "scripted"] if model else []
        asked += ["--replies", replies] if model and replies else []
        capsys.readouterr()
        code = run(["synth", *arguments, *asked])
        return Done(code, *capsys.readouterr())

    return command


def reported(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_stages_follow_each_other(desk, synth):
    folder, server = desk
    explored = reported(synth("explore", "--count", "16", "--out", "explored.jsonl", "--json"))
    assert (explored["stage"], explored["inputs"]) == ("explore", 16)
    written = reported(synth("write", "explored.jsonl", "--out", "written.jsonl", "--json"))
    assert written["dropped"]["answer in the question"] >= 1
    verified = reported(synth("verify", "written.jsonl", "--out", "verified.jsonl", "--json"))
    longer = reported(synth("extend", "verified.jsonl", "--out", "longer.jsonl", "--json"))
    assert longer["kept"] == verified["kept"] > 0
    done = synth("distract", "verified.jsonl", "--out", "tasks.jsonl", "--distractors", "4")
    assert done.returncode == 0
    assert done.stdout == ""
    assert f"distract: {verified['kept']} rows from {verified['kept']} inputs" in done.stderr
    rows = [json.loads(line) for line in (folder / "tasks.jsonl").read_text().splitlines()]
    assert {len(row["distractors"]) for row in rows} == {4}
    assert len(load_questions(folder / "tasks.jsonl")) == verified["kept"]
    asked = sum(server.fates("answered").values())
    again = reported(synth("verify", "written.jsonl", "--out", "verified.jsonl", "--json"))
    assert (again["kept"], again["resumed"]) == (verified["kept"], verified["inputs"])
    assert sum(server.fates("answered").values()) == asked


def test_all_stages_run_in_a_row(desk, synth):
    folder, _ = desk
    arguments = ("tasks", "--out", "all.jsonl", "--count", "48", "--hops", "1-2", "--distractors", "3")
    done = synth(*arguments, "--json", replies=None)
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    stages = ["explore", "single", "write", "verify", "extend-1", "verify-1", "distract"]
    assert [report["stage"] for report in reports] == stages
    questions = load_questions(folder / "all.jsonl")
    assert {question.hops for question in questions} == {1, 2}
    assert len(questions) == reports[-1]["kept"] == 4
    spread = synth(*arguments[:2], "spread.jsonl", *arguments[3:], "--json", "--processes", "2", replies=None)
    assert spread.returncode == 0, spread.stderr
    assert (folder / "spread.jsonl").read_bytes() == (folder / "all.jsonl").read_bytes()
    capped = synth(*arguments[:2], "capped.all.jsonl", *arguments[3:], "--max-tokens-total", "9000", replies=None)
    assert capped.returncode == 1
    assert "the cap is reached" in capped.stderr


def test_hops_are_those_of_the_domain_unless_told_otherwise(desk, synth):
    arguments = ("tasks", "--count", "3", "--domain", "patents", "--max-tokens-total", "10")
    done = synth(*arguments, "--out", "patents.jsonl", replies=None)
    assert "the cap is reached" in done.stderr, "it began"
    refused = synth(*arguments, "--out", "long.jsonl", "--hops", "2-4", replies=None)
    assert refused.returncode == 2
    assert "at most 3 hops" in refused.stderr


def test_distractors_are_found_without_a_model(desk, synth):
    folder, _ = desk
    task = {"id": "a", "question": "Which river flows past the walls?", "answer": "Barlume", "gold": ["town0"]}
    (folder / "own.jsonl").write_text(json.dumps(task) + "\nno row\n")
    arguments = ("distract", "own.jsonl", "--out", "by_words.jsonl", "--without-model")
    done = synth(*arguments, "--json", model=False)
    assert reported(done)["kept"] == 1
    assert "own.jsonl:2: not valid JSON" in done.stderr
    (row,) = [json.loads(line) for line in (folder / "by_words.jsonl").read_text().splitlines()]
    assert row["distractors"]
    assert not set(row["distractors"]) & {"town0", "bridge0"}
    written = (folder / "by_words.jsonl").read_bytes()
    spread = synth(
        "distract", "own.jsonl", "--out", "spread.by_words.jsonl", *arguments[4:], "--processes", "2", model=False
    )
    assert spread.returncode == 0, spread.stderr
    assert (folder / "spread.by_words.jsonl").read_bytes() == written
    refused = synth(*arguments, "--check-distractors", model=False)
    assert (refused.returncode, "needs a model" in refused.stderr) == (2, True)


def test_the_cap_is_told_and_the_exit_code_says_it(desk, synth):
    done = synth(
        "explore",
        "--count",
        "5",
        "--out",
        "capped/explored.jsonl",
        "--max-tokens-total",
        "10",
        replies="capped.jsonl",
    )
    assert done.returncode == 1
    assert "the cap is reached" in done.stderr
    assert "run the same command again" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--prompts", "prompts"), "unknown placeholder $nonsense"),
        (("--domain", "document"), "did you mean 'documents'?"),
        (("--max-cost", "1"), "needs prices"),
        (("--seed", "9"), "seed was 0 and is 9"),
    ],
)
def test_what_cannot_work_is_told_in_a_line(desk, synth, arguments, words):
    folder, _ = desk
    (folder / "prompts").mkdir(exist_ok=True)
    (folder / "prompts" / "write.md").write_text("Write $nonsense.")
    (folder / "one.jsonl").write_text('{"id": "t1", "seed": "town0", "documents": []}\n')
    synth("write", "one.jsonl", "--out", "one.out.jsonl")
    done = synth("write", "one.jsonl", "--out", "one.out.jsonl", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
