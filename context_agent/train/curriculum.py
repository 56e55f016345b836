"""The curriculum: easy questions first, and a reward that weighs recall less as training goes on. No torch.

Everything is a function of the settings, the seed and the step, so a resumed run draws the same questions.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from context_agent._support.question_files import Question
from context_agent.errors import ConfigError
from context_agent.train.rewards import RewardConfig, annealed


@dataclass(frozen=True, slots=True)
class CurriculumStage:
    """Until `until`, a share of training in (0, 1], only questions of at most `hops` are asked."""

    until: float
    hops: int


@dataclass(frozen=True, slots=True)
class Curriculum:
    """Stages by hops, in order; past the last one every question may come. `beta` is annealed from first to second.

    The defaults are the report's: beta 4 at first and 2 in the end (Context-1, section 3), and no stages, since their
    bounds are not published.
    """

    stages: tuple[CurriculumStage, ...] = ()
    beta: tuple[float, float] = (4.0, 2.0)

    def __post_init__(self) -> None:
        bounds = [stage.until for stage in self.stages]
        if bounds != sorted(set(bounds)) or any(not 0 < bound <= 1 for bound in bounds):
            raise ConfigError(f"a curriculum's stages end at rising shares in (0, 1]; got {bounds}")
        if min(self.beta) <= 0:
            raise ConfigError(f"beta must be positive; got {self.beta}")

    def admitted(self, questions: Sequence[Question], progress: float) -> list[Question]:
        """The questions that may be asked when `progress`, a share in [0, 1), of training is done.

        A question that does not say its hops counts as of one. Raises `ConfigError` where none is left.
        """
        most = next((stage.hops for stage in self.stages if progress < stage.until), None)
        admitted = [question for question in questions if most is None or (question.hops or 1) <= most]
        if not admitted:
            raise ConfigError(f"no question has at most {most} hops, as the curriculum asks for at {progress:.0%}")
        return admitted

    def rewards(self, settings: RewardConfig, progress: float) -> RewardConfig:
        """The reward's settings at that point of training."""
        return replace(settings, beta=annealed(*self.beta, progress))


def draw_questions(questions: Sequence[Question], count: int, *, seed: int, step: int) -> list[Question]:
    """`count` questions for a step: each once while there are enough, then again from the start of another order."""
    chosen: list[Question] = []
    order = random.Random(f"{seed}:{step}")
    while len(chosen) < count:
        chosen += order.sample(questions, min(len(questions), count - len(chosen)))
    return chosen
