"""Episodes and scores that tests of the demo's measures start from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from context_agent import Action, Budget, MemoryCorpus, ScriptedPolicy, SearchAgent, Trajectory, View
from context_agent.harness.profile import Profile
from context_agent.testing.actions import prune, rank_all, search
from context_agent.train.demo.scores import DemoScore
from context_agent.types import Question

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
    """Return a score for each recall, of questions q0, q1, ..."""
    return [replace(SCORE, question=f"q{n}", recall=recall, **changes) for n, recall in enumerate(recalls)]


def episode(
    corpus: MemoryCorpus,
    *actions: Action | Callable[[View], Action],
    budget: Budget | None = None,
    profile: Profile | None = None,
) -> Trajectory:
    """Play one episode of these actions."""
    agent = SearchAgent(corpus, ScriptedPolicy(list(actions)), budget=budget or Budget(4096), profile=profile)
    return agent.search(QUESTION.question, question_id="q").trajectories[0]


def pruned(corpus: MemoryCorpus) -> Trajectory:
    """Return an episode of two searches with a prune between them, and a ranking of all that is left."""
    trajectory = episode(corpus, search("comets", limit=4))
    distractors = [doc_id for doc_id in trajectory.encountered if doc_id not in QUESTION.gold][:2]
    return episode(
        corpus,
        search("comets", limit=4),
        prune(*(f"{doc_id}_0" for doc_id in distractors)),
        search("comets operas Title 5", limit=4),
        rank_all,
    )
