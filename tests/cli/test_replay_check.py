"""`ctx1 synth replay-check`, and the lessons of `ctx1 synth from-feedback --sft`."""

import json

import pytest

QUESTION = "Which river flows past the birthplace of the engineer who designed Orm Skerry Light?"


@pytest.fixture
def found(inside, index):
    """A search whose trajectory was kept in `kept`."""
    done = inside("search", QUESTION, "--path", index, "--json", "--save", "kept")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def amended(inside, notes, found, tmp_path):
    """Another index of the notes, in which the best document of the search is worded otherwise."""
    folder = tmp_path / "amended"
    folder.mkdir()
    best = found["documents"][0]["id"]
    for path in notes.iterdir():
        text = path.read_text(encoding="utf-8")
        (folder / path.name).write_text(text + "\nAmended.\n" if path.name in best else text, encoding="utf-8")
    assert inside("index", folder, "--path", "amended-index").returncode == 0
    return tmp_path / "amended-index"


def test_the_same_index_shows_the_same(inside, index, found):
    done = inside("synth", "replay-check", "kept", "--path", index, "--out", "lessons", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["checked"], report["same"], report["causes"]) == (0, 1, 1, {})
    again = inside("synth", "replay-check", "lessons/kept", "--path", index)
    assert (again.returncode, "1 of 1 episodes are shown as they were recorded" in again.stdout) == (0, True)


def test_what_changed_is_said_and_left_out(inside, found, amended, tmp_path):
    done = inside("synth", "replay-check", "kept", "--path", amended, "--out", "lessons")
    assert done.returncode == 1
    assert "0 of 1 episodes" in done.stdout
    assert "1  text changed" in done.stdout
    assert ": text changed, turn " in done.stdout
    assert list((tmp_path / "lessons" / "kept").iterdir()) == []
    assert json.loads((tmp_path / "lessons" / "dropped.jsonl").read_text())["cause"] == "text changed"
    assert json.loads((tmp_path / "lessons" / "report.json").read_text())["differ"] == 1


def test_an_index_of_another_name_is_not_played_on(inside, notes, found):
    assert inside("index", notes, "--path", "other", "--collection", "memos").returncode == 0
    told = ("synth", "replay-check", "kept", "--path", "other", "--collection", "memos")
    refused, played = inside(*told), inside(*told, "--any-corpus")
    assert (refused.returncode, "other corpus, before the first turn" in refused.stdout) == (1, True)
    assert (played.returncode, "1 of 1 episodes" in played.stdout) == (0, True)


def test_what_people_liked_becomes_lessons(inside, index, found, amended, tmp_path):
    ids = [one["id"] for one in found["documents"]]
    name = found["trajectory"].rpartition("/")[2].removesuffix(".jsonl")
    judged = inside("feedback", name, "--trajectories", "kept", "--relevant", ids[0], "--rating", 5)
    assert judged.returncode == 0, judged.stderr
    with (tmp_path / "kept" / "feedback.jsonl").open("a") as log:
        log.write('{"id": "x", "trajectory": "absent", "rating": 5}\n')
    told = ("synth", "from-feedback", "kept/feedback.jsonl", "--trajectories", "kept", "--out", "tasks.jsonl")
    done = inside(*told, "--path", index, "--sft", "lessons", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert (report["sft"]["judged"], report["sft"]["kept"], report["sft"]["dropped"]) == (2, 1, {"unknown": 1})
    assert report["sft"]["replay"]["same"] == 1
    assert [path.stem for path in (tmp_path / "lessons" / "kept").iterdir()] == [name]
    changed = inside(*told, "--path", amended, "--sft", "lessons")
    assert changed.returncode == 0, changed.stderr
    assert "0 of 2 judged trajectories to imitate in lessons. Dropped: 1 unknown, 1 changed." in changed.stdout
    assert "text changed" in changed.stderr
    assert list((tmp_path / "lessons" / "kept").iterdir()) == []
    unchecked = inside(*told, "--path", amended, "--sft", "lessons", "--keep-changed")
    assert "1 of 2 judged trajectories" in unchecked.stdout
