"""Logs as JSON lines, each with the id of its request. Questions are not logged."""

from __future__ import annotations

import json
import logging
import re
import sys
import uuid
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import IO, Any

SERVER_LOGGER = logging.getLogger("context_agent.server")
REQUEST_ID: ContextVar[str | None] = ContextVar("ctx1_request_id", default=None)
"""The id of the current request. Everything that runs for the request sees it."""
INCOMPLETE_RESPONSE = "ASGI callable returned without completing response."
"""What uvicorn logs when an upstream breaks off its answer, which the proxy has logged by then."""
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


def to_stream(stream: IO[str] | None = None, level: int = logging.INFO, worker: int | None = None) -> None:
    """Send the logs of the server and of uvicorn to a stream as JSON lines.

    Args:
        stream: The stream. Defaults to stderr.
        level: The lowest level of the server's own records. The records of uvicorn begin with warnings.
        worker: The number of this process if several serve one address.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(worker))
    handler.addFilter(lambda record: record.msg != INCOMPLETE_RESPONSE)
    for logger, lowest in ((SERVER_LOGGER, level), (logging.getLogger("uvicorn"), logging.WARNING)):
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(lowest)


def log(event: str, level: int = logging.INFO, *, error: BaseException | None = None, **fields: Any) -> None:
    """Log an event with its fields. `error` adds a stack trace."""
    SERVER_LOGGER.log(level, event, extra={"fields": fields}, exc_info=error)


def request_id(header: str | None) -> str:
    """Return the client's id for the request if it is short and plain. Otherwise return a new id."""
    return header if header is not None and _SAFE_ID.fullmatch(header) else uuid.uuid4().hex
