"""Trains small networks that score the rows of a group, by hand-written backward passes. Needs only numpy.

The loss of a group is, for every right row, the negative log of its softmax share against the wrong rows, averaged over
the right rows, plus a share of binary cross entropy that keeps the outputs readable as probabilities. AdamW with a
warm-up and a cosine decay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from context_agent.errors import DataError
from context_agent.policies.bridge.candidates import Floats
from context_agent.policies.bridge.networks import Layers, Network, Scaling

LayerWeights = list[tuple[Floats, Floats]]
"""Weights (inputs, outputs) and biases (outputs,) of each layer, changed in place; ReLU between layers."""


def initial_layers(sizes: Sequence[int], draw: np.random.Generator) -> LayerWeights:
    """He initialization (He et al., 2015)."""
    layers = []
    for inputs, outputs in pairwise(sizes):
        weight = draw.standard_normal((inputs, outputs)) * math.sqrt(2 / inputs)
        layers.append((weight.astype(np.float32), np.zeros(outputs, dtype=np.float32)))
    return layers


def forward(
    layers: LayerWeights, inputs: Floats, dropout: float = 0.0, draw: np.random.Generator | None = None
) -> tuple[Floats, list[tuple[Floats, Floats]]]:
    """Return the logits, and each layer's input with the slope of its activation. `draw` is needed for dropout
    alone.
    """
    trace: list[tuple[Floats, Floats]] = []
    hidden, active = inputs, np.ones_like(inputs)
    for weight, bias in layers[:-1]:
        trace.append((hidden, active))
        before = hidden @ weight + bias
        active = np.asarray(before > 0, dtype=np.float32)
        if draw is not None and dropout > 0:
            active *= (draw.random(before.shape, dtype=np.float32) >= dropout) / np.float32(1 - dropout)
        hidden = before * active
    trace.append((hidden, active))
    weight, bias = layers[-1]
    return (hidden @ weight + bias)[:, 0], trace


def backward(layers: LayerWeights, trace: Sequence[tuple[Floats, Floats]], slope: Floats) -> LayerWeights:
    """Return the gradient of each layer, given the loss's slope by each logit."""
    gradients: LayerWeights = []
    back = slope[:, None]
    for (weight, _), (hidden, active) in zip(reversed(layers), reversed(trace), strict=True):
        gradients.append((hidden.T @ back, back.sum(axis=0)))
        back = (back @ weight.T) * active
    return gradients[::-1]


class AdamW:
    """AdamW (Loshchilov and Hutter, 2019) over the layers, in place; gradients are cut to a norm of 1."""

    def __init__(self, layers: LayerWeights, *, rate: float, decay: float = 0.0) -> None:
        self._parts = [part for layer in layers for part in layer]
        self.mean = [np.zeros_like(part) for part in self._parts]
        self.square = [np.zeros_like(part) for part in self._parts]
        self.steps = 0
        self._rate, self._decay = rate, decay

    def step(self, gradients: LayerWeights, share: float = 1.0) -> None:
        """One update at `share` of the full rate."""
        flat = [part for layer in gradients for part in layer]
        norm = math.sqrt(sum(float((part**2).sum()) for part in flat))
        self.steps += 1
        rate = self._rate * share
        cut = min(1.0, 1.0 / (norm + 1e-6))
        for at, gradient in enumerate(flat):
            self.mean[at] += 0.1 * (gradient * cut - self.mean[at])
            self.square[at] += 0.001 * ((gradient * cut) ** 2 - self.square[at])
            corrected = self.mean[at] / (1 - 0.9**self.steps)
            spread = np.sqrt(self.square[at] / (1 - 0.999**self.steps)) + 1e-8
            self._parts[at] -= rate * (corrected / spread + self._decay * self._parts[at])


@dataclass(frozen=True)
class ListwiseGroup:
    """Rows that compete: features (n, F), NaN where missing, labels (n,) of 0 and 1, and the group's weight."""

    rows: Floats
    labels: Floats
    weight: float = 1.0


@dataclass(frozen=True)
class FitRecipe:
    """How a network is trained. The values were chosen by five-fold cross-validation over the three benchmark sets."""

    hidden: tuple[int, ...] = (64, 32)
    members: int = 3
    epochs: int = 25
    steps: tuple[int, int] = (250, 1500)
    """Steps at least and at most, however many groups there are."""
    batch: int = 32
    rate: float = 3e-3
    decay: float = 1e-3
    dropout: float = 0.15
    blackout: float = 0.1
    """Chance that an input is missing from a whole batch: no single feature may carry the ranking."""
    blind: float = 0.15
    """Chance that the `optional` inputs are all missing from a batch, as they are where vectors are useless."""
    cross_entropy: float = 0.1


