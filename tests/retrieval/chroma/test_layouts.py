"""Collections of other owners, with layouts of their own, are searched without a change."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from chromadb.api.models.Collection import Collection
from chromadb.api.types import SparseEmbeddingFunction
from chromadb.base_types import SparseVector
from chromadb.utils.embedding_functions import register_embedding_function

from context_agent.errors import ConfigError, CorpusEmptyError, CorpusError, DimensionError, EmbedderError
from context_agent.retrieval.chroma.corpus import ChromaCorpus
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.chroma.server_search import SparseIndex, hybrid_request, hybrid_rows, sparse_index
from context_agent.retrieval.embedders.chroma import ChromaEmbedder
from context_agent.retrieval.index.layouts import ForeignLayout
from context_agent.testing.documents import people
from context_agent.testing.embedders import HashEmbedder


@register_embedding_function
class OwnersFunction(chromadb.EmbeddingFunction[Any]):
    """An embedding function that Chroma stores with the collection and finds again. Its vectors have length 3."""

    broken = False

    def __init__(self, dimension: int = 48) -> None:
        self.dimension = dimension

    def __call__(self, input: list[str]) -> Any:
        if OwnersFunction.broken:
            raise RuntimeError("no quota left")
        return [3 * vector for vector in HashEmbedder(self.dimension).embed_documents(input)]

    @staticmethod
    def name() -> str:
        return "test-owners-function"

    def get_config(self) -> dict[str, Any]:
        return {"dimension": self.dimension}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> "OwnersFunction":
        return OwnersFunction(config["dimension"])


OWNERS = ChromaEmbedder(OwnersFunction(), normalize=False)


class Owner:
    """Someone with a Chroma folder of his own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.client = chromadb.PersistentClient(str(path))

    def collection(self, name: str, **options: Any) -> Collection:
        return self.client.get_or_create_collection(name, **options)

    def fill(self, collection: Collection, start: int, count: int) -> None:
        documents = people(count, start)
        collection.add(
            ids=[f"uuid-{document.id}" for document in documents],
            documents=[document.text for document in documents],
            metadatas=[
                {"heading": document.title, "folder": f"file-{number // 4}", **document.metadata}
                for number, document in enumerate(documents, start)
            ],
        )


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(tmp_path / "mine")
    yield owner
    owner.client.close()  # type: ignore[attr-defined]


def test_his_function_embeds_and_his_ids_stay(owner: Owner) -> None:
    collection = owner.collection("notes", embedding_function=OwnersFunction())
    owner.fill(collection, 0, 200)
    before = collection.get(include=["documents", "metadatas", "embeddings"])
    with ChromaCorpus.open(owner.path, collection="notes", embedder=OWNERS) as corpus:
        assert corpus.embedder.name == "chroma:test-owners-function"
        hits = corpus.search("Person 42 botanist ledger")
        assert hits[0].chunk.id == hits[0].chunk.document_id == "uuid-person-42"
        assert [chunk.id for chunk in corpus.read("uuid-person-42")] == ["uuid-person-42"]
        assert corpus.grep("Person 42 was")[0].chunk.id == "uuid-person-42"
        assert corpus.get(["uuid-person-42"])[0].tokens > 10
        assert corpus.document_frequency(["engraver"]).tolist() == [25]
        assert corpus.similarity(before["documents"][7], ["uuid-person-7"]) == pytest.approx([1.0], abs=1e-5)  # type: ignore[index]
        assert min(corpus.calibration.weights.values()) > 0
        assert corpus.name == "chroma:notes@s1"
        where = {"trade": "engraver"}
        assert {hit.chunk.metadata["trade"] for hit in corpus.search("guild", where=where)} == {"engraver"}
    after = collection.get(include=["documents", "metadatas", "embeddings"])
    assert after["ids"] == before["ids"]
    assert after["metadatas"] == before["metadatas"]
    assert np.array_equal(after["embeddings"], before["embeddings"])  # type: ignore[arg-type]
    assert collection.metadata is None


