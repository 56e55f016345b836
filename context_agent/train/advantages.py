"""From rewards to advantages: one number an episode, before its rows are made. numpy alone.

A group is the rollouts of one question. An episode's advantage is its reward less its group's mean; every row of the
episode carries it (`train.rows`), so an episode that was edited often counts no more than one that was not.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import ConfigError, DataError

Floats = NDArray[np.float64]


class Baseline(StrEnum):
    """What is taken off a reward, and what it is divided by."""

    MEAN = "mean"
    """The group's mean: CISPO as published for Context-1, and Dr. GRPO (arXiv 2503.20783)."""
    DEVIATION = "deviation"
    """The group's mean, divided by the group's standard deviation: GRPO (arXiv 2402.03300, equation 4)."""
    LEAVE_ONE_OUT = "leave_one_out"
    """The mean of the group's other episodes: REINFORCE with an unbiased baseline (arXiv 2402.14740)."""


@dataclass(frozen=True, slots=True)
class EpisodeReward:
    """An episode and its reward. `group` is its question."""

    episode: str
    group: str
    reward: float


@dataclass(frozen=True, slots=True)
class EpisodeAdvantages:
    """The advantage of each episode that is trained on, and the groups and episodes that are not.

    `equal` are the groups whose rewards are all the same: they say nothing of what is better. `dropped` are the
    episodes that negative-sample control dropped.
    """

    by_episode: Mapping[str, float]
    equal: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def group_advantages(
    episodes: Sequence[EpisodeReward],
    *,
    baseline: Baseline = Baseline.MEAN,
    keep_negative: float = 1.0,
    tolerance: float = 1e-9,
    seed: int = 0,
) -> EpisodeAdvantages:
    """The advantages of a step's episodes, whatever order they are in.

    `keep_negative` is the share of episodes with a negative advantage that stay (Kimi-Researcher's control of negative
    samples); which ones, is drawn from the seed. Rewards within `tolerance` of each other count as equal. Raises
    `DataError` for a reward that is not finite or an episode that occurs twice, `ConfigError` for a share outside
    [0, 1].
    """
    if not 0 <= keep_negative <= 1:
        raise ConfigError(f"keep_negative is a share between 0 and 1; got {keep_negative}")
    values_by_episode: dict[str, float] = {}
    equal = []
    for group, members in sorted(_groups(episodes).items()):
        rewards = np.array([member.reward for member in members])
        if np.ptp(rewards) <= tolerance:
            equal.append(group)
            continue
        values = _centered(rewards, baseline)
        values_by_episode |= {member.episode: float(value) for member, value in zip(members, values, strict=True)}
    negative = [episode for episode in sorted(values_by_episode) if values_by_episode[episode] < 0]
    keep_count = round(keep_negative * len(negative))
    dropped = sorted(random.Random(seed).sample(negative, len(negative) - keep_count))
    trained = {episode: value for episode, value in values_by_episode.items() if episode not in set(dropped)}
    return EpisodeAdvantages(trained, tuple(equal), tuple(dropped))


def _groups(episodes: Sequence[EpisodeReward]) -> dict[str, list[EpisodeReward]]:
    groups: dict[str, list[EpisodeReward]] = {}
    seen: set[str] = set()
    for episode in sorted(episodes, key=lambda item: item.episode):
        if not np.isfinite(episode.reward):
            raise DataError(f"the reward of episode {episode.episode} is {episode.reward}, which is not finite")
        if episode.episode in seen:
            raise DataError(f"episode {episode.episode} occurs twice among the rewards of one step")
        seen.add(episode.episode)
        groups.setdefault(episode.group, []).append(episode)
    return groups


def _centered(rewards: Floats, baseline: Baseline) -> Floats:
    """Shape (episodes,) in, the same out; at least two rewards differ."""
    centred: Floats = rewards - rewards.mean()
    scale = 1.0
    if baseline is Baseline.DEVIATION:
        scale = 1 / float(rewards.std())
    elif baseline is Baseline.LEAVE_ONE_OUT:
        scale = len(rewards) / (len(rewards) - 1)
    return centred * scale
