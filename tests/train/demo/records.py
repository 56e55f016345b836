"""Episodes and scores that tests of the demo's measures start from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from context_agent import Action, Budget, MemoryCorpus, ScriptedPolicy, SearchAgent, Trajectory, View
from context_agent._support.question_files import Question
from context_agent.harness.profile import Profile
from context_agent.train.demo.report import DemoScore
from tests.actions import prune, rank_all, search

QUESTION = Question("q", "comets or operas?", gold=("d5", "d6"), hops=2)

SCORE = DemoScore(
    question="q0",
    hops=2,
    ending="finished",
    reward=1.0,
    recall=0.5,
    seen=1.0,
    precision=0.5,
    pruned=4,
    pruned_gold=1,
    turns=2,
    searches=2,
    calls=3,
    mistakes=0,
    placed=240,
    violations=0,
)


def scores(*recalls: float, **changes: Any) -> list[DemoScore]:
    """A score for each recall, of questions q0, q1, ..."""
    return [replace(SCORE, question=f"q{n}", recall=one, **changes) for n, one in enumerate(recalls)]


def episode(
    corpus: MemoryCorpus,
    *actions: Action | Callable[[View], Action],
    budget: Budget | None = None,
    profile: Profile | None = None,
) -> Trajectory:
    """One episode of those actions."""
    agent = SearchAgent(corpus, ScriptedPolicy(list(actions)), budget=budget or Budget(4096), profile=profile)
    return agent.search(QUESTION.question, question_id="q").trajectories[0]


def pruned(corpus: MemoryCorpus) -> Trajectory:
    """Two searches with a prune between them, and a ranking of all that is left."""
    first = episode(corpus, search("comets", limit=4))
    shown = [item for item in first.encountered if item not in QUESTION.gold][:2]
    return episode(
        corpus,
        search("comets", limit=4),
        prune(*(f"{item}_0" for item in shown)),
        search("comets operas Title 5", limit=4),
        rank_all,
    )
