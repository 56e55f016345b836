from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent.errors import ConfigError, DataError
from context_agent.train.rewards import (
    GAINS,
    PENALTIES,
    Baseline,
    Ending,
    EpisodeOutcome,
    EpisodeReward,
    RewardConfig,
    annealed,
    compute_reward,
    group_advantages,
)

PERFECT = EpisodeOutcome(
    Ending.FINISHED, 1.0, 1.0, 1.0, True, calls=(2, 1), prunes=(0, 0), queries=("red mill", "blue bay")
)


def test_a_perfect_episode_gets_the_report_s_two_points() -> None:
    assert compute_reward(PERFECT).total == pytest.approx(0.7 + 0.3 + 1.0)


def test_recall_weighs_beta_squared_times() -> None:
    half = replace(PERFECT, precision=0.5, answered=None)
    assert compute_reward(half, RewardConfig(trajectory=0, beta=4)).total == pytest.approx(
        0.7 * 17 * 0.5 / (16 * 0.5 + 1)
    )
    assert compute_reward(half, RewardConfig(trajectory=0, beta=2)).total == pytest.approx(
        0.7 * 5 * 0.5 / (4 * 0.5 + 1)
    )


def test_what_was_seen_counts_beside_what_was_ranked() -> None:
    lost = EpisodeOutcome(Ending.FINISHED, 0.0, 0.0, 1.0)
    assert compute_reward(lost).total == pytest.approx(0.3)
    assert compute_reward(lost, RewardConfig(trajectory=0)).total == 0.001


@pytest.mark.parametrize(
    ("prunes", "penalty"),
    [
        ((1, 1, 1), 0.0),
        ((1, 1, 1, 1), 0.1),
        ((1, 1, 1, 2, 1), 0.3),
        ((1, 1, 1, 0, 1, 1, 1), 0.0),
        ((1,) * 20, 0.5),
    ],
)
def test_prunes_cost_beyond_a_streak_of_three_turns(prunes: tuple[int, ...], penalty: float) -> None:
    reward = compute_reward(replace(PERFECT, prunes=prunes, calls=tuple(max(1, count) for count in prunes)))
    assert reward.terms["repeated_prunes"] == pytest.approx(-penalty)
    assert reward.total == pytest.approx(2 - penalty)


@pytest.mark.parametrize(("turns", "penalty"), [(1, 0.0), (64, 0.0), (96, 0.25), (128, 0.5), (500, 0.5)])
def test_turns_cost_from_the_64th_to_the_128th(turns: int, penalty: float) -> None:
    assert compute_reward(replace(PERFECT, calls=(1,) * turns)).total == pytest.approx(2 - penalty)


def test_an_episode_that_earned_less_than_the_floor_gets_the_floor_whatever_it_is_fined() -> None:
    nothing = EpisodeOutcome(Ending.FINISHED, 0.0, 0.0, 0.0, False, calls=(1,) * 200, prunes=(1,) * 200)
    assert compute_reward(nothing).total == 0.001
    assert compute_reward(replace(nothing, seen=0.5)).total == 0.001


def test_a_fine_never_takes_more_than_down_to_the_floor_and_never_adds() -> None:
    reward = compute_reward(replace(PERFECT, calls=(1,) * 128, prunes=(1,) * 128))
    assert reward.total == pytest.approx(1.0)
    assert reward.before == pytest.approx(2.0)


def test_who_does_not_finish_gets_less_than_the_floor() -> None:
    assert compute_reward(replace(PERFECT, ending=Ending.MALFORMED)).total == -0.5
    assert compute_reward(replace(PERFECT, ending=Ending.CUT)).total == 0.0


def test_options_count_when_they_are_given_a_weight() -> None:
    settings = RewardConfig(
        output=0, trajectory=0, answer=0, prune_accuracy=1, diversity=0.5, parallel=0.25, mistake=0.1
    )
    reward = compute_reward(replace(PERFECT, pruned=4, pruned_gold=1, mistakes=2, calls=(3, 2)), settings)
    assert reward.terms == pytest.approx(
        {
            "output": 0,
            "trajectory": 0,
            "answer": 0,
            "prune_accuracy": 0.75,
            "diversity": 0.5,
            "parallel": 0.25 * 0.75,
            "judge": 0,
            "repeated_prunes": 0,
            "many_turns": 0,
            "mistakes": -0.2,
        }
    )
    assert reward.total == pytest.approx(0.75 + 0.5 + 0.25 * 0.75 - 0.2)


def test_the_same_query_again_is_not_diverse() -> None:
    settings = RewardConfig(output=0, trajectory=0, answer=0, diversity=1)
    assert compute_reward(replace(PERFECT, queries=("red mill", "red mill")), settings).terms["diversity"] == 0
    assert compute_reward(replace(PERFECT, queries=("red mill", "red bay")), settings).terms[
        "diversity"
    ] == pytest.approx(2 / 3)
    assert compute_reward(replace(PERFECT, queries=("red mill",)), settings).terms["diversity"] == 0