def test_his_metadata_keys_are_named_by_options(owner: Owner) -> None:
    owner.fill(owner.collection("notes", embedding_function=OwnersFunction()), 0, 80)
    keys = {"title_key": "heading", "document_key": "folder", "text_key": "trade"}
    with ChromaCorpus.open(owner.path, collection="notes", embedder=OWNERS, **keys) as corpus:  # type: ignore[arg-type]
        chunks = corpus.read("file-2")
        assert [chunk.id for chunk in chunks] == [f"uuid-person-{number}" for number in (8, 9, 10, 11)]
        assert chunks[0].title == "Person 8"
        assert chunks[0].text == "printer"


@pytest.mark.parametrize("space", ["l2", "cosine", "ip"])
def test_every_distance_gives_cosines_or_the_same_order(owner: Owner, space: Any) -> None:
    embedder = HashEmbedder()
    collection = owner.collection("notes", embedding_function=None, configuration={"hnsw": {"space": space}})
    documents = people(100)
    collection.add(
        ids=[document.id for document in documents],
        documents=[document.text for document in documents],
        embeddings=embedder.embed_documents([document.text for document in documents]),  # type: ignore[arg-type]
    )
    with ChromaCorpus.open(owner.path, collection="notes", embedder=embedder) as corpus:
        hits = [hit for hit in corpus.search("a chemist from Osaka") if hit.dense is not None]
        cosines = corpus.similarity("a chemist from Osaka", [hit.chunk.id for hit in hits])
        assert [hit.dense for hit in hits] == pytest.approx(cosines.tolist(), abs=1e-3)


