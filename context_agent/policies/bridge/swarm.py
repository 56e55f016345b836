"""The embedded policy as an orchestrator whose lookups are made by sub-agents, without a language model.

The orchestrator searches the question and its names. It deals out the names that its best candidates mention, the most
promising first. Each sub-agent looks up its names, all at the same time, and returns its passages with the highest
scores. The orchestrator ranks them together with its own. A task lists names, one per line. The sub-agent adds the open
words of the question to each name, so that they do not take room in three contexts.

A sub-agent gets the orchestrator's candidates as notes, not as context: a passage is scored together with those that
name it. Its searches are one action, and its turn limit then ends it with a ranking by score. A question therefore
takes four critical steps: search, spawn, the sub-agents' searches, rank.
"""

from __future__ import annotations

from dataclasses import replace

from context_agent.harness.profile import Profile
from context_agent.harness.tools import SPAWN
from context_agent.policies.bridge import BridgePolicy
from context_agent.policies.bridge.policy import BridgeActor, search_call
from context_agent.pruning.view import View
from context_agent.retrieval.corpus import Corpus
from context_agent.types import RankedId, ToolCall

TURNS = 1
"""Turns of a sub-agent."""
LIMITS = (4, 3, 2)
"""Chunks per lookup: the most that leave room for all names, else the fewest, for as many names as fit."""
PAGE_LIMIT = 6
"""Chunks of the question's next page."""
LEAST_SCORE = 0.003
"""Probability from which on a sub-agent returns a passage. It always returns its best one."""
NEW_SHARE = 0.75
"""Share of its searches' largest results that a sub-agent expects: other agents have shown the rest."""


class _SwarmPolicy:
    """The embedded policy in one role of a swarm."""

    def __init__(self, policy: BridgePolicy, role: str) -> None:
        self._policy = policy
        self.name = f"{policy.name}+{role}"
        self.counter = policy.counter

    def instructions(self, profile: Profile) -> str:
        """Nothing: it reads no prompt."""
        return ""


class BridgeLead(_SwarmPolicy):
    """The policy of one episode's orchestrator, which hands its tasks to `breadth` sub-agents."""

    def __init__(self, policy: BridgePolicy, breadth: int) -> None:
        super().__init__(policy, "swarm")
        self._breadth = breadth
        self.actor: LeadingActor | None = None
        """The orchestrator, once its episode has begun."""

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> LeadingActor:
        """The orchestrator; `seed` has no effect."""
        self.actor = LeadingActor(self._policy, question, corpus, breadth=self._breadth)
        return self.actor


class BridgeSearcher(_SwarmPolicy):
    """The policy of the sub-agents of the episode that `lead` opened last."""

    def __init__(self, policy: BridgePolicy, lead: BridgeLead) -> None:
        super().__init__(policy, "searcher")
        self._lead = lead

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> SearchingActor:
        """A sub-agent on one of the orchestrator's tasks; `seed` has no effect."""
        assert self._lead.actor is not None, "sub-agents are started by an orchestrator"
        return SearchingActor(self._policy, question, corpus, lead=self._lead.actor)


class LeadingActor(BridgeActor):
    """The embedded policy's actor that starts sub-agents instead of looking names up."""

    def __init__(self, policy: BridgePolicy, question: str, corpus: Corpus, *, breadth: int) -> None:
        super().__init__(policy, question, corpus)
        self.queries: dict[str, str] = {}
        """The query for each name in a task."""
        self._breadth = breadth
        self._spawned = False

    def _next(self, view: View) -> tuple[ToolCall, ...]:
        """The tasks, once: the question again, for its next page, and the names, the most promising first."""
        if self._spawned:
            return ()
        self._spawned = True
        lookups, _ = self._promising()
        for lookup in lookups[: self._breadth * self._effort.lookups]:
            self.queries.setdefault(_line(lookup.surface), lookup.query(self.notes))
        lines = [_line(self.notes.question.text), *self.queries]
        tasks = ["\n".join(lines[first :: self._breadth]) for first in range(min(self._breadth, len(lines)))]
        return (ToolCall(SPAWN, {"tasks": tasks}),)


class SearchingActor(BridgeActor):
    """A sub-agent: looks up the names in its task, as far as its context has room, and ranks the results."""

    def __init__(self, policy: BridgePolicy, task: str, corpus: Corpus, *, lead: LeadingActor) -> None:
        super().__init__(policy, lead.notes.question.text, corpus, replace(policy.effort, prune=False, readings=0))
        self._lines = [line for line in task.splitlines() if line.strip()]
        self._queries = lead.queries
        self.add_background(lead.notes.candidates)

    def _opening(self, view: View) -> tuple[ToolCall, ...]:
        page = _line(self.notes.question.text)
        calls: list[ToolCall] = []
        affordable = 0
        for limit in LIMITS:
            limits = [PAGE_LIMIT if line == page else limit for line in self._lines]
            calls = [search_call(self._queries.get(line, line), n) for line, n in zip(self._lines, limits, strict=True)]
            affordable = self._affordable(view, calls)
            if affordable == len(calls):
                break
        return self._count(calls[: max(1, affordable)], {})

    def _next(self, view: View) -> tuple[ToolCall, ...]:
        """Nothing: all lookups are in the first action."""
        return ()

    def _ranking(self, view: View) -> tuple[RankedId, ...]:
        ranking = super()._ranking(view)
        return ranking[:1] + tuple(ranked for ranked in ranking[1:] if self._score_of(ranked.id) >= LEAST_SCORE)

    def _expected_size(self, view: View, call: ToolCall) -> tuple[int, int]:
        tokens, chunks = super()._expected_size(view, call)
        return int(tokens * NEW_SHARE), chunks


def _line(text: str) -> str:
    return " ".join(text.split())
