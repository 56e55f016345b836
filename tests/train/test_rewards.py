from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent.errors import ConfigError, DataError
from context_agent.train.outcome import Ending, EpisodeOutcome
from context_agent.train.rewards import (
    GAINS,
    PENALTIES,
    REWARD_FLOOR,
    RewardConfig,
    RewardPreset,
    annealed,
    compute_reward,
)

PERFECT = EpisodeOutcome(
    Ending.FINISHED,
    1.0,
    1.0,
    1.0,
    answered=True,
    answer_ranked=True,
    calls=(2, 1),
    finding_calls=(2, 1),
    prunes=(0, 0),
    queries=("red mill", "blue bay"),
    finding_queries=("red mill", "blue bay"),
)
PUBLISHED = RewardConfig(preset="context-1")  # type: ignore[arg-type]


def test_a_perfect_episode_gets_two_points_by_either_formula() -> None:
    assert compute_reward(PERFECT).total == pytest.approx(1.2 + 0.3 + 0.5)
    assert compute_reward(PERFECT, PUBLISHED).total == pytest.approx(0.7 + 0.3 + 1.0)


def test_a_value_that_is_given_stays_whatever_the_preset() -> None:
    for preset in RewardPreset:
        settings = RewardConfig(preset=preset, truncated=-1.0, output=0.7, beta=1.0)
        assert (settings.truncated, settings.output, settings.beta) == (-1.0, 0.7, 1.0)
        assert replace(settings, beta=3.0).preset == preset
    assert (PUBLISHED.output, PUBLISHED.answer, PUBLISHED.beta, PUBLISHED.truncated) == (0.7, 1.0, 4.0, 0.0)
    with pytest.raises(ConfigError, match=r"preset must be one of default, context-1; got 'context-2'"):
        RewardConfig(preset="context-2")  # type: ignore[arg-type]


def test_recall_weighs_beta_squared_times() -> None:
    half = replace(PERFECT, precision=0.5, answered=None)
    for beta in (4.0, 2.0):
        settings = RewardConfig(preset=RewardPreset.CONTEXT_1, trajectory=0, beta=beta)
        expected = 0.7 * (1 + beta**2) * 0.5 / (beta**2 * 0.5 + 1)
        assert compute_reward(half, settings).total == pytest.approx(expected)


def test_half_a_ranking_earns_less_than_half() -> None:
    """F1 of half the gold, or of as many wrong documents, is 2/3; its third power is .3."""
    settings = RewardConfig(trajectory=0, answer=0)
    for half in (replace(PERFECT, precision=0.5), replace(PERFECT, recall=0.5)):
        assert compute_reward(half, settings).total == pytest.approx(1.2 * (2 / 3) ** 3)
        linear = replace(settings, exponent=1.0)
        assert compute_reward(half, linear).total == pytest.approx(1.2 * 2 / 3)


def test_what_was_seen_counts_beside_what_was_ranked_only_as_published() -> None:
    lost = EpisodeOutcome(Ending.FINISHED, 0.0, 0.0, 1.0)
    assert compute_reward(lost, PUBLISHED).total == pytest.approx(0.3)
    assert compute_reward(lost, replace(PUBLISHED, trajectory=0)).total == 0.001
    assert compute_reward(lost).total == 0.001
    half = replace(PERFECT, recall=0.5, answer_ranked=False)
    assert compute_reward(half).terms["trajectory"] == pytest.approx(0.3 * (2 / 3) ** 3)
    assert compute_reward(replace(half, seen=0.5)).terms["trajectory"] == pytest.approx(0.15 * (2 / 3) ** 3)


def test_the_answer_counts_where_it_is_ranked_or_as_published_where_it_was_shown() -> None:
    shown = replace(PERFECT, answer_ranked=False)
    assert compute_reward(shown).terms["answer"] == 0
    assert compute_reward(shown, PUBLISHED).terms["answer"] == 1


@pytest.mark.parametrize("spent", [0.0, 0.25, 1.0])
def test_the_budget_costs_a_share_of_what_was_earned_from_the_start(spent: float) -> None:
    reward = compute_reward(replace(PERFECT, spent=spent))
    assert reward.total == pytest.approx(2 * (1 - 0.2 * spent))
    assert compute_reward(replace(PERFECT, spent=spent), PUBLISHED).total == pytest.approx(2)


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


@pytest.mark.parametrize(("name", "what"), [("output", "it is a weight"), ("mistake", "subtracted from the reward")])
def test_a_negative_weight_or_penalty_is_an_error_that_says_what_it_is(name: str, what: str) -> None:
    with pytest.raises(ConfigError, match=f"rewards.{name} must be at least 0, because .*{what}"):
        RewardConfig(**{name: -0.1})


