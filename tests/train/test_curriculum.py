from __future__ import annotations

import math

import pytest

from context_agent.errors import ConfigError
from context_agent.train.curriculum import Curriculum, CurriculumStage
from context_agent.train.rewards import RewardConfig, RewardPreset
from context_agent.types import Question

QUESTIONS = [Question(f"q{hops}{number}", "?", hops=hops) for hops in (0, 1, 2, 3) for number in range(5)]
STAGED = Curriculum((CurriculumStage(0.25, 1), CurriculumStage(0.5, 2)), beta=(4.0, 2.0))


@pytest.mark.parametrize(("progress", "most"), [(0.0, 1), (0.24, 1), (0.25, 2), (0.49, 2), (0.5, 3), (0.99, 3)])
def test_easy_questions_come_first(progress: float, most: int) -> None:
    admitted = STAGED.admitted(QUESTIONS, progress)
    assert admitted == [question for question in QUESTIONS if question.hops <= most]


def test_beta_falls_as_training_goes_on() -> None:
    assert STAGED.rewards(RewardConfig(), 0.5).beta == 3.0
    assert Curriculum(beta=(4, 2)).rewards(RewardConfig(beta=7), 0.0).beta == 4.0


def test_beta_stays_unless_the_published_formula_halves_it() -> None:
    assert [Curriculum().rewards(RewardConfig(), progress).beta for progress in (0.0, 1.0)] == [1.0, 1.0]
    published = RewardConfig(preset=RewardPreset.CONTEXT_1)
    assert [Curriculum().rewards(published, progress).beta for progress in (0.0, 0.5, 1.0)] == [4.0, 3.0, 2.0]


def test_a_stage_that_admits_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="no question has 1 or fewer hops"):
        STAGED.admitted([question for question in QUESTIONS if question.hops == 3], 0.1)


def test_a_run_without_questions_is_refused_by_that_reason() -> None:
    with pytest.raises(ConfigError, match="the run has no questions"):
        Curriculum().admitted([], 0.1)


@pytest.mark.parametrize(
    "stages",
    [(CurriculumStage(0.5, 1), CurriculumStage(0.5, 2)), (CurriculumStage(0.0, 1),), (CurriculumStage(1.2, 1),)],
)
def test_stages_rise_to_one(stages: tuple[CurriculumStage, ...]) -> None:
    with pytest.raises(ConfigError, match="rising shares"):
        Curriculum(stages)


@pytest.mark.parametrize("beta", [(0.0, 1.0), (math.nan, 1.0), (4.0, math.inf)])
def test_beta_is_positive_and_finite(beta: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match=r"curriculum\.beta must be positive and finite"):
        Curriculum(beta=beta)
