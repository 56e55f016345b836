"""The rules that keep an episode or drop it."""

import random

import pytest

from context_agent.errors import ConfigError
from context_agent.synth_data.demonstrations.filters import (
    DemonstrationFilters,
    ExpertEpisode,
    filter_episodes,
    uniform_draw,
)


def episode(task="t", rollout=0, *, seen=1.0, given=1.0, **fields):
    values = {
        "task": task,
        "rollout": rollout,
        "file": f"{task}-{rollout}.jsonl",
        "expert": "scripted",
        "type": "",
        "hops": 2,
        "trajectory_recall": seen,
        "output_recall": given,
        "precision": given,
        "prune_accuracy": None,
        "turns": 3,
        "tokens": 900,
        "searches": 4,
        "prunes": 1,
        "pruned": 5,
        "restores": 0,
        "mistakes": 0,
        "stop_reason": "finished",
        "bytes": 10,
        **fields,
    }
    return ExpertEpisode(**values)


def reasons(episodes, **numbers):
    return [(verdict.keep, verdict.reason) for verdict in filter_episodes(episodes, DemonstrationFilters(**numbers))]


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (episode(), (True, "high")),
        (episode(seen=0.75, given=0.5), (True, "high")),
        (episode(stop_reason="window"), (False, "malformed")),
        (episode(stop_reason="no_ranking"), (False, "malformed")),
        (episode(mistakes=3), (False, "malformed")),
        (episode(mistakes=2), (True, "high")),
        (episode(seen=1.0, given=0.5), (False, "lost")),
        (episode(seen=0.5, given=0.0), (False, "lost")),
        (episode(seen=0.9, given=0.45), (True, "high")),
    ],
)
def test_an_episode_by_itself(one, expected):
    assert reasons([one]) == [expected]


def test_episodes_of_a_single_search_are_kept_at_their_rate():
    episodes = [episode(f"t{number}", searches=1 + number % 2) for number in range(2000)]
    assert all(keep for keep, _ in reasons(episodes))
    verdicts = reasons(episodes, short_rate=0.3)
    assert all(keep for keep, _ in verdicts[1::2])
    assert sum(keep for keep, _ in verdicts[::2]) / 1000 == pytest.approx(0.3, abs=0.05)
    assert {reason for keep, reason in verdicts if not keep} == {"short"}
    assert not any(keep for keep, _ in reasons(episodes, short_rate=0.0)[::2])


def test_both_thresholds_must_be_passed_not_met():
    boundary = [episode("a", seen=0.5, given=0.45), episode("b", seen=0.6, given=0.4)]
    assert [reason for _, reason in reasons(boundary)] == ["low", "low"]


def test_low_episodes_are_sampled_the_less_the_less_they_found():
    def keep_rate(trajectory_recall, output_recall, **numbers):
        episodes = [episode(f"t{number}", seen=trajectory_recall, given=output_recall) for number in range(2000)]
        return sum(keep for keep, _ in reasons(episodes, **numbers)) / len(episodes)

    assert keep_rate(0.5, 0.4) == pytest.approx(0.5, abs=0.04)
    assert keep_rate(0.25, 0.2) == pytest.approx(0.25, abs=0.04)
    assert keep_rate(0.1, 0.1) == pytest.approx(0.5 * (0.2 + 0.25) / 2, abs=0.03)
    assert keep_rate(0.5, 0.4, low_rate=0) == 0
    assert keep_rate(0.5, 0.4, low_rate=1) == 1


def test_of_a_task_s_good_episodes_the_best_stays():
    good = [
        episode("t", 0, given=0.75),
        episode("t", 1, turns=5),
        episode("t", 2, turns=4),
        episode("t", 3, turns=4, tokens=2000),
        episode("u", 0),
    ]
    assert [keep for keep, _ in reasons(good)] == [False, False, True, False, True]
    assert [reason for keep, reason in reasons(good) if not keep] == ["repeated"] * 3
    assert [keep for keep, _ in reasons(good, high_per_task=2)] == [False, False, True, True, True]
    assert all(keep for keep, _ in reasons(good, high_per_task=0))


def test_at_most_a_twentieth_hands_back_nothing_and_one_a_task():
    good = [episode(f"g{number}") for number in range(95)]
    empty = [episode(f"e{number}", rollout, seen=0, given=0) for number in range(20) for rollout in range(3)]
    verdicts = filter_episodes(good + empty, DemonstrationFilters())
    kept_zero = [verdict.episode for verdict in verdicts if verdict.keep and verdict.reason == "zero"]
    assert len(kept_zero) == 5, "5 of 100"
    assert len({item.task for item in kept_zero}) == 5
    fewer_verdicts = filter_episodes(good[:18] + empty, DemonstrationFilters())
    assert not any(verdict.keep for verdict in fewer_verdicts if verdict.reason == "zero"), "1 of 19 were more than 5 %"
    pair_reasons = reasons([episode("e", 0, seen=0, given=0), episode("e", 1, seen=0, given=0)], max_zero_share=1)
    assert sorted(pair_reasons) == [(False, "zero"), (True, "zero")]


def test_the_order_of_the_episodes_changes_nothing():
    draw = random.Random(3)
    episodes = [
        episode(f"t{number % 40}", number, seen=draw.choice([0, 0.3, 0.5, 1]), given=draw.choice([0, 0.3, 0.5, 1]))
        for number in range(300)
    ]
    expected = {verdict.episode.file: verdict for verdict in filter_episodes(episodes, DemonstrationFilters())}
    assert len({(verdict.keep, verdict.reason) for verdict in expected.values()}) > 4, "the draw reaches most rules"
    for _ in range(5):
        draw.shuffle(episodes)
        assert {
            verdict.episode.file: verdict for verdict in filter_episodes(episodes, DemonstrationFilters())
        } == expected
    other = {verdict.episode.file: verdict for verdict in filter_episodes(episodes, DemonstrationFilters(seed=1))}
    assert other != expected


def test_chance_is_even_and_of_the_seed():
    draws = [uniform_draw(0, "low", f"t{number}") for number in range(5000)]
    assert sum(draws) / len(draws) == pytest.approx(0.5, abs=0.02)
    assert all(0 <= value < 1 for value in draws)
    assert uniform_draw(0, "low", "a") != uniform_draw(1, "low", "a") != uniform_draw(1, "zero", "a")


@pytest.mark.parametrize("numbers", [{"low_rate": 1.5}, {"max_gap": -0.1}, {"max_mistakes": -1}, {"short_rate": 2}])
def test_a_number_out_of_range_is_named(numbers):
    with pytest.raises(ConfigError, match=next(iter(numbers))):
        DemonstrationFilters(**numbers)
