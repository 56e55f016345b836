"""`ctx1 synth replay-check` and `from-feedback`: which episodes replay as recorded, and which become lessons."""

import json

import pytest

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


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "no judgment that can be read"),
        ("{}\n", "log.jsonl:1: the line is not a judgment (it names no trajectory)"),
    ],
)
def test_a_log_without_judgments_replaces_no_tasks(inside, index, tmp_path, line, told):
    (tmp_path / "log.jsonl").write_text(line)
    (tmp_path / "tasks.jsonl").write_text("made before\n")
    process = inside(
        "synth", "from-feedback", "log.jsonl", "--trajectories", ".", "--path", index, "--out", "tasks.jsonl"
    )
    assert process.returncode == 1
    assert told in process.stderr
    assert (tmp_path / "tasks.jsonl").read_text() == "made before\n"
