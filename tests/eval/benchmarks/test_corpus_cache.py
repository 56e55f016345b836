"""A corpus is indexed once for all callers, and an interrupted run resumes."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from context_agent import Document, MemoryCorpus
from context_agent.errors import CorpusCorruptError, CorpusEmptyError, DataError
from context_agent.eval.benchmarks import corpus_cache
from context_agent.eval.benchmarks.corpus_cache import cached_corpus
from context_agent.retrieval.embedders.static import StaticEmbedder
from context_agent.testing.documents import linked_documents
from context_agent.types import Section


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of texts in each request to the embedder. Parts have 20 chunks."""
    sizes: list[int] = []
    embed_documents = StaticEmbedder.embed_documents

    def count_texts(self: StaticEmbedder, texts: list[str]):
        if len(texts) > 1:  # a single text is a query
            sizes.append(len(texts))
        return embed_documents(self, texts)

    monkeypatch.setattr(StaticEmbedder, "embed_documents", count_texts)
    monkeypatch.setattr(corpus_cache, "CHUNKS_PER_PART", 20)
    return sizes


def test_the_second_time_nothing_is_embedded(tmp_path: Path, embedded: list[int]) -> None:
    reports: list[tuple[int, int | None]] = []
    first = cached_corpus(
        linked_documents(), cache=tmp_path, progress=lambda done, total: reports.append((done, total))
    )
    assert sum(embedded) == 60
    assert reports == [(20, 60), (40, 60), (60, 60)]
    assert cached_corpus(linked_documents(), cache=tmp_path) == first
    assert sum(embedded) == 60


def test_it_is_the_corpus_that_indexing_in_memory_gives(tmp_path: Path, corpus: MemoryCorpus) -> None:
    disk_corpus = cached_corpus(linked_documents(), cache=tmp_path)()
    assert disk_corpus.name == corpus.name
    for query in ("SENTINEL-0007", "how rivers met operas"):
        assert disk_corpus.search(query, k=10) == corpus.search(query, k=10)


def test_it_can_be_sent_to_another_process(tmp_path: Path) -> None:
    opener = cached_corpus(linked_documents(), cache=tmp_path)
    assert pickle.loads(pickle.dumps(opener)) == opener


def test_other_content_makes_another_folder(tmp_path: Path) -> None:
    documents = linked_documents()
    folders = {
        cached_corpus(variant, cache=tmp_path).folder
        for variant in (
            documents,
            documents[:-1],
            [replace(documents[0], text="other"), *documents[1:]],
            [replace(documents[0], title="other"), *documents[1:]],
            [replace(documents[0], metadata={"a": 1}), *documents[1:]],
            [replace(documents[0], sections=(Section(0, 9, "part"),)), *documents[1:]],
        )
    }
    assert len(folders) == 6


def test_an_interrupted_run_resumes_with_the_part_where_it_stopped(
    tmp_path: Path, embedded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(done: int, total: int | None) -> None:
        if done == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_corpus(linked_documents(), cache=tmp_path, progress=stop)
    assert embedded == [20, 20]
    (part_folder,) = tmp_path.glob("*.part")
    last_part = max(part_folder.glob("*.npy"))
    last_part.write_bytes(last_part.read_bytes()[:100])
    opener = cached_corpus(linked_documents(), cache=tmp_path)
    assert embedded == [20, 20, 20, 20]
    assert opener().count() == 60
    assert not list(tmp_path.glob("*.part"))


def test_several_that_want_it_at_once_make_it_once(tmp_path: Path, embedded: list[int]) -> None:
    with ThreadPoolExecutor(4) as pool:
        openers = list(pool.map(lambda _: cached_corpus(linked_documents(), cache=tmp_path), range(4)))
    assert len(set(openers)) == 1
    assert sum(embedded) == 60


def test_a_damaged_folder_says_how_to_fix_it(tmp_path: Path) -> None:
    opener = cached_corpus(linked_documents(), cache=tmp_path)
    (opener.folder / "vectors.npy").write_bytes(b"nothing")
    with pytest.raises(CorpusCorruptError, match=r"Delete the folder\. The next run makes it again"):
        opener()


def test_an_empty_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusEmptyError):
        cached_corpus([], cache=tmp_path)
    with pytest.raises(CorpusEmptyError):
        cached_corpus([Document("a", "  ")], cache=tmp_path)


def test_a_cache_that_cannot_be_written_is_told_with_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="Pass --cache with a folder that can be written"):
        cached_corpus(linked_documents(), cache=tmp_path / "file" / "cache")


@pytest.mark.parametrize("kind", ["float64", "int32", "O"])
def test_vectors_of_another_type_are_told_by_their_type_alone(tmp_path: Path, kind: str) -> None:
    folder = cached_corpus(linked_documents(), cache=tmp_path).folder
    file = folder / corpus_cache.VECTORS_FILE
    np.save(file, np.load(file).astype(kind))
    with pytest.raises(CorpusCorruptError) as caught:
        cached_corpus(linked_documents(), cache=tmp_path)()
    assert kind in str(caught.value) or kind == "O"
    assert "shape" not in str(caught.value)
