"""Ways to earn a reward without doing the job, played in the harness on tasks of an invented world.

1. No attack earns more than .35 of what an honest, perfect episode earns.
2. Honest episodes are ordered: all gold, one document missing, two missing, a worthless answer, no answer, stalling.
3. Waste costs: the same ranking earns less after more turns or more tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from context_agent import Action
from context_agent.testing.actions import rank
from context_agent.testing.reward_attacks import (
    ATTACKS,
    CASES,
    LIMIT,
    SETTINGS,
    Attack,
    SmallWorld,
    honest,
    make_small_world,
    own,
    wrong,
)
from context_agent.train.rewards import RewardConfig, RewardPreset


@pytest.fixture(scope="module")
def small_world() -> SmallWorld:
    return make_small_world(16)


@pytest.fixture(scope="module")
def perfect(small_world: SmallWorld) -> list[float]:
    """What honest, perfect episodes earn under each of the `SETTINGS`."""
    return small_world.earned(honest)


@pytest.mark.parametrize(("name", "attack"), CASES.values(), ids=CASES)
def test_an_attack_earns_little(small_world: SmallWorld, perfect: list[float], name: str, attack: Attack) -> None:
    for earned, most in zip(small_world.earned(attack, name), perfect, strict=True):
        assert earned <= LIMIT * most


def test_honest_episodes_are_ordered(small_world: SmallWorld) -> None:
    """Which gold is missing does not matter: the last documents hold the answer, the first do not."""

    def ranks(found: Callable[[Sequence[str]], Sequence[str]]) -> Attack:
        return lambda game, question: [*honest(game, question)[:-1], rank(*found(question.gold))]

    long_tasks = replace(small_world, questions=[item for item in small_world.questions if len(item.gold) > 2])
    episodes: list[Attack] = [
        honest,
        ranks(lambda gold: gold[:-1]),
        ranks(lambda gold: gold[1:]),
        ranks(lambda gold: gold[:-2]),
        ranks(lambda gold: gold[2:]),
        lambda game, question: [own(question), wrong(game, question)],
        lambda _, question: [own(question), Action(text="the answer is unknown")],
        lambda _, question: [own(question)],
    ]
    for index in range(len(SETTINGS)):
        complete, first_lack, other_lack, *lacks_two, worthless, malformed, stalling = (
            long_tasks.earned(episode)[index] for episode in episodes
        )
        assert complete > max(first_lack, other_lack)
        assert min(first_lack, other_lack) > max(lacks_two)
        assert min(lacks_two) > worthless > malformed > stalling


def test_waste_costs_though_the_ranking_is_the_same(small_world: SmallWorld, perfect: list[float]) -> None:
    padded = small_world.earned(lambda game, question: honest(game, question, padding=2))
    more = small_world.earned(lambda game, question: honest(game, question, padding=8))
    assert 0.9 * perfect[0] < more[0] < padded[0] < perfect[0]
    shown = small_world.earned(lambda game, question: [own(question), *honest(game, question)])
    assert shown[0] < perfect[0]


def test_a_perfect_episode_earns_all_but_its_cost(perfect: list[float]) -> None:
    assert 1.9 < perfect[0] < 2.0
    assert perfect[1] > perfect[0] + 0.3, "tidiness, diversity and parallel calls pay"


def test_the_published_formula_has_the_holes(small_world: SmallWorld) -> None:
    published = [RewardConfig(preset=RewardPreset.CONTEXT_1)]
    names = ("sees all gold, ranks nothing", "one search, ranks all it shows")
    most, seen, dumped = (
        small_world.earned(attack, settings=published)[0] for attack in (honest, *map(ATTACKS.__getitem__, names))
    )
    assert most == pytest.approx(2.0)
    assert min(seen, dumped) > LIMIT * most