def fit(
    groups: Sequence[ListwiseGroup],
    recipe: FitRecipe,
    *,
    optional: Sequence[int] = (),
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Network:
    """Return the mean of `recipe.members` networks. `optional` numbers the inputs that may all be missing at once.

    Groups without a right or without a wrong row teach nothing and are dropped. Deterministic for a seed.
    Raises `DataError` if no group is left.
    """
    informative = [group for group in groups if 0 < group.labels.sum() < len(group.labels)]
    if not informative:
        raise DataError(
            "nothing to learn from: no question has both right and wrong candidates; give questions whose gold "
            "documents are in the corpus among others"
        )
    may_miss = np.zeros(informative[0].rows.shape[1], dtype=np.float32)
    may_miss[list(optional)] = 1
    scaling = Scaling.of(np.concatenate([group.rows for group in informative]), may_miss)
    data = _FitData.of(informative, scaling, sorted(optional))
    members = []
    for member in range(recipe.members):
        members.append(_fit_member(data, recipe, np.random.default_rng((seed, member))))
        if progress is not None:
            progress((member + 1) / recipe.members)
    return Network(scaling, tuple(members))


@dataclass(frozen=True)
class _FitData:
    """All rows scaled, where each group begins, and the inputs that blindness blanks and flags."""

    inputs: Floats
    labels: Floats
    starts: list[int]
    weights: Floats
    blank: list[int]
    flags: list[int]

    @classmethod
    def of(cls, groups: Sequence[ListwiseGroup], scaling: Scaling, optional: Sequence[int]) -> _FitData:
        starts = np.cumsum([0] + [len(group.labels) for group in groups]).tolist()
        flagged = np.flatnonzero(scaling.optional > 0).tolist()
        weights = np.array([group.weight for group in groups], dtype=np.float32)
        return cls(
            inputs=np.concatenate([scaling(group.rows) for group in groups]),
            labels=np.concatenate([group.labels for group in groups]).astype(np.float32),
            starts=starts,
            weights=weights / weights.mean(),
            blank=[int(column) for column in optional],
            flags=[len(scaling.mean) + flagged.index(int(column)) for column in optional],
        )

    def batch(self, chosen: Sequence[int]) -> tuple[Floats, Floats, list[slice], Floats]:
        """Inputs and labels of some groups, where each lies in them, and their weights."""
        spans = [(self.starts[group], self.starts[group + 1]) for group in chosen]
        rows = np.concatenate([np.arange(start, end) for start, end in spans])
        ends = np.cumsum([end - start for start, end in spans]).tolist()
        group_slices = [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        return self.inputs[rows], self.labels[rows], group_slices, self.weights[list(chosen)]


def _fit_member(data: _FitData, recipe: FitRecipe, draw: np.random.Generator) -> Layers:
    layers = initial_layers((data.inputs.shape[1], *recipe.hidden, 1), draw)
    adam = AdamW(layers, rate=recipe.rate, decay=recipe.decay)
    count = len(data.weights)
    an_epoch = -(-count // recipe.batch)
    steps = min(max(recipe.steps[0], recipe.epochs * an_epoch), recipe.steps[1])
    for step in range(steps):
        if step % an_epoch == 0:
            order = draw.permutation(count)
        first = step % an_epoch * recipe.batch
        inputs, labels, spans, weights = data.batch(order[first : first + recipe.batch].tolist())
        inputs = _drop_inputs(inputs, data, recipe, draw)
        logits, trace = forward(layers, inputs, recipe.dropout, draw)
        slope = _loss_gradient(logits, labels, spans, weights, recipe.cross_entropy)
        adam.step(backward(layers, trace, slope), _rate_share(step, steps))
    return tuple((weight, bias) for weight, bias in layers)


def _drop_inputs(inputs: Floats, data: _FitData, recipe: FitRecipe, draw: np.random.Generator) -> Floats:
    inputs = inputs * np.asarray(draw.random(inputs.shape[1]) >= recipe.blackout, dtype=np.float32)
    if data.blank and draw.random() < recipe.blind:
        inputs[:, data.blank] = 0
        inputs[:, data.flags] = 1
    return inputs


def _loss_gradient(logits: Floats, labels: Floats, spans: Sequence[slice], weights: Floats, share: float) -> Floats:
    """Return the loss's derivative by each logit."""
    slope = np.zeros_like(logits)
    for span, weight in zip(spans, weights.tolist(), strict=True):
        mine, right = logits[span], labels[span] > 0
        power = np.exp(mine - mine.max())
        wrong = power[~right].sum()
        against = 1.0 / (power[right] + wrong + 1e-12)
        part = np.where(right, 0.0, power * against.sum())
        part[right] = -wrong * against
        slope[span] = weight * part / right.sum()
        slope[span] += weight * share * (1.0 / (1.0 + np.exp(-np.clip(mine, -30, 30))) - labels[span])
    return slope / np.float32(len(spans))


def _rate_share(step: int, steps: int) -> float:
    """Share of the full rate: linear warm-up over the first 15 % of the steps, then a cosine to zero."""
    warm = max(1, int(0.15 * steps))
    return (step + 1) / warm if step < warm else 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
