"""Reciprocal rank fusion, and the calibration that keeps useless retrievers out of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent.errors import ConfigError
from context_agent.retrieval.corpus import Where
from context_agent.retrieval.fusion import (
    PROBES,
    RRF_K,
    Probe,
    calibrate,
    gather,
    probes_of,
    reciprocal_rank_fusion,
    sample_rows,
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
    for weights in ([1.0], [1.0, -1.0]):
        with pytest.raises(ConfigError):
            reciprocal_rank_fusion([["a"], ["b"]], weights=weights)


def test_retrievers_are_asked_for_what_will_be_dropped() -> None:
    ids = [f"{number:03}" for number in range(200)]
    retriever = Fixed("dense", ids)
    result = gather([retriever], {}, "x", exclude=set(ids[:60]), per_retriever=25, limit=10)
    assert retriever.asked == 85
    assert [candidate.id for candidate in result] == ids[60:70]


def test_a_retriever_of_weight_zero_is_not_asked() -> None:
    good, bad = Fixed("dense", ["a"]), Fixed("bm25", ["b"])
    result = gather([good, bad], {"dense": 1.0, "bm25": 0.0}, "x")
    assert [candidate.id for candidate in result] == ["a"]
    assert bad.asked == 0


def test_calibration_separates_working_from_useless() -> None:
    probes = [Probe("x", "a"), Probe("y", "b")]
    result = calibrate([Fixed("good", ["a", "b"]), Fixed("weak", ["z", "a", "b"]), Fixed("dead", ["z"])], probes)
    assert result.mrr == pytest.approx({"good": 0.75, "weak": 5 / 12, "dead": 0.0})
    assert result.weights == {"good": 1.0, "weak": 1.0, "dead": 0.0}
    assert calibrate([Fixed("dead", ["z"])], probes).weights == {"dead": 1.0}
    assert calibrate([Fixed("any", [])], []).weights == {"any": 1.0}


def test_probes_are_the_same_every_time() -> None:
    assert sample_rows(10_000) == sample_rows(10_000)
    assert len(sample_rows(10_000)) == PROBES
    assert sample_rows(20) == []
    chunks = [
        Chunk("a_0", "a", 0, "word " * 100, 0, 500, 100, title="Title"),
        Chunk("b_0", "b", 0, "字" * 999, 0, 999, 9),
    ]
    first, second = probes_of(chunks)
    assert first.query.startswith("Title word word")
    assert len(second.query) < 300
    assert probes_of(chunks) == [first, second]
