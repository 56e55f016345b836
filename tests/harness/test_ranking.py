"""Rankings: resolved against the view, filled up from it, and fused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent.budget import Budget
from context_agent.harness.ranking import Ranking, fallback_ranking, fuse, resolve, with_shown_documents
from context_agent.pruning.view import Block, Source, View
from context_agent.types import Chunk, Hit, RankedDocument, RankedId


def make_view(*pairs: tuple[str, int], hidden: tuple[int, ...] = ()) -> View:
    """A view with a block for each (chunk id, rank); the document's id is what stands before the last underscore."""
    blocks = []
    for key, (chunk_id, rank) in enumerate(pairs):
        document, _, index = chunk_id.rpartition("_")
        chunk = Chunk(chunk_id, document, int(index), f"text of {chunk_id}", 0, 1, 1, document.upper())
        blocks.append(Block(key, "#\n", "body", 10, 0, 0, Source.SEARCH, Hit(chunk, 1 / rank, rank)))
    return View("q", Budget(), tuple(blocks), frozenset(hidden), 0, 1)


def test_documents_and_chunks_may_be_named_and_merge() -> None:
    view = make_view(("a_0", 1), ("a_1", 3), ("b_0", 2))
    ranking = resolve([RankedId("a_1"), RankedId("b"), RankedId("a_0")], view, 30)
    assert [document.id for document in ranking.documents] == ["a", "b"]
    assert [chunk.id for chunk in ranking.documents[0].chunks] == ["a_1", "a_0"]
    assert ranking.dropped == ()


def test_what_is_not_in_view_is_dropped_with_its_reason() -> None:
    view = make_view(("a_0", 1), ("b_0", 2), hidden=(1,))
    ranking = resolve([RankedId("b_0"), RankedId("b"), RankedId("c"), RankedId("a")], view, 30)
    assert [document.id for document in ranking.documents] == ["a"]
    assert ranking.dropped == ("pruned", "pruned", "unseen")


def test_a_ranking_is_cut_to_its_limit() -> None:
    view = make_view(*((f"d{number}_0", number + 1) for number in range(9)))
    ranking = resolve([RankedId(f"d{number}") for number in range(9)], view, 4)
    assert [document.id for document in ranking.documents] == ["d0", "d1", "d2", "d3"]


def test_the_defensible_ranking_prefers_what_came_up_high_and_often() -> None:
    view = make_view(("a_0", 5), ("b_0", 1), ("a_1", 2), ("c_0", 9))
    assert [document.id for document in fallback_ranking(view, Ranking(), 30).documents] == ["a", "b", "c"]


def test_a_ranking_is_filled_with_what_was_shown_in_that_order() -> None:
    view = make_view(("a_0", 3), ("b_0", 2), ("c_0", 1), ("d_0", 1), ("b_1", 4), ("e_0", 1), hidden=(2, 4))
    ranking = resolve([RankedId("d")], view, 30)
    documents = with_shown_documents(ranking, view, 30).documents
    assert [document.id for document in documents] == ["d", "a", "b", "c", "e"]
    assert [document.id for document in with_shown_documents(ranking, view, 3).documents] == ["d", "a", "b"]
    scores = [document.score for document in documents]
    assert scores == sorted(scores, reverse=True)
    assert [chunk.id for chunk in documents[2].chunks] == ["b_0", "b_1"]


def ranked(*ids: str) -> list[RankedDocument]:
    return [RankedDocument(item, item, 1.0, ()) for item in ids]


def test_fusion_is_reciprocal_rank() -> None:
    fused = fuse([ranked("a", "b"), ranked("b", "c")])
    assert [document.id for document in fused] == ["b", "a", "c"]
    assert fused[0].score == pytest.approx(1 / 62 + 1 / 61)


@given(st.lists(st.permutations(["a", "b", "c", "d"]), min_size=1, max_size=5))
def test_fusion_does_not_depend_on_the_order_of_rollouts(orders: list[list[str]]) -> None:
    forward = fuse([ranked(*order) for order in orders])
    backward = fuse([ranked(*order) for order in reversed(orders)])
    assert [(d.id, pytest.approx(d.score)) for d in forward] == [(d.id, d.score) for d in backward]


def test_passages_have_their_own_scores_or_that_of_their_document() -> None:
    view = make_view(("a_0", 1), ("a_1", 3), ("a_2", 2), ("b_0", 2))
    relevance = {"a_0": 0.2, "a_1": 0.7, "a_2": 0.4}
    ranking = resolve([RankedId("a_1", 0.7), RankedId("b", 0.3)], view, 30, relevance)
    assert [(chunk.id, chunk.score) for chunk in ranking.documents[0].chunks] == [
        ("a_1", 0.7),
        ("a_2", 0.4),
        ("a_0", 0.2),
    ]
    assert [chunk.score for chunk in ranking.documents[1].chunks] == [0.3]
    unscored = resolve([RankedId("b"), RankedId("a")], view, 30)
    assert [{chunk.score for chunk in document.chunks} for document in unscored.documents] == [{1.0}, {0.5}]
