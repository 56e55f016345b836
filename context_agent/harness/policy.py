"""The policies, which make the decisions.

A `Policy` opens an `Actor` for each episode, and the actor turns views into actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from context_agent.errors import ConfigError
from context_agent.harness.profile import Profile
from context_agent.pruning.view import View
from context_agent.retrieval.corpus import Corpus
from context_agent.tokens import TokenCounter
from context_agent.types import Action, RankedId


@dataclass(frozen=True, slots=True)
class Instructions:
    """The text that precedes the question in a view.

    Attributes:
        text: The text.
        tokens: Its size, if that is more than the size of the text alone. A chat template frames instructions and tool
            schemas in special tokens, which are not part of the text.
    """

    text: str = ""
    tokens: int | None = None


class Actor(Protocol):
    """The decisions of one episode.

    Each actor is used for a single episode. It may keep notes between turns, as a language model keeps its reasoning.
    """

    async def act(self, view: View) -> Action:
        """Return the next action for this view.

        Raises:
            PolicyError: If the actor cannot continue.
        """


@runtime_checkable
class PartialRanker(Protocol):
    """An actor that can rank at any moment.

    If a limit ends the episode before the policy does, the episode asks it for a ranking.
    """

    def partial(self, view: View) -> tuple[RankedId, ...]:
        """Return the ranking that the actor would give for this view."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """An assessment of the evidence.

    Attributes:
        confidence: The probability that the corpus answers the question, judged by the evidence. None if it is not
            known.
        relevance: The probability that a chunk belongs to the evidence, by chunk id.
    """

    confidence: float | None
    relevance: Mapping[str, float]


@runtime_checkable
class EvidenceAssessor(Protocol):
    """An actor that can say how good its evidence is. It is called when the episode ends, after its ranking."""

    def assess(self) -> Assessment | None:
        """Return the assessment of what the actor has seen. If it has none, return None."""


class Policy(Protocol):
    """An object that opens actors. It holds weights, connections and settings, and concurrent episodes share it.

    Example:
        A policy that searches the question once and ranks what it finds:

        >>> from context_agent import Action, RankedId, ToolCall
        >>> class OneSearch:
        ...     name, counter = "one-search", None
        ...
        ...     def instructions(self, profile):
        ...         return ""
        ...
        ...     def open(self, question, corpus, *, profile, seed=0):
        ...         return OneSearchActor(question)
        >>> class OneSearchActor:
        ...     def __init__(self, question):
        ...         self.question = question
        ...
        ...     async def act(self, view):
        ...         if not view.blocks:
        ...             return Action(calls=(ToolCall("search_corpus", {"query": self.question}),))
        ...         return Action(ranking=tuple(RankedId(block.document_id) for block in view.blocks))
    """

    @property
    def name(self) -> str:
        """The name that trajectories store, such as `bridge@<digest of the weights>`."""

    @property
    def counter(self) -> TokenCounter | None:
        """A counter that counts tokens as the policy's model does. None means the default, o200k_harmony."""

    def instructions(self, profile: Profile) -> str | Instructions:
        """Return the text that precedes the question in the view. It counts against the budget.

        Args:
            profile: The profile of the episode.

        Returns:
            The text. It is empty if there are no instructions.
        """

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> Actor:
        """Return a new actor for one episode.

        If the policy is deterministic, equal seeds give equal decisions.

        Args:
            question: The question of the episode.
            corpus: The corpus that the episode searches.
            profile: The profile of the episode.
            seed: The seed of random decisions.
        """


@runtime_checkable
class AdjustableEffort(Protocol):
    """A policy whose effort can be chosen for each question."""

    @property
    def efforts(self) -> Sequence[str]:
        """The names of its efforts, the policy's own first."""

    def with_effort(self, name: str) -> Policy:
        """Return a copy of this policy with another effort.

        Raises:
            ConfigError: If the policy does not have this effort.
        """


@runtime_checkable
class AdjustableRanking(Protocol):
    """A policy that can return a longer ranking if a caller wants more documents."""

    def with_ranking(self, documents: int) -> Policy:
        """Return a copy of this policy that ranks at least `documents` documents if it has seen and kept them."""


@dataclass(frozen=True, slots=True)
class SwarmRoles:
    """The policies of a swarm.

    Attributes:
        lead: The policy of the orchestrator.
        searcher: The policy of the sub-agents, which belong to the episode that `lead` opened last.
    """

    lead: Policy
    searcher: Policy


@runtime_checkable
class SwarmPlayer(Protocol):
    """A policy with roles of its own in a swarm. It needs no prompt about sub-agents."""

    def swarm_roles(self, breadth: int) -> SwarmRoles:
        """Return the roles for one episode. Its orchestrator may start `breadth` sub-agents."""


def with_effort(policy: Policy, name: str) -> Policy:
    """Return the policy with that effort. Raise `ConfigError` if it has no such effort."""
    if not isinstance(policy, AdjustableEffort):
        raise ConfigError(f"the policy {policy.name} has no efforts to choose from. Leave out the effort {name!r}.")
    return policy.with_effort(name)
