"""The agents that play a run's episodes, built from the run file's profile, window, limits and swarm.

This module does not import torch.
"""

from __future__ import annotations

from dataclasses import replace

from context_agent.agent import SearchAgent
from context_agent.harness.episode import Limits
from context_agent.harness.policy import Policy
from context_agent.harness.profile import Profile, named_profile
from context_agent.policies.controlled import ControlledPolicy, none, prune_by
from context_agent.policies.tokens import TokenPolicy
from context_agent.policies.tokens.engines import Engine
from context_agent.policies.tokens.prompt import TokenRenderer
from context_agent.retrieval.corpus import Corpus
from context_agent.swarm import Swarm
from context_agent.train.config import RendererKind, RunConfig
from context_agent.train.toy.word_prompts import words_profile


def episode_profile(run: RunConfig) -> Profile:
    """Return the profile that the run's episodes use."""
    profile = words_profile() if run.model.renderer is RendererKind.WORDS else named_profile(run.episodes.profile)
    return replace(profile, search_limit=run.episodes.shown) if run.episodes.shown else profile


def build_agent(
    run: RunConfig,
    corpus: Corpus,
    engine: Engine,
    renderer: TokenRenderer,
    *,
    temperature: float,
    top_p: float = 1.0,
    prunes: bool = True,
    searchers: Engine | None = None,
) -> SearchAgent:
    """Return an agent that samples from an engine, with the run's profile, window and limits. The caller closes the
    agent.

    Args:
        run: The run.
        corpus: The corpus that the agent searches.
        engine: The engine that samples.
        renderer: The renderer of the engine's model.
        temperature: The sampling temperature.
        top_p: The probability mass of nucleus sampling.
        prunes: If False, the policy's edits of its context are not carried out.
        searchers: The engine that samples for sub-agents. Defaults to `engine`.

    Returns:
        The agent.
    """

    def sampled(engine: Engine, *, record_experts: bool = False) -> Policy:
        return TokenPolicy(
            engine,
            renderer,
            temperature=temperature,
            top_p=top_p,
            max_tokens=run.engine.max_tokens,
            record_experts=record_experts,
        )

    policy = sampled(engine, record_experts=run.loss.router_replay)
    policy = policy if prunes else ControlledPolicy(policy, prune_by(none), "none")
    return agent_of(run, corpus, policy, None if searchers is None else sampled(searchers))


def agent_of(run: RunConfig, corpus: Corpus, policy: Policy, searchers: Policy | None = None) -> SearchAgent:
    """Return an agent that plays a policy, with the run's profile, window, limits and swarm. The caller closes it.

    Args:
        run: The run.
        corpus: The corpus that the agent searches.
        policy: The policy.
        searchers: The policy of sub-agents. Defaults to `policy`.

    Returns:
        The agent.
    """
    episodes = run.episodes
    return SearchAgent(
        corpus,
        policy,
        profile=episode_profile(run),
        budget=episodes.budget,
        limits=Limits(turns=episodes.turns, seconds=episodes.seconds, calls=episodes.calls),
        swarm=Swarm(breadth=episodes.swarm, policy=searchers) if episodes.swarm else None,
    )
