"""The trainer of small networks learns what is there to learn, the same way each time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from context_agent.errors import DataError
from context_agent.train.listwise import (
    FitRecipe,
    ListwiseGroup,
    _loss_gradient,
    backward,
    fit,
    forward,
    initial_layers,
)

QUICK = FitRecipe(hidden=(16,), members=1, epochs=20, batch=8)


def groups(count=60, seed=0):
    """Ten rows each; the right ones are those where the first two inputs are large together."""
    draw = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        rows = draw.normal(size=(10, 5)).astype(np.float32)
        made.append(ListwiseGroup(rows, (np.minimum(rows[:, 0], rows[:, 1]) > 0.3).astype(np.float32)))
    return made


def precision(network, some):
    hits = [group.labels[np.argmax(network(group.rows))] for group in some if 0 < group.labels.sum() < 10]
    return float(np.mean(hits))


def test_it_learns_what_no_single_input_tells():
    assert precision(fit(groups(200), QUICK), groups(100, seed=9)) > 0.9


def test_equal_seeds_give_equal_networks_and_others_differ():
    rows = groups(5, seed=3)[0].rows
    one, same, other = (fit(groups(), QUICK, seed=seed)(rows) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_it_stands_the_loss_of_optional_inputs():
    network = fit(groups(200), replace(QUICK, blind=0.3), optional=[4])
    blind = [replace(group, rows=np.where(np.arange(5) == 4, np.nan, group.rows)) for group in groups(100, seed=9)]
    assert precision(network, blind) > 0.85


def test_groups_that_teach_nothing_are_refused():
    empty = ListwiseGroup(np.zeros((3, 2), np.float32), np.zeros(3, np.float32))
    with pytest.raises(DataError, match="both right and wrong"):
        fit([empty], QUICK)


def test_the_gradient_is_the_loss_s_slope():
    draw = np.random.default_rng(0)
    layers = [(w.astype(np.float64), b.astype(np.float64)) for w, b in initial_layers((4, 3, 1), draw)]
    rows, labels = draw.normal(size=(6, 4)), np.array([1, 0, 0, 1, 0, 0], dtype=float)
    places, weights = [slice(0, 3), slice(3, 6)], np.array([1.0, 2.0])

    def loss():
        logits, _ = forward(layers, rows, 0.0, draw)
        total = 0.0
        for place, weight in zip(places, weights, strict=True):
            mine, right = logits[place], labels[place] > 0
            wrong = np.exp(mine[~right]).sum()
            total += weight * np.mean([np.log(np.exp(o) + wrong) - o for o in mine[right]])
            total += weight * 0.1 * np.sum(np.log1p(np.exp(mine)) - labels[place] * mine)
        return total / 2

    logits, trace = forward(layers, rows, 0.0, draw)
    gradients = backward(layers, trace, _loss_gradient(logits, labels, places, weights, 0.1))
    for (weight, _), (slope, _) in zip(layers, gradients, strict=True):
        for at in np.ndindex(*weight.shape):
            weight[at] += 1e-5
            up = loss()
            weight[at] -= 2e-5
            down = loss()
            weight[at] += 1e-5
            assert slope[at] == pytest.approx((up - down) / 2e-5, abs=1e-4)
