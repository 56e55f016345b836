from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent.errors import ConfigError, DataError
from context_agent.train.advantages import Baseline, EpisodeReward, group_advantages

STEP = [
    EpisodeReward("a1", "a", 2.0),
    EpisodeReward("a2", "a", 1.0),
    EpisodeReward("a3", "a", 0.0),
    EpisodeReward("b1", "b", 1.0),
    EpisodeReward("b2", "b", 1.0),
]


def test_an_advantage_is_the_reward_less_its_group_s_mean() -> None:
    found = group_advantages(STEP)
    assert found.by_episode == {"a1": 1.0, "a2": 0.0, "a3": -1.0}


def test_groups_of_equal_rewards_are_left_out_and_named() -> None:
    assert group_advantages(STEP).equal == ("b",)
    assert group_advantages([EpisodeReward("x", "x", 0.3)]).equal == ("x",)


def test_grpo_divides_by_the_deviation() -> None:
    assert group_advantages(STEP, baseline=Baseline.DEVIATION).by_episode["a1"] == pytest.approx(1 / np.std([2, 1, 0]))


def test_leave_one_out_compares_with_the_others_mean() -> None:
    assert group_advantages(STEP, baseline=Baseline.LEAVE_ONE_OUT).by_episode == pytest.approx(
        {"a1": 1.5, "a2": 0, "a3": -1.5}
    )


def test_part_of_the_negative_episodes_can_be_left_out() -> None:
    step = [EpisodeReward(f"e{number}", "g", float(number)) for number in range(10)]
    found = group_advantages(step, keep_negative=0.4, seed=3)
    assert sum(value < 0 for value in found.by_episode.values()) == 2
    assert sum(value > 0 for value in found.by_episode.values()) == 5
    assert len(found.dropped) == 3
    assert found.dropped == group_advantages(step[::-1], keep_negative=0.4, seed=3).dropped
    assert not any(value < 0 for value in group_advantages(step, keep_negative=0).by_episode.values())


def test_a_reward_that_is_no_number_names_its_episode() -> None:
    with pytest.raises(DataError, match="episode b is nan"):
        group_advantages([EpisodeReward("a", "g", 1.0), EpisodeReward("b", "g", float("nan"))])


def test_an_episode_twice_and_a_share_that_is_none_are_refused() -> None:
    with pytest.raises(DataError, match="twice"):
        group_advantages([EpisodeReward("a", "g", 1.0), EpisodeReward("a", "h", 2.0)])
    with pytest.raises(ConfigError, match="share"):
        group_advantages(STEP, keep_negative=1.5)


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(-1, 2)), min_size=1, max_size=40), st.sampled_from(Baseline))
def test_order_does_not_matter_and_groups_sum_to_nothing(made: list[tuple[int, float]], baseline: Baseline) -> None:
    step = [EpisodeReward(f"e{number}", f"g{group}", reward) for number, (group, reward) in enumerate(made)]
    found = group_advantages(step, baseline=baseline).by_episode
    shuffled = random.Random(0).sample(step, len(step))
    assert group_advantages(shuffled, baseline=baseline).by_episode == found
    group_of = {one.episode: one.group for one in step}
    for group in set(group_of.values()):
        assert sum(v for e, v in found.items() if group_of[e] == group) == pytest.approx(0, abs=1e-6)
