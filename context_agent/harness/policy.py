"""Who decides: a `Policy` opens an `Actor` for each episode; the actor turns views into actions."""

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
    """What precedes the question in a view. `tokens` is its size if that is more than the size of its text.

    A chat template frames instructions and tool schemas in special tokens, which no text counts as.
    """

    text: str = ""
    tokens: int | None = None


class Actor(Protocol):
    """The decisions of one episode. Single use; may keep notes between turns, as a language model's reasoning does."""

    async def act(self, view: View) -> Action:
        """Return the next action for this view. Raises `PolicyError` when it cannot go on."""


@runtime_checkable
class PartialRanker(Protocol):
    """An actor that can rank at any moment; asked when a limit ends the episode before the policy does."""

    def partial(self, view: View) -> tuple[RankedId, ...]:
        """Return the ranking it would give for this view."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """How good the evidence is, as probabilities.

    `confidence`: that the corpus answers the question, judged by the evidence; None if that is not known. `relevance`:
    that a chunk belongs to the evidence, by chunk id.
    """

    confidence: float | None
    relevance: Mapping[str, float]


@runtime_checkable
class EvidenceAssessor(Protocol):
    """An actor that can say how good its evidence is; asked when the episode ends, after its ranking."""

    def assess(self) -> Assessment | None:
        """Return the assessment of what it has seen; None if it cannot tell."""


class Policy(Protocol):
    """Opens actors; holds weights, connections and settings, and is shared by concurrent episodes."""

    @property
    def name(self) -> str:
        """Written into trajectories, e.g. `bridge@<weights hash>`."""

    @property
    def counter(self) -> TokenCounter | None:
        """Counts tokens as the policy's model does; None for the default, o200k_harmony."""

    def instructions(self, profile: Profile) -> str | Instructions:
        """Return what precedes the question in the view and counts against the budget; empty for none."""

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> Actor:
        """Return a new actor for one episode played in this profile.

        Equal seeds give equal decisions if the policy is deterministic.
        """


@runtime_checkable
class AdjustableEffort(Protocol):
    """A policy whose effort a question may choose."""

    @property
    def efforts(self) -> Sequence[str]:
        """The names of its efforts, its own first."""

    def with_effort(self, name: str) -> Policy:
        """This policy with another effort. Raises `ConfigError` for an unknown name."""


@runtime_checkable
class AdjustableRanking(Protocol):
    """A policy whose ranking may be longer if a caller asks for more documents."""

    def with_ranking(self, documents: int) -> Policy:
        """This policy with rankings of at least so many documents, as far as it has seen and kept them."""


@dataclass(frozen=True, slots=True)
class SwarmRoles:
    """The policies of a swarm: that of an orchestrator, and that of the sub-agents of the episode it opened last."""

    lead: Policy
    searcher: Policy


@runtime_checkable
class SwarmPlayer(Protocol):
    """A policy with roles of its own in a swarm, so that it needs no prompt about sub-agents."""

    def swarm_roles(self, breadth: int) -> SwarmRoles:
        """Return the roles for one episode, whose orchestrator may start `breadth` sub-agents."""


def with_effort(policy: Policy, name: str) -> Policy:
    """Return the policy with that effort. Raises `ConfigError` if it has no such effort."""
    if not isinstance(policy, AdjustableEffort):
        raise ConfigError(f"the policy {policy.name} has no effort to choose: leave out the effort {name!r}")
    return policy.with_effort(name)
