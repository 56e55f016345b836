"""Worker processes of the tests of stages."""

from __future__ import annotations

import pytest

from tests.support.forked_workers import fork_workers


@pytest.fixture(autouse=True)
def _forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let stages in this process have workers that start as forks."""
    fork_workers(monkeypatch)
