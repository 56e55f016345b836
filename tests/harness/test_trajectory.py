"""Trajectory files: cut, newer, foreign and damaged ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from context_agent import MemoryCorpus, ScriptedPolicy, SearchAgent, Trajectory
from context_agent.errors import TrajectoryError
from context_agent.harness.trajectory import TRAJECTORY_SCHEMA
from context_agent.harness.trajectory_file import read, write
from context_agent.pruning.view import TurnClosed
from context_agent.testing.actions import rank_all, search


@pytest.fixture
def trajectory(corpus: MemoryCorpus) -> Trajectory:
    policy = ScriptedPolicy([search("comets", limit=3), search("operas", limit=3), rank_all])
    return SearchAgent(corpus, policy).search("comets?").trajectories[0]


@pytest.fixture
def path(trajectory: Trajectory, tmp_path: Path) -> Path:
    write(trajectory, tmp_path / "t.jsonl")
    return tmp_path / "t.jsonl"


def test_the_first_line_is_a_header_with_its_schema(path: Path) -> None:
    header = json.loads(path.read_text().splitlines()[0])
    assert header["kind"] == "header"
    assert header["schema"] == TRAJECTORY_SCHEMA
    assert header["question"] == "comets?"
    assert header["profile"]["name"] == "default"
    assert header["budget"]["window"] == 32_768


def test_a_confidence_survives_writing_and_reading(trajectory: Trajectory, tmp_path: Path) -> None:
    assert trajectory.end is not None
    assessed = replace(trajectory, events=(*trajectory.events[:-1], replace(trajectory.end, confidence=0.25)))
    write(assessed, tmp_path / "assessed.jsonl")
    assert read(tmp_path / "assessed.jsonl") == assessed


def test_a_file_cut_anywhere_gives_the_events_before_the_cut(path: Path, trajectory: Trajectory) -> None:
    content = path.read_bytes()
    for size in range(len(content.splitlines()[0]) + 1, len(content), 97):
        path.write_bytes(content[:size])
        part = read(path)
        assert part.events == trajectory.events[: len(part.events)]
        list(part.views())


def test_a_damaged_line_is_named(path: Path) -> None:
    lines = path.read_text().splitlines()
    lines[2] = '{"kind": "nonsense"}'
    path.write_text("\n".join(lines))
    with pytest.raises(TrajectoryError, match="line 3"):
        read(path)


@pytest.mark.parametrize(("schema", "remedy"), [(TRAJECTORY_SCHEMA + 1, "Update context-agent"), (1, "--save FOLDER")])
def test_another_schema_is_refused_with_the_remedy(path: Path, schema: int, remedy: str) -> None:
    text = path.read_text().replace(f'"schema":{TRAJECTORY_SCHEMA}', f'"schema":{schema}', 1)
    path.write_text(text)
    with pytest.raises(TrajectoryError, match=remedy):
        read(path)


@pytest.mark.parametrize("content", ["", "hello\n", '{"a": 1}\n', "[1]\n"])
def test_a_foreign_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "x").write_text(content)
    with pytest.raises(TrajectoryError, match="trajectory header"):
        read(tmp_path / "x")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrajectoryError, match=r"none \(No such file or directory\)"):
        read(tmp_path / "none")


def test_a_record_that_was_tampered_with_does_not_replay(trajectory: Trajectory) -> None:
    events = list(trajectory.events)
    index = next(i for i, event in enumerate(events) if isinstance(event, TurnClosed))
    turn_closed = events[index]
    assert isinstance(turn_closed, TurnClosed)
    events[index] = replace(turn_closed, total=turn_closed.total + 1)
    with pytest.raises(TrajectoryError, match=r"the replay of turn \d+ counts \d+ tokens, but the record has"):
        Trajectory(trajectory.header, tuple(events)).verify()
    events[index] = replace(turn_closed, segment=replace(turn_closed.segment, text="[Token usage: 0/0]\n"))
    with pytest.raises(TrajectoryError, match="ends with another view than the recorded one"):
        Trajectory(trajectory.header, tuple(events)).verify()
