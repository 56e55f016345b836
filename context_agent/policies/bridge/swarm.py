"""An orchestrator without a language model: the embedded policy, whose look-ups sub-agents make.

It searches the question and its names as the embedded policy does. The names that its best candidates mention, best
prospects first, are dealt out to the sub-agents like cards; each looks its own up, all at the same time, and hands back
what scores highest. The orchestrator ranks what came back beside what it had. The text of a task are the names, a line
each; a sub-agent adds what is left open about them, so that these words do not stand in three contexts.

A sub-agent knows what the orchestrator had seen when it was started, as notes and not as context: a passage is judged
in the company of those that name it. Its searches take one action, and its turn limit ends it with a ranking by score,
so a question takes four critical steps: search, spawn, the sub-agents' searches, rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from context_agent.harness.profile import Profile
from context_agent.harness.tools import SPAWN
from context_agent.policies.bridge import BridgePolicy, Effort, Scorer
from context_agent.policies.bridge.candidates import Passage
from context_agent.policies.bridge.policy import BridgeActor, lookup_search
from context_agent.pruning.view import View
from context_agent.retrieval.corpus import Corpus
from context_agent.tokens import TokenCounter
from context_agent.types import RankedId, ToolCall

TURNS = 1
"""Turns of a sub-agent."""
SHOWN = (4, 3, 2)
"""Chunks that a look-up may show: as many as leave room for all names, else the fewest, for as many names as fit."""
PAGE = 6
"""Chunks that the question's next page may show."""
WORTH = 0.003
"""Probability from which on a sub-agent hands a passage back; its best one it hands back anyway."""
FULL = 0.75
"""Of what its searches could show at most, a sub-agent reckons with this part: others have shown some of it."""


class BridgeLead:
    """The policy of one episode's orchestrator; `searchers` is that of its sub-agents."""

    def __init__(self, policy: BridgePolicy, breadth: int) -> None:
        self._policy = policy
        self._breadth = breadth
        self.name = f"{policy.name}+swarm"
        self.actor: LeadingActor | None = None
        """The orchestrator, once its episode has begun."""

    @property
    def counter(self) -> TokenCounter | None:
        """None, as the embedded policy's."""
        return self._policy.counter

    def instructions(self, profile: Profile) -> str:
        """Nothing: it reads no prompt."""
        return ""

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> LeadingActor:
        """The orchestrator; `seed` changes nothing."""
        policy = self._policy
        made = LeadingActor(question, corpus, policy.scorer, policy.effort, policy.passages, breadth=self._breadth)
        self.actor = made
        return made


class BridgeSearcher:
    """The policy of the sub-agents of the episode that `lead` opened last."""

    def __init__(self, policy: BridgePolicy, lead: BridgeLead) -> None:
        self._policy, self._lead = policy, lead
        self.name = f"{policy.name}+searcher"

    @property
    def counter(self) -> TokenCounter | None:
        """None, as the embedded policy's."""
        return self._policy.counter

    def instructions(self, profile: Profile) -> str:
        """Nothing: it reads no prompt."""
        return ""

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> SearchingActor:
        """A sub-agent on a task of the orchestrator's."""
        assert self._lead.actor is not None, "sub-agents are started by an orchestrator"
        policy = self._policy
        return SearchingActor(question, corpus, policy.scorer, policy.effort, policy.passages, lead=self._lead.actor)


class LeadingActor(BridgeActor):
    """The embedded policy's actor that starts sub-agents instead of looking names up."""

    def __init__(
        self,
        question: str,
        corpus: Corpus,
        scorer: Scorer | None,
        effort: Effort,
        passages: Callable[[str, str], Passage],
        *,
        breadth: int,
    ) -> None:
        super().__init__(question, corpus, scorer, effort, passages)
        self.queries: dict[str, str] = {}
        """What is searched for each name that was dealt out."""
        self._breadth = breadth
        self._spawned = False

    def _next(self, view: View) -> tuple[ToolCall, ...]:
        """The tasks, once: the question again, for its next page, and the names by their promise, dealt out."""
        if self._spawned:
            return ()
        self._spawned = True
        lookups, _ = self._promising()
        most = self._breadth * self._effort.lookups
        for lookup in lookups[:most]:
            self.queries.setdefault(_line(lookup.surface), lookup.query(self.notes))
        lines = [_line(self.notes.question.text), *self.queries]
        tasks = ["\n".join(lines[first :: self._breadth]) for first in range(min(self._breadth, len(lines)))]
        return (ToolCall(SPAWN, {"tasks": tasks}),)


class SearchingActor(BridgeActor):
    """A sub-agent: looks up what its task names, as far as its context has room, and ranks what that brought."""

    def __init__(
        self,
        task: str,
        corpus: Corpus,
        scorer: Scorer | None,
        effort: Effort,
        passages: Callable[[str, str], Passage],
        *,
        lead: LeadingActor,
    ) -> None:
        super().__init__(lead.notes.question.text, corpus, scorer, replace(effort, prune=False), passages)
        self._lines = [line for line in task.splitlines() if line.strip()]
        self._queries = lead.queries
        self.knows(lead.notes.candidates)

    def _opening(self, view: View) -> tuple[ToolCall, ...]:
        page = _line(self.notes.question.text)
        calls: list[ToolCall] = []
        fitting = 0
        for shown in SHOWN:
            calls = [lookup_search(self._queries.get(one, one), PAGE if one == page else shown) for one in self._lines]
            fitting = self._affordable(view, calls)
            if fitting == len(calls):
                break
        return self._count(calls[: max(1, fitting)], {})

    def _next(self, view: View) -> tuple[ToolCall, ...]:
        """Nothing: what it looks up, it looks up at once."""
        return ()

    def _ranking(self, view: View) -> tuple[RankedId, ...]:
        ranked = super()._ranking(view)
        return tuple(one for place, one in enumerate(ranked) if not place or (one.score or 0.0) >= WORTH)

    def _shown(self, view: View, call: ToolCall) -> tuple[int, int]:
        tokens, chunks = super()._shown(view, call)
        return int(tokens * FULL), chunks


def _line(text: str) -> str:
    return " ".join(text.split())
