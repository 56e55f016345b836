"""Trajectory files from a stranger: a record ends, whatever refers to what, and what is too large is refused first."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from context_agent.budget import Budget
from context_agent.cli import app
from context_agent.errors import TrajectoryError
from context_agent.harness import trajectory_file
from context_agent.harness.profile import default
from context_agent.harness.trajectory import Header, Trajectory
from context_agent.harness.trajectory_file import MAX_RECORD_SIZE, from_lines, read, to_lines
from context_agent.harness.trajectory_folder import read_all
from context_agent.pruning.view import (
    ActionTaken,
    Block,
    Edit,
    EditApplied,
    EditCost,
    Event,
    Role,
    Source,
    Summary,
    Text,
    ToolResult,
    TurnClosed,
    View,
    replaced_keys,
)
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.types import Action, Chunk, Hit, Question
from context_agent.web.viewer import build_page
from context_agent.web.viewer.model import GoldQuestions, view_data
from tests.support.episodes import swarm
from tests.support.growth import growth


def block(key: int, document: str = "d") -> Block:
    chunk = Chunk(f"{document}_{key}", document, key, "text", 0, 4, 1, "title")
    return Block(key, "# header\n", "text", 1, 0, 0, Source.SEARCH, Hit(chunk, 1.0, 1))


def summary(key: int, of: Sequence[int]) -> Summary:
    return Summary(key, f"s{key}", "# summary\n", "words", 1, key, 0, tuple(of))


def trajectory(*events: Event) -> Trajectory:
    header = Header("t", "Which?", default(), Budget(100_000), question_id="q")
    return Trajectory(header, tuple(events))


def edit(turn: int, *summaries: Summary, pruned: Iterable[int] = ()) -> EditApplied:
    return EditApplied(turn, Edit(pruned=tuple(pruned), summaries=summaries), EditCost(0, 0))


def chain(length: int) -> Trajectory:
    """A block, and summaries that each stand for the one before it twice."""
    events: list[Event] = [ActionTaken(0, Action(), "", 0)]
    events.append(ToolResult(0, 0, "search_corpus", {}, (block(0),)))
    for key in range(1, length + 1):
        events.append(ActionTaken(key, Action(), "", 0))
        events.append(edit(key, summary(key, (key - 1, key - 1)), pruned=(key - 1,)))
    return trajectory(*events, ActionTaken(length + 1, Action(), "", 0), edit(length + 1, pruned=(length,)))


@pytest.mark.parametrize("length", [60, 3_000])
def test_summaries_of_summaries_are_followed_once(tmp_path: Path, length: int) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text("\n".join(to_lines(chain(length))), encoding="utf-8")
    gold = GoldQuestions([Question("q", "Which?", gold=("d",))])
    view = view_data(read_all([file]), gold)
    assert view.problems == ()
    assert (view.rows[0].gold_pruned, view.rows[0].gold_lost) == (1, 1)
    assert build_page(view).startswith("<!DOCTYPE html>")


def test_a_summary_that_refers_to_itself_or_a_later_one_is_refused_or_ends() -> None:
    for of in ((1,), (2,), (99,)):
        with pytest.raises(TrajectoryError, match="no result showed"):
            trajectory(ToolResult(0, 0, "t", {}, (block(0),)), edit(0, summary(1, of))).verify()
    circle: dict[int, Any] = {1: summary(1, (2, 1)), 2: summary(2, (1, 0)), 0: block(0)}
    assert replaced_keys([1], circle) == {0, 1, 2}


def test_a_circle_of_summaries_looks_up_each_of_them_once() -> None:
    class Counted(dict[int, Any]):
        lookups = 0

        def get(self, key: int, default: Any = None) -> Any:
            self.lookups += 1
            assert self.lookups < 100, "it goes around in a circle"
            return super().get(key, default)

    for record in ({1: summary(1, (1,))}, {1: summary(1, (2,)), 2: summary(2, (1,))}):
        counted = Counted(record)
        assert replaced_keys([1], counted) == set(record)
        assert counted.lookups == len(record)


def test_each_key_is_visited_once() -> None:
    def follow(size: int) -> None:
        record: dict[int, Any] = {key: summary(key, range(max(0, key - 4), key)) for key in range(1, size)}
        assert len(replaced_keys([size - 1], {0: block(0), **record})) == size

    assert growth(follow, lambda size: size, 5_000) < 9


def test_what_many_summaries_stand_for_takes_linear_time() -> None:
    def view(size: int) -> View:
        segments = [*(block(key) for key in range(size)), *(summary(size + key, (key,)) for key in range(size))]
        return View("Which?", Budget(100_000), segments=tuple(segments), hidden=frozenset(range(size)))

    assert len(view(10).citable_blocks) == 10
    assert growth(lambda view: view.citable_blocks, view, 1_000) < 9


def test_many_blocks_of_one_id_are_found_in_linear_time() -> None:
    def view(size: int) -> View:
        return View("Which?", Budget(100_000), segments=(block(0),) * size)

    assert len(view(10).by_id()["d_0"]) == 10
    assert growth(View.by_id, view, 5_000) < 9


def test_a_record_that_replay_would_take_minutes_for_is_refused() -> None:
    usage = TurnClosed(0, Text(Role.USAGE, "", 0, turn=0), 0)
    events: dict[str, list[Event]] = {
        "events": [usage] * (MAX_RECORD_SIZE + 1),
        "segments": [ToolResult(0, 0, "t", {}, (block(0),) * MAX_RECORD_SIZE)],
        "keys": [edit(0, pruned=range(MAX_RECORD_SIZE))],
        "summaries": [edit(0, summary(1, [0] * MAX_RECORD_SIZE))],
    }
    for record in events.values():
        with pytest.raises(TrajectoryError, match=r"more than [0-9,]+ segments"):
            from_lines("t", to_lines(trajectory(*record)))
    assert len(from_lines("t", to_lines(trajectory(*[usage] * 100))).events) == 100


def test_a_file_that_is_too_large_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trajectory_file, "MAX_FILE_BYTES", 5_000)
    file = tmp_path / "t.jsonl"
    with file.open("wb") as stream:
        stream.write(b'{"kind":"header"')
        stream.truncate(1 << 40)
    with pytest.raises(TrajectoryError, match=r"5,000 bytes"):
        read(file)


HOSTILE_VALUES: tuple[Any, ...] = (None, True, -1, 10**300, float("nan"), "x" * 10_000, "\x1b[31m\u202e", [], [[]], {})


@pytest.mark.parametrize("value", HOSTILE_VALUES, ids=lambda value: type(value).__name__ + str(value)[:8])
def test_any_value_in_any_place_is_shown_or_is_a_problem(tmp_path: Path, value: Any) -> None:
    lines = [json.loads(line) for line in to_lines(chain(2))]
    for number, line in enumerate(lines):
        for key in line:
            changed = [*lines[:number], {**line, key: value}, *lines[number + 1 :]]
            (tmp_path / f"{number}-{key}.jsonl").write_text("\n".join(map(json.dumps, changed)), encoding="utf-8")
    good = tmp_path / "good.jsonl"
    good.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    gold = GoldQuestions([Question("q", "Which?", gold=("d",))])
    view = view_data(read_all([tmp_path]), gold)
    assert any(row.file == str(good) for row in view.rows)
    page = build_page(view)
    assert "\u202e" not in page


def test_a_sub_agent_of_countless_steps_has_a_short_lane(
    tmp_path: Path, corpus: MemoryCorpus, capsys: pytest.CaptureFixture[str]
) -> None:
    file = swarm(corpus, tmp_path)[0]
    text = file.read_text(encoding="utf-8")
    file.write_text(re.sub(r'"steps": ?\d+', f'"steps": {10**12}', text), encoding="utf-8")
    assert app.run(["view", str(file), "--text"]) == 0
    shown = capsys.readouterr().out
    assert "1,000,000,000,000 steps" in shown
    assert len(shown) < 5_000
