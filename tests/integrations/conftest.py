"""A few documents with a two-step question, an agent on them, and an embedding without a model."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromadb
import pytest
from chromadb.api.models.Collection import Collection

from context_agent import Document, MemoryCorpus, SearchAgent
from tests.support.film_question import TEXTS


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail on connections to other machines, because some frameworks send telemetry."""
    connect = socket.socket.connect

    def connect_locally(self: socket.socket, address: Any) -> None:
        host = address[0] if isinstance(address, tuple) else "localhost"
        assert host in ("127.0.0.1", "::1", "localhost"), f"a connection to {address}"
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_locally)


@pytest.fixture(scope="session")
def films() -> MemoryCorpus:
    """The documents, as a corpus in memory."""
    return MemoryCorpus([Document(f"d{n}", text, t, {"year": y}) for n, (t, (text, y)) in enumerate(TEXTS.items())])


@pytest.fixture
def agent(films: MemoryCorpus, tmp_path: Path) -> Iterator[SearchAgent]:
    """An agent with the embedded policy on the documents. It writes trajectories."""
    with SearchAgent(films, trajectories=tmp_path / "trajectories") as agent:
        yield agent


@pytest.fixture
def collection(tmp_path: Path) -> Iterator[Collection]:
    """An empty collection in a local folder, made by a user of Chroma, without an embedding function."""
    client = chromadb.PersistentClient(str(tmp_path / "chroma"))
    yield client.create_collection("mine", embedding_function=None)
    client.close()  # type: ignore[attr-defined]
