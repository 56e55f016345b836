"""An agent's episodes where it has a swarm: a profile with one more tool, and sub-agents for each episode."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files

from context_agent.harness.episode import Listener
from context_agent.harness.episode_run import EpisodeFactory, EpisodeRun
from context_agent.harness.policy import Policy
from context_agent.harness.profile import Profile
from context_agent.harness.tools import SPAWN
from context_agent.policies.bridge import BridgePolicy
from context_agent.retrieval.protocol import Where
from context_agent.swarm.bridge import TURNS, BridgeLead, BridgeSearcher
from context_agent.swarm.searchers import SwarmSearchers
from context_agent.swarm.settings import Fresh, Swarm

SEARCHER_TURNS = 8
"""Turns of a sub-agent that a language model decides in."""


class Orchestration:
    """Begins the episodes of an agent with a swarm; `setting` is that of the agent without one."""

    def __init__(self, swarm: Swarm, setting: EpisodeFactory) -> None:
        self._swarm = swarm
        self._setting = setting
        self._profile = spawning(setting.profile, swarm)

    def begin(
        self,
        question: str,
        *,
        where: Where | None,
        seed: int,
        question_id: str | None,
        watch: Sequence[Listener],
    ) -> EpisodeRun:
        """The orchestrator's episode, ready to be driven. Raises what `Setting.begin` does."""
        lead, searcher, turns, fresh = self._deciding()
        own = replace(self._setting, policy=lead, profile=self._profile)
        limits = replace(self._setting.limits, turns=self._swarm.turns or turns, seconds=self._swarm.seconds)
        theirs = replace(self._setting, policy=searcher, limits=limits)
        episode = uuid.uuid4().hex
        searchers = SwarmSearchers(self._swarm, theirs, episode, self._swarm.fresh or fresh, where, seed, question_id)
        run = own.begin(
            question,
            where=where,
            seed=seed,
            question_id=question_id,
            id=episode,
            sub_agents=searchers,
            watch=watch,
        )
        return replace(run, delegated=searchers.runs)

    def _deciding(self) -> tuple[Policy, Policy, int, Fresh]:
        """Who leads one episode, who decides in its sub-agents, and these' turns and how fresh, unless told otherwise.

        The embedded policy has an orchestrator of its own; any other is told of the tool by its prompt.
        """
        policy, theirs = self._setting.policy, self._swarm.policy
        if not isinstance(policy, BridgePolicy):
            return policy, theirs or policy, SEARCHER_TURNS, Fresh.OWN
        lead = BridgeLead(policy, self._swarm.breadth)
        if theirs is not None:
            return lead, theirs, SEARCHER_TURNS, Fresh.OWN
        return lead, BridgeSearcher(policy, lead), TURNS, Fresh.OTHERS


def spawning(profile: Profile, swarm: Swarm) -> Profile:
    """The profile with the tool that starts sub-agents, and what the prompt says of it."""
    prompt = profile.prompt.rstrip("\n") + "\n\n" + _prompt().replace("{breadth}", str(swarm.breadth))
    return replace(profile, tools=(SPAWN, *profile.tools), prompt=prompt)


@cache
def _prompt() -> str:
    return (files("context_agent.harness") / "prompts" / "swarm.md").read_text(encoding="utf-8")
