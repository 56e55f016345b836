"""The roles of the embedded policy in a swarm: the orchestrator, and the sub-agents that it starts.

The orchestrator searches for the question and for its names. Then it distributes the names that its best candidates
mention, the most promising first. A task lists the names on separate lines. The sub-agents look up their names at the
same time, and each returns the passages that it scores highest. A sub-agent adds the question's open words to each
name. The task does not repeat these words, so they do not fill the orchestrator's context. At the end the orchestrator
ranks all passages together.

A sub-agent gets the orchestrator's candidates as notes, not as context, so that it scores a passage together with the
passages that name it. All its searches are one action. Then its turn limit ends its episode, with a ranking by score. A
question therefore takes four critical steps: search, spawn, the sub-agents' searches, rank.
"""

from __future__ import annotations

from dataclasses import replace

from context_agent.harness.profile import Profile
from context_agent.harness.tools import SPAWN
from context_agent.policies.bridge.actor import LOOKUPS, MIN_PROMISE, BridgeActor, SharedParts, search_call
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
        """Return an empty prompt, because the policy reads no prompt."""
        return ""


class LeadPolicy(_RolePolicy):
    """The orchestrator's policy for one episode. The orchestrator starts up to `breadth` sub-agents."""

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
    """The policy of the sub-agents that belong to the episode that `lead` opened last."""

    def __init__(self, policy: SharedParts, lead: LeadPolicy) -> None:
        super().__init__(policy, "searcher")
        self._lead = lead

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> SearchingActor:
        """Return a sub-agent for one of the orchestrator's tasks. The `seed` has no effect."""
        assert self._lead.actor is not None, "sub-agents are started by an orchestrator"
        return SearchingActor(self._policy, question, corpus, lead=self._lead.actor)


class LeadingActor(BridgeActor):
    """The orchestrator's decisions. Instead of looking up names, the orchestrator starts sub-agents."""

    def __init__(self, policy: SharedParts, question: str, corpus: Corpus, *, breadth: int) -> None:
        super().__init__(policy, question, corpus)
        self.queries: dict[str, str] = {}
        """The query for each name in a task."""
        self._breadth = breadth
        self._spawned = False

    def next_searches(self, view: View, promise: float = MIN_PROMISE) -> tuple[ToolCall, ...]:
        """Return the call that starts the sub-agents. Later calls of this method return nothing.

        The tasks contain the question, for its next page of results, and the names. The names are dealt out in turn,
        the most promising first, so that each task has its share of the promising ones.
        """
        if self._spawned:
            return ()
        self._spawned = True
        lookups, _ = self.promising_lookups(promise)
        for lookup in lookups[: self._breadth * LOOKUPS]:
            self.queries.setdefault(_line(lookup.surface), lookup.query(self.notes))
        lines = [_line(self.notes.question.text), *self.queries]
        tasks = ["\n".join(lines[first :: self._breadth]) for first in range(min(self._breadth, len(lines)))]
        return (ToolCall(SPAWN, {"tasks": tasks}),)


class SearchingActor(BridgeActor):
    """A sub-agent's decisions.

    The sub-agent looks up as many names of its task as its context has room for, and ranks the results.
    """

    def __init__(self, policy: SharedParts, task: str, corpus: Corpus, *, lead: LeadingActor) -> None:
        super().__init__(policy, lead.notes.question.text, corpus, replace(policy.effort, prune=False, readings=0))
        self._lines = [line for line in task.splitlines() if line.strip()]
        self._queries = lead.queries
        self.add_background(lead.notes.candidates)

    def opening(self, view: View) -> tuple[ToolCall, ...]:
        """Return a lookup for each line of the task. Each lookup may show as many chunks as there is room for."""
        page = _line(self.notes.question.text)
        calls: list[ToolCall] = []
        affordable = 0
        for limit in LOOKUP_LIMITS:
            limits = [PAGE_LIMIT if line == page else limit for line in self._lines]
            calls = [search_call(self._queries.get(line, line), n) for line, n in zip(self._lines, limits, strict=True)]
            affordable = self.affordable(view, calls)
            if affordable == len(calls):
                break
        return self.numbered(calls[: max(1, affordable)], {})

    def next_searches(self, view: View, promise: float = MIN_PROMISE) -> tuple[ToolCall, ...]:
        """Return no searches, because all lookups are in the first action."""
        return ()

    def ranking(self, view: View) -> tuple[RankedId, ...]:
        """Return the best document, and the others that are likely enough to belong to the evidence."""
        ranking = super().ranking(view)
        return ranking[:1] + tuple(ranked for ranked in ranking[1:] if self.score_of(ranked.id) >= MIN_SCORE)

    def expected_size(self, view: View, call: ToolCall) -> tuple[int, int]:
        """Return how many tokens and chunks a search will probably show.

        Chunks that other agents have shown do not count.
        """
        tokens, chunks = super().expected_size(view, call)
        return int(tokens * NEW_SHARE), chunks


def _line(text: str) -> str:
    return " ".join(text.split())
