"""Late interaction: the formula, and texts that have no word in common with the query."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from context_agent import Document, MemoryCorpus
from context_agent._support.shipped_models import shipped_minilm
from context_agent.retrieval.late_interaction import BLOCK, late_interaction
from context_agent.retrieval.rerankers import LateInteractionReranker, load_reranker


def test_each_piece_of_the_query_counts_its_most_similar_piece() -> None:
    query, text = "closing time", "The office shuts at six."
    asked, read = shipped_minilm().encode_pieces([query, text])
    best = [
        max(float(piece @ other / np.linalg.norm(piece) / np.linalg.norm(other)) for other in read)
        for piece in asked[1:-1]
    ]
    assert late_interaction(query, [text]).tolist() == pytest.approx([sum(best) / len(best)], abs=1e-5)


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("How do I get my money back?", ["Refunds take five days.", "Shipping takes five days.", "Gift cards last."]),
        ("doctor for children", ["The pediatrician works on Mondays.", "The dentist works on Mondays.", "Closed."]),
    ],
)
def test_a_text_without_a_word_of_the_query_is_found(query: str, texts: list[str]) -> None:
    assert late_interaction(query, texts).argmax() == 0


@pytest.mark.parametrize("query", ["", "  "])
def test_an_empty_query_is_as_close_to_every_text(query: str) -> None:
    assert late_interaction(query, ["a text", ""]).tolist() == [0, 0]


def test_only_the_first_pieces_of_a_text_count() -> None:
    texts = ["Refunds take five days. Shipping is free.", "Refunds take five days."]
    whole, start = (late_interaction("Is shipping free?", texts, longest=longest) for longest in (254, 5))
    assert whole[0] > whole[1]
    assert start[0] == start[1]


def test_no_texts_have_no_scores() -> None:
    assert late_interaction("anything", []).shape == (0,)


def test_the_score_of_a_text_does_not_depend_on_the_others() -> None:
    together = late_interaction("What is served?", ["Soup and bread.", "", "x" * 50_000] * BLOCK)
    assert np.isfinite(together).all()
    assert set(together[::3].tolist()) == {late_interaction("What is served?", ["Soup and bread."])[0]}


def test_it_orders_the_hits_of_a_corpus() -> None:
    reranker = load_reranker("late-interaction")
    assert isinstance(reranker, LateInteractionReranker)
    texts = ["How do I get to the office? By bus.", "Refunds take five days.", "Shipping takes five days."]
    documents = [Document(str(number), text) for number, text in enumerate(texts)]
    query = "How do I get my money back?"
    assert [hit.chunk.document_id for hit in MemoryCorpus(documents).search(query)] == ["0", "1", "2"]
    hits = MemoryCorpus(documents, reranker=reranker).search(query)
    scores = reranker.score(query, [hit.chunk.indexed_text for hit in hits])
    assert [hit.score for hit in hits] == pytest.approx(sorted(scores.tolist(), reverse=True))


def order(reranker: LateInteractionReranker, query: str, texts: Sequence[str]) -> list[int]:
    return np.argsort(-reranker.score_hits(query, texts), kind="stable").tolist()


def test_a_hit_that_fits_much_better_rises_to_the_top() -> None:
    texts = ["Our office has two floors.", "The parking lot opens at six.", "Refunds take five days."]
    filler = [f"Room {number} has a window." for number in range(30)]
    assert order(LateInteractionReranker(), "How do I get my money back?", [*texts, *filler])[0] == 2


def test_the_order_of_the_search_decides_between_texts_that_fit_alike() -> None:
    texts = [f"Room {number} has a window." for number in range(8)]
    assert order(LateInteractionReranker(), "天気はどうですか", texts)[:2] == [0, 1]
    assert order(LateInteractionReranker(), "", texts) == [*range(8)]


def test_the_hits_exchange_their_scores() -> None:
    texts = ["Shipping takes five days.", "Refunds take five days.", "Gift cards last a year."]
    reranker = LateInteractionReranker()
    query = "How do I get my money back?"
    assert sorted(reranker.score_hits(query, texts)) == sorted(reranker.score(query, texts))
    assert reranker.score_hits(query, []).shape == (0,)
