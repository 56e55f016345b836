"""The embedded policy as an orchestrator: what it asks of its sub-agents, and what it makes of what they hand back."""

from __future__ import annotations

import pytest

from context_agent import BridgePolicy, Limits, MemoryCorpus, SearchAgent, SearchResult
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.hybrid import HybridPolicy
from context_agent.pruning.view import ActionTaken, Block, ToolResult
from context_agent.swarm import Swarm
from context_agent.testing.embedders import HashEmbedder
from tests.support.two_hop_films import recall, world

Films = tuple[MemoryCorpus, list[tuple[str, set[str]]]]


@pytest.fixture(scope="module")
def films() -> Films:
    documents, questions = world()
    return MemoryCorpus(documents, embedder=HashEmbedder()), questions


def ask(films: Films, number: int = 0, *, limit: int | None = None, window: int = 4096, **swarm: int) -> SearchResult:
    corpus, questions = films
    limits = Limits(tokens=limit)
    with SearchAgent(corpus, BridgePolicy(), budget=window, limits=limits, swarm=Swarm(**swarm)) as agent:  # type: ignore[arg-type]
        return agent.search(questions[number][0])


def shown_ids(trajectory: Trajectory) -> list[str]:
    results = [event for event in trajectory.events if isinstance(event, ToolResult)]
    return [segment.id for event in results for segment in event.segments if isinstance(segment, Block)]


def test_it_searches_spawns_once_and_ranks_in_four_critical_steps(films: Films) -> None:
    result = ask(films)
    names = [[call.name for call in event.action.calls] for event in _acts(result.trajectories[0])]
    assert set(names[0]) == {"search_corpus"}
    assert names[1] == ["spawn_searchers"]
    assert names[2:] == [[]]
    assert 2 <= len(result.searchers) <= 4
    assert all(len(_acts(searcher)) == 1 for searcher in result.searchers)
    assert result.critical_steps == 4


def _acts(trajectory: Trajectory) -> list[ActionTaken]:
    return [event for event in trajectory.events if isinstance(event, ActionTaken)]


def test_it_finds_what_the_first_search_only_names(films: Films) -> None:
    questions = films[1]
    recalls = [recall(ask(films, number), questions[number][1]) for number in range(6)]
    assert sum(recalls) / len(recalls) > 0.9


def test_no_chunk_is_shown_by_two_sub_agents_or_by_one_and_the_orchestrator(films: Films) -> None:
    result = ask(films)
    first = [segment.id for event in _first_turn(result) for segment in event.segments if isinstance(segment, Block)]
    all_ids = [*first, *(item for searcher in result.searchers for item in shown_ids(searcher))]
    assert len(all_ids) == len(set(all_ids)) > len(first)
    assert set(shown_ids(result.trajectories[0])) <= set(all_ids)


def _first_turn(result: SearchResult) -> list[ToolResult]:
    return [event for event in result.trajectories[0].events if isinstance(event, ToolResult) and event.turn == 0]


def test_a_question_may_have_its_own_effort_and_number_of_documents(films: Films) -> None:
    corpus, questions = films
    swarm, question = Swarm(breadth=3), questions[0][0]
    with SearchAgent(corpus, swarm=swarm) as careful, SearchAgent(corpus, swarm=swarm, effort="fast") as fast:
        chosen, always = careful.search(question, effort="fast"), fast.search(question)
        assert len(careful.search(question, k=25).documents) > 10
    assert [t.without_timestamps() for t in (*chosen.trajectories, *chosen.searchers)] == [
        t.without_timestamps() for t in (*always.trajectories, *always.searchers)
    ]


def test_an_effort_is_not_passed_on_to_sub_agents_with_another_policy(films: Films) -> None:
    corpus, questions = films
    with SearchAgent(corpus, swarm=Swarm(policy=HybridPolicy())) as agent:
        result = agent.search(questions[0][0], effort="fast")
    assert {searcher.header.policy for searcher in result.searchers} == {"hybrid"}
    (spawn,) = [event for event in result.trajectories[0].events if isinstance(event, ToolResult) and event.delegated]
    assert not any(sub_agent.error for sub_agent in spawn.delegated)


def test_the_same_question_gives_the_same_traces(films: Films) -> None:
    first, second = ask(films, 3), ask(films, 3)
    assert [t.without_timestamps() for t in (*first.trajectories, *first.searchers)] == [
        t.without_timestamps() for t in (*second.trajectories, *second.searchers)
    ]


@pytest.mark.parametrize("limit", [1500, 3000, 6000])
def test_all_its_agents_together_keep_to_the_limit_on_tokens(films: Films, limit: int) -> None:
    result = ask(films, limit=limit)
    assert result.tokens <= limit * 1.1
    assert result.documents


def test_a_sub_agent_ranks_only_what_it_was_shown_itself(films: Films) -> None:
    result = ask(films)
    for searcher in result.searchers:
        assert searcher.end is not None
        chunks = {chunk.id for document in searcher.end.documents for chunk in document.chunks}
        assert chunks <= set(shown_ids(searcher))


def test_a_question_that_names_nothing_is_answered_all_the_same(films: Films) -> None:
    with SearchAgent(films[0], swarm=Swarm(breadth=2)) as agent:
        assert agent.search("where was everyone born").documents
        assert agent.search("zzzz").stop_reason == "finished"
