"""A reinforcement learning loop without a model to train."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from context_agent import SearchAgent
from context_agent.train.config import RolloutConfig
from context_agent.train.curriculum import Curriculum
from context_agent.train.rewards import RewardConfig
from context_agent.train.rl.rollouts import Rollouts, RolloutSource
from context_agent.train.rl.scoring import EpisodeScorer
from context_agent.types import Question

pytest.importorskip("trl", reason="needs the train extra")

from context_agent.policies.tokens import TokenPolicy
from context_agent.policies.tokens.engines import FakeEngine, SampleRequest
from context_agent.train.rl.loop import ReinforcementLoop
from context_agent.train.rl.weight_sync import NOTHING_SENT, SentWeights
from context_agent.train.toy.environment import ToyEnvironment
from context_agent.train.toy.word_prompts import WordRenderer, words_profile


class NoSync:
    """A weight sync that does nothing."""

    def attach(self, trainer: Any) -> None: ...

    def before_update(self) -> None: ...

    def after_update(self) -> None: ...

    def push(self, trainer: Any, update: int) -> SentWeights:
        return NOTHING_SENT


def rollout_loop(
    agent: SearchAgent,
    questions: Sequence[Question],
    config: RolloutConfig,
    *,
    rewards: RewardConfig | None = None,
    curriculum: Curriculum | None = None,
    rollouts: RolloutSource | None = None,
    folder: Path | None = None,
    rank: int = 0,
    ranks: int = 1,
    **scoring: Any,
) -> ReinforcementLoop:
    """Return a loop over the questions. `scoring` goes to `EpisodeScorer`."""
    return ReinforcementLoop(
        rollouts or Rollouts(agent, questions, config, curriculum=curriculum, rank=rank, ranks=ranks),
        EpisodeScorer(agent.corpus, questions, rewards, curriculum=curriculum, **scoring),
        config,
        NoSync(),
        gamma=(rewards or RewardConfig()).gamma,
        folder=folder,
        rank=rank,
    )


SMALL = RolloutConfig(steps=4, groups=6, rollouts=4, substeps=2, concurrency=5, save_every=1)


def agent(small: ToyEnvironment, words: WordRenderer, engine: Any = None) -> SearchAgent:
    """Play by the seed: some episodes search for what the question names and rank it, the others rank nothing."""

    def reply(request: SampleRequest) -> Sequence[int]:
        prompt = words.decode(request.prompt)
        assert request.seed is not None
        if prompt.count("<go>") > 1:
            searched = prompt.split("<go>")[1].removeprefix(" search ").split(" <end>")[0]
            return (*words.encode(f"rank {searched}"), *words.stop)
        title = next(title for title in titles if title in prompt)
        return (*words.encode(f"search {title}" if request.seed % 3 else "rank nobody"), *words.stop)

    titles = sorted((title.lower() for title in small.titles.values()), key=len, reverse=True)
    policy = TokenPolicy(engine or FakeEngine(reply), words)
    return SearchAgent(small.corpus, policy, profile=words_profile(), budget=512)
