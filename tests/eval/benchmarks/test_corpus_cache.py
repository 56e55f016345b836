"""A corpus is indexed once, whatever asks for it, and gone on with where it was stopped."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from context_agent import Document, MemoryCorpus
from context_agent.errors import CorpusCorruptError, CorpusEmptyError
from context_agent.eval.benchmarks import corpus_cache
from context_agent.eval.benchmarks.corpus_cache import snapshot
from context_agent.retrieval.embedders.static import StaticEmbedder
from tests.conftest import made_documents


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts each request embedded; parts are of 20 chunks."""
    sizes: list[int] = []
    inner = StaticEmbedder.embed_documents

    def counted(self: StaticEmbedder, texts: list[str]):
        if len(texts) > 1:  # one alone is a query
            sizes.append(len(texts))
        return inner(self, texts)

    monkeypatch.setattr(StaticEmbedder, "embed_documents", counted)
    monkeypatch.setattr(corpus_cache, "PART", 20)
    return sizes


def test_the_second_time_nothing_is_embedded(tmp_path: Path, embedded: list[int]) -> None:
    told: list[tuple[int, int | None]] = []
    first = snapshot(made_documents(), cache=tmp_path, report=lambda done, total: told.append((done, total)))
    assert sum(embedded) == 60
    assert told == [(20, 60), (40, 60), (60, 60)]
    assert snapshot(made_documents(), cache=tmp_path) == first
    assert sum(embedded) == 60


def test_it_is_the_corpus_that_indexing_in_memory_gives(tmp_path: Path, corpus: MemoryCorpus) -> None:
    opened = snapshot(made_documents(), cache=tmp_path)()
    assert opened.name == corpus.name
    for query in ("SENTINEL-0007", "how rivers met operas"):
        assert opened.search(query, limit=10) == corpus.search(query, limit=10)


def test_it_can_be_sent_to_another_process(tmp_path: Path) -> None:
    made = snapshot(made_documents(), cache=tmp_path)
    assert pickle.loads(pickle.dumps(made)) == made


def test_other_content_makes_another_folder(tmp_path: Path) -> None:
    documents = made_documents()
    folders = {
        snapshot(one, cache=tmp_path).folder
        for one in (
            documents,
            documents[:-1],
            [replace(documents[0], text="other"), *documents[1:]],
            [replace(documents[0], title="other"), *documents[1:]],
            [replace(documents[0], metadata={"a": 1}), *documents[1:]],
        )
    }
    assert len(folders) == 5


def test_a_run_that_was_stopped_goes_on_with_the_part_it_was_at(
    tmp_path: Path, embedded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(done: int, total: int | None) -> None:
        if done == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        snapshot(made_documents(), cache=tmp_path, report=stop)
    assert embedded == [20, 20]
    (kept,) = tmp_path.glob("*.part")
    last = max(kept.glob("*.npy"))
    last.write_bytes(last.read_bytes()[:100])
    made = snapshot(made_documents(), cache=tmp_path)
    assert embedded == [20, 20, 20, 20]
    assert made().count() == 60
    assert not list(tmp_path.glob("*.part"))


def test_several_that_want_it_at_once_make_it_once(tmp_path: Path, embedded: list[int]) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: snapshot(made_documents(), cache=tmp_path), range(4)))
    assert len(set(made)) == 1
    assert sum(embedded) == 60


def test_a_damaged_folder_says_how_to_mend_it(tmp_path: Path) -> None:
    made = snapshot(made_documents(), cache=tmp_path)
    (made.folder / "vectors.npy").write_bytes(b"nothing")
    with pytest.raises(CorpusCorruptError, match="delete it, and it is made again"):
        made()


def test_an_empty_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusEmptyError):
        snapshot([], cache=tmp_path)
    with pytest.raises(CorpusEmptyError):
        snapshot([Document("a", "  ")], cache=tmp_path)
