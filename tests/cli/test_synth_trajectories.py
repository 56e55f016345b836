"""`ctx1 synth trajectories`: tasks in, the episodes of an expert out."""

import json
from dataclasses import asdict

import pytest

from context_agent.cli.synth_trajectories import FilterOptions
from context_agent.policies.chat.scripted_server import rank_seen, says
from context_agent.synth_data.demonstrations.filters import DemonstrationFilters
from tests.support.chatting import serving
from tests.support.demo_corpus import passages


@pytest.fixture
def tasks(tmp_path):
    """Questions about a passage and one that its text names, under the ids that the notes have in their index."""
    pairs = [
        (passage, linked)
        for passage in passages()
        for linked in passages()
        if passage is not linked and linked["title"] in passage["text"]
    ][:6]
    rows = [
        {
            "id": f"q{n}",
            "question": f"What is told of {passage['title']}?",
            "gold": [f"{passage['id']}.md", f"{linked['id']}.md"],
        }
        for n, (passage, linked) in enumerate(pairs)
    ]
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_the_oracle_plays_and_a_second_run_plays_nothing(inside, tmp_path, tasks, index):
    command = ("synth", "trajectories", tasks, "--path", index, "--out", "out", "--window", 4096, "--json")
    process = inside(*command)
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout)
    assert report["episodes"] == 6
    assert sum(report["kept"].values()) >= 4
    assert len(list((tmp_path / "out" / "kept").iterdir())) == sum(report["kept"].values())
    again = json.loads(inside(*command).stdout)
    assert again["resumed"] == 6
    assert again["kept"] == report["kept"]


def test_the_pace_is_the_oracles_and_another_one_is_another_run(inside, tasks, index):
    command = ("synth", "trajectories", tasks, "--path", index, "--out", "out", "--json")
    slow = json.loads(inside(*command, "--pace", 1, "--prune-at", 0.1).stdout)
    assert slow["episodes"] == 6
    for option, setting in ((("--pace", 2), "pace=1"), (("--pace", 1, "--names-only"), "names_only=False")):
        other = inside(*command, *option, "--prune-at", 0.1)
        assert other.returncode == 2
        assert setting in other.stderr


def test_processes_play_the_same_episodes(inside, tmp_path, tasks, index):
    command = ("synth", "trajectories", tasks, "--path", index, "--json", "--rollouts", 2, "--noise", 0.2, "--out")
    reports = [json.loads(inside(*command, *options).stdout) for options in (["one"], ["two", "--processes", 2])]
    folders = [
        {path.relative_to(out): path.read_bytes() for path in out.rglob("*.jsonl")}
        for out in (tmp_path / "one", tmp_path / "two")
    ]
    assert folders[0] == folders[1]
    assert reports[0] == {**reports[1], "out": "one"}
    assert len(folders[0]) > 6


def test_people_get_a_table(inside, tasks, index):
    process = inside("synth", "trajectories", tasks, "--path", index, "--out", "out", "--noise", 0.2)
    assert process.returncode == 0, process.stderr
    assert "6 tasks, 6 episodes (0 from earlier runs)" in process.stdout
    assert "chunks per prune" in process.stdout


def test_rules_come_from_a_file(inside, tmp_path, tasks, index):
    (tmp_path / "own.toml").write_text("[synth.trajectories]\nmin-output-recall = 1.0\nlow-rate = 0.0\n")
    process = inside(
        "synth", "trajectories", tasks, "--path", index, "--out", "out", "--json", "--config", tmp_path / "own.toml"
    )
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout)
    assert report["filters"]["min_output_recall"] == 1.0
    assert report["kept"]["high"] == report["kept"]["low"] == 0


def test_a_language_model_teaches(inside, tasks, index):
    def model(body):
        if any(message["role"] == "tool" for message in body["messages"]):
            return rank_seen(body)
        return says(calls=[("search_corpus", {"query": str(body["messages"][-1]["content"])[-80:]})])

    with serving(*[model] * 40) as server:
        options = ("--expert", "chat", "--base-url", server.url, "--model", "scripted")
        process = inside("synth", "trajectories", tasks, "--path", index, "--out", "out", "--json", *options)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)["episodes"] == 6


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "there are no tasks"), ('{"id": "a"}\n', "no field question")],
)
def test_a_file_without_tasks_is_told_in_a_line(inside, tmp_path, index, text, words):
    (tmp_path / "empty.jsonl").write_text(text)
    process = inside("synth", "trajectories", "empty.jsonl", "--path", index, "--out", "out")
    assert process.returncode == 1
    assert words in process.stderr
    assert "Traceback" not in process.stderr


def test_tasks_that_cannot_be_played_fail_the_command(inside, tmp_path, index):
    (tmp_path / "far.jsonl").write_text('{"id": "a", "question": "Who?", "gold": ["nowhere"]}\n')
    process = inside("synth", "trajectories", "far.jsonl", "--path", index, "--out", "out")
    assert process.returncode == 1
    assert "1 gold is not in the index" in process.stdout


def test_the_numbers_on_the_command_line_are_those_of_the_filters():
    defaults = {name: value for name, value in asdict(DemonstrationFilters()).items() if name != "seed"}
    assert asdict(FilterOptions()) == defaults
