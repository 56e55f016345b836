"""An index that changes while it is served: it is reopened without losing a request."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from context_agent import Document, MemoryCorpus, ScriptedPolicy, SearchAgent, index_documents
from context_agent.errors import CorpusNotFoundError
from context_agent.integrations.server.errors import Problem
from context_agent.integrations.server.live_index import LiveIndex
from context_agent.retrieval.chroma.corpus import ChromaCorpus
from context_agent.retrieval.chroma.database import EmptyCollectionError
from context_agent.testing.actions import search


class Versioned(MemoryCorpus):
    """A corpus that reports a change when a test sets `changed`."""

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


def make_index(corpora: list[Versioned], *, concurrent: bool) -> LiveIndex:
    """A live index on the first corpus. It reopens as the others, one after another."""
    agent = SearchAgent(corpora[0], ScriptedPolicy([search("version")], delay=0.05))
    remaining = iter(corpora[1:])

    def reopen() -> Versioned:
        corpus = next(remaining, None)
        if corpus is None:
            raise CorpusNotFoundError("/secret/place is gone")
        return corpus

    return LiveIndex(agent, reopen, concurrent=concurrent)


async def top_document(index: LiveIndex) -> str:
    async with index.agent() as agent:
        return (await agent.asearch("version?")).documents[0].id


@pytest.mark.parametrize("concurrent", [True, False])
async def test_searches_that_run_end_on_the_state_they_began_with(concurrent: bool) -> None:
    corpora = [version(1), version(2)]
    index = make_index(corpora, concurrent=concurrent)
    assert await index.follow() is False
    old_searches = [asyncio.create_task(top_document(index)) for _ in range(5)]
    await asyncio.sleep(0.02)
    corpora[0].changed = True
    former = index._revision
    following = asyncio.create_task(index.follow())
    while index._revision is former and index._loaded.is_set():  # noqa: ASYNC110 (an index has no event for it)
        await asyncio.sleep(0.001)
    assert not corpora[0].closed or all(search.done() for search in old_searches)
    assert index.ready
    new_searches = [asyncio.create_task(top_document(index)) for _ in range(5)]
    assert await following is True
    assert await asyncio.gather(*old_searches) == ["v1"] * 5
    assert await asyncio.gather(*new_searches) == ["v2"] * 5
    async with asyncio.timeout(60):
        while not corpora[0].closed:  # noqa: ASYNC110 (a corpus has no event for it)
            await asyncio.sleep(0.001)
    assert not corpora[1].closed
    assert not index.stale
    await index.close()
    assert corpora[1].closed


async def test_an_index_that_cannot_be_opened_beside_leaves_the_old_one() -> None:
    corpora = [version(1)]
    index = make_index(corpora, concurrent=True)
    corpora[0].changed = True
    assert await index.follow() is None
    assert index.stale
    assert await top_document(index) == "v1"
    for error in (CorpusNotFoundError("/secret/server does not answer"), OSError("the disk is gone")):
        corpora[0].changed = error
        assert await index.follow() is None
        assert await top_document(index) == "v1"


@pytest.mark.parametrize("concurrent", [True, False])
async def test_an_index_is_not_ready_while_its_server_does_not_answer(concurrent: bool) -> None:
    corpora = [version(1)]
    index = make_index(corpora, concurrent=concurrent)
    assert index.ready
    corpora[0].changed = CorpusNotFoundError("the server does not answer")
    assert await index.follow() is None
    assert index.ready is not concurrent, "a folder that is open can be searched"
    corpora[0].changed = False
    assert await index.follow() is False
    assert index.ready


async def test_a_folder_that_is_gone_and_comes_back() -> None:
    corpora = [version(1)]
    reopened = version(3)
    index = make_index(corpora, concurrent=False)
    corpora[0].changed = True
    assert await index.follow() is None
    assert not index.ready
    with pytest.raises(Problem, match="could not be searched"):
        await top_document(index)
    index._reopen = lambda: reopened
    assert await index.follow() is True
    assert index.ready
    assert await top_document(index) == "v3"


@pytest.mark.parametrize("concurrent", [True, False])
async def test_nothing_is_found_while_a_collection_is_empty(concurrent: bool) -> None:
    corpora, refilled = [version(1)], version(3)
    index = make_index(corpora, concurrent=concurrent)

    def reopen_empty() -> Versioned:
        raise EmptyCollectionError("collection 'mine' is empty")

    index._reopen = reopen_empty
    corpora[0].changed = True
    assert await index.follow() is True
    assert (index.ready, index.stale, index.chunks) == (True, False, 0)
    async with index.agent() as agent:
        result = await agent.asearch("version?")
        assert (result.documents, result.sufficient) == ((), False)
    assert await index.follow() is False, "it is still empty"
    index._reopen = lambda: refilled
    assert await index.follow() is True
    assert await top_document(index) == "v3"


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
        return sorted(int(path.name.split("-")[1]) for path in root.glob("snapshot-*"))

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

    from context_agent.testing.embedders import HashEmbedder

    client, embedder = chromadb.PersistentClient(str(tmp_path)), HashEmbedder()
    collection = client.create_collection("mine", embedding_function=None)

    def upsert(**texts: str) -> None:
        vectors: Any = embedder.embed_documents(list(texts.values()))
        collection.upsert(ids=list(texts), documents=list(texts.values()), embeddings=vectors)

    upsert(a="A comet.", b="A garden.")
    with ChromaCorpus.open(collection=collection, embedder=embedder, cache=tmp_path / "cache") as corpus:
        assert not corpus.stale()
        upsert(c="An opera.")
        assert corpus.stale()
        corpus.refresh()
        upsert(a="A changed text.")
        assert corpus.stale()
        corpus.refresh()
        collection.delete(ids=["b"])
        assert corpus.stale()
        corpus.refresh()
        assert not corpus.stale()
    client.close()  # type: ignore[attr-defined]
