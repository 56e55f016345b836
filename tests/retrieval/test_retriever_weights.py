"""Weights follow from how well each retriever finds related passages; only a broken one is silenced."""

import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from context_agent.retrieval.filters import Where
from context_agent.retrieval.index.bm25 import Bm25Entry, Bm25Index
from context_agent.retrieval.index.manifest import Chunking, Manifest
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.retrieval.retriever_weights import (
    CALIBRATION_VERSION,
    KNOWN_ITEM_PROBES,
    MIN_WORKING_WEIGHT,
    RELATED_PROBES,
    SAMPLED_CHUNKS,
    Calibration,
    Probe,
    Probes,
    calibrate,
    probes_of,
    reciprocal_ranks,
    sample_rows,
    success_odds,
)
from context_agent.testing.documents import people
from context_agent.testing.embedders import HashEmbedder
from context_agent.tokens import CharCounter
from context_agent.types import Chunk, Document

COUNT = 200
IDS = [f"chunk-{number:03}" for number in range(COUNT)]


def _probe(query: str, source: int, relevant: int) -> Probe:
    return Probe(query, IDS[source], frozenset({IDS[relevant]}))


PROBES = Probes(
    [_probe(f"own {number}", number, number) for number in range(32)],
    [_probe(f"naming {number}", number, number + 50) for number in range(48)],
    [_probe(f"describing {number}", number, number + 50) for number in range(48)],
)
RELEVANT = {probe.query: probe for kind in (PROBES.known_items, PROBES.naming, PROBES.describing) for probe in kind}


class Skilled:
    """Finds what it should for this share of the queries, else unrelated chunks in a random order."""

    def __init__(self, name: str, share: float, ids: Sequence[str] = IDS) -> None:
        self.name, self.share, self.ids = name, share, ids

    def search(self, query: str, k: int, where: Where | None = None) -> list[tuple[str, float]]:
        generator = random.Random(f"{self.name} {query}")
        ranking = generator.sample(self.ids, len(self.ids))
        if generator.random() < self.share:
            ranking = [*sorted(RELEVANT[query].relevant), *ranking]
        return [(chunk_id, 1 / rank) for rank, chunk_id in enumerate(dict.fromkeys(ranking), start=1)][:k]


class Fixed(Skilled):
    """Returns these rankings, and nothing for other queries."""

    def __init__(self, name: str, rankings: Mapping[str, Sequence[str]]) -> None:
        super().__init__(name, 0.0)
        self.rankings = rankings

    def search(self, query: str, k: int, where: Where | None = None) -> list[tuple[str, float]]:
        return [(chunk_id, 1.0) for chunk_id in self.rankings.get(query, ())][:k]


class Constant(Skilled):
    """Returns the same ranking for every query."""

    def search(self, query: str, k: int, where: Where | None = None) -> list[tuple[str, float]]:
        return [(chunk_id, 1.0) for chunk_id in IDS[:k]]


def weights_of(*retrievers: Skilled, probes: Probes = PROBES) -> dict[str, float]:
    return dict(calibrate(retrievers, probes).weights)


def test_weights_follow_from_worth_and_only_broken_retrievers_are_silenced() -> None:
    weights = weights_of(
        Skilled("good", 0.9), Skilled("fair", 0.85), Skilled("weak", 0.3), Skilled("shuffled", 0.0), Constant("same", 1)
    )
    assert weights["good"] == 1.0 > weights["fair"] > weights["weak"] == MIN_WORKING_WEIGHT
    assert weights["shuffled"] == weights["same"] == 0.0


def test_a_retriever_that_is_far_from_the_best_still_counts() -> None:
    assert weights_of(Skilled("perfect", 1.0), Skilled("weak", 0.3)) == {"perfect": 1.0, "weak": MIN_WORKING_WEIGHT}


def test_equal_retrievers_weigh_the_same() -> None:
    first, second = Skilled("same", 0.7), Skilled("same", 0.7)
    second.name, first.name = "second", "first"
    ranks = {retriever.name: retriever for retriever in (first, second)}
    assert weights_of(*ranks.values())["first"] == pytest.approx(weights_of(*ranks.values())["second"], rel=0.6)
    assert weights_of(Constant("a", 1), Constant("b", 1)) == {"a": 1.0, "b": 1.0}


def test_without_probes_or_without_a_working_retriever_all_weights_are_1() -> None:
    assert weights_of(Skilled("any", 0.5), probes=Probes()) == {"any": 1.0}
    assert weights_of(Skilled("dead", 0.0)) == {"dead": 1.0}
    assert weights_of(probes=PROBES) == {}
    known_only = Probes(PROBES.known_items)
    assert weights_of(Skilled("good", 0.9), Skilled("dead", 0), probes=known_only) == {"good": 1.0, "dead": 0.0}


