"""The draws of a run: rollout settings, the curriculum, and the questions of a step. No torch.

Everything is a function of the settings, the seed and the step, so a resumed run draws the same questions.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

from pydantic import Field, PositiveInt

from context_agent.errors import ConfigError
from context_agent.train.advantages import Baseline, BaselineMembers
from context_agent.train.rewards import RewardConfig, annealed
from context_agent.types import Question


class RolloutLocation(StrEnum):
    """Where the copy of the model that samples during updates runs."""

    PROCESS = "process"
    THREAD = "thread"


@dataclass(frozen=True, slots=True)
class RolloutConfig:
    """The rollouts of a step and the updates on their rows. The defaults are the report's (Context-1, section 3).

    - `steps`: steps of the run.
    - `groups`: questions of a step.
    - `rollouts`: episodes of each question.
    - `demonstrations`: how many of these are demonstrations from `data.trajectories` instead of sampled.
    - `substeps`: optimizer updates of a step.
    - `concurrency`: episodes at the same time.
    - `seed`: random seed of draws and sampling; 0 for the run's.
    - `baseline`: what is subtracted from a reward (`advantages.Baseline`).
    - `baseline_members`: the episodes that the baseline is computed from: `all`, or `sampled`, without demonstrations.
    - `refill`: how often a step samples other questions in place of those whose episodes all earn the same (dynamic
      sampling, DAPO, arXiv 2503.14476); 0 for never.
    - `keep_negative`: share of the episodes with a negative advantage that are trained on.
    - `save_every`: steps between two saved sets of trajectories, for `ctx1 view`; 0 for none.
    - `save_groups`: questions whose trajectories are saved.
    """

    steps: int = 300
    groups: int = 128
    rollouts: int = 8
    demonstrations: int = 0
    substeps: int = 4
    concurrency: int = 256
    seed: int = 0
    baseline: Baseline = Baseline.MEAN
    baseline_members: BaselineMembers = BaselineMembers.ALL
    refill: int = 0
    keep_negative: float = 1.0
    save_every: int = 10
    save_groups: int = 2

    def __post_init__(self) -> None:
        for name in ("steps", "groups", "substeps", "concurrency"):
            if getattr(self, name) < 1:
                raise ConfigError(f"rollouts.{name} must be at least 1; got {getattr(self, name)}")
        if self.refill < 0:
            raise ConfigError(f"rollouts.refill must be at least 0; got {self.refill}")
        if self.rollouts < 2:
            raise ConfigError(
                f"rollouts.rollouts must be at least 2, since an advantage compares the episodes of a question; "
                f"got {self.rollouts}"
            )
        if not 0 <= self.demonstrations < self.rollouts:
            raise ConfigError(
                f"rollouts.demonstrations must be at least 0 and below rollouts.rollouts = {self.rollouts}, since at "
                f"least one episode of a question is sampled; got {self.demonstrations}"
            )


@dataclass(frozen=True, slots=True)
class AsyncRolloutConfig:
    """Rollouts during updates; without this table a step is sampled first and then trained.

    - `ahead`: steps that are sampled before their turn.
    - `quota`: share of its groups that a step waits for; the rest continue under newer weights, for a later step.
    - `sampler`: where the copy of the model samples; by default a process if there is no GPU, else a thread.
    """

    ahead: PositiveInt = 1
    quota: Annotated[float, Field(gt=0, le=1)] = 1.0
    sampler: RolloutLocation | None = None


@dataclass(frozen=True, slots=True)
class CurriculumStage:
    """A stage in which only easy questions are drawn.

    - `until`: share of training, in (0, 1], at which the stage ends.
    - `hops`: most hops of a question.
    """

    until: float
    hops: int


@dataclass(frozen=True, slots=True)
class Curriculum:
    """Easy questions first, and a reward that weighs recall less over time.

    - `stages`: stages in order; after the last one every question may be drawn. The report publishes no bounds.
    - `beta`: beta of F-beta at the start and at the end of training. By default it stays at `rewards.beta`; with the
      preset context-1 it is halved on the way, from 4 to 2 as published (Context-1, section 3).
    """

    stages: tuple[CurriculumStage, ...] = ()
    beta: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        bounds = [stage.until for stage in self.stages]
        if bounds != sorted(set(bounds)) or any(not 0 < bound <= 1 for bound in bounds):
            raise ConfigError(f"the stages of a curriculum must end at rising shares in (0, 1]; got {bounds}")
        if self.beta is not None and min(self.beta) <= 0:
            raise ConfigError(f"beta must be positive; got {self.beta}")

    def admitted(self, questions: Sequence[Question], progress: float) -> list[Question]:
        """Return the questions that may be drawn after a share `progress`, in [0, 1), of training.

        A question without a number of hops counts as one hop. Raises `ConfigError` if none is left.
        """
        most = next((stage.hops for stage in self.stages if progress < stage.until), None)
        admitted = [question for question in questions if most is None or (question.hops or 1) <= most]
        if not admitted:
            raise ConfigError(
                f"no question has at most {most} hops, which the curriculum requires at {progress:.0%} of training"
            )
        return admitted

    def rewards(self, settings: RewardConfig, progress: float) -> RewardConfig:
        """Return the reward settings at that point of training."""
        start, end = self.beta or (settings.beta, settings.beta / 2 if settings.published else settings.beta)
        return replace(settings, beta=annealed(start, end, progress))


def draw_questions(questions: Sequence[Question], count: int, *, seed: int, step: int) -> list[Question]:
    """`count` questions for a step: each once while there are enough, then again from the start of another order."""
    chosen: list[Question] = []
    order = random.Random(f"{seed}:{step}")
    while len(chosen) < count:
        chosen += order.sample(questions, min(len(questions), count - len(chosen)))
    return chosen
