"""The curriculum of a run: which questions a step may draw, and how the reward changes.

This module does not import torch.

All results depend only on the settings and the share of training that is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from context_agent.errors import ConfigError
from context_agent.train.rewards import RewardConfig, annealed
from context_agent.types import Question


@dataclass(frozen=True, slots=True)
class CurriculumStage:
    """A stage of training that draws only easy questions.

    Attributes:
        until: Share of training, in (0, 1], at which the stage ends.
        hops: Largest number of hops that a question may have.
    """

    until: float
    hops: int


@dataclass(frozen=True, slots=True)
class Curriculum:
    """A schedule that moves from easy to hard questions, and from recall toward precision in the reward.

    Attributes:
        stages: The stages in order. After the last one, every question may be drawn. The Context-1 report does not give
            their bounds.
        beta: The beta of F-beta at the start and at the end of training. If it is None, beta stays at `rewards.beta`.
            With the preset context-1 it is halved during training, from 4 to 2 as published (Context-1, section 3).
    """

    stages: tuple[CurriculumStage, ...] = ()
    beta: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        bounds = [stage.until for stage in self.stages]
        if bounds != sorted(set(bounds)) or any(not 0 < bound <= 1 for bound in bounds):
            raise ConfigError(f"curriculum.stages must end at rising shares in (0, 1]; got {bounds}")
        if self.beta is not None and not all(0 < beta < inf for beta in self.beta):
            raise ConfigError(f"curriculum.beta must be positive and finite; got {self.beta}")

    def admitted(self, questions: Sequence[Question], progress: float) -> list[Question]:
        """Return the questions that may be drawn at a point of training.

        A question without a number of hops counts as one hop.

        Args:
            questions: The questions of the run.
            progress: The share of training that is done, in [0, 1).

        Returns:
            The questions with few enough hops for the current stage, in their order.

        Raises:
            ConfigError: If there are no questions, or none has few enough hops.
        """
        if not questions:
            raise ConfigError("the run has no questions to draw from. Set data.questions to files with questions.")
        most = next((stage.hops for stage in self.stages if progress < stage.until), None)
        admitted = [question for question in questions if most is None or (question.hops or 1) <= most]
        if not admitted:
            raise ConfigError(
                f"no question has {most} or fewer hops, but at {progress:.0%} of training the curriculum draws only "
                "such questions. Add some, or raise `hops` of the stage in curriculum.stages."
            )
        return admitted

    def rewards(self, settings: RewardConfig, progress: float) -> RewardConfig:
        """Return the reward settings at a point of training.

        Args:
            settings: The reward settings of the run. They are not changed.
            progress: The share of training that is done, in [0, 1].

        Returns:
            A copy in which `beta` has its current value.
        """
        start, end = self.beta or (settings.beta, settings.beta / 2 if settings.published else settings.beta)
        return replace(settings, beta=annealed(start, end, progress))
