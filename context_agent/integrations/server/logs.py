"""Logs as JSON lines, each with the id of its request. Questions are not logged."""

from __future__ import annotations

import json
import logging
import os
import queue
import re
import select
import sys
import threading
import uuid
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import IO, Any

SERVER_LOGGER = logging.getLogger("context_agent.server")
REQUEST_ID: ContextVar[str | None] = ContextVar("ctx1_request_id", default=None)
"""The id of the current request. Everything that runs for the request sees it."""
INCOMPLETE_RESPONSE = "ASGI callable returned without completing response."
"""What uvicorn logs when an upstream breaks off its answer, which the proxy has logged by then."""
WAITING_LINES = 10_000
"""The maximum number of lines that wait until they can be written."""
FLUSH_SECONDS = 1.0
"""The maximum time that the end of a process waits for its last lines to be written, in seconds."""
_SAFE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class JsonLines(logging.Formatter):
    """A formatter that writes a record as one line of JSON.

    The line has `time`, `level`, `event` and the entries of `extra={"fields": {...}}`. If `worker` and `request_id` are
    known, it has them too. For an exception it has `trace`.
    """

    def __init__(self, worker: int | None = None) -> None:
        """Make a formatter for the records of one process.

        If several processes serve one address, `worker` is its number.
        """
        super().__init__()
        self._worker = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **self._worker,
        }
        if (request := REQUEST_ID.get()) is not None:
            line["request_id"] = request
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


class BackgroundLines(logging.Handler):
    """A handler whose own thread writes the lines to a file descriptor.

    A program that starts a server with a pipe as stderr, and does not read the pipe, therefore does not stop the
    server. If too many lines wait, or if a line cannot be written, lines are left out. A later line has their number.
    """

    def __init__(self, descriptor: int) -> None:
        """Start the thread, which writes to the descriptor."""
        super().__init__()
        self._descriptor = descriptor
        self._lines: queue.Queue[bytes] = queue.Queue(WAITING_LINES)
        self._lost = 0
        threading.Thread(target=self._write_lines, name="ctx1-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Let the thread write the line of a record. The caller does not wait."""
        try:
            self._lines.put_nowait(self.format(record).encode() + b"\n")
        except queue.Full:
            self._lost += 1
        except Exception:  # noqa: BLE001 - as all handlers of `logging` do, since a wrong record must fail no request
            self.handleError(record)

    def flush(self) -> None:
        """Wait until all lines are written, for at most `FLUSH_SECONDS` seconds.

        `logging` calls this at the end of the process.
        """
        written = self._lines.all_tasks_done
        with written:
            written.wait_for(lambda: not self._lines.unfinished_tasks, FLUSH_SECONDS)

    def _write_lines(self) -> None:
        while True:
            line = self._lines.get()
            try:
                self._write(line)
                if self._lost and self._lines.empty():
                    fields = {"lines": self._lost}
                    self._lost = 0
                    lost = {"msg": "log_lines_lost", "levelname": "WARNING", "fields": fields}
                    self.emit(logging.makeLogRecord(lost))
            except OSError:  # The disk with the log is full, or nobody can read the pipe any more.
                self._lost += 1
            self._lines.task_done()

    def _write(self, line: bytes) -> None:
        """Write a whole line. A program that shares the terminal or the pipe may have set it to not wait."""
        while line:
            try:
                line = line[os.write(self._descriptor, line) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])


def to_stream(stream: IO[str] | None = None, level: int = logging.INFO, worker: int | None = None) -> None:
    """Send the logs of the server and of uvicorn to a stream as JSON lines.

    Args:
        stream: The stream. By default, a thread writes the lines to stderr.
        level: The lowest level of the server's own records. The records of uvicorn begin with warnings.
        worker: The number of this process if several serve one address.
    """
    handler = _stderr_handler() if stream is None else logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(worker))
    handler.addFilter(lambda record: record.msg != INCOMPLETE_RESPONSE)
    for logger, lowest in ((SERVER_LOGGER, level), (logging.getLogger("uvicorn"), logging.WARNING)):
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(lowest)


def _stderr_handler() -> logging.Handler:
    try:
        return BackgroundLines(sys.stderr.fileno())
    except OSError:  # The program has put another object in the place of stderr.
        return logging.StreamHandler(sys.stderr)


def log(event: str, level: int = logging.INFO, *, error: BaseException | None = None, **fields: Any) -> None:
    """Log an event with its fields. `error` adds a stack trace."""
    SERVER_LOGGER.log(level, event, extra={"fields": fields}, exc_info=error)


def request_id(header: str | None) -> str:
    """Return the client's id for the request if it is short and plain. Otherwise return a new id."""
    return header if header is not None and _SAFE_ID.fullmatch(header) else uuid.uuid4().hex
