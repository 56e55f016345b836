"""The training of small networks that score the rows of a group against each other.

Training needs torch. The trained networks run on numpy.

The listwise loss compares each right row with the wrong rows of its group. A softmax over the right row and the wrong
rows gives the right row's share. The loss is the negative logarithm of this share, averaged over the right rows. This
follows Cao et al. (2007, equation 3), with one right row at a time. A small weight of binary cross entropy keeps the
outputs readable as probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from context_agent.errors import DataError, MissingExtraError
from context_agent.policies.bridge.candidates import Floats
from context_agent.policies.bridge.networks import Layers, Network, Scaling

try:
    import torch
    from torch import nn
except ImportError:
    raise MissingExtraError("torch", "train") from None

MAX_GRADIENT_NORM = 1.0
"""Norm to which the gradient of a batch is clipped."""
WARMUP_SHARE = 0.15
"""Share of the steps during which the learning rate rises."""


@dataclass(frozen=True)
class ListwiseGroup:
    """Rows that compete with each other. Shapes use `n` for the number of rows.

    Attributes:
        rows: Features, shape (n, inputs). NaN for a missing feature.
        labels: 1 for a right row, 0 for a wrong one, shape (n,).
        weight: Weight of the group in the loss.
    """

    rows: Floats
    labels: Floats
    weight: float = 1.0


@dataclass(frozen=True)
class FitRecipe:
    """The hyperparameters of a network's training.

    Five-fold cross-validation over the three benchmark sets chose the values.

    Attributes:
        hidden: Widths of the hidden layers.
        members: Number of networks to train. The trained network is their mean.
        epochs: Number of passes over the groups.
        steps: Smallest and largest number of optimizer steps. They apply to any number of groups.
        batch: Number of groups in a step.
        learning_rate: Peak learning rate of AdamW.
        weight_decay: Decoupled weight decay of AdamW.
        dropout: Probability that a hidden unit is dropped.
        input_dropout: Probability that an input is dropped from a whole batch, so that no feature alone determines the
            ranking.
        optional_dropout: Probability that all optional inputs are missing from a batch, as on a corpus without useful
            vectors.
        cross_entropy: Weight of the binary cross entropy.
    """

    hidden: tuple[int, ...] = (64, 32)
    members: int = 3
    epochs: int = 25
    steps: tuple[int, int] = (250, 1500)
    batch: int = 32
    learning_rate: float = 3e-3
    weight_decay: float = 1e-3
    dropout: float = 0.15
    input_dropout: float = 0.1
    optional_dropout: float = 0.15
    cross_entropy: float = 0.1


def fit(
    groups: Sequence[ListwiseGroup],
    recipe: FitRecipe,
    *,
    optional: Sequence[int] = (),
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Network:
    """Train a network on groups of rows. On the same machine, equal arguments give equal networks.

    Args:
        groups: The groups. Groups that lack right rows or wrong rows are left out, because they teach nothing.
        recipe: The hyperparameters.
        optional: Indices of the inputs that may all be missing at once.
        seed: Seed of the initial weights, the order of the groups and the dropout.
        progress: A function that receives the share of the members that are trained.

    Returns:
        The mean of `recipe.members` networks.

    Raises:
        DataError: If no group has both right and wrong rows.
    """
    informative = [group for group in groups if 0 < group.labels.sum() < len(group.labels)]
    if not informative:
        raise DataError(
            "no question has both right and wrong candidates, so there is nothing to learn from. Add questions whose "
            "gold documents are in the corpus, and documents that are not gold."
        )
    may_miss = np.zeros(informative[0].rows.shape[1], dtype=np.float32)
    may_miss[list(optional)] = 1
    scaling = Scaling.of(np.concatenate([group.rows for group in informative]), may_miss)
    data = _FitData.of(informative, scaling, sorted(optional))
    members = []
    # Training does not change the caller's random state.
    with torch.random.fork_rng(devices=[]):
        for member in range(recipe.members):
            torch.manual_seed(1_000 * seed + member)
            members.append(_fit_member(data, recipe))
            if progress is not None:
                progress((member + 1) / recipe.members)
    return Network(scaling, tuple(members))


def listwise_loss(
    logits: torch.Tensor,
    right: torch.Tensor,
    present: torch.Tensor,
    weights: torch.Tensor,
    cross_entropy: float,
) -> torch.Tensor:
    """Return the mean loss of padded groups.

    Args:
        logits: Scores, shape (groups, longest).
        right: True for right rows, of the same shape.
        present: False for padding, of the same shape.
        weights: Weights of the groups, shape (groups,).
        cross_entropy: Weight of the binary cross entropy.

    Returns:
        The loss, a scalar.
    """
    wrong = torch.logsumexp(logits.masked_fill(right | ~present, -math.inf), dim=1, keepdim=True)
    against_wrong = (torch.logaddexp(logits, wrong) - logits) * right
    entropy = nn.functional.binary_cross_entropy_with_logits(logits, right.to(logits.dtype), reduction="none")
    losses = against_wrong.sum(1) / right.sum(1) + cross_entropy * (entropy * present).sum(1)
    return (weights * losses).mean()


def initial_network(widths: Sequence[int], dropout: float) -> nn.Sequential:
    """Return linear layers with ReLU and dropout between them. The initial weights follow He et al. (2015)."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        linear = nn.Linear(inputs, outputs)
        nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers[:-2])


