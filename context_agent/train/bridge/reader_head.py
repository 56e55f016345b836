"""A linear correction of the reader's log-odds, fitted to a corpus."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from context_agent.policies.bridge.candidates import Floats
from context_agent.policies.bridge.reader import read_odds
from context_agent.train.bridge.episodes import FOLDS, BridgeEpisode

HEAD_PENALTIES = (math.inf, 300.0, 30.0)
"""Penalties of the correction among which cross-validation chooses. With infinity the reader stays as it is."""


NEWTON_STEPS = 8
"""Number of steps of Newton's method."""


def head_penalty(episodes: Sequence[BridgeEpisode]) -> float:
    """Return the penalty with the lowest cross-validated loss. If it is infinite, the log-odds are better without a
    correction.
    """
    rows, labels, fold = _rows_read(episodes)
    losses = {penalty: held_out_loss(rows, labels, fold, penalty) for penalty in HEAD_PENALTIES}
    return min(losses, key=losses.__getitem__)


def fit_heads(episodes: Sequence[BridgeEpisode], penalty: float) -> tuple[Floats | None, dict[int, Floats | None]]:
    """Return the correction fitted to all episodes. For each fold, also return the correction fitted to the other
    folds.
    """
    rows, labels, fold = _rows_read(episodes)
    by_fold = {part: fit_head(rows[fold != part], labels[fold != part], penalty) for part in range(FOLDS)}
    return fit_head(rows, labels, penalty), by_fold


def _rows_read(episodes: Sequence[BridgeEpisode]) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return the reader's rows, shape (n_rows, width), and their labels and folds, each of shape (n_rows,)."""
    read = [np.isfinite(episode.rows[:, 0]) for episode in episodes]
    rows = np.concatenate([episode.rows[mask] for episode, mask in zip(episodes, read, strict=True)])
    labels = np.concatenate([episode.labels[mask] for episode, mask in zip(episodes, read, strict=True)])
    fold = np.repeat([episode.fold for episode in episodes], [int(mask.sum()) for mask in read])
    return rows, labels, fold


def held_out_loss(rows: Floats, labels: Floats, fold: NDArray[np.int64], penalty: float) -> float:
    """Return the total logistic loss over the folds. The correction for each fold is fitted to the other folds.

    Args:
        rows: The reader's output, shape (n_rows, width). The first column is its log-odds.
        labels: 1 for a row that the reader should find, otherwise 0, shape (n_rows,).
        fold: The fold of each row, shape (n_rows,).
        penalty: The ridge penalty of `fit_head`.

    Returns:
        The loss. It is infinite if a fit did not converge.
    """
    total = 0.0
    for part in np.unique(fold):
        own = fold == part
        odds = read_odds(rows[own], fit_head(rows[~own], labels[~own], penalty))
        total += float(np.logaddexp(0, np.where(labels[own] > 0, -odds, odds)).sum())
    return total if math.isfinite(total) else math.inf


def fit_head(rows: Floats, labels: Floats, penalty: float) -> Floats | None:
    """Fit a ridge logistic regression that corrects the reader's log-odds. The fit uses Newton's method.

    The penalty applies to the squared weights. The constant is penalized very little. If the penalty is infinite,
    return None.

    Args:
        rows: The reader's output, shape (n_rows, width). The first column is its log-odds.
        labels: 1 for gold, otherwise 0, shape (n_rows,).
        penalty: The ridge penalty.

    Returns:
        The weights and the constant, shape (width + 1,).
    """
    if math.isinf(penalty):
        return None
    inputs = np.concatenate([rows, np.ones((len(rows), 1))], axis=1).astype(np.float64)
    weights = np.zeros(inputs.shape[1])
    ridge = np.diag(np.append(np.full(rows.shape[1], penalty), 1e-3))
    for _ in range(NEWTON_STEPS):
        odds = np.clip(rows[:, 0] + inputs @ weights, -30, 30)
        probability = 1 / (1 + np.exp(-odds))
        slope = inputs.T @ (probability - labels) + ridge @ weights
        curvature = (inputs * (probability * (1 - probability))[:, None]).T @ inputs + ridge
        weights -= np.linalg.solve(curvature, slope)
    return weights.astype(np.float32)
