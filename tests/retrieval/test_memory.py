"""`MemoryCorpus` keeps the promises of `Corpus`, without a store."""

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from context_agent.errors import ConfigError, CorpusEmptyError, CorpusError, DimensionError, PatternError, RerankerError
from context_agent.retrieval.corpus import Corpus
from context_agent.retrieval.filters import Where
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.retrieval.retriever import Retriever
from context_agent.testing.documents import people
from context_agent.testing.embedders import HashEmbedder
from context_agent.tokens import CharCounter
from context_agent.types import Chunk, Document


def corpus_of(documents: Sequence[Document | Chunk], **options: object) -> MemoryCorpus:
    return MemoryCorpus(documents, embedder=HashEmbedder(), counter=CharCounter(), **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def corpus() -> MemoryCorpus:
    return corpus_of(people(300))


class Shuffled:
    """A retriever that finds other chunks than those it should: as if its vectors had been mixed up."""

    def __init__(self, inner: Retriever, ids: Sequence[str]) -> None:
        self.inner, self.name = inner, inner.name
        self.other = dict(zip(ids, random.Random(0).sample(ids, len(ids)), strict=True))

    def search(self, query: str, k: int, where: Where | None = None) -> list[tuple[str, float]]:
        return [(self.other[chunk_id], score) for chunk_id, score in self.inner.search(query, k, where)]


class Backwards:
    """A reranker that prefers the shortest text."""

    name = "shortest"

    def score(self, query: str, texts: Sequence[str]) -> np.ndarray:
        return -np.array([len(text) for text in texts], dtype=np.float32)


class Broken:
    name = "broken"

    def score(self, query: str, texts: Sequence[str]) -> np.ndarray:
        raise RerankerError("the reranker is down")


def test_is_a_corpus_that_does_not_block(corpus: MemoryCorpus) -> None:
    assert isinstance(corpus, Corpus)
    assert not corpus.blocking
    assert corpus.count() == 300


def test_search_finds_by_words_and_says_where_the_score_is_from(corpus: MemoryCorpus) -> None:
    hits = corpus.search("the ledger of Person 42")
    assert hits[0].chunk.document_id == "person-42"
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert hits[0].sparse is not None
    assert any(hit.dense is not None for hit in hits)


def test_excluded_chunks_never_come_back_and_others_take_their_place(corpus: MemoryCorpus) -> None:
    seen_ids: set[str] = set()
    for _ in range(4):
        hits = corpus.search("a printer from Lisbon", exclude=seen_ids)
        assert len(hits) >= 25
        assert not seen_ids & {hit.chunk.id for hit in hits}
        seen_ids |= {hit.chunk.id for hit in hits}


def test_limits_are_kept(corpus: MemoryCorpus) -> None:
    assert len(corpus.search("printer", k=3)) == 3
    assert len(corpus.search("printer", k=1_000)) == 300


@pytest.mark.parametrize("query", ["", "  \n\t", "?!", "\0", "the of and"])
def test_queries_without_words_are_answered(corpus: MemoryCorpus, query: str) -> None:
    assert isinstance(corpus.search(query), list)


def test_whitespace_finds_nothing(corpus: MemoryCorpus) -> None:
    assert corpus.search(" \n ") == []


def test_a_query_of_100_000_characters_works(corpus: MemoryCorpus) -> None:
    assert corpus.search(" ".join(f"Person {number} engraver" for number in range(6_000)))


def test_one_thread_and_eight_give_the_same_hits(corpus: MemoryCorpus) -> None:
    queries = [f"{trade} number {number}" for number in range(40) for trade in ("printer", "chemist")]
    sequential = [corpus.search(query) for query in queries]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(corpus.search, queries)) == sequential


def test_filters_hold_for_search_and_grep(corpus: MemoryCorpus) -> None:
    where: Where = {"$and": [{"century": {"$gte": 18}}, {"trade": {"$in": ["weaver", "chemist"]}}]}
    for hits in (corpus.search("Lisbon weaver", where=where), corpus.grep("guild", where=where)):
        assert hits
        assert all(hit.chunk.metadata["trade"] in ("weaver", "chemist") for hit in hits)
        assert all(int(hit.chunk.metadata["century"]) >= 18 for hit in hits)
    assert corpus.search("Lisbon", where={"trade": "astronaut"}) == []
    with pytest.raises(ConfigError, match=r"\$like"):
        corpus.search("Lisbon", where={"trade": {"$like": "x"}})


def test_grep_goes_by_corpus_order(corpus: MemoryCorpus) -> None:
    hits = corpus.grep(r"(?i)a PRINTER from \w+")
    assert [hit.chunk.document_id for hit in hits] == [f"person-{number}" for number in (0, 8, 16, 24, 32)]
    rest = corpus.grep(r"a printer from \w+", exclude={hit.chunk.id for hit in hits}, limit=2)
    assert [hit.chunk.document_id for hit in rest] == ["person-40", "person-48"]
    with pytest.raises(PatternError):
        corpus.grep("(")


