"""The roles of the embedded policy in a swarm: the orchestrator, and the sub-agents that it starts.

The orchestrator searches the question and its names. Then it deals out the names that its best candidates mention, the
most promising first. A task lists names, one on each line. The sub-agents look up their names at the same time, and
each returns the passages with its highest scores. A sub-agent adds the open words of the question to each name. These
words are not in the task, so they take room in fewer contexts. At the end the orchestrator ranks all passages together.

A sub-agent gets the orchestrator's candidates as notes, not as context, so that it scores a passage together with those
that name it. Its searches are one action, and its turn limit then ends it with a ranking by score. A question therefore
takes four critical steps: search, spawn, the sub-agents' searches, rank.
"""

from __future__ import annotations

from dataclasses import replace

from context_agent.harness.profile import Profile
from context_agent.harness.tools import SPAWN
from context_agent.policies.bridge.actor import BridgeActor, SharedParts, search_call
from context_agent.pruning.view import View
from context_agent.retrieval.corpus import Corpus
from context_agent.types import RankedId, ToolCall

LOOKUP_LIMITS = (4, 3, 2)
"""Chunks for each lookup: the most that leave room for all names. If not all fit, the fewest."""
PAGE_LIMIT = 6
"""Chunks of the question's next page."""
MIN_SCORE = 0.003
"""A sub-agent returns passages with at least this probability. It always returns its best passage."""
NEW_SHARE = 0.75
"""The share of its largest results that a sub-agent expects, because other agents have shown the rest."""


class _RolePolicy:
    """The embedded policy in a role of a swarm."""

    def __init__(self, policy: SharedParts, role: str) -> None:
        self._policy = policy
        self.name = f"{policy.name}+{role}"
        self.counter = policy.counter

    def instructions(self, profile: Profile) -> str:
        """Return no prompt, because the policy reads none."""
        return ""


class LeadPolicy(_RolePolicy):
    """The policy of the orchestrator of one episode, which starts up to `breadth` sub-agents."""

    def __init__(self, policy: SharedParts, breadth: int) -> None:
        super().__init__(policy, "swarm")
        self._breadth = breadth
        self.actor: LeadingActor | None = None
        """The orchestrator, once its episode has begun."""

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> LeadingActor:
        """Return the orchestrator. The `seed` has no effect."""
        self.actor = LeadingActor(self._policy, question, corpus, breadth=self._breadth)
        return self.actor


class SearcherPolicy(_RolePolicy):
    """The policy of the sub-agents of the episode that `lead` opened last."""

    def __init__(self, policy: SharedParts, lead: LeadPolicy) -> None:
        super().__init__(policy, "searcher")
        self._lead = lead

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> SearchingActor:
        """Return a sub-agent on one of the orchestrator's tasks. The `seed` has no effect."""
        assert self._lead.actor is not None, "sub-agents are started by an orchestrator"
        return SearchingActor(self._policy, question, corpus, lead=self._lead.actor)


class LeadingActor(BridgeActor):
    """The orchestrator's decisions. It starts sub-agents instead of looking names up."""

    def __init__(self, policy: SharedParts, question: str, corpus: Corpus, *, breadth: int) -> None:
        super().__init__(policy, question, corpus)
        self.queries: dict[str, str] = {}
        """The query for each name in a task."""
        self._breadth = breadth
        self._spawned = False

    def next_searches(self, view: View) -> tuple[ToolCall, ...]:
        """Return the call that starts the sub-agents, once.

        Their tasks have the question again, for its next page, and the names, the most promising first.
        """
        if self._spawned:
            return ()
        self._spawned = True
        lookups, _ = self.promising_lookups()
        for lookup in lookups[: self._breadth * self._effort.lookups]:
            self.queries.setdefault(_line(lookup.surface), lookup.query(self.notes))
        lines = [_line(self.notes.question.text), *self.queries]
        tasks = ["\n".join(lines[first :: self._breadth]) for first in range(min(self._breadth, len(lines)))]
        return (ToolCall(SPAWN, {"tasks": tasks}),)


class SearchingActor(BridgeActor):
    """A sub-agent's decisions.

    It looks up the names in its task, as far as its context has room, and ranks the results.
    """

    def __init__(self, policy: SharedParts, task: str, corpus: Corpus, *, lead: LeadingActor) -> None:
        super().__init__(policy, lead.notes.question.text, corpus, replace(policy.effort, prune=False, readings=0))
        self._lines = [line for line in task.splitlines() if line.strip()]
        self._queries = lead.queries
        self.add_background(lead.notes.candidates)

    def opening(self, view: View) -> tuple[ToolCall, ...]:
        """Return a lookup for each line of the task, with as many chunks each as there is room for."""
        page = _line(self.notes.question.text)
        calls: list[ToolCall] = []
        affordable = 0
        for limit in LOOKUP_LIMITS:
            limits = [PAGE_LIMIT if line == page else limit for line in self._lines]
            calls = [search_call(self._queries.get(line, line), n) for line, n in zip(self._lines, limits, strict=True)]
            affordable = self.affordable(view, calls)
            if affordable == len(calls):
                break
        return self.counted(calls[: max(1, affordable)], {})

    def next_searches(self, view: View) -> tuple[ToolCall, ...]:
        """Return no searches, because all lookups are in the first action."""
        return ()

    def ranking(self, view: View) -> tuple[RankedId, ...]:
        """Return the best document, and the others that are likely enough to belong to the evidence."""
        ranking = super().ranking(view)
        return ranking[:1] + tuple(ranked for ranked in ranking[1:] if self.score_of(ranked.id) >= MIN_SCORE)

    def expected_size(self, view: View, call: ToolCall) -> tuple[int, int]:
        """Return the tokens and chunks that a search will probably show, without those that other agents have shown."""
        tokens, chunks = super().expected_size(view, call)
        return int(tokens * NEW_SHARE), chunks


def _line(text: str) -> str:
    return " ".join(text.split())