def test_every_term_is_logged() -> None:
    assert set(compute_reward(PERFECT).terms) == set(GAINS) | set(PENALTIES)


def test_a_measure_that_is_no_number_is_refused() -> None:
    with pytest.raises(DataError, match="nan"):
        compute_reward(replace(PERFECT, recall=float("nan"), seen=float("nan")))


@pytest.mark.parametrize(
    "settings",
    [
        {"beta": 0.0},
        {"gamma": 0.0},
        {"gamma": 1.5},
        {"turn_to": 64},
        {"parallel_calls": 1},
        {"output_depth": -1},
        {"output": float("nan")},
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        RewardConfig(**settings)  # type: ignore[arg-type]


def test_beta_is_annealed_in_a_line() -> None:
    assert [annealed(4, 2, share) for share in (-1, 0, 0.25, 1, 2)] == [4, 4, 3.5, 2, 2]


units = st.floats(0, 1)


@given(
    precision=units, recall=units, seen=units, answered=st.booleans(), turns=st.integers(0, 200), pruning=st.booleans()
)
def test_the_reward_stays_between_floor_and_what_was_earned(
    *, precision: float, recall: float, seen: float, answered: bool, turns: int, pruning: bool
) -> None:
    outcome = EpisodeOutcome(
        Ending.FINISHED, precision, recall, seen, answered, calls=(1,) * turns, prunes=(int(pruning),) * turns
    )
    reward = compute_reward(outcome)
    assert 0.001 <= reward.total <= max(0.001, reward.before) <= 2.0 + 1e-9


def test_a_judge_s_verdict_is_a_term_like_any_other() -> None:
    bare = EpisodeOutcome(Ending.FINISHED, 0.0, 0.0, 0.0, golden=False, judged=0.75)
    assert compute_reward(bare).total == RewardConfig().floor
    assert compute_reward(bare, RewardConfig(judge=0.4)).total == pytest.approx(0.3)
    assert compute_reward(bare, RewardConfig(judge=0.4)).terms["judge"] == pytest.approx(0.3)
    absent = EpisodeOutcome(Ending.FINISHED, 1.0, 1.0, 1.0)
    assert compute_reward(absent, RewardConfig(judge=0.4)).total == compute_reward(absent).total
    malformed = EpisodeOutcome(Ending.MALFORMED, 0.0, 0.0, 0.0, golden=False, judged=1.0)
    assert compute_reward(malformed, RewardConfig(judge=0.4)).total == RewardConfig().malformed


def test_nothing_is_said_of_pruning_where_no_gold_is_known() -> None:
    pruned = EpisodeOutcome(Ending.FINISHED, 0.0, 0.0, 0.0, pruned=5, golden=False, judged=0.0)
    assert compute_reward(pruned, RewardConfig(prune_accuracy=1.0)).terms["prune_accuracy"] == 0.0


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


def test_a_demonstration_counts_in_the_mean_and_is_trained_on_only_above_it() -> None:
    def advantages(demonstrated: float, sampled: float) -> dict[str, float]:
        step = [EpisodeReward("a", "g", demonstrated, demonstrated=True)]
        return dict(group_advantages([*step, *(EpisodeReward(name, "g", sampled) for name in "bc")]).by_episode)

    assert advantages(3.0, 0.0) == pytest.approx({"a": 2.0, "b": -1.0, "c": -1.0})
    assert advantages(0.0, 0.5) == pytest.approx({"b": 1 / 6, "c": 1 / 6})


def test_part_of_the_negative_episodes_can_be_left_out() -> None:
    step = [EpisodeReward(f"e{number}", "g", float(number)) for number in range(10)]
    advantages = group_advantages(step, keep_negative=0.4, seed=3)
    assert sum(value < 0 for value in advantages.by_episode.values()) == 2
    assert sum(value > 0 for value in advantages.by_episode.values()) == 5
    assert len(advantages.dropped) == 3
    assert advantages.dropped == group_advantages(step[::-1], keep_negative=0.4, seed=3).dropped
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
def test_order_does_not_matter_and_groups_sum_to_nothing(rewards: list[tuple[int, float]], baseline: Baseline) -> None:
    step = [EpisodeReward(f"e{number}", f"g{group}", reward) for number, (group, reward) in enumerate(rewards)]
    advantages = group_advantages(step, baseline=baseline).by_episode
    shuffled = random.Random(0).sample(step, len(step))
    assert group_advantages(shuffled, baseline=baseline).by_episode == advantages
    group_of = {reward.episode: reward.group for reward in step}
    for group in set(group_of.values()):
        assert sum(v for e, v in advantages.items() if group_of[e] == group) == pytest.approx(0, abs=1e-6)
