from __future__ import annotations

import os
from pathlib import Path

import pytest

from context_agent.errors import DataError
from context_agent.train.metrics_log import MetricsLog, read_metrics


def test_a_run_that_resumes_cuts_off_what_it_is_about_to_repeat(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "metrics.jsonl"
    log = MetricsLog(path)
    for step in range(5):
        log.add(step, {"loss": step / 3})
    log.close(print)
    again = MetricsLog(path, first=3)
    again.add(3, {"loss": 9.0})
    again.close(print)
    assert [(line["step"], line["loss"]) for line in read_metrics(path)] == [(0, 0.0), (1, 1 / 3), (2, 2 / 3), (3, 9.0)]


def test_a_line_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step":1,"loss":2}\n{"step":2,"lo')
    assert [line["step"] for line in read_metrics(path)] == [1]


def test_a_process_that_dies_while_it_opens_the_file_loses_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"step":{step}}}\n' for step in range(5)))

    def die(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", die)
    with pytest.raises(KeyboardInterrupt):
        MetricsLog(path, first=3)
    assert [line["step"] for line in read_metrics(path)] == [0, 1, 2, 3, 4]


def test_lines_that_a_full_disk_refuses_follow_when_there_is_space(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    log.add(1, {"loss": 1.0})
    space = os.dup(log._file.fileno())
    with Path("/dev/full").open("wb") as full:
        os.dup2(full.fileno(), log._file.fileno())
    log.add(2, {"loss": 2.0})
    log.add(3, {"loss": 3.0})
    os.dup2(space, log._file.fileno())
    os.close(space)
    log.add(4, {"loss": 4.0})
    notes: list[str] = []
    log.close(notes.append)
    assert notes == []
    assert [line["step"] for line in read_metrics(path)] == [1, 2, 3, 4]


def test_lines_that_are_lost_in_the_end_are_counted_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "episodes-1.jsonl"
    log = MetricsLog(path)
    log.add(1, {"id": "a"})
    with path.open("rb") as unwritable:
        os.dup2(unwritable.fileno(), log._file.fileno())
    for name in "bcd":
        log.add(2, {"id": name})
    notes: list[str] = []
    log.close(notes.append)
    assert len(notes) == 1
    assert "the last 3 lines" in notes[0]
    assert str(path) in notes[0]
    assert "Bad file descriptor" in notes[0]
    assert [line["id"] for line in read_metrics(path)] == ["a"]


@pytest.mark.parametrize("text", ['{"loss":1}\n{"step":1}\n', 'no json\n{"step":1}\n'])
def test_an_invalid_line_is_reported_with_its_number(text: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match="line 1: the line is not a line of metrics"):
        list(read_metrics(path))
    with pytest.raises(DataError, match="cannot read the metrics"):
        list(read_metrics(tmp_path / "none.jsonl"))
