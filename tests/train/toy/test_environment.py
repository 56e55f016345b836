"""Questions of several branches: how they are made, and experts that follow them with sub-agents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from context_agent import SearchAgent
from context_agent.agent import SearchResult
from context_agent.errors import ConfigError
from context_agent.harness.tools import SPAWN
from context_agent.policies.tokens import VocabularyCounter
from context_agent.pruning.view import ActionTaken
from context_agent.swarm import Swarm
from context_agent.testing import tiny_runs
from context_agent.train.lessons import demonstration_rows
from context_agent.train.outcome import measure_outcome
from context_agent.train.parl import delegation_metrics
from context_agent.train.toy.environment import (
    ToyEnvironment,
    WorldConfig,
    environment_texts,
    make_environment,
    split_branches,
)
from context_agent.train.toy.expert import LEADING_NOISE, SUBAGENT_NOISE, ExpertNoise, NoisyExpert
from context_agent.train.toy.word_prompts import UNKNOWN, WordRenderer, words_profile

CAREFUL = ExpertNoise(stop=0, stray=0, untidy=1)


@pytest.fixture(scope="module")
def wide() -> ToyEnvironment:
    """A world whose questions have three branches of two documents."""
    return make_environment(WorldConfig(entities=120, tasks=300, seed=3, hops=(2, 2), branches=3))


def search_all(
    wide: ToyEnvironment, main: ExpertNoise, subs: ExpertNoise = CAREFUL, count: int = 40
) -> list[SearchResult]:
    questions = wide.questions["train"][:count]
    words = WordRenderer(environment_texts(wide, swarm=True))
    teacher, subagent = (NoisyExpert(questions, wide.titles, noise, VocabularyCounter(words)) for noise in (main, subs))
    swarm = Swarm(breadth=3, policy=subagent)
    harness = replace(words_profile(), search_limit=1)
    with SearchAgent(wide.corpus, teacher, profile=harness, budget=1024, swarm=swarm) as agent:
        return [agent.search(question.question, seed=n) for n, question in enumerate(questions)]


def recall(wide: ToyEnvironment, results: list[SearchResult]) -> float:
    questions = wide.questions["train"]
    return sum(measure_outcome(r.trajectories[0], questions[n]).recall for n, r in enumerate(results)) / len(results)


def test_a_branch_keeps_the_documents_that_its_words_lead_to(wide: ToyEnvironment) -> None:
    for question in wide.questions["train"]:
        branches = list(split_branches(question))
        assert [len(gold) for _, gold in branches] == [2, 2, 2]
        assert tuple(document_id for _, gold in branches for document_id in gold) == question.gold
        assert len(set(question.gold)) == 6
        for text, (first, _) in branches:
            assert text.endswith(f" of {first.replace('-', ' ')}") or f" of the {first.replace('-', ' ')}" in text


def test_joined_questions_of_different_splits_share_no_gold(wide: ToyEnvironment) -> None:
    gold = {
        split: {document_id for question in questions for document_id in question.gold}
        for split, questions in wide.questions.items()
    }
    assert not gold["train"] & gold["test"]
    assert not gold["train"] & gold["dev"]


def test_a_question_of_one_branch_is_its_own_branch(small: ToyEnvironment) -> None:
    for question in small.questions["train"][:20]:
        assert list(split_branches(question)) == [(question.question, question.gold)]


def test_an_expert_that_leads_starts_a_sub_agent_on_each_branch_and_needs_fewer_critical_steps(
    wide: ToyEnvironment,
) -> None:
    delegating = search_all(wide, replace(CAREFUL, leads=1))
    alone = search_all(wide, CAREFUL)
    for result in delegating:
        (spawn,) = next(event for event in result.trajectories[0].events if isinstance(event, ActionTaken)).action.calls
        tasks = [searcher.header.question for searcher in result.searchers]
        assert (spawn.name, len(tasks)) == (SPAWN, 3)
        assert spawn.arguments == {"tasks": tasks}
    assert recall(wide, delegating) > 0.95
    assert recall(wide, alone) > 0.95
    assert {result.trajectories[0].critical_steps for result in delegating} == {5}
    assert min(result.trajectories[0].critical_steps for result in alone) == 7
    assert delegation_metrics([result.trajectories[0] for result in delegating])["searchers_finished"] == 1.0


def test_an_expert_that_does_not_trust_sub_agents_searches_for_what_they_missed(wide: ToyEnvironment) -> None:
    careless = replace(CAREFUL, stop=1.0)
    trusting = search_all(wide, replace(CAREFUL, leads=1, trust=1), careless)
    checking = search_all(wide, replace(CAREFUL, leads=1), careless)
    assert recall(wide, trusting) == pytest.approx(0.5)
    assert recall(wide, checking) > 0.95


def test_the_lessons_show_both_ways_about_as_good(wide: ToyEnvironment) -> None:
    metrics = delegation_metrics([result.trajectories[0] for result in search_all(wide, LEADING_NOISE, SUBAGENT_NOISE)])
    assert 0.25 < metrics["spawning"] < 0.75
    delegating, alone = (
        recall(wide, search_all(wide, replace(LEADING_NOISE, leads=leads), SUBAGENT_NOISE)) for leads in (1.0, 0.0)
    )
    assert abs(delegating - alone) < 0.1
    assert 0.6 < delegating < 0.95


def test_lessons_teach_sub_agents_as_well(wide: ToyEnvironment) -> None:
    """Sub-agents have their own rows, and every word is in the vocabulary."""
    run = tiny_runs.demonstrations(
        Path("unused"),
        data={"world": {"entities": 120, "tasks": 300, "seed": 3, "hops": [2, 2], "branches": 3}},
        episodes={"window": 1024, "swarm": 3, "shown": 1, "turns": 12},
        sft={"demonstrations": 12},
    )
    words = WordRenderer(environment_texts(wide, swarm=True))
    texts = [words.decode(row.input_ids) for row in demonstration_rows(run, words, print)]
    subagent_texts = [text for text in texts if " , " not in text.partition(" <go> ")[0]]
    assert len(texts) > 12
    assert len(subagent_texts) == len(texts) - 12
    assert any("<go> spawn " in text for text in texts)
    assert not any("<go> spawn " in text for text in subagent_texts)
    assert not any(UNKNOWN in text for text in texts)


def test_a_world_without_so_many_branches_is_an_error() -> None:
    with pytest.raises(ConfigError, match="has 1000 branches"):
        make_environment(WorldConfig(entities=120, tasks=300, branches=1_000))
