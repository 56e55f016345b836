"""Corpora and actions that many tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from context_agent import Document, MemoryCorpus

if TYPE_CHECKING:
    from tests.browser import Browser

# Haystack counts its runs on a server unless it is told not to; tests stay on this machine, their processes too.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "false"

TOPICS = ("rivers", "bridges", "painters", "engines", "gardens", "comets", "operas")


def pytest_configure() -> None:
    """Commands under test must get SIGINT, also when a shell started the tests in the background and ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def made_documents(count: int = 60) -> list[Document]:
    """Invented documents that name each other, some of one sentence and some of many."""
    documents = []
    for number in range(count):
        topic, other = TOPICS[number % 7], TOPICS[(number * 3 + 1) % 7]
        sentence = f"Entry {number} tells of {topic} and how they met {other}; it cites Title {(number * 7) % count}. "
        text = sentence * (1 + number % 5) + f"SENTINEL-{number:04d} closes the entry."
        documents.append(Document(f"d{number}", text, f"Title {number}"))
    return documents


@pytest.fixture(scope="session")
def corpus() -> MemoryCorpus:
    """Sixty small documents in memory."""
    return MemoryCorpus(made_documents())


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium of this test process's own; fails where there is none."""
    from tests.browser import started

    with started(tmp_path_factory.mktemp("browser")) as chromium:
        yield chromium


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real questions that CTX1_DATA names."""
    folder = Path(os.environ.get("CTX1_DATA", "../shared/data"))
    if not (folder / "musique" / "corpus.jsonl.gz").exists():
        pytest.skip(f"no multi-hop data at {folder}: set CTX1_DATA to its folder")
    return folder
