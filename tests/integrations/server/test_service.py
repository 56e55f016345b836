"""An index that changes under a server: read anew without losing a request."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from context_agent import Document, MemoryCorpus, ScriptedPolicy, SearchAgent, index_documents
from context_agent.errors import CorpusNotFoundError
from context_agent.integrations.server.responses import Problem
from context_agent.integrations.server.service import LiveIndex
from context_agent.retrieval.chroma.corpus import ChromaCorpus
from tests.actions import search


class Versioned(MemoryCorpus):
    """A corpus that says it has changed when it is told to."""

    changed: Any = False
    closed = False

    def stale(self) -> bool:
        if isinstance(self.changed, Exception):
            raise self.changed
        return bool(self.changed)

    def close(self) -> None:
        self.closed = True


def version(number: int) -> Versioned:
    return Versioned([Document(f"v{number}", f"version {number}")])


def served(corpora: list[Versioned], *, concurrent: bool) -> LiveIndex:
    """Serves the first; the others are what it is opened as later."""
    agent = SearchAgent(corpora[0], ScriptedPolicy([search("version")], delay=0.05))
    later = iter(corpora[1:])

    def reopen() -> Versioned:
        result = next(later, None)
        if result is None:
            raise CorpusNotFoundError("/secret/place is gone")
        return result

    return LiveIndex(agent, reopen, concurrent=concurrent)


async def found(one: LiveIndex) -> str:
    async with one.agent() as agent:
        return (await agent.asearch("version?")).documents[0].id


@pytest.mark.parametrize("concurrent", [True, False])
async def test_searches_that_run_end_on_the_state_they_began_with(concurrent: bool) -> None:
    corpora = [version(1), version(2)]
    result = served(corpora, concurrent=concurrent)
    assert await result.follow() is False
    running = [asyncio.create_task(found(result)) for _ in range(5)]
    await asyncio.sleep(0.02)
    corpora[0].changed = True
    following = asyncio.create_task(result.follow())
    await asyncio.sleep(0.02)
    assert not corpora[0].closed
    assert result.ready
    later = [asyncio.create_task(found(result)) for _ in range(5)]
    assert await following is True
    assert await asyncio.gather(*running) == ["v1"] * 5
    assert await asyncio.gather(*later) == ["v2"] * 5
    await asyncio.sleep(0.05)
    assert corpora[0].closed
    assert not corpora[1].closed
    assert not result.stale
    await result.close()
    assert corpora[1].closed


async def test_an_index_that_cannot_be_opened_beside_leaves_the_old_one() -> None:
    corpora = [version(1)]
    result = served(corpora, concurrent=True)
    corpora[0].changed = True
    assert await result.follow() is None
    assert result.stale
    assert await found(result) == "v1"
    corpora[0].changed = CorpusNotFoundError("/secret/server does not answer")
    assert await result.follow() is None
    assert await found(result) == "v1"


async def test_a_folder_that_is_gone_and_comes_back() -> None:
    corpora = [version(1)]
    back = version(3)
    result = served(corpora, concurrent=False)
    corpora[0].changed = True
    assert await result.follow() is None
    assert not result.ready
    with pytest.raises(Problem, match="could not be searched"):
        await found(result)
    result._reopen = lambda: back
    assert await result.follow() is True
    assert result.ready
    assert await found(result) == "v3"


def test_a_folder_tells_that_it_has_changed(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"path": tmp_path / "index"}
    index_documents([Document("a", "A comet.")], **settings)
    with ChromaCorpus.open(**settings) as corpus:
        assert not corpus.stale()
        index_documents([Document("b", "A garden.")], **settings)
        assert corpus.stale()
        corpus.refresh()
        assert not corpus.stale()
        assert corpus.count() == 2


def test_an_index_keeps_its_last_two_states_alone(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    for number in range(4):
        index_documents([Document(f"d{number}", f"Comet {number}.")], path=folder)
    (root,) = (folder / "ctx1").glob("*-*")

    def states() -> list[int]:
        return sorted(int(item.name.split("-")[1]) for item in root.glob("snapshot-*"))

    assert states() == [3, 4]
    (root / "writing-x").mkdir()
    with ChromaCorpus.open(folder, rebuild=True) as corpus:
        assert corpus.count() == 4
    assert states() == [4, 4], "the one that was published, and the one made anew"
    assert (root / "writing-x").exists(), "it may be the work of a run that lasts"
    index_documents([Document("d4", "Comet 4.")], path=folder)
    assert states() == [4, 5]
    assert not (root / "writing-x").exists()


def test_a_collection_of_someone_else_tells_that_it_has_changed(tmp_path: Path) -> None:
    import chromadb

    from tests.retrieval.fakes import HashEmbedder

    client, embedder = chromadb.PersistentClient(str(tmp_path)), HashEmbedder()
    mine = client.create_collection("mine", embedding_function=None)

    def put(**texts: str) -> None:
        vectors: Any = embedder.embed_documents(list(texts.values()))
        mine.upsert(ids=list(texts), documents=list(texts.values()), embeddings=vectors)

    put(a="A comet.", b="A garden.")
    with ChromaCorpus.open(collection=mine, embedder=embedder, cache=tmp_path / "cache") as corpus:
        assert not corpus.stale()
        put(c="An opera.")
        assert corpus.stale()
        corpus.refresh()
        put(a="A changed text.")
        assert corpus.stale()
        corpus.refresh()
        mine.delete(ids=["b"])
        assert corpus.stale()
        corpus.refresh()
        assert not corpus.stale()
    client.close()  # type: ignore[attr-defined]
