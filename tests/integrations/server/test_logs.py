"""The logs of a server whose stderr nobody reads."""

from __future__ import annotations

import errno
import json
import logging
import os

import pytest

from context_agent.integrations.server import logs
from context_agent.integrations.server.logs import BackgroundLines, JsonLines


def test_a_pipe_that_nobody_reads_does_not_stop_what_logs_and_lost_lines_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs, "WAITING_LINES", 20)
    monkeypatch.setattr(logs, "FLUSH_SECONDS", 0.01)
    read, write = os.pipe()
    handler = BackgroundLines(write)
    handler.setFormatter(JsonLines())
    events = 2_000  # about 180 kB, and a pipe holds 64 kB
    for number in range(events):
        handler.emit(logging.makeLogRecord({"msg": "request", "levelname": "INFO", "fields": {"number": number}}))
    handler.flush()
    numbers, lost = [], 0
    with os.fdopen(read, encoding="utf-8") as pipe:
        while len(numbers) + lost < events:
            line = json.loads(pipe.readline())
            if line["event"] == "log_lines_lost":
                lost += line["lines"]
            else:
                numbers.append(line["number"])
    assert numbers == sorted(set(numbers))
    assert lost > 0


def test_no_line_is_lost_if_another_program_set_stderr_to_not_wait() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    handler = BackgroundLines(write)
    handler.setFormatter(JsonLines())
    events = 2_000
    for number in range(events):
        handler.emit(logging.makeLogRecord({"msg": "request", "levelname": "INFO", "fields": {"number": number}}))
    with os.fdopen(read, encoding="utf-8") as pipe:
        assert [json.loads(pipe.readline())["number"] for _ in range(events)] == list(range(events))


def test_lines_that_a_full_disk_refused_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = iter((True, True, False))
    write_bytes = os.write

    def write_or_refuse(descriptor: int, line: bytes) -> int:
        if next(refused, False):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_bytes(descriptor, line)

    monkeypatch.setattr(os, "write", write_or_refuse)
    read, write = os.pipe()
    handler = BackgroundLines(write)
    handler.setFormatter(JsonLines())
    for _ in range(3):
        handler.emit(logging.makeLogRecord({"msg": "request", "levelname": "INFO"}))
    with os.fdopen(read, encoding="utf-8") as pipe:
        lines = [json.loads(pipe.readline()) for _ in range(2)]
    assert [line["event"] for line in lines] == ["request", "log_lines_lost"]
    assert lines[1]["lines"] == 2


def test_a_reader_that_goes_away_does_not_stop_what_logs() -> None:
    read, write = os.pipe()
    os.close(read)
    handler = BackgroundLines(write)
    for _ in range(3):
        handler.emit(logging.makeLogRecord({"msg": "request"}))
    handler.flush()
    assert not handler._lines.unfinished_tasks


def test_a_record_that_cannot_be_written_fails_no_request(capfd: pytest.CaptureFixture[str]) -> None:
    read, write = os.pipe()
    handler = BackgroundLines(write)
    handler.setFormatter(JsonLines())
    handler.handle(logging.makeLogRecord({"msg": "%d requests", "args": ("many",)}))
    assert "--- Logging error ---" in capfd.readouterr().err
    os.close(read)
