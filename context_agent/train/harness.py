"""The production agent with a run's harness: what trains and what is measured play by the same rules. No torch."""

from __future__ import annotations

from context_agent.agent import SearchAgent
from context_agent.harness.episode import Limits
from context_agent.harness.policy import Policy
from context_agent.policies.controlled import ControlledPolicy
from context_agent.policies.engines.protocol import Engine
from context_agent.policies.renderers.protocol import TokenRenderer
from context_agent.policies.tokens import TokenPolicy
from context_agent.pruning.strategies import strategy
from context_agent.retrieval.protocol import Corpus
from context_agent.swarm import Swarm
from context_agent.train.config import Run


def agent_of(
    run: Run,
    corpus: Corpus,
    engine: Engine,
    renderer: TokenRenderer,
    *,
    temperature: float,
    top_p: float | None = None,
    prunes: bool = True,
    searchers: Engine | None = None,
) -> SearchAgent:
    """An agent with the run's profile, window and limits, sampling at that temperature; close it.

    Without `prunes` the policy's edits of its context are not carried out. `searchers` samples in sub-agents, by
    default the same engine.
    """
    episodes = run.episodes
    top_p = run.engine.top_p if top_p is None else top_p

    def sampled(engine: Engine) -> Policy:
        return TokenPolicy(engine, renderer, temperature=temperature, top_p=top_p, max_tokens=run.engine.max_tokens)

    policy = sampled(engine) if prunes else ControlledPolicy(sampled(engine), strategy("none"), "none")
    theirs = None if searchers is None else sampled(searchers)
    return SearchAgent(
        corpus,
        policy,
        profile=episodes.harness(run.model.renderer),
        budget=episodes.budget,
        limits=Limits(turns=episodes.turns, seconds=episodes.seconds, calls=episodes.calls),
        workers=episodes.workers,
        swarm=Swarm(breadth=episodes.swarm, policy=theirs) if episodes.swarm else None,
    )
