"""The agents that play a run's episodes: profile, window, limits and swarm of the run file. No torch."""

from __future__ import annotations

from dataclasses import replace

from context_agent.agent import SearchAgent
from context_agent.harness.episode import Limits
from context_agent.harness.policy import Policy
from context_agent.harness.profile import Profile
from context_agent.harness.profile import profile as named_profile
from context_agent.policies.controlled import ControlledPolicy, none, prune_by
from context_agent.policies.tokens import TokenPolicy
from context_agent.policies.tokens.engines import Engine
from context_agent.policies.tokens.prompt import TokenRenderer
from context_agent.retrieval.corpus import Corpus
from context_agent.swarm import Swarm
from context_agent.train.config import RendererKind, RunConfig
from context_agent.train.toy.words import words_profile


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
    """Return an agent with the run's profile, window and limits, sampling at that temperature; close it.

    Without `prunes` the policy's edits of its context are not carried out. `searchers` samples in sub-agents, by
    default the same engine.
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
    """Return an agent of that policy with the run's profile, window, limits and swarm; close it."""
    episodes = run.episodes
    return SearchAgent(
        corpus,
        policy,
        profile=episode_profile(run),
        budget=episodes.budget,
        limits=Limits(turns=episodes.turns, seconds=episodes.seconds, calls=episodes.calls),
        workers=episodes.workers,
        swarm=Swarm(breadth=episodes.swarm, policy=searchers) if episodes.swarm else None,
    )