def test_two_known_items_tell_a_broken_retriever_and_one_does_not() -> None:
    for count, weight in ((1, 1.0), (2, 0.0)):
        probes = Probes(PROBES.known_items[:count])
        assert weights_of(Skilled("good", 1), Skilled("dead", 0), probes=probes) == {"good": 1.0, "dead": weight}


def test_a_retriever_works_if_it_finds_8_of_32_known_items() -> None:
    for count, weight in ((0, 0.0), (7, 0.0), (8, MIN_WORKING_WEIGHT)):
        found = {probe.query: [probe.source] for probe in PROBES.known_items[:count]}
        assert weights_of(Skilled("good", 1), Fixed("some", found)) == {"good": 1.0, "some": weight}


def test_a_retriever_that_ranks_each_known_item_behind_the_others_is_broken() -> None:
    probes = Probes(PROBES.known_items[:2])
    swapped = Fixed("swapped", {"own 0": [IDS[1], IDS[0]], "own 1": [IDS[0], IDS[1]]})
    assert weights_of(Skilled("good", 1), swapped, probes=probes) == {"good": 1.0, "swapped": 0.0}


def test_the_mean_reciprocal_rank_covers_both_kinds_of_related_probes() -> None:
    naming = {probe.query: sorted(probe.relevant) for probe in PROBES.naming}
    assert calibrate([Skilled("all", 1.0), Fixed("naming", naming)], PROBES).mrr == {"all": 1.0, "naming": 0.5}


def test_without_probes_or_retrievers_nothing_is_measured() -> None:
    assert calibrate([Skilled("a", 1.0)], Probes()) == Calibration({"a": 0.0}, {"a": 1.0})
    assert calibrate([], PROBES) == Calibration({}, {})


def test_a_corpus_is_calibrated_from_64_chunks_on() -> None:
    assert [len(sample_rows(count)) for count in (0, 63, 64, 300)] == [0, 0, 64, SAMPLED_CHUNKS]


def test_odds_stay_finite() -> None:
    assert success_odds(np.array([1.0, 0.5, 0.0, 0.0])) == 1.0
    assert success_odds(np.ones(3)) == 1 / success_odds(np.zeros(3)) == 7.0
    assert success_odds(np.zeros(0)) == 1.0


def test_the_sample_is_the_same_every_time() -> None:
    assert sample_rows(10_000) == sample_rows(10_000)
    assert len(set(sample_rows(10_000))) == SAMPLED_CHUNKS
    assert len(sample_rows(100)) == 100
    assert sample_rows(20) == []


TEXTS = [
    "Zanzibar exports cloves to many countries. The weather was fine.",
    "Traders from Zanzibar sold spices and cloves.",
    "Copied: Zanzibar exports cloves to many countries.",
    "Nothing here is shared except spices.",
]


def probes_of_texts(texts: Sequence[str], prefix: str = "record ") -> Probes:
    """The probes of a corpus whose index has the chunks' ids with this prefix."""
    chunks = {f"{n}_0": Chunk(f"{n}_0", str(n), 0, text, 0, len(text), 9, title="T") for n, text in enumerate(texts)}
    index = Bm25Index.of(Bm25Entry(f"{prefix}{chunk.id}", chunk.title, chunk.text) for chunk in chunks.values())
    chunk_of = {f"{prefix}{chunk_id}": chunk_id for chunk_id in chunks} if prefix else None
    return probes_of(list(chunks), index, lambda ids: {item: chunks[item] for item in ids if item in chunks}, chunk_of)


def test_a_known_item_is_a_passage_of_its_chunk() -> None:
    words = [f"word{number}" for number in range(60)]
    texts = [" ".join(words[first:]) for first in reversed(range(60))]
    for probe in probes_of_texts(texts).known_items:
        (source,) = probe.relevant
        text = texts[int(source.removesuffix("_0"))]
        assert probe.query in text
        assert len(probe.query.split()) == min(16, len(text.split()))


def test_a_probe_counts_by_the_rank_of_the_first_that_it_should_find() -> None:
    probes = [Probe("q", IDS[-1], frozenset({IDS[number], IDS[30]})) for number in (0, 1, 24, 25)]
    assert reciprocal_ranks(Constant("any", 1.0), probes).tolist() == [1, 1 / 2, 1 / 25, 0]


def test_related_probes_hide_the_word_that_relates_the_chunks() -> None:
    probes = probes_of_texts(TEXTS)
    assert probes.naming
    assert [probe.source for probe in probes.naming] == [probe.source for probe in probes.describing]
    for naming, describing in zip(probes.naming, probes.describing, strict=True):
        assert naming.relevant == describing.relevant
        assert naming.source not in naming.relevant
        hidden = set(naming.query.split()) - set(describing.query.split())
        assert len(hidden) == 1
        assert len(describing.query.split()) < len(naming.query.split())
    assert all("2_0" not in probe.relevant for probe in probes.naming if probe.source == "0_0"), "a copy tells nothing"
    assert probes == probes_of_texts(TEXTS)


