"""Policies for sub-agents that do well, fail, hang, or find nothing, told apart by their task."""

from __future__ import annotations

import asyncio
from pathlib import Path

from context_agent import Action, MemoryCorpus, ScriptedPolicy, SearchAgent, SearchResult, ToolCall, View
from context_agent.errors import PolicyError
from context_agent.harness.policy import Actor
from context_agent.harness.profile import Profile
from context_agent.policies.scripted import Step
from context_agent.retrieval.corpus import Corpus
from context_agent.swarm import Swarm
from context_agent.testing.actions import rank_all, search

QUESTION = "which comets met the operas?"


def spawn(*tasks: str) -> Action:
    """Return one call for sub-agents."""
    return Action(calls=(ToolCall("spawn_searchers", {"tasks": list(tasks)}),))


class Searching(ScriptedPolicy):
    """Searches its task, then ranks what it has; but fails, hangs, breaks or finds nothing where the task says so."""

    def __init__(self, *, delay: float = 0.0) -> None:
        super().__init__([], delay=delay)

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> Actor:  # type: ignore[override]
        if "unopened" in question:
            raise PolicyError("the server is down")
        steps: list[Step] = [search(question, limit=3), rank_all]
        if "fail" in question:
            steps.insert(1, _failing)
        if "break" in question:
            steps.insert(0, _breaking)
        if "nothing" in question:
            steps = [Action(ranking=())]
        return (
            _Slow()
            if "hang" in question
            else ScriptedPolicy(steps, delay=self._delay).open(question, corpus, profile=profile)
        )


class _Slow:
    def __init__(self) -> None:
        self._asked = False

    async def act(self, view: View) -> Action:
        if self._asked:
            await asyncio.sleep(60)
        self._asked = True
        return search("hanging gardens", limit=2)


def _failing(view: View) -> Action:
    raise PolicyError("no reply from the\nmodel")


def _breaking(view: View) -> Action:
    raise ZeroDivisionError("a bug")


def run(
    corpus: MemoryCorpus, *steps: Step, swarm: Swarm | None = None, saved: Path | None = None, **options: object
) -> SearchResult:
    """Return a search by a scripted orchestrator whose sub-agents search their tasks."""
    swarm = swarm or Swarm(policy=Searching())
    agent = SearchAgent(corpus, ScriptedPolicy(steps), swarm=swarm, trajectories=saved, **options)  # type: ignore[arg-type]
    with agent:
        return agent.search(QUESTION, question_id="q1")