@pytest.mark.parametrize(("turns", "penalty"), [(1, 0.0), (64, 0.0), (96, 0.25), (128, 0.5), (500, 0.5)])
def test_turns_cost_from_the_64th_to_the_128th_as_published(turns: int, penalty: float) -> None:
    assert compute_reward(replace(PERFECT, calls=(1,) * turns), PUBLISHED).total == pytest.approx(2 - penalty)


def test_by_default_neither_turns_nor_mistakes_cost() -> None:
    assert compute_reward(replace(PERFECT, calls=(1,) * 500, mistakes=9)).total == pytest.approx(2)


def test_mistakes_cost_up_to_a_half() -> None:
    for mistakes, penalty in ((1, 0.1), (5, 0.5), (50, 0.5)):
        reward = compute_reward(replace(PERFECT, mistakes=mistakes), RewardConfig(mistake=0.1))
        assert reward.terms["mistakes"] == pytest.approx(-penalty)


def test_the_ranking_is_what_the_policy_named_by_facts_if_the_question_has_them() -> None:
    """The profile filled the ranking up with a document that has the third fact, which earns and costs nothing."""
    named = (frozenset({0}), frozenset({0, 1}), frozenset[int]())
    filled = replace(PERFECT, ranked=(*named, frozenset({2})), needs=4, cited=3, precision=0.75, recall=0.75)
    settings = RewardConfig(trajectory=0, answer=0, exponent=1)
    precision, recall = 2 / 3, 2 / 4
    f1 = 2 * precision * recall / (precision + recall)
    assert compute_reward(filled, settings).total == pytest.approx(1.2 * f1)
    for as_measured in (replace(filled, cited=None), replace(filled, needs=0)):
        assert compute_reward(as_measured, settings).total == pytest.approx(1.2 * 0.75)


def test_an_episode_that_earned_less_than_the_floor_gets_the_floor_whatever_it_is_fined() -> None:
    nothing = EpisodeOutcome(Ending.FINISHED, 0.0, 0.0, 0.0, False, calls=(1,) * 200, prunes=(1,) * 200)
    assert compute_reward(nothing).total == 0.001
    assert compute_reward(replace(nothing, seen=0.5)).total == 0.001


def test_a_fine_never_takes_more_than_down_to_the_floor_and_never_adds() -> None:
    reward = compute_reward(replace(PERFECT, calls=(1,) * 128, prunes=(1,) * 128), PUBLISHED)
    assert reward.total == pytest.approx(1.0)
    assert reward.before == pytest.approx(2.0)


def test_who_does_not_finish_gets_less_than_the_floor_and_who_stalls_gets_least() -> None:
    assert compute_reward(replace(PERFECT, ending=Ending.MALFORMED)).total == -0.5
    assert compute_reward(replace(PERFECT, ending=Ending.TRUNCATED)).total == -1.0
    assert compute_reward(replace(PERFECT, ending=Ending.MALFORMED), PUBLISHED).total == -0.5
    assert compute_reward(replace(PERFECT, ending=Ending.TRUNCATED), PUBLISHED).total == 0.0


def test_options_count_when_they_are_given_a_weight() -> None:
    settings = RewardConfig(
        output=0, trajectory=0, answer=0, prune_accuracy=1, diversity=0.5, parallel=0.25, mistake=0.1
    )
    tidy = replace(PERFECT, clutter=4, cleared=3, gold_shown=2, gold_kept=2, spent=0.0)
    reward = compute_reward(replace(tidy, mistakes=2, calls=(3, 2), finding_calls=(3, 2)), settings)
    assert reward.terms == pytest.approx(
        {
            "output": 0,
            "trajectory": 0,
            "answer": 0,
            "prune_accuracy": 0.75,
            "diversity": 0.5,
            "parallel": 0.25 * 0.75,
            "judge": 0,
            "cost": 0,
            "repeated_prunes": 0,
            "many_turns": 0,
            "mistakes": -0.2,
        }
    )
    assert reward.total == pytest.approx(0.75 + 0.5 + 0.25 * 0.75 - 0.2)


@pytest.mark.parametrize(
    ("cleared", "gold_kept", "expected"),
    [(0, 2, 0.0), (1, 2, 0.25), (4, 2, 1.0), (4, 1, 0.5), (4, 0, 0.0)],
)
def test_pruning_is_judged_by_what_is_left(cleared: int, gold_kept: int, expected: float) -> None:
    """Pruning one wrong chunk is no good pruning, nor is pruning everything, nor pruning and restoring it."""
    settings = RewardConfig(prune_accuracy=1)
    outcome = replace(PERFECT, clutter=4, cleared=cleared, gold_shown=2, gold_kept=gold_kept, pruned=6, pruned_gold=2)
    assert compute_reward(outcome, settings).terms["prune_accuracy"] == pytest.approx(expected)


def test_pruning_earns_nothing_without_clutter_or_gold() -> None:
    settings = RewardConfig(prune_accuracy=1)
    for counts in ({"gold_shown": 2, "gold_kept": 2}, {"clutter": 4, "cleared": 4}):
        assert compute_reward(replace(PERFECT, **counts), settings).terms["prune_accuracy"] == 0