@pytest.mark.parametrize(("count", "related"), [(1, 0), (2, 1), (8, 7), (9, 0)])
def test_a_word_relates_chunks_if_2_to_8_of_them_have_it(count: int, related: int) -> None:
    probes = probes_of_texts([f"Zanzibar number{number} other{number}." for number in range(count)])
    assert [len(probe.relevant) for probe in probes.naming] == [related] * (count if related else 0)


def test_the_frequency_of_a_word_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    original = Bm25Index.document_frequency

    def recorded(index: Bm25Index, terms: Sequence[str]) -> NDArray[np.int64]:
        asked.extend(terms)
        return original(index, terms)

    monkeypatch.setattr(Bm25Index, "document_frequency", recorded)
    assert probes_of_texts(TEXTS).naming
    assert len(asked) == len(set(asked)) > 5


def test_only_the_part_of_a_compound_that_relates_the_chunks_is_hidden() -> None:
    texts = ["Traders sell Zanzibar-made cloves.", "Old Zanzibar ships left.", "The weather was fine."]
    assert [probe.query.split() for probe in probes_of_texts(texts).describing] == [
        ["Traders", "sell", "-made", "cloves."],
        ["Old", "ships", "left."],
    ]


def test_an_index_may_have_the_ids_of_the_chunks_or_its_own() -> None:
    assert probes_of_texts(TEXTS, prefix="") == probes_of_texts(TEXTS)


def test_a_word_is_hidden_in_a_script_without_spaces() -> None:
    texts = [f"東京の店 {'あいうえおかきくけこ'[n]}{'さしすせそたちつてと'[n]}" for n in range(4)]
    probes = probes_of_texts(texts)
    assert probes.describing
    for naming, describing in zip(probes.naming, probes.describing, strict=True):
        hidden = len(naming.query.replace(" ", "")) - len(describing.query.replace(" ", ""))
        assert 1 <= hidden <= 2, "the rest of the word stays"


def test_identical_empty_and_single_documents_have_no_related_probes() -> None:
    assert probes_of_texts(["the same words in all"] * 30).naming == []
    assert probes_of_texts(["Zanzibar exports cloves."] * 2).naming == []
    assert probes_of_texts(["just one document"]).naming == []
    assert probes_of_texts([]) == Probes([], [], [])
    assert probes_of_texts(["?!", "...", "字" * 2_000]).naming == []


@pytest.mark.parametrize("documents", [people(1), [Document(f"d{n}", "the same words") for n in range(100)]])
def test_a_corpus_that_tells_nothing_gives_equal_weights(documents: list[Document]) -> None:
    corpus = MemoryCorpus(documents, embedder=HashEmbedder(), counter=CharCounter())
    assert corpus.calibration.weights == {"dense": 1.0, "bm25": 1.0}
    assert corpus.search("the same words")


class Foreign(HashEmbedder):
    """Queries are embedded by another model than the documents."""

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return self._embed(text)[::-1].copy()


def test_vectors_of_another_model_are_found_out() -> None:
    healthy = MemoryCorpus(people(300), embedder=HashEmbedder(), counter=CharCounter())
    assert min(healthy.calibration.weights.values()) > 0
    broken = MemoryCorpus(people(300), embedder=Foreign(), counter=CharCounter())
    assert broken.calibration.weights == {"dense": 0.0, "bm25": 1.0}


def test_calibration_searches_a_bounded_number_of_times() -> None:
    calls: list[str] = []

    class Counting(HashEmbedder):
        def embed_query(self, text: str) -> NDArray[np.float32]:
            calls.append(text)
            return self._embed(text)

    MemoryCorpus(people(400), embedder=Counting(), counter=CharCounter())
    assert 0 < len(calls) <= KNOWN_ITEM_PROBES + 2 * RELATED_PROBES


def test_a_stored_calibration_counts_only_if_it_was_measured_in_the_same_way() -> None:
    manifest = Manifest("e", 3, Chunking(1, 0, "c"), mrr={"dense": 0.9}, weights={"dense": 0.0})
    assert manifest.stored_calibration() is None
    calibration = Calibration({"dense": 0.5, "bm25": 0.6}, {"dense": 0.4, "bm25": 1.0})
    next_manifest = manifest.next(manifest.chunking, 7, calibration, "", "en", mixed=True)
    assert next_manifest.calibration == CALIBRATION_VERSION
    assert next_manifest.stored_calibration() == calibration
    assert manifest.next(manifest.chunking, 7, Calibration({}, {}), "", "en", mixed=True).stored_calibration() is None
