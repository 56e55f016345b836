"""Who plays the tasks: a policy for each task, since the oracle's knows its gold."""

from __future__ import annotations

from collections.abc import Callable

from context_agent.eval.gold import Gold
from context_agent.harness.policy import Actor, Instructions, Policy
from context_agent.harness.profile import Profile
from context_agent.retrieval.protocol import Corpus
from context_agent.synth_data.trajectories.oracle import Manner, OraclePolicy
from context_agent.tokens import TokenCounter

Teacher = Callable[[Gold], Policy]
"""Gives the policy that plays a task with this gold."""


def oracle(explorer: Policy | None = None, *, manner: Manner | None = None, profile: Profile) -> Teacher:
    """The teacher that knows the gold; it explores as `explorer` does, by default as the embedded policy."""
    if explorer is None:
        from context_agent.policies.bridge import BridgePolicy

        explorer = BridgePolicy()
    explores: Policy = explorer
    return lambda gold: OraclePolicy(explores, gold, manner=manner, extended=profile.extended_arguments)


def instructed(policy: Policy) -> Teacher:
    """The policy as it is, with the profile's prompt in view even where it reads none."""
    shown = InstructedPolicy(policy)
    return lambda gold: shown


class InstructedPolicy:
    """Another policy, in whose view the profile's prompt stands: whoever imitates the episode will have it in view."""

    def __init__(self, inner: Policy) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        """The inner policy's."""
        return self._inner.name

    @property
    def counter(self) -> TokenCounter | None:
        """The inner policy's."""
        return self._inner.counter

    def instructions(self, profile: Profile) -> str | Instructions:
        """The inner policy's, or the profile's prompt where that is empty."""
        return self._inner.instructions(profile) or profile.instructions()

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> Actor:
        """The inner policy's actor."""
        return self._inner.open(question, corpus, profile=profile, seed=seed)
