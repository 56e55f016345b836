"""Folders of trajectory files: sound and cut ones load, damaged ones are named, and other files are counted."""

import json
from pathlib import Path

import pytest

from context_agent.errors import DataError
from context_agent.harness.trajectory_file import TrajectoryWriter
from context_agent.harness.trajectory_folder import read_all
from tests.support import episodes


@pytest.fixture
def folder(corpus, tmp_path):
    """A folder with one sound trajectory, `good.jsonl`."""
    path = episodes.edited(corpus, tmp_path / "runs")
    path.rename(path.with_name("good.jsonl"))
    return tmp_path / "runs"


def lines(folder):
    return (folder / "good.jsonl").read_text().splitlines(keepends=True)


def test_folders_are_read_with_those_in_them_and_each_file_once(corpus, folder):
    episodes.edited(corpus, folder / "deep" / "er")
    result = read_all([folder, folder / "good.jsonl", folder])
    assert [item.run for item in result.loaded] == ["deep/er", "runs"]
    assert result.problems == ()


def test_runs_are_named_by_the_part_of_their_paths_that_differs(corpus, tmp_path):
    for name in ("a/seed0", "b/seed0"):
        episodes.edited(corpus, tmp_path / name)
    assert {item.run for item in read_all([tmp_path / "a", tmp_path / "b"]).loaded} == {"a/seed0", "b/seed0"}


def test_other_files_are_counted_and_no_problem(folder):
    (folder / "notes.txt").write_text("notes")
    (folder / "questions.jsonl").write_text('{"question": "who?"}\n')
    (folder / "list.jsonl").write_text("[1]\n")
    (folder / "empty.jsonl").write_text("")
    result = read_all([folder])
    assert (len(result.loaded), result.ignored, result.problems) == (1, 4, ())


def test_a_file_that_another_program_wrote_again_has_the_same_lines(folder):
    path = folder / "good.jsonl"
    header, *events = map(json.loads, lines(folder))
    rows = [{**header, "question_id": "one\u2028two\x85three"}, *events]
    path.write_bytes("\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode())
    (item,) = read_all([path]).loaded
    assert item.trajectory.header.question_id == "one\u2028two\x85three"
    assert len(item.trajectory.events) == len(events)
    assert item.problem is None


def test_a_cut_file_is_read_up_to_the_cut(folder):
    result = "".join(lines(folder))
    for size in (len(lines(folder)[0]), len(result) // 2, len(result) - 3):
        (folder / "cut.jsonl").write_text(result[:size])
        cut, good = read_all([folder]).loaded
        assert cut.trajectory.end is None
        assert cut.problem is None
        assert len(cut.trajectory.events) < len(good.trajectory.events)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda rows: ['{"kind":"header","schema"'], "header"),
        (lambda rows: [json.dumps({**json.loads(rows[0]), "schema": 7}) + "\n", *rows[1:]], "schema 7"),
        (lambda rows: [rows[0], "{}\n", *rows[1:]], "line 2"),
        (lambda rows: [rows[0], "[" * 100_000 + "\n", *rows[1:]], "not a trajectory event"),
        (lambda rows: [json.dumps({**json.loads(rows[0]), "budget": None}) + "\n", *rows[1:]], "header"),
    ],
)
def test_a_file_that_cannot_be_shown_is_named_with_the_reason_and_stops_nothing(folder, change, reason):
    (folder / "bad.jsonl").write_text("".join(change(lines(folder))))
    result = read_all([folder])
    assert [item.path.name for item in result.loaded] == ["good.jsonl"]
    (problem,) = result.problems
    assert "bad.jsonl" in problem
    assert reason in problem


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        ("edit", {"pruned": [99]}, "names block 99"),
        ("usage", {"total": 1}, "the record has 1"),
        ("end", {"digest": "x"}, "another view than the recorded one"),
    ],
)
def test_a_trajectory_that_does_not_replay_is_loaded_with_the_reason(folder, kind, change, reason):
    rows = [json.loads(line) for line in lines(folder)]
    next(row for row in rows if row["kind"] == kind).update(change)
    (folder / "good.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (loaded,) = read_all([folder]).loaded
    assert reason in loaded.problem


def test_a_full_disk_is_told_with_the_name_of_the_file(folder, monkeypatch):
    header, full = read_all([folder]).loaded[0].trajectory.header, Path("/dev/full").open("w")  # noqa: SIM115 (the writer closes it)
    monkeypatch.setattr("context_agent.harness.trajectory_file.open_private", lambda *_, **__: full)
    with pytest.raises(OSError, match="No space left") as told:
        TrajectoryWriter(folder / "new.jsonl", header)
    assert told.value.filename == str(folder / "new.jsonl")


def test_files_still_being_written_are_read_as_far_as_they_go(folder):
    (finished,) = read_all([folder]).loaded
    writer = TrajectoryWriter(folder / "live.jsonl", finished.trajectory.header)
    for count, event in enumerate(finished.trajectory.events):
        _, live = read_all([folder]).loaded
        assert len(live.trajectory.events) == count
        assert live.problem is None
        writer(event)
    assert read_all([folder]).loaded[1].trajectory.end == finished.trajectory.end


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "no files"),
        ({"a.txt": "x", "b.jsonl": "{}"}, "2 other files"),
        ({"a.jsonl": '{"kind":"header"'}, r"a\.jsonl: .*[^.]\)\. Pass a trajectory file"),
    ],
)
def test_without_any_trajectory_the_error_lists_the_reasons(tmp_path, files, reason):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=reason):
        read_all([tmp_path])


def test_a_path_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(DataError, match="nowhere does not exist"):
        read_all([tmp_path / "nowhere"])
