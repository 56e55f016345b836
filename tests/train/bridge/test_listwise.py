"""The trainer of small networks learns what there is to learn, with the same result each time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from context_agent.errors import DataError
from context_agent.train.bridge.listwise import (
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
    rng = np.random.default_rng(seed)
    generated = []
    for _ in range(count):
        rows = rng.normal(size=(10, 5)).astype(np.float32)
        generated.append(ListwiseGroup(rows, (np.minimum(rows[:, 0], rows[:, 1]) > 0.3).astype(np.float32)))
    return generated


def precision(network, held_out):
    hits = [group.labels[np.argmax(network(group.rows))] for group in held_out if 0 < group.labels.sum() < 10]
    return float(np.mean(hits))


def test_it_learns_what_no_single_input_tells():
    assert precision(fit(groups(200), QUICK), groups(100, seed=9)) > 0.9


def test_equal_seeds_give_equal_networks_and_others_differ():
    rows = groups(5, seed=3)[0].rows
    first, same, other = (fit(groups(), QUICK, seed=seed)(rows) for seed in (1, 1, 2))
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)


def test_it_stands_the_loss_of_optional_inputs():
    network = fit(groups(200), replace(QUICK, blind=0.3), optional=[4])
    blind = [replace(group, rows=np.where(np.arange(5) == 4, np.nan, group.rows)) for group in groups(100, seed=9)]
    assert precision(network, blind) > 0.85


def test_groups_that_teach_nothing_are_refused():
    empty = ListwiseGroup(np.zeros((3, 2), np.float32), np.zeros(3, np.float32))
    with pytest.raises(DataError, match="both right and wrong"):
        fit([empty], QUICK)


def test_the_gradient_is_the_loss_s_slope():
    rng = np.random.default_rng(0)
    layers = [(w.astype(np.float64), b.astype(np.float64)) for w, b in initial_layers((4, 3, 1), rng)]
    rows, labels = rng.normal(size=(6, 4)), np.array([1, 0, 0, 1, 0, 0], dtype=float)
    slices, weights = [slice(0, 3), slice(3, 6)], np.array([1.0, 2.0])

    def loss():
        logits, _ = forward(layers, rows, 0.0, rng)
        total = 0.0
        for group_slice, weight in zip(slices, weights, strict=True):
            group_logits, right = logits[group_slice], labels[group_slice] > 0
            wrong = np.exp(group_logits[~right]).sum()
            total += weight * np.mean([np.log(np.exp(o) + wrong) - o for o in group_logits[right]])
            total += weight * 0.1 * np.sum(np.log1p(np.exp(group_logits)) - labels[group_slice] * group_logits)
        return total / 2

    logits, trace = forward(layers, rows, 0.0, rng)
    gradients = backward(layers, trace, _loss_gradient(logits, labels, slices, weights, 0.1))
    for (weight, _), (slope, _) in zip(layers, gradients, strict=True):
        for index in np.ndindex(*weight.shape):
            weight[index] += 1e-5
            up = loss()
            weight[index] -= 2e-5
            down = loss()
            weight[index] += 1e-5
            assert slope[index] == pytest.approx((up - down) / 2e-5, abs=1e-4)
