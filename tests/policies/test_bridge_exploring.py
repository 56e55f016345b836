"""The embedded policy sampled: nothing changes at temperature 0, and every draw's probability can be told again."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

from context_agent import BridgePolicy, MemoryCorpus, SearchAgent
from context_agent.errors import ConfigError
from context_agent.policies.bridge import Effort, Scorer
from context_agent.policies.bridge import policy as bridge_policy
from context_agent.policies.bridge.exploring import NETWORK, ExploringPolicy, Kind, Race, log_probabilities
from tests.policies.test_bridge import world
from tests.retrieval.fakes import HashEmbedder


@pytest.fixture(scope="module")
def films():
    documents, questions = world()
    return MemoryCorpus(documents, embedder=HashEmbedder()), [question for question, _ in questions]


def search(films, policy, *, question=0, window=1024, seed=0):
    corpus, questions = films
    (trajectory,) = SearchAgent(corpus, policy, budget=window).search(questions[question], seed=seed).trajectories
    return trajectory


@pytest.mark.parametrize("window", [1024, 4096, 32_768])
def test_at_temperature_0_it_is_the_policy_that_serves_and_nothing_is_drawn(films, window):
    for question in range(0, 20, 5):
        exploring = ExploringPolicy(temperature=0)
        served = search(films, BridgePolicy(), question=question, window=window)
        assert (
            search(films, exploring, question=question, window=window).without_timestamps()
            == served.without_timestamps()
        )
        assert exploring.races(0) == []


def test_nearly_no_temperature_decides_as_none_does(films):
    for question in range(0, 20, 5):
        served = search(films, BridgePolicy(), question=question)
        sampled = search(films, ExploringPolicy(temperature=1e-6), question=question)
        assert [one.id for one in sampled.end.documents] == [one.id for one in served.end.documents]


def test_a_seed_gives_the_same_episode_and_others_differ(films):
    policy = ExploringPolicy(temperature=1.0)
    first, same, other = (search(films, policy, seed=seed).without_timestamps() for seed in (3, 3, 4))
    assert first == same
    assert first != other


def test_a_sampled_episode_keeps_to_its_window_without_a_mistake(films):
    for window in (1024, 4096):
        for seed in range(6):
            trajectory = search(films, ExploringPolicy(temperature=1.0), question=seed, window=window, seed=seed)
            assert trajectory.end.stop_reason == "finished"
            assert trajectory.end.mistakes == 0
            assert all(view.tokens <= window for view in trajectory.views())
            trajectory.verify()


def sampled_races(films, seed=0, **options):
    policy = ExploringPolicy(temperature=1.0, **options)
    trajectory = search(films, policy, seed=seed)
    return policy, trajectory, policy.races(seed)


def test_names_what_stays_and_the_ranking_are_drawn(films):
    kinds = {race.kind for seed in range(5) for race in sampled_races(films, seed)[2]}
    assert kinds == set(Kind)


def test_every_draw_s_probability_is_told_again_from_its_features(films):
    for seed in range(5):
        policy, _, races = sampled_races(films, seed)
        for race in races:
            again = race.log_probabilities(policy.scorer.networks[NETWORK[race.kind]].logits(race.rows))
            np.testing.assert_allclose(again, race.drawn, rtol=0, atol=1e-5)
            assert (race.drawn <= 0).all()


def test_each_name_that_was_looked_up_is_one_draw(films):
    for seed in range(5):
        corpus, questions = films
        policy = ExploringPolicy(temperature=1.0)
        actor = policy.open(questions[0], corpus, seed=seed)

        class Opened(ExploringPolicy):
            def open(self, question, corpus, *, profile, seed=0):
                return actor  # noqa: B023

        search(films, Opened())
        follows = [race for race in actor.races if race.kind is Kind.FOLLOW]
        stops = sum(race.picks[-1] == len(race.rows) for race in follows)
        assert sum(map(len, follows)) - stops == len(actor.made)


def test_the_ranking_s_draws_hold_what_was_ranked_in_its_order(films):
    policy, trajectory, races = sampled_races(films, effort=Effort(ranking=3))
    (race,) = [race for race in races if race.kind is Kind.RANK]
    scores = policy.scorer.networks["second"](race.rows)[race.picks]
    ranked = [document.score for document in trajectory.end.documents]
    assert len(ranked) == 3
    places = [int(np.flatnonzero(np.isclose(scores, score))[0]) for score in ranked]
    assert places == sorted(places)
    assert places[-1] == len(race) - 1


def test_a_draw_is_never_from_what_is_gone(films):
    for race in (race for seed in range(5) for race in sampled_races(films, seed)[2]):
        assert race.open[np.arange(len(race)), race.picks].all()
        for draw, pick in enumerate(race.picks):
            assert not race.open[draw + 1 :, pick].any()


def test_the_probabilities_of_all_orders_sum_to_one():
    logits, temperature = np.array([0.3, -1.0, 2.0, 0.0]), 0.7
    total = 0.0
    for order in permutations(range(4), 3):
        left = np.ones((3, 4), dtype=bool)
        for draw, pick in enumerate(order[:-1]):
            left[draw + 1 :, pick] = False
        total += math.exp(log_probabilities(logits, np.array(order), left, temperature).sum())
    assert total == pytest.approx(1.0, abs=1e-12)


def test_orders_come_as_often_as_their_probability_says(films):
    corpus, questions = films
    actor = ExploringPolicy(temperature=0.5).open(questions[0], corpus, seed=1)
    logits = np.array([1.0, 0.5, -0.5], dtype=np.float32)
    count = 4000
    first = [int(np.argmax(actor._noisy(logits))) for _ in range(count)]
    race = Race(Kind.RANK, np.zeros((3, 1)), np.array([0]), np.ones((1, 3), dtype=bool), np.zeros(1), 0.5)
    np.testing.assert_allclose(np.bincount(first) / count, race.shares(logits)[0], atol=0.03)


def test_a_promise_out_of_reach_stops_at_once(films):
    _, _, races = sampled_races(films, effort=Effort(promise=1 - 1e-9, pages=1))
    follows = [race for race in races if race.kind is Kind.FOLLOW]
    assert all(race.picks.tolist() == [len(race.rows)] for race in follows)


def test_without_weights_or_with_a_strange_temperature_it_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match="temperature is a number from 0 on; got -1"):
        ExploringPolicy(temperature=-1)
    monkeypatch.setattr(bridge_policy, "_shipped", lambda: None)
    with pytest.raises(ConfigError, match="no weights to explore by"):
        ExploringPolicy()


def test_shipped_weights_give_logits_whose_odds_are_their_probabilities():
    scorer = Scorer.shipped()
    assert scorer is not None
    rows = np.random.default_rng(0).normal(size=(20, 26)).astype(np.float32)
    network = scorer.networks["expansion"]
    np.testing.assert_allclose(1 / (1 + np.exp(-network.logits(rows))), network(rows), atol=1e-6)
