"""Advantages of a step's episodes, by group."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent.errors import ConfigError, DataError
from context_agent.train.advantages import Baseline, BaselineMembers, EpisodeReward, group_advantages
from tests.support.growth import MOST_GROWTH, growth

STEP = [
    EpisodeReward("a1", "a", 2.0),
    EpisodeReward("a2", "a", 1.0),
    EpisodeReward("a3", "a", 0.0),
    EpisodeReward("b1", "b", 1.0),
    EpisodeReward("b2", "b", 1.0),
]


def test_an_advantage_is_the_reward_less_its_group_s_mean() -> None:
    advantages = group_advantages(STEP)
    assert advantages.by_episode == {"a1": 1.0, "a2": 0.0, "a3": -1.0}


def test_groups_of_equal_rewards_are_left_out_and_named() -> None:
    assert group_advantages(STEP).equal == ("b",)
    assert group_advantages([EpisodeReward("x", "x", 0.3)]).equal == ("x",)


def test_grpo_divides_by_the_deviation() -> None:
    assert group_advantages(STEP, baseline=Baseline.DEVIATION).by_episode["a1"] == pytest.approx(1 / np.std([2, 1, 0]))


def test_leave_one_out_compares_with_the_others_mean() -> None:
    assert group_advantages(STEP, baseline=Baseline.LEAVE_ONE_OUT).by_episode == pytest.approx(
        {"a1": 1.5, "a2": 0, "a3": -1.5}
    )


def advantages_beside(demonstrated: float, *sampled: float, **options: object) -> dict[str, float]:
    """The advantages of a demonstration, `a`, and of sampled episodes, `b` and so on."""
    step = [EpisodeReward("a", "g", demonstrated, demonstrated=True)]
    step += [EpisodeReward(name, "g", reward) for name, reward in zip("bcdef", sampled, strict=False)]
    return dict(group_advantages(step, **options).by_episode)  # type: ignore[arg-type]


def test_a_demonstration_counts_in_the_mean_and_is_trained_on_only_above_it() -> None:
    assert advantages_beside(3.0, 0.0, 0.0) == pytest.approx({"a": 2.0, "b": -1.0, "c": -1.0})
    assert advantages_beside(0.0, 0.5, 0.5) == pytest.approx({"b": 1 / 6, "c": 1 / 6})


def test_an_oracle_does_not_make_every_sampled_advantage_negative() -> None:
    """A policy that does well is still below a mean that the oracle counts in."""
    everyone = advantages_beside(2.0, 0.2, 1.0, 1.1, members=BaselineMembers.ALL)
    assert max(everyone["c"], everyone["d"]) < 0.1
    outside = advantages_beside(2.0, 0.2, 1.0, 1.1, members=BaselineMembers.SAMPLED)
    assert outside == pytest.approx({"a": 1.2333, "b": -0.5667, "c": 0.2333, "d": 0.3333}, abs=1e-4)
    assert sum(value for episode, value in outside.items() if episode != "a") == pytest.approx(0)


def test_a_demonstration_outside_the_mean_still_has_to_beat_it() -> None:
    assert set(advantages_beside(0.5, 0.2, 1.0, members=BaselineMembers.SAMPLED)) == {"b", "c"}


@pytest.mark.parametrize("baseline", Baseline)
def test_sampled_episodes_of_equal_rewards_teach_by_the_demonstration_alone(baseline: Baseline) -> None:
    for sampled in ((0.5,), (0.5, 0.5, 0.5)):
        values = advantages_beside(2.0, *sampled, baseline=baseline, members=BaselineMembers.SAMPLED)
        assert set(values) == {"a"}
        assert values["a"] > 0


def test_part_of_the_negative_episodes_can_be_left_out() -> None:
    step = [EpisodeReward(f"e{number}", "g", float(number)) for number in range(10)]
    advantages = group_advantages(step, keep_negative=0.4, seed=3)
    assert sum(value < 0 for value in advantages.by_episode.values()) == 2
    assert sum(value > 0 for value in advantages.by_episode.values()) == 5
    assert len(advantages.dropped) == 3
    assert advantages.dropped == group_advantages(step[::-1], keep_negative=0.4, seed=3).dropped
    assert not any(value < 0 for value in group_advantages(step, keep_negative=0).by_episode.values())


def test_dropping_many_episodes_takes_linear_time() -> None:
    def step(size: int) -> list[EpisodeReward]:
        return [EpisodeReward(f"e{number}", f"g{number // 8}", float(number % 8)) for number in range(size)]

    advantages = group_advantages(step(40_000), keep_negative=0.0)
    assert len(advantages.dropped) == len(advantages.by_episode) == 20_000
    assert growth(lambda it: group_advantages(it, keep_negative=0.0), step, 5_000) < MOST_GROWTH


def test_a_reward_that_is_no_number_names_its_episode() -> None:
    with pytest.raises(DataError, match="episode b must be finite; got nan"):
        group_advantages([EpisodeReward("a", "g", 1.0), EpisodeReward("b", "g", float("nan"))])


def test_an_episode_twice_and_a_share_that_is_none_are_refused() -> None:
    with pytest.raises(DataError, match="twice"):
        group_advantages([EpisodeReward("a", "g", 1.0), EpisodeReward("a", "h", 2.0)])
    with pytest.raises(ConfigError, match="share"):
        group_advantages(STEP, keep_negative=1.5)


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(-1, 2)), min_size=1, max_size=40), st.sampled_from(Baseline))
def test_order_does_not_matter_and_groups_sum_to_nothing(rewards: list[tuple[int, float]], baseline: Baseline) -> None:
    step = [EpisodeReward(f"e{number}", f"g{group}", reward) for number, (group, reward) in enumerate(rewards)]
    advantages = group_advantages(step, baseline=baseline).by_episode
    shuffled = random.Random(0).sample(step, len(step))
    assert group_advantages(shuffled, baseline=baseline).by_episode == advantages
    group_of = {reward.episode: reward.group for reward in step}
    for group in set(group_of.values()):
        assert sum(v for e, v in advantages.items() if group_of[e] == group) == pytest.approx(0, abs=1e-6)
