"""One hybrid search as a policy."""

from __future__ import annotations

import pytest

from context_agent import Document, MemoryCorpus, SearchAgent
from context_agent.errors import ConfigError
from context_agent.policies import load_policy

TOPICS = ("comet", "ledger", "harbor", "engine")


def corpus() -> MemoryCorpus:
    return MemoryCorpus(
        Document(f"{topic}{number}", f"The {topic} of year {number} is described here.")
        for topic in TOPICS
        for number in range(15)
    )


@pytest.mark.parametrize("k", [1, 10, 25])
def test_the_ranking_is_that_of_one_search(k: int) -> None:
    source, question = corpus(), "Which comet was described?"
    with SearchAgent(source, load_policy("hybrid")) as agent:
        result = agent.search(question, k=k)
    hits = [hit.chunk.document_id for hit in source.search(question, k=10)]
    assert [document.id for document in result.documents][:10] == hits[:k]
    assert len(result.documents) == k
    assert (result.stop_reason, result.confidence) == ("finished", None)


def test_a_small_window_and_a_small_corpus_end_the_pages() -> None:
    with SearchAgent(corpus(), load_policy("hybrid"), budget=1_024) as agent:
        assert 0 < len(agent.search("Which comet?", k=60).documents) < 60
    small = MemoryCorpus([Document("a", "A comet."), Document("b", "A ledger.")])
    with SearchAgent(small, load_policy("hybrid")) as agent:
        assert [document.id for document in agent.search("comet", k=5).documents][:1] == ["a"]


def test_it_has_no_options() -> None:
    with pytest.raises(ConfigError, match=r"hybrid policy has no option .effort.\. Remove it"):
        load_policy("hybrid", effort="fast")
