"""The stages of a language model as commands, run one after another against a server process."""

import json
from dataclasses import dataclass

import pytest

from context_agent._support.question_files import load_questions
from context_agent.cli.app import run
from context_agent.testing.scripted_writer import documents
from context_agent.testing.writer_process import serving


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The exit code and the output of a command."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with an index of the scripted writer's documents, and the server."""
    folder = tmp_path_factory.mktemp("desk")
    rows = [json.dumps({"id": document.id, "title": document.title, "text": document.text}) for document in documents()]
    (folder / "corpus.jsonl").write_text("\n".join(rows) + "\n")
    line = ["index", str(folder / "corpus.jsonl"), "--path", str(folder / ".ctx1"), "--embedder", "minilm"]
    assert run(line) == 0
    with serving(folder) as server:
        yield folder, server


@pytest.fixture
def synth(desk, monkeypatch, capsys):
    """Run `ctx1 synth` in this process, in the desk's folder. A new process would mostly spend time on imports."""
    folder, server = desk
    monkeypatch.chdir(folder)

    def command(*arguments, model=True, replies="replies.jsonl"):
        model_options = ["--base-url", server.url, "--model", "scripted"] if model else []
        model_options += ["--replies", replies] if model and replies else []
        capsys.readouterr()
        code = run(["synth", *arguments, *model_options])
        return CommandResult(code, *capsys.readouterr())

    return command


def read_report(result):
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_the_stages_follow_each_other(desk, synth):
    folder, server = desk
    explore_report = read_report(synth("explore", "--count", "16", "--out", "explored.jsonl", "--json"))
    assert (explore_report["stage"], explore_report["inputs"]) == ("explore", 16)
    write_report = read_report(synth("write", "explored.jsonl", "--out", "written.jsonl", "--json"))
    assert write_report["dropped"]["the question contains the answer"] >= 1
    verify_report = read_report(synth("verify", "written.jsonl", "--out", "verified.jsonl", "--json"))
    extend_report = read_report(synth("extend", "verified.jsonl", "--out", "longer.jsonl", "--json"))
    assert extend_report["kept"] == verify_report["kept"] > 0
    distract_run = synth("distract", "verified.jsonl", "--out", "tasks.jsonl", "--distractors", "4")
    assert distract_run.returncode == 0
    assert distract_run.stdout == ""
    assert f"distract: {verify_report['kept']} rows from {verify_report['kept']} inputs" in distract_run.stderr
    rows = [json.loads(line) for line in (folder / "tasks.jsonl").read_text().splitlines()]
    assert {len(row["distractors"]) for row in rows} == {4}
    assert len(load_questions(folder / "tasks.jsonl")) == verify_report["kept"]
    answered_count = sum(server.fates("answered").values())
    again = read_report(synth("verify", "written.jsonl", "--out", "verified.jsonl", "--json"))
    assert (again["kept"], again["resumed"]) == (verify_report["kept"], verify_report["inputs"])
    assert sum(server.fates("answered").values()) == answered_count


def test_all_stages_run_in_a_row(desk, synth):
    folder, _ = desk
    arguments = ("tasks", "--out", "all.jsonl", "--count", "48", "--hops", "1-2", "--distractors", "3")
    tasks_run = synth(*arguments, "--json", replies=None)
    assert tasks_run.returncode == 0, tasks_run.stderr
    reports = [json.loads(line) for line in tasks_run.stdout.splitlines()]
    stages = ["explore", "single", "write", "verify", "extend-1", "verify-1", "distract"]
    assert [report["stage"] for report in reports] == stages
    questions = load_questions(folder / "all.jsonl")
    assert {question.hops for question in questions} == {1, 2}
    assert len(questions) == reports[-1]["kept"] == 4
    parallel = synth(*arguments[:2], "spread.jsonl", *arguments[3:], "--json", "--processes", "2", replies=None)
    assert parallel.returncode == 0, parallel.stderr
    assert (folder / "spread.jsonl").read_bytes() == (folder / "all.jsonl").read_bytes()
    capped_run = synth(*arguments[:2], "capped.all.jsonl", *arguments[3:], "--max-tokens-total", "9000", replies=None)
    assert capped_run.returncode == 1
    assert "the cap is reached" in capped_run.stderr


def test_hops_are_those_of_the_domain_unless_told_otherwise(desk, synth):
    arguments = ("tasks", "--count", "3", "--domain", "patents", "--max-tokens-total", "10")
    tasks_run = synth(*arguments, "--out", "patents.jsonl", replies=None)
    assert "the cap is reached" in tasks_run.stderr, "it began"
    refusal = synth(*arguments, "--out", "long.jsonl", "--hops", "2-4", replies=None)
    assert refusal.returncode == 2
    assert "--hops must be at most 3" in refusal.stderr


def test_distractors_are_found_without_a_model(desk, synth):
    folder, _ = desk
    task = {"id": "a", "question": "Which river flows past the walls?", "answer": "Barlume", "gold": ["town0"]}
    (folder / "own.jsonl").write_text(json.dumps(task) + "\nno row\n")
    arguments = ("distract", "own.jsonl", "--out", "by_words.jsonl", "--without-model")
    distract_run = synth(*arguments, "--json", model=False)
    assert read_report(distract_run)["kept"] == 1
    assert "own.jsonl:2: the line is not valid JSON" in distract_run.stderr
    (row,) = [json.loads(line) for line in (folder / "by_words.jsonl").read_text().splitlines()]
    assert row["distractors"]
    assert not set(row["distractors"]) & {"town0", "bridge0"}
    serial_bytes = (folder / "by_words.jsonl").read_bytes()
    parallel = synth(
        "distract", "own.jsonl", "--out", "spread.by_words.jsonl", *arguments[4:], "--processes", "2", model=False
    )
    assert parallel.returncode == 0, parallel.stderr
    assert (folder / "spread.by_words.jsonl").read_bytes() == serial_bytes
    refusal = synth(*arguments, "--check-distractors", model=False)
    assert (refusal.returncode, "needs a model" in refusal.stderr) == (2, True)


def test_the_first_failed_row_says_why(desk, synth):
    """The server's address is wrong, and there are too few rows for the stage to halt."""
    away = ("--base-url", "http://127.0.0.1:9/v1", "--model", "scripted")
    result = synth("explore", "--count", "2", "--out", "unreached/out.jsonl", *away, model=False)
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert "the first input that failed: " in last
    assert "127.0.0.1:9" in last
    assert "run the same command" in last


def test_the_cap_is_told_and_the_exit_code_says_it(desk, synth):
    explore_run = synth(
        "explore",
        "--count",
        "5",
        "--out",
        "capped/explored.jsonl",
        "--max-tokens-total",
        "10",
        replies="capped.jsonl",
    )
    assert explore_run.returncode == 1
    assert "the cap is reached" in explore_run.stderr
    assert "run the same command again" in explore_run.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--prompts", "prompts"), "unknown placeholder $nonsense"),
        (("--domain", "document"), "Did you mean 'documents'?"),
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
    write_run = synth("write", "one.jsonl", "--out", "one.out.jsonl", *arguments)
    assert write_run.returncode == 2
    assert words in write_run.stderr
    assert len(write_run.stderr.strip().splitlines()) == 1
