"""Many records held against today's corpus: counts by cause, files that cannot be read, and a folder to train on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from context_agent import Document, MemoryCorpus, ScriptedPolicy, SearchAgent
from context_agent.errors import ConfigError, DataError
from context_agent.eval.rerun import Cause
from context_agent.synth_data.demonstrations.replay_check import (
    ReplayRow,
    ReplaySummary,
    check_files,
    trajectory_files,
    write_selection,
)
from tests.actions import search

TEXTS = {"a": "comets and their tails", "b": "gardens in spring", "c": "operas of the north"}


def made(texts: dict[str, str]) -> MemoryCorpus:
    return MemoryCorpus([Document(name, text) for name, text in texts.items()])


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """Three searches, each of which shows one document, and what else lies in such a folder."""
    corpus = made(TEXTS)
    for topic in ("comets", "gardens", "operas"):
        with SearchAgent(corpus, ScriptedPolicy([search(topic, limit=1)]), trajectories=tmp_path / "served") as agent:
            agent.search(f"What of {topic}?")
    (tmp_path / "served" / "feedback.jsonl").write_text('{"id": "j"}\n')
    return tmp_path / "served"


def test_each_record_is_counted_by_what_became_of_it(served: Path) -> None:
    now = made({"a": TEXTS["a"], "b": "gardens in autumn"})
    checked = asyncio.run(check_files(trajectory_files([served]), now))
    summary = ReplaySummary.of(checked)
    assert summary.to_json() | {"recorded_by": {}, "version": ""} == {
        "checked": 3,
        "same": 1,
        "differ": 2,
        "causes": {"chunk gone": 1, "text changed": 1},
        "recorded_by": {},
        "version": "",
    }
    assert list(summary.versions.values()) == [3]
    told = {item.question: item.to_json() for item in checked}
    assert told["What of comets?"]["same"]
    assert told["What of gardens?"]["cause"] == "text changed"
    assert told["What of operas?"]["turn"] == 0


def test_a_file_that_is_cut_or_damaged_stops_nothing(served: Path) -> None:
    cut, damaged, _ = trajectory_files([served])
    cut.write_bytes(cut.read_bytes()[:-40])
    lines = damaged.read_text().splitlines()
    damaged.write_text("\n".join([lines[0], "no json", *lines[2:]]) + "\n")
    (served / "half.jsonl").write_text('{"kind":"header","sch')
    checked = {
        item.path.name: item.difference for item in asyncio.run(check_files(trajectory_files([served]), made(TEXTS)))
    }
    causes = {name: None if found is None else found.cause for name, found in checked.items()}
    assert causes[cut.name] is Cause.TORN
    assert causes[damaged.name] is Cause.UNSOUND
    assert causes["half.jsonl"] is Cause.UNSOUND
    assert list(causes.values()).count(None) == 1


def test_nothing_to_check_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        trajectory_files([tmp_path / "absent"])
    with pytest.raises(DataError, match="no trajectory in"):
        trajectory_files([tmp_path])


def test_a_folder_holds_what_is_kept_and_nothing_older(served: Path, tmp_path: Path) -> None:
    one, other, third = trajectory_files([served])
    folder = tmp_path / "lessons"
    write_selection(
        folder,
        [ReplayRow(one, {"x": 1}), ReplayRow(other, {})],
        [ReplayRow(third, {"reason": "r"})],
        {"kept": 2},
    )
    (folder / "kept" / "mine.jsonl").write_text("not ours\n")
    assert json.loads((folder / "dropped.jsonl").read_text()) == {"file": third.name, "reason": "r"}
    assert json.loads((folder / "trajectories.jsonl").read_text().splitlines()[0]) == {"file": one.name, "x": 1}
    write_selection(folder, [ReplayRow(other, {})], [], {"kept": 1})
    assert sorted(path.name for path in (folder / "kept").iterdir()) == sorted([other.name, "mine.jsonl"])
    assert (folder / "kept" / other.name).read_bytes() == other.read_bytes()


def test_a_folder_of_something_else_is_refused(served: Path, tmp_path: Path) -> None:
    one = trajectory_files([served])[0]
    twin = tmp_path / "twin" / one.name
    twin.parent.mkdir()
    twin.write_bytes(one.read_bytes())
    with pytest.raises(ConfigError, match="2 files have the name"):
        write_selection(tmp_path / "lessons", [ReplayRow(one, {}), ReplayRow(twin, {})], [], {})
    (tmp_path / "teacher").mkdir()
    (tmp_path / "teacher" / "episodes.jsonl").write_text("")
    with pytest.raises(ConfigError, match="ctx1 synth trajectories"):
        write_selection(tmp_path / "teacher", [ReplayRow(one, {})], [], {})
