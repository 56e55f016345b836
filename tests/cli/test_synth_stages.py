"""The stages as commands, run one after another as a user runs them, against a server process."""

import json
from dataclasses import dataclass

import pytest

from context_agent._support.question_files import load_questions
from context_agent.cli.app import run
from tests.cli import process
from tests.synth_data.llm_stages.scripted_writer import documents
from tests.synth_data.llm_stages.writing import serving


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
