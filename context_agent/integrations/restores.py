"""A record of what was restored: data for training the judge of passages. A restore says that a removal was wrong."""

from __future__ import annotations

import logging
import threading
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from context_agent._support.journal import AppendLog
from context_agent.errors import DataError
from context_agent.pruning.pruner import RestoredPassage

LOGGER = logging.getLogger(__name__)


class RestoreLog:
    """Appends restored passages to a JSONL file that only its owner may read. Safe for threads.

    Each line has `time`, `task`, `label`, `text` and `tokens`.

    Raises:
        ConfigError: If another process writes to the file.
        DataError: If the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._log = AppendLog(path, sync=False)
        self._lock = threading.Lock()

    def add(self, passage: RestoredPassage) -> None:
        """Append a passage. If the disk fails, the conversation goes on without it."""
        record = {"time": datetime.now(UTC).isoformat(timespec="seconds"), **asdict(passage)}
        try:
            with self._lock:
                self._log.append(record)
        except DataError as error:
            LOGGER.warning("a restore is not recorded: %s", error)

    def close(self) -> None:
        """Close the file."""
        self._log.close()
