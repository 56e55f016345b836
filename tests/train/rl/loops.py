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

from context_agent.train.rl.loop import ReinforcementLoop
from context_agent.train.rl.weight_sync import NOTHING_SENT, SentWeights


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
    """A loop over the questions; `scoring` goes to `EpisodeScorer`."""
    return ReinforcementLoop(
        rollouts or Rollouts(agent, questions, config, curriculum=curriculum, rank=rank, ranks=ranks),
        EpisodeScorer(agent.corpus, questions, rewards, curriculum=curriculum, **scoring),
        config,
        NoSync(),
        gamma=(rewards or RewardConfig()).gamma,
        folder=folder,
        rank=rank,
    )