def test_changes_are_followed_without_reading_everything_again(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    collection = owner.collection("notes", embedding_function=OwnersFunction())
    owner.fill(collection, 0, 120)
    ChromaCorpus.open(owner.path, collection="notes", embedder=OWNERS).close()
    entries = ForeignLayout._entries
    monkeypatch.setattr(
        ForeignLayout,
        "_entries",
        lambda layout, collection, records: (
            entries(layout, collection, records) if records is not None else pytest.fail("read everything")
        ),
    )
    owner.fill(collection, 500, 3)
    collection.delete(ids=["uuid-person-5", "uuid-person-6"])
    with ChromaCorpus.open(owner.path, collection="notes", embedder=OWNERS) as corpus:
        assert corpus.count() == 121
        assert corpus.search("Person 501")[0].chunk.id == "uuid-person-501"
        assert corpus.grep("Person 502 was")[0].chunk.id == "uuid-person-502"
        assert corpus.grep("Person 5 was") == []
        assert corpus.name == "chroma:notes@s2"


def test_any_change_in_place_is_noticed(owner: Owner) -> None:
    collection = owner.collection("notes", embedding_function=OwnersFunction())
    owner.fill(collection, 0, 300)
    with ChromaCorpus.open(owner.path, collection="notes", embedder=OWNERS) as corpus:
        assert not corpus.stale()
        collection.update(ids=["uuid-person-1"], documents=["A kayak."])
        assert corpus.stale()
        corpus.refresh()
        assert [hit.chunk.id for hit in corpus.grep("kayak")] == ["uuid-person-1"]
        assert corpus.search("kayak")[0].chunk.id == "uuid-person-1"
        assert corpus.similarity("A kayak.", ["uuid-person-1"]) == pytest.approx([1.0], abs=1e-5)
        assert corpus.count() == 300
        collection.update(ids=["uuid-person-2"], metadatas=[{"trade": "diver"}])
        assert corpus.stale()
        corpus.refresh()
        assert [hit.chunk.id for hit in corpus.grep(".", where={"trade": "diver"})] == ["uuid-person-2"]
        collection.upsert(ids=["uuid-person-3"], documents=["A zeppelin."])
        collection.delete(ids=["uuid-person-4"])
        corpus.refresh()
        assert corpus.read("uuid-person-4") == []
        assert [chunk.text for chunk in corpus.read("uuid-person-3")] == ["A zeppelin."]
        assert not corpus.stale()


def test_other_keys_are_another_reading(owner: Owner) -> None:
    owner.fill(owner.collection("notes", embedding_function=OwnersFunction()), 0, 20)
    for keys, title in (({}, ""), ({"title_key": "heading"}, "Person 3"), ({"title_key": "trade"}, "engraver")):
        with ChromaCorpus.open(owner.path, collection="notes", embedder=OWNERS, **keys) as corpus:  # type: ignore[arg-type]
            assert corpus.read("uuid-person-3")[0].title == title
            assert bool(corpus.retrievers[1].search("engraver Person 3 heading", 5))


def test_records_without_text_are_passed_over(owner: Owner) -> None:
    collection = owner.collection("notes", embedding_function=OwnersFunction())
    owner.fill(collection, 0, 5)
    collection.add(ids=["image"], embeddings=[[0.5] * 48])
    with ChromaCorpus.open(owner.path, collection="notes", embedder=OWNERS) as corpus:
        assert "image" not in {hit.chunk.id for hit in corpus.search("guild of Person")}
        assert corpus.read("image") == []


def test_what_does_not_fit_is_refused(owner: Owner) -> None:
    owner.collection("hollow", embedding_function=OwnersFunction())
    collection = owner.collection("notes", embedding_function=OwnersFunction())
    owner.fill(collection, 0, 5)
    bare = owner.collection("bare", embedding_function=None)
    bare.add(ids=["a"], embeddings=[[1.0, 2.0]], documents=["text"])
    with pytest.raises(CorpusEmptyError, match="hollow"):
        ChromaCorpus.open(owner.path, collection="hollow", embedder=OWNERS)
    with pytest.raises(ConfigError, match="2 numbers each"):
        ChromaCorpus.open(owner.path, collection="bare")
    with pytest.raises(DimensionError, match=r"48 numbers.*\s64"):
        ChromaCorpus.open(owner.path, collection="notes", embedder=HashEmbedder(64))
    with pytest.raises(CorpusError, match="made by another program"):
        index_documents(people(3), owner.path, collection="notes", embedder=HashEmbedder())
    assert collection.count() == 5


def test_a_failing_function_is_named(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    owner.fill(owner.collection("notes", embedding_function=OwnersFunction()), 0, 5)
    with ChromaCorpus.open(owner.path, collection="notes", embedder=OWNERS) as corpus:
        monkeypatch.setattr(OwnersFunction, "broken", True)
        with pytest.raises(EmbedderError, match="no quota left"):
            corpus.search("anything new")


def test_an_index_that_searches_read_in_place_of_the_only_collection_says_so(owner: Owner) -> None:
    owner.fill(owner.collection("notes", embedding_function=OwnersFunction()), 0, 5)
    with ChromaCorpus.open(owner.path, embedder=OWNERS) as corpus:
        assert corpus.count() == 5  # the only collection is read
    first = index_documents(people(4), owner.path, embedder=HashEmbedder())
    assert "'notes'" in first.warning
    assert "--collection notes" in first.warning
    with ChromaCorpus.open(owner.path, embedder=HashEmbedder()) as corpus:
        assert corpus.count() == 4
    assert index_documents(people(4), owner.path, embedder=HashEmbedder()).warning == ""


def test_an_index_that_no_search_reads_by_itself_has_no_warning(owner: Owner) -> None:
    owner.fill(owner.collection("notes", embedding_function=OwnersFunction()), 0, 5)
    assert index_documents(people(4), owner.path, collection="ours", embedder=HashEmbedder()).warning == ""
    assert index_documents(people(4), owner.path, embedder=HashEmbedder()).warning == ""


def test_our_collection_and_his_live_in_one_folder(owner: Owner) -> None:
    owner.fill(owner.collection("notes", embedding_function=OwnersFunction()), 0, 5)
    index_documents(people(4), owner.path, collection="ours", embedder=HashEmbedder())
    with ChromaCorpus.open(owner.path, collection="notes", embedder=OWNERS) as foreign_corpus:
        assert foreign_corpus.count() == 5
    with ChromaCorpus.open(owner.path, collection="ours", embedder=HashEmbedder()) as own_corpus:
        assert own_corpus.count() == 4


class WordLengths(SparseEmbeddingFunction[Any]):
    """A sparse embedding function: each word's length, by its place."""

    def __init__(self) -> None:
        pass

    def __call__(self, input: list[str]) -> Any:
        return [
            SparseVector(list(range(len(text.split()))), [float(len(word)) for word in text.split()]) for text in input
        ]

    def embed_query(self, input: list[str]) -> Any:
        return self(input)

    @staticmethod
    def name() -> str:
        return "word-lengths"

    def get_config(self) -> dict[str, Any]:
        return {}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> "WordLengths":
        return WordLengths()


SPARSE = SparseIndex("sparse", WordLengths())


def test_no_sparse_index_here_so_the_native_search_is_not_used(owner: Owner) -> None:
    assert sparse_index(owner.collection("notes", embedding_function=None)) is None


def test_the_native_request_fuses_both_rankings_on_the_server() -> None:
    request = hybrid_request("a query", np.ones(2, np.float32), SPARSE, limit=7, depth=85, where={"year": 1999})
    body = request.to_dict()
    assert body["limit"] == {"limit": 7, "offset": 0}
    assert body["filter"] == {"year": {"$eq": 1999}}
    assert str(body["rank"]).count("$knn") == 2
    assert "'key': 'sparse'" in str(body["rank"])
    assert "a query" not in str(body["rank"]), "Chroma's client would embed a text by the stored function"


def test_the_native_answer_is_turned_best_first() -> None:
    class Answer:
        def rows(self) -> list[list[dict[str, Any]]]:
            return [[{"id": "b", "score": -0.01}, {"id": "a", "score": -0.03}, {"id": "c", "score": -0.01}]]

    class Cloud:
        def search(self, request: object) -> Answer:
            return Answer()

    rows = hybrid_rows(Cloud(), hybrid_request("q", np.ones(2, np.float32), SPARSE, limit=3, depth=3))  # type: ignore[arg-type]
    assert [(row["id"], row["score"]) for row in rows] == [("a", 0.03), ("b", 0.01), ("c", 0.01)]


def test_a_collection_that_he_holds_open_stays_his(owner: Owner) -> None:
    collection = owner.collection("notes", embedding_function=OwnersFunction())
    owner.fill(collection, 0, 80)
    with ChromaCorpus.open(collection=collection) as corpus:
        assert corpus.name == "chroma:notes@s1"
        assert corpus.search("Person 42 botanist ledger")[0].chunk.id == "uuid-person-42"
        owner.fill(collection, 100, 1)
        corpus.refresh()
        assert corpus.search("Person 100")[0].chunk.id == "uuid-person-100"
    assert collection.count() == 81
    assert (owner.path / "ctx1" / str(collection.id)).is_dir(), "BM25 stands beside a local collection"
    with ChromaCorpus.open(owner.path, collection="notes", embedder=OWNERS) as corpus_by_name:
        assert corpus_by_name.count() == 81
    with pytest.raises(ConfigError, match="either by its folder"):
        ChromaCorpus.open(owner.path, collection=collection)


def test_a_collection_in_memory(tmp_path: Path) -> None:
    client = chromadb.EphemeralClient()
    collection = client.create_collection("passing", embedding_function=None)
    embedder, documents = HashEmbedder(), people(10)
    collection.add(
        ids=[document.id for document in documents],
        documents=[document.text for document in documents],
        embeddings=embedder.embed_documents([document.text for document in documents]),  # type: ignore[arg-type]
    )
    with ChromaCorpus.open(collection=collection, embedder=embedder, cache=tmp_path) as corpus:
        assert corpus.search("Person 3 was")[0].chunk.id == "person-3"
    client.delete_collection("passing")


def test_the_snapshot_of_a_collection_in_memory_ends_with_the_process(tmp_path: Path) -> None:
    program = """
import chromadb
from context_agent import ChromaCorpus
collection = chromadb.EphemeralClient().create_collection("passing", embedding_function=None)
collection.add(ids=["a"], documents=["one lighthouse"], embeddings=[[1.0, 0.0]])
corpus = ChromaCorpus.open(collection=collection, embedder="none")
assert list(corpus.snapshot.folder.iterdir())
assert corpus.search("lighthouse")
"""
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=120)
    assert not list(tmp_path.glob("*/*"))
