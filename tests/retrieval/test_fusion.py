"""Fusion by score and by reciprocal rank."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent.errors import ConfigError
from context_agent.retrieval.filters import Where
from context_agent.retrieval.fusion import (
    RRF_K,
    FusedCandidate,
    gather,
    hits_of,
    reciprocal_rank_fusion,
    scaled_scores,
    score_fusion,
)
from context_agent.types import Chunk

RANKINGS = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), max_size=4)


class Fixed:
    """A retriever that always gives the same ranking, and remembers how much it was asked for."""

    def __init__(self, name: str, ids: list[str]) -> None:
        self.name, self.ids, self.asked = name, ids, 0

    def search(self, query: str, k: int, where: Where | None = None) -> list[tuple[str, float]]:
        self.asked = k
        return [(item, 1 / rank) for rank, item in enumerate(self.ids[:k], start=1)]


def test_scores_are_sums_of_reciprocal_ranks() -> None:
    fused = dict(reciprocal_rank_fusion([["a", "b"], ["b", "c"]]))
    assert fused == pytest.approx({"a": 1 / 61, "b": 1 / 62 + 1 / 61, "c": 1 / 62})
    assert RRF_K == 60


@given(RANKINGS)
def test_every_id_once_best_first_ties_by_id(rankings: list[list[str]]) -> None:
    fused = reciprocal_rank_fusion(rankings)
    assert {item for item, _ in fused} == {item for ranking in rankings for item in ranking}
    assert fused == sorted(fused, key=lambda pair: (-pair[1], pair[0]))
    assert len(fused) == len({item for item, _ in fused})


@given(RANKINGS)
def test_weight_zero_is_absence(rankings: list[list[str]]) -> None:
    weights = [float(position % 2) for position in range(len(rankings))]
    assert reciprocal_rank_fusion(rankings, weights=weights) == reciprocal_rank_fusion(rankings[1::2])


def test_a_repeated_id_counts_once() -> None:
    assert reciprocal_rank_fusion([["a", "a", "b"]]) == [("a", 1 / 61), ("b", 1 / 62)]


def test_bad_weights_are_refused() -> None:
    for weights in ([1.0], [1.0, -1.0], [1.0, math.nan], [1.0, math.inf]):
        with pytest.raises(ConfigError):
            reciprocal_rank_fusion([["a"], ["b"]], weights=weights)


def test_retrievers_are_asked_for_what_will_be_dropped() -> None:
    ids = [f"{number:03}" for number in range(200)]
    retriever = Fixed("dense", ids)
    result = gather([retriever], {}, "x", exclude=set(ids[:60]), per_retriever=25, limit=10)
    assert retriever.asked == 85
    assert [candidate.id for candidate in result] == ids[60:70]


def test_many_candidates_are_shared_among_the_retrievers() -> None:
    for names, asked in ((["dense"], 100), (["dense", "bm25"], 50), (["dense", "bm25", "other", "more", "most"], 25)):
        retrievers = [Fixed(name, [str(number) for number in range(200)]) for name in names]
        gather(retrievers, {}, "x", limit=100, per_retriever=25)
        assert [retriever.asked for retriever in retrievers] == [asked] * len(names)


@pytest.mark.parametrize(("query", "limit", "found"), [("x", 1, 1), ("x", 0, 0), ("x", -1, 0), (" ", 9, 0)])
def test_a_search_for_nothing_asks_no_retriever(query: str, limit: int, found: int) -> None:
    retriever = Fixed("dense", ["a", "b", "c"])
    assert len(gather([retriever], {}, query, limit=limit)) == found
    assert bool(retriever.asked) == bool(found)


def test_a_retriever_of_weight_zero_is_not_asked() -> None:
    good, bad = Fixed("dense", ["a"]), Fixed("bm25", ["b"])
    result = gather([good, bad], {"dense": 1.0, "bm25": 0.0}, "x")
    assert [candidate.id for candidate in result] == ["a"]
    assert bad.asked == 0


def test_retrievers_search_at_the_same_time_with_an_executor() -> None:
    class Meeting(Fixed):
        def search(self, query: str, k: int, where: Where | None = None) -> list[tuple[str, float]]:
            barrier.wait()
            return super().search(query, k, where)

    barrier = Barrier(2, timeout=30)
    retrievers = [Meeting("dense", ["a", "b", "c"]), Meeting("bm25", ["c", "d"])]
    with ThreadPoolExecutor(1) as executor:
        concurrent = gather(retrievers, {"dense": 0.5}, "x", executor=executor)
    sequential = [Fixed(retriever.name, retriever.ids) for retriever in retrievers]
    assert concurrent == gather(sequential, {"dense": 0.5}, "x")
    with ThreadPoolExecutor(1) as executor:
        assert gather(sequential, {"dense": 0.0, "bm25": 0.0}, "x", executor=executor) == []


SCORED = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(-9, 9)), unique_by=lambda hit: hit[0], max_size=8)


@given(SCORED, st.floats(0.1, 9), st.floats(-9, 9))
def test_scaled_scores_lie_in_0_to_1_whatever_the_retriever_s_scale(
    hits: list[tuple[str, float]], factor: float, offset: float
) -> None:
    scaled = scaled_scores(hits)
    assert all(0 <= score <= 1 for score in scaled.values())
    assert max(scaled.values(), default=1.0) == 1.0
    if hits and max(score for _, score in hits) - min(score for _, score in hits) > 1e-3:
        rescaled = scaled_scores([(item, factor * score + offset) for item, score in hits])
        assert rescaled == pytest.approx(scaled, abs=1e-6)


def test_a_score_that_is_not_a_number_spoils_only_its_own_hit() -> None:
    hits = [("a", 3.0), ("b", 2.0), ("c", 1.0), ("nan", math.nan), ("inf", math.inf)]
    assert scaled_scores(hits) == {"a": 1.0, "b": 0.5, "c": 0.0, "nan": 0.0, "inf": 0.0}
    assert scaled_scores([("a", math.nan)]) == {"a": 0.0}


def test_fusion_is_a_weighted_mean_of_scaled_scores() -> None:
    hits = {"dense": [("a", 0.9), ("b", 0.8), ("c", 0.7)], "bm25": [("c", 30.0), ("d", 10.0)]}
    assert dict(score_fusion(hits, {"dense": 1.0, "bm25": 3.0})) == pytest.approx(
        {"a": 0.25, "b": 0.125, "c": 0.75, "d": 0.0}
    )
    assert score_fusion(hits, {"bm25": 3.0}) == score_fusion(hits, {"dense": 1.0, "bm25": 3.0})
    assert score_fusion(hits, {"dense": 0.0}) == [("c", 1.0), ("d", 0.0)]
    assert score_fusion({"dense": [], "bm25": []}, {}) == []


def test_a_retriever_that_is_sure_decides_the_order() -> None:
    hits = {"dense": [("a", 0.51), ("b", 0.5), ("z", 0.0)], "bm25": [("b", 30.0), ("a", 10.0), ("y", 9.0)]}
    assert [item for item, _ in score_fusion(hits, {})] == ["b", "a", "y", "z"]


@given(SCORED, SCORED)
def test_fused_ids_come_once_best_first_ties_by_id(
    dense: list[tuple[str, float]], sparse: list[tuple[str, float]]
) -> None:
    fused = score_fusion({"dense": dense, "bm25": sparse}, {"dense": 0.5})
    assert {item for item, _ in fused} == {item for item, _ in [*dense, *sparse]}
    assert fused == sorted(fused, key=lambda pair: (-pair[1], pair[0]))


class Longest:
    """A reranker that prefers long texts. For the hits of a search, it turns their order around."""

    name = "longest"

    def score(self, query: str, texts: Sequence[str]) -> np.ndarray:
        return np.array([len(text) for text in texts], np.float32)

    def score_hits(self, query: str, texts: Sequence[str]) -> np.ndarray:
        return np.arange(len(texts), dtype=np.float32)


def test_a_reranker_of_hits_gets_them_in_the_order_of_the_search() -> None:
    chunks = {
        name: Chunk(name, name, 0, name * length, 0, length, length) for name, length in (("a", 2), ("b", 3), ("c", 1))
    }
    candidates = [FusedCandidate(name, 0.5, None, None) for name in "abc"]
    assert [hit.chunk.id for hit in hits_of("q", candidates, chunks, Longest(), 2)] == ["c", "b"]
