"""The trainer of small networks learns what there is to learn, with the same result each time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from context_agent.errors import DataError

torch = pytest.importorskip("torch", reason="needs the train extra")

from context_agent.train.bridge.listwise import (  # noqa: E402
    FitRecipe,
    ListwiseGroup,
    fit,
    initial_network,
    listwise_loss,
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
    network = fit(groups(200), replace(QUICK, optional_dropout=0.3), optional=[4])
    blind = [replace(group, rows=np.where(np.arange(5) == 4, np.nan, group.rows)) for group in groups(100, seed=9)]
    assert precision(network, blind) > 0.85


def test_groups_that_teach_nothing_are_refused():
    empty = ListwiseGroup(np.zeros((3, 2), np.float32), np.zeros(3, np.float32))
    with pytest.raises(DataError, match="both right and wrong"):
        fit([empty], QUICK)


def gradients_by_hand(layers, rows, labels, slices, weights, *, share):
    """The slope of the loss by each weight and bias, from the formulas of the loss and of back-propagation."""
    trace, hidden = [], rows
    for weight, bias in layers[:-1]:
        trace.append(hidden)
        hidden = np.maximum(hidden @ weight + bias, 0)
    trace.append(hidden)
    logits = (hidden @ layers[-1][0] + layers[-1][1])[:, 0]
    slope = np.zeros_like(logits)
    for group, group_weight in zip(slices, weights, strict=True):
        power, right = np.exp(logits[group]), labels[group] > 0
        wrong = power[~right].sum()
        against = 1 / (power[right] + wrong)
        part = np.where(right, 0.0, power * against.sum())
        part[right] = -wrong * against
        slope[group] = group_weight * (part / right.sum() + share * (1 / (1 + 1 / power) - labels[group]))
    back, gradients = slope[:, None] / len(slices), []
    for (weight, _), inputs in zip(reversed(layers), reversed(trace), strict=True):
        gradients.append((inputs.T @ back, back.sum(axis=0)))
        back = (back @ weight.T) * (inputs > 0)
    return gradients[::-1]


def test_the_gradients_are_those_of_the_formulas():
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    network = initial_network((4, 5, 3, 1), dropout=0.0).double()
    rows, labels = rng.normal(size=(7, 4)), np.array([1, 0, 0, 1, 1, 0, 0], dtype=float)
    slices, weights = [slice(0, 3), slice(3, 7)], np.array([1.0, 2.0])
    logits = network(torch.from_numpy(rows))[:, 0]
    padded = torch.stack([torch.cat([logits[:3], logits.new_zeros(1)]), logits[3:]])
    right = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0]]).bool()
    present = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]).bool()
    listwise_loss(padded, right, present, torch.from_numpy(weights), 0.1).backward()
    linear = [layer for layer in network if isinstance(layer, torch.nn.Linear)]
    layers = [(layer.weight.detach().numpy().T, layer.bias.detach().numpy()) for layer in linear]
    expected = gradients_by_hand(layers, rows, labels, slices, weights, share=0.1)
    for layer, (weight, bias) in zip(linear, expected, strict=True):
        np.testing.assert_allclose(layer.weight.grad.numpy().T, weight, atol=1e-5)
        np.testing.assert_allclose(layer.bias.grad.numpy(), bias, atol=1e-5)
        assert np.abs(weight).max() > 1e-3


def test_a_network_runs_on_numpy_as_it_was_trained():
    data = groups(40)
    network = fit(data, replace(QUICK, dropout=0.0))
    (layers,) = network.members
    assert all(isinstance(part, np.ndarray) and part.dtype == np.float32 for layer in layers for part in layer)
    assert network(data[0].rows).shape == (10,)


def test_the_random_state_of_the_caller_stays():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fit(groups(10), QUICK)
    assert torch.equal(torch.rand(3), expected)
