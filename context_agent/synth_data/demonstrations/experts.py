"""Experts that play tasks.

An expert is the oracle, which knows the gold, or any other policy that has the profile's prompt in view.
"""

from __future__ import annotations

from collections.abc import Callable

from context_agent.eval.gold import Gold
from context_agent.harness.policy import Actor, Instructions, Policy
from context_agent.harness.profile import Profile
from context_agent.policies.tokens.prompt import TokenRenderer
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.demonstrations.labeled import LabelingPolicy
from context_agent.synth_data.demonstrations.oracle import OraclePolicy, OracleSettings
from context_agent.tokens import TokenCounter

Expert = Callable[[Gold], Policy]
"""A function that takes a task's gold and returns the policy that plays the task."""


def oracle_expert(
    explorer: Policy | None = None,
    *,
    settings: OracleSettings | None = None,
    profile: Profile,
    counter: TokenCounter | None = None,
    instructions: Instructions | None = None,
) -> Expert:
    """Return an expert that knows the gold and explores like another policy.

    Args:
        explorer: The policy that chooses the searches of the oracle. Defaults to the embedded policy.
        settings: The choices of the oracle.
        profile: The profile of the episodes.
        counter: The token counter of the model that will learn from the episodes. Defaults to the explorer's counter.
        instructions: The instructions of that model, with their size in its prompt (`learner_instructions`). Defaults
            to the profile's prompt.
    """
    if explorer is None:
        from context_agent.policies.bridge import BridgePolicy

        explorer = BridgePolicy()
    explores: Policy = explorer

    def play(gold: Gold) -> Policy:
        extended = profile.extended_arguments
        oracle = OraclePolicy(
            explores, gold, settings=settings, extended=extended, counter=counter, instructions=instructions
        )
        return LabelingPolicy(oracle) if profile.numbered else oracle

    return play


def learner_instructions(renderer: TokenRenderer, profile: Profile) -> Instructions:
    """Return the profile's prompt with its size in the prompts of the model that will learn.

    The model's prompt also has the schemas of the tools and the framing of the chat template. Without them, an episode
    would show more than fits in the window of the model.

    Args:
        renderer: The renderer of the model.
        profile: The profile of the episodes.
    """
    return Instructions(profile.instructions(), renderer.opening(profile).tokens)


def instructed_expert(policy: Policy) -> Expert:
    """Return an expert that plays every task with the same policy, and with the profile's prompt in view."""
    instructed = InstructedPolicy(policy)
    return lambda gold: instructed


class InstructedPolicy:
    """A policy whose views have the profile's prompt.

    A policy that learns from the episode gets this prompt too, so both see the same views.
    """

    def __init__(self, inner: Policy) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        """The name of the inner policy."""
        return self._inner.name

    @property
    def counter(self) -> TokenCounter | None:
        """The token counter of the inner policy."""
        return self._inner.counter

    def instructions(self, profile: Profile) -> str | Instructions:
        """Return the inner policy's instructions. If they are empty, return the profile's prompt."""
        return self._inner.instructions(profile) or profile.instructions()

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> Actor:
        """Return the inner policy's actor."""
        return self._inner.open(question, corpus, profile=profile, seed=seed)