def test_read_get_and_similarity(corpus: MemoryCorpus) -> None:
    (chunk,) = corpus.read("person-7")
    assert chunk.id == "person-7_0"
    assert corpus.read("nobody") == []
    assert [chunk.id for chunk in corpus.get(["person-9_0", "nobody", "person-7_0"])] == ["person-9_0", "person-7_0"]
    cosines = corpus.similarity(chunk.indexed_text, ["person-7_0", "nobody", "person-9_0"])
    assert cosines[0] == pytest.approx(1.0, abs=1e-5)
    assert np.isnan(cosines[1])
    assert cosines[2] < 1
    assert corpus.rerank("x", []).shape == (0,)
    assert corpus.rerank(chunk.indexed_text, [chunk])[0] == pytest.approx(1.0, abs=1e-5)


def test_a_document_of_several_chunks_is_read_in_order() -> None:
    text = " ".join(f"Sentence number {number} is here." for number in range(200))
    corpus = corpus_of([Document("long", text)], chunk_size=64)
    chunks = corpus.read("long")
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    assert len(chunks) > 5
    assert all(text[chunk.start : chunk.end] == chunk.text for chunk in chunks)


def test_document_frequency_counts_chunks(corpus: MemoryCorpus) -> None:
    counts = corpus.document_frequency(["printer", "printers", "Lisbon", "unheard", "the", "?!", "ledger number"])
    assert counts.tolist() == [38, 38, 30, 0, 300, 0, 300]


def test_a_shuffled_retriever_is_found_out_and_does_no_harm() -> None:
    documents = people(400)
    queries = [f"ledger K{number * 7919 % 100_003} of Person {number}" for number in range(0, 400, 7)]

    def share_found(corpus: MemoryCorpus) -> float:
        tops = [corpus.search(query)[0].chunk.document_id for query in queries]
        return sum(top == f"person-{number}" for top, number in zip(tops, range(0, 400, 7), strict=True)) / len(queries)

    healthy = corpus_of(documents)
    ids = [chunk.id for chunk in healthy.chunks]
    assert min(healthy.calibration.weights.values()) > 0
    for broken in ("dense", "bm25"):

        def break_one(retriever: Retriever, broken: str = broken) -> Retriever:
            return Shuffled(retriever, ids) if retriever.name == broken else retriever

        corpus = corpus_of(documents, wrap=break_one)
        assert corpus.calibration.weights[broken] == 0.0
        assert share_found(corpus) > share_found(corpus_of(documents, wrap=break_one, calibration=False))


def test_rerankers_decide_the_order_and_fail_loudly() -> None:
    documents = [Document(f"d{number}", "tall tree " * (number + 1)) for number in range(9)]
    hits = corpus_of(documents, reranker=Backwards()).search("tree")
    assert [hit.chunk.document_id for hit in hits] == [f"d{number}" for number in range(9)]
    with pytest.raises(RerankerError, match="down"):
        corpus_of(documents, reranker=Broken()).search("tree")


def test_bad_input_is_refused_with_a_reason() -> None:
    with pytest.raises(CorpusEmptyError):
        corpus_of([])
    with pytest.raises(CorpusEmptyError):
        corpus_of([Document("blank", " \n ")])
    with pytest.raises(CorpusError, match="twice"):
        corpus_of([Document("same", "one"), Document("same", "two")])
    with pytest.raises(DimensionError, match=r"\(2, 64\)"):
        corpus_of(people(2), vectors=np.zeros((2, 3), dtype=np.float32))


def test_names_follow_the_content() -> None:
    assert corpus_of(people(3)).name == corpus_of(people(3)).name != corpus_of(people(4)).name


def test_vectors_of_any_length_are_scaled(corpus: MemoryCorpus) -> None:
    vectors = HashEmbedder().embed_documents([chunk.indexed_text for chunk in corpus.chunks])
    lengths = np.random.default_rng(0).uniform(0.1, 90, size=(len(vectors), 1))
    ids = [chunk.id for chunk in corpus.chunks]
    expected = corpus.similarity("Who is a zoologist?", ids)
    for given in (vectors, vectors * lengths, vectors * np.float32(1e30)):
        same = corpus_of(corpus.chunks, vectors=given, calibration=False)
        assert same.similarity("Who is a zoologist?", ids) == pytest.approx(expected, abs=1e-5)
    with pytest.raises(ConfigError, match="float32"):
        corpus_of(corpus.chunks, vectors=vectors.astype(np.float64) * 1e300)
