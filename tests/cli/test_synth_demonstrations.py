"""`ctx1 synth trajectories`, as a user runs it."""

import json
from dataclasses import asdict

import pytest

from context_agent.cli.synth_demonstrations import FilterOptions
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


QUESTION = "Which river flows past the birthplace of the engineer who designed Orm Skerry Light?"


@pytest.fixture
def found(inside, index):
    """The result of a search whose trajectory is saved in `kept`."""
    process = inside("search", QUESTION, "--path", index, "--json", "--save", "kept")
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.fixture
def amended(inside, notes, found, tmp_path, real_default_embedder):
    """Another index of the notes, in which the best document of the search has another text."""
    folder = tmp_path / "amended"
    folder.mkdir()
    best = found["documents"][0]["id"]
    for path in notes.iterdir():
        text = path.read_text(encoding="utf-8")
        (folder / path.name).write_text(text + "\nAmended.\n" if path.name in best else text, encoding="utf-8")
    assert inside("index", folder, "--path", "amended-index").returncode == 0
    return tmp_path / "amended-index"


def test_episodes_replay_on_the_same_index(inside, index, found):
    process = inside("synth", "replay-check", "kept", "--path", index, "--out", "lessons", "--json")
    report = json.loads(process.stdout)
    assert (process.returncode, report["checked"], report["same"], report["causes"]) == (0, 1, 1, {})
    again = inside("synth", "replay-check", "lessons/kept", "--path", index)
    assert (again.returncode, "1 of 1 episodes replay as recorded" in again.stdout) == (0, True)


def test_what_changed_is_said_and_left_out(inside, found, amended, tmp_path):
    process = inside("synth", "replay-check", "kept", "--path", amended, "--out", "lessons")
    assert process.returncode == 1
    assert "0 of 1 episodes" in process.stdout
    assert "1  text changed" in process.stdout
    assert ": text changed, turn " in process.stdout
    assert list((tmp_path / "lessons" / "kept").iterdir()) == []
    assert json.loads((tmp_path / "lessons" / "dropped.jsonl").read_text())["cause"] == "text changed"
    assert json.loads((tmp_path / "lessons" / "report.json").read_text())["differ"] == 1


@pytest.mark.usefixtures("real_default_embedder")  # the embedder of `index`, which another process makes
def test_an_index_of_another_name_is_not_played_on(inside, notes, found, tmp_path):
    assert inside("index", notes, "--path", "other", "--collection", "memos").returncode == 0
    command = ("synth", "replay-check", "kept", "--path", "other", "--collection", "memos", "--out", "checked")
    refusal = inside(*command)
    assert (refusal.returncode, "other corpus, before the first turn" in refusal.stdout) == (1, True)
    # The documents are the same, so the name of the collection is the only reason.
    assert "this corpus is chroma:memos@" in json.loads((tmp_path / "checked" / "dropped.jsonl").read_text())["detail"]
    replay = inside(*command, "--any-corpus")
    assert (replay.returncode, "1 of 1 episodes" in replay.stdout) == (0, True)
    assert len(list((tmp_path / "checked" / "kept").iterdir())) == 1


def test_what_people_liked_becomes_lessons(inside, index, found, amended, tmp_path):
    ids = [document["id"] for document in found["documents"]]
    name = found["trajectory"].rpartition("/")[2].removesuffix(".jsonl")
    feedback = inside("feedback", name, "--trajectories", "kept", "--relevant", ids[0], "--rating", 5)
    assert feedback.returncode == 0, feedback.stderr
    with (tmp_path / "kept" / "feedback.jsonl").open("a") as log:
        log.write('{"id": "x", "trajectory": "absent", "rating": 5}\n')
    command = ("synth", "from-feedback", "kept/feedback.jsonl", "--trajectories", "kept", "--out", "tasks.jsonl")
    process = inside(*command, "--path", index, "--sft", "lessons", "--json")
    report = json.loads(process.stdout)
    assert process.returncode == 0, process.stderr
    assert (report["sft"]["judged"], report["sft"]["kept"], report["sft"]["dropped"]) == (2, 1, {"unknown": 1})
    assert report["sft"]["replay"]["same"] == 1
    assert [path.stem for path in (tmp_path / "lessons" / "kept").iterdir()] == [name]
    strict = inside(*command, "--path", amended, "--sft", "lessons")
    assert strict.returncode == 0, strict.stderr
    assert "0 of 2 judged trajectories kept in lessons. Dropped: 1 unknown, 1 changed." in strict.stdout
    assert "text changed" in strict.stderr
    assert list((tmp_path / "lessons" / "kept").iterdir()) == []
    lenient = inside(*command, "--path", amended, "--sft", "lessons", "--keep-changed")
    assert "1 of 2 judged trajectories" in lenient.stdout
