"""A record of restored passages.

A restore shows that a removal was wrong, so the record is data for training the judge.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from context_agent._support.journal import AppendLog
from context_agent.errors import DataError
from context_agent.pruning.report import RestoredPassage

LOGGER = logging.getLogger(__name__)


class RestoreLog:
    """A log of restored passages in a JSONL file. Only the owner of the file may read it. Threads may share the log.

    Each line has `time`, `task`, `label`, `text` and `tokens`.

    Raises:
        ConfigError: If another process is writing to the file.
        DataError: If the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._log = AppendLog(path, sync=False)
        self._lock = threading.Lock()

    def add(self, passage: RestoredPassage) -> None:
        """Append a passage. If it cannot be written, log a warning, and let the conversation continue."""
        record = {"time": datetime.now(UTC).isoformat(timespec="seconds"), **asdict(passage)}
        try:
            with self._lock:
                self._log.append(record)
        except DataError as error:
            LOGGER.warning("a restore was not recorded: %s", error)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._log.close()