def test_the_same_query_again_is_not_diverse() -> None:
    def diversity(*queries: str) -> float:
        outcome = replace(PERFECT, queries=queries, finding_queries=queries)
        return compute_reward(outcome, RewardConfig(diversity=1)).terms["diversity"]

    assert diversity("red mill", "red mill") == 0
    assert diversity("red mill", "red bay") == pytest.approx(2 / 3)
    assert diversity("red mill") == 0
    assert diversity("", "  ") == 0


def test_queries_that_find_nothing_are_neither_diverse_nor_parallel() -> None:
    settings = RewardConfig(diversity=1, parallel=1)
    nonsense = replace(PERFECT, queries=("red mill", "zq", "xv"), finding_queries=("red mill",), calls=(3,))
    terms = compute_reward(replace(nonsense, finding_calls=(1,)), settings).terms
    assert (terms["diversity"], terms["parallel"]) == (0, 0)
    padded = replace(PERFECT, queries=("red mill", "zq", "blue bay"), calls=(3,), finding_calls=(2,))
    terms = compute_reward(padded, settings).terms
    assert (terms["diversity"], terms["parallel"]) == (0.5, 0.5)
    assert compute_reward(replace(PERFECT, calls=(), finding_calls=()), settings).terms["parallel"] == 0
    assert compute_reward(replace(PERFECT, calls=(9,), finding_calls=(9,)), settings).terms["parallel"] == 1


def test_terms_about_the_search_count_in_proportion_to_the_ranking() -> None:
    settings = RewardConfig(prune_accuracy=1, diversity=1, parallel=1)
    worthless = replace(PERFECT, precision=0.0, recall=0.0, clutter=4, cleared=4, gold_shown=2, gold_kept=2)
    assert compute_reward(worthless, settings).total == REWARD_FLOOR


def test_every_term_is_logged() -> None:
    assert set(compute_reward(PERFECT).terms) == {*GAINS, "cost", *PENALTIES}


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
        {"exponent": 0.0},
        {"cost": 1.5},
        {"output": float("nan")},
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        RewardConfig(**settings)  # type: ignore[arg-type]


def test_settings_at_their_bounds_are_accepted() -> None:
    all_spent = RewardConfig(cost=1, gamma=1, trajectory=0)
    assert compute_reward(replace(PERFECT, spent=1), all_spent).total == 0.001


def test_beta_is_annealed_in_a_line() -> None:
    assert [annealed(4, 2, share) for share in (-1, 0, 0.25, 1, 2)] == [4, 4, 3.5, 2, 2]


units = st.floats(0, 1)


@given(
    precision=units,
    recall=units,
    seen=units,
    answered=st.booleans(),
    turns=st.integers(0, 200),
    pruning=st.booleans(),
    spent=units,
    preset=st.sampled_from(RewardPreset),
)
def test_the_reward_stays_between_floor_and_what_was_earned(
    *,
    precision: float,
    recall: float,
    seen: float,
    answered: bool,
    turns: int,
    pruning: bool,
    spent: float,
    preset: RewardPreset,
) -> None:
    outcome = EpisodeOutcome(
        Ending.FINISHED,
        precision,
        recall,
        seen,
        answered,
        answered,
        calls=(1,) * turns,
        prunes=(int(pruning),) * turns,
        spent=spent,
    )
    reward = compute_reward(outcome, RewardConfig(preset=preset))
    assert 0.001 <= reward.total <= max(0.001, reward.before) <= 2.0 + 1e-9


def test_a_judge_s_verdict_is_a_term_like_any_other() -> None:
    bare = EpisodeOutcome(Ending.FINISHED, 0.0, 0.0, 0.0, has_gold=False, judged=0.75)
    assert compute_reward(bare).total == REWARD_FLOOR
    assert compute_reward(bare, RewardConfig(judge=0.4)).total == pytest.approx(0.3)
    assert compute_reward(bare, RewardConfig(judge=0.4)).terms["judge"] == pytest.approx(0.3)
    absent = EpisodeOutcome(Ending.FINISHED, 1.0, 1.0, 1.0)
    assert compute_reward(absent, RewardConfig(judge=0.4)).total == compute_reward(absent).total
    malformed = EpisodeOutcome(Ending.MALFORMED, 0.0, 0.0, 0.0, has_gold=False, judged=1.0)
    assert compute_reward(malformed, RewardConfig(judge=0.4)).total == RewardConfig().malformed


def test_nothing_is_said_of_pruning_where_no_gold_is_known() -> None:
    pruned = EpisodeOutcome(Ending.FINISHED, 0.0, 0.0, 0.0, pruned=5, clutter=5, cleared=5, has_gold=False, judged=0.0)
    assert compute_reward(pruned, RewardConfig(prune_accuracy=1.0)).terms["prune_accuracy"] == 0.0