@dataclass(frozen=True)
class _FitData:
    """The scaled rows of all groups, with the start of each group. `blank` and `flags` are the columns of optional
    inputs.
    """

    inputs: torch.Tensor
    labels: torch.Tensor
    starts: torch.Tensor
    sizes: torch.Tensor
    weights: torch.Tensor
    blank: list[int]
    flags: list[int]

    @classmethod
    def of(cls, groups: Sequence[ListwiseGroup], scaling: Scaling, optional: Sequence[int]) -> _FitData:
        sizes = torch.tensor([len(group.labels) for group in groups])
        flagged = np.flatnonzero(scaling.optional > 0).tolist()
        weights = torch.tensor([group.weight for group in groups], dtype=torch.float32)
        return cls(
            inputs=torch.from_numpy(np.concatenate([scaling(group.rows) for group in groups]).astype(np.float32)),
            labels=torch.from_numpy(np.concatenate([group.labels for group in groups])) > 0,
            starts=sizes.cumsum(0) - sizes,
            sizes=sizes,
            weights=weights / weights.mean(),
            blank=[int(column) for column in optional],
            flags=[len(scaling.mean) + flagged.index(int(column)) for column in optional],
        )

    def batch(self, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the row indices of some groups, and a mask of the positions that have a row.

        Both have the shape (groups, longest).
        """
        sizes = self.sizes[chosen, None]
        places = torch.arange(int(sizes.max()))
        return (self.starts[chosen, None] + places).clamp(max=len(self.labels) - 1), places < sizes


def _fit_member(data: _FitData, recipe: FitRecipe) -> Layers:
    network = initial_network((data.inputs.shape[1], *recipe.hidden, 1), recipe.dropout)
    optimizer = torch.optim.AdamW(network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    count = len(data.weights)
    steps_per_epoch = -(-count // recipe.batch)
    steps = min(max(recipe.steps[0], recipe.epochs * steps_per_epoch), recipe.steps[1])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate_share(step, steps))
    for step in range(steps):
        if step % steps_per_epoch == 0:
            order = torch.randperm(count)
        first = step % steps_per_epoch * recipe.batch
        chosen = order[first : first + recipe.batch]
        rows, present = data.batch(chosen)
        logits = network(_drop_inputs(data.inputs[rows], data, recipe))[..., 0]
        right = data.labels[rows] & present
        loss = listwise_loss(logits, right, present, data.weights[chosen], recipe.cross_entropy)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        schedule.step()
    return tuple(
        (layer.weight.detach().numpy().T.copy(), layer.bias.detach().numpy().copy())
        for layer in network
        if isinstance(layer, nn.Linear)
    )


def _drop_inputs(inputs: torch.Tensor, data: _FitData, recipe: FitRecipe) -> torch.Tensor:
    """Return the inputs of a batch, shape (groups, longest, inputs), with some columns set to missing."""
    inputs = inputs * (torch.rand(inputs.shape[-1]) >= recipe.input_dropout)
    if data.blank and torch.rand(()) < recipe.optional_dropout:
        inputs[..., data.blank] = 0
        inputs[..., data.flags] = 1
    return inputs


def _rate_share(step: int, steps: int) -> float:
    """Return the learning rate at a step as a share of the peak. The rate rises linearly and then falls as a cosine to
    0.
    """
    warm = max(1, int(WARMUP_SHARE * steps))
    return (step + 1) / warm if step < warm else 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
