"""What a run is, in one TOML file: model, data, episodes, rewards, loss, checkpoints. No torch.

    [model]
    name = "openai/gpt-oss-20b"

    [data]
    questions = ["tasks.jsonl"]
    path = ".ctx1"

Every table but these two may be left out; the defaults are the report's, where it gives any. `run_file` reads it. Paths
are relative to the folder that `ctx1` is started in.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import Field, TypeAdapter, model_validator

from context_agent.train.curriculum import Curriculum
from context_agent.train.judged.settings import JudgeSettings
from context_agent.train.parl import Parl
from context_agent.train.rewards import GAINS, Rewards
from context_agent.train.rl.rollouts import RolloutSettings
from context_agent.train.sections import (
    Checkpoints,
    Data,
    Engine,
    Episodes,
    Evaluation,
    Expected,
    Logging,
    LossSection,
    Model,
    Optimiser,
    Overlap,
    Rendering,
    Section,
    Supervised,
)


class Run(Section):
    """A whole run. `seed` is the seed of all chance."""

    out: str = "runs/policy"
    seed: int = 0
    threads: Annotated[int, Field(ge=0)] = 0
    model: Model
    data: Data
    episodes: Episodes = Episodes()
    engine: Engine = Engine()
    rollouts: RolloutSettings = RolloutSettings()
    overlap: Overlap | None = None
    rewards: Rewards = Rewards()
    judge: JudgeSettings = JudgeSettings()
    parl: Parl = Parl()
    curriculum: Curriculum = Curriculum()
    loss: LossSection = LossSection()
    optimiser: Optimiser = Optimiser()
    sft: Supervised = Supervised()
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()
    logging: Logging = Logging()
    expected: Expected = Expected()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.loss.staleness < self.rollouts.substeps - 1:
            raise ValueError(
                f"loss.staleness = {self.loss.staleness} would drop the rows of later substeps: "
                f"with {self.rollouts.substeps} substeps at least {self.rollouts.substeps - 1}"
            )
        if self.overlap is not None and self.loss.staleness < self.oldest:
            raise ValueError(
                f"loss.staleness = {self.loss.staleness} would drop rows that are sampled ahead: with overlap.ahead = "
                f"{self.overlap.ahead} and {self.rollouts.substeps} substeps they are up to {self.oldest} updates old"
            )
        if self.episodes.searchers and not self.episodes.swarm:
            raise ValueError("episodes.searchers names a model for sub-agents, and episodes.swarm = 0 has none: set it")
        if self.episodes.searchers and self.engine.kind != "transformers":
            raise ValueError('episodes.searchers is loaded beside the trainer: it needs engine.kind = "transformers"')
        if self.parl.on and not self.episodes.swarm:
            raise ValueError("parl rewards sub-agents, and episodes.swarm = 0 has none: set it, or leave parl out")
        if (self.model.renderer is Rendering.WORDS) != (self.data.world is not None):
            raise ValueError("the words renderer is for data.world, and data.world is spelled by it: use both")
        if bool(self.judge.model) != bool(self.rewards.judge):
            raise ValueError("a judge has a model in judge.model and a weight in rewards.judge: give both or neither")
        others = any(getattr(self.rewards, name) for name in GAINS if name != "judge")
        if self.rewards.judge and not others and not self.judge.alone:
            raise ValueError(
                "rewards.judge is the only gain that counts, so the policy would learn to please the judge alone: "
                "weigh another term, or set judge.alone = true"
            )
        return self

    @property
    def updates(self) -> int:
        """Optimiser steps of the reinforced training."""
        return self.rollouts.steps * self.rollouts.substeps

    @property
    def oldest(self) -> int:
        """Updates that a row may be old when it is trained, if its step takes all groups that it asked."""
        every = self.engine.every if self.engine.kind == "vllm" else 1
        ahead = 0 if self.overlap is None else self.overlap.ahead
        return (ahead + every) * self.rollouts.substeps - 1

    @property
    def drawing(self) -> RolloutSettings:
        """The rollouts, with the run's seed where they have none of their own."""
        return replace(self.rollouts, seed=self.rollouts.seed or self.seed)

    def plain(self) -> dict[str, Any]:
        """The run as plain data, defaults filled in."""
        made: dict[str, Any] = _RUN.dump_python(self, mode="json")
        return made


_RUN = TypeAdapter(Run)
