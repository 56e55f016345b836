"""Advantages: one number per episode, computed from the rewards of its group before the episode becomes rows.

A group is the rollouts of one question. An episode's advantage is its reward minus its group's mean. Every row of the
episode carries it (`train.rows`). An episode with many edits has more rows, but does not count more than another
episode.
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
    """The way in which a reward becomes an advantage. Each way subtracts a quantity, and may divide by another."""

    MEAN = "mean"
    """The reward minus the group's mean: CISPO as published for Context-1, and Dr. GRPO (arXiv 2503.20783)."""
    DEVIATION = "deviation"
    """The reward minus the group's mean, divided by its standard deviation: GRPO (arXiv 2402.03300, equation 4)."""
    LEAVE_ONE_OUT = "leave_one_out"
    """The reward minus the mean of the group's other episodes: REINFORCE with an unbiased baseline (arXiv 2402.14740).
    """


class BaselineMembers(StrEnum):
    """The episodes of a group from which its baseline is computed."""

    SAMPLED = "sampled"
    """Only the episodes that the policy sampled. If an expert always wins, their advantages are then not all negative.
    """
    ALL = "all"
    """All episodes, demonstrations included, as in LUFFY (arXiv 2504.14945)."""


@dataclass(frozen=True, slots=True)
class EpisodeReward:
    """An episode and its reward.

    Attributes:
        episode: The id of the episode.
        group: The question of the episode.
        reward: The reward.
        demonstrated: True if an expert played the episode instead of the policy.
    """

    episode: str
    group: str
    reward: float
    demonstrated: bool = False


EQUAL_REWARDS = 1e-9
"""Largest difference at which the rewards of a group count as equal."""


@dataclass(frozen=True, slots=True)
class EpisodeAdvantages:
    """The advantages of the trained episodes, and the groups and episodes that are not trained on.

    Attributes:
        by_episode: The advantage of each trained episode.
        equal: The groups in which all rewards are equal. They do not show which episode is better.
        dropped: The episodes with a negative advantage that were dropped.
    """

    by_episode: Mapping[str, float]
    equal: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def group_advantages(
    episodes: Sequence[EpisodeReward],
    *,
    baseline: Baseline = Baseline.MEAN,
    members: BaselineMembers = BaselineMembers.ALL,
    keep_negative: float = 1.0,
    seed: int = 0,
) -> EpisodeAdvantages:
    """Return the advantages of a step's episodes. Their order does not matter.

    A demonstration is trained on only if it is better than its group's baseline. Training therefore never makes a
    demonstration's replies less likely (self-imitation learning, arXiv 1806.05635).

    Args:
        episodes: The episodes of the step with their rewards.
        baseline: The way in which a reward becomes an advantage.
        members: The episodes that the baseline is computed from.
        keep_negative: Of the episodes with a negative advantage, the share that is kept (Kimi-Researcher's control of
            negative samples).
        seed: The random seed that decides which of these episodes are kept.

    Returns:
        The advantages by episode.

    Raises:
        DataError: If a reward is not finite, or an episode occurs twice.
        ConfigError: If `keep_negative` lies outside [0, 1].
    """
    if not 0 <= keep_negative <= 1:
        raise ConfigError(f"keep_negative must be a share from 0 to 1; got {keep_negative}")
    values_by_episode: dict[str, float] = {}
    equal = []
    for group, of_group in sorted(_groups(episodes).items()):
        rewards = np.array([member.reward for member in of_group])
        if np.ptp(rewards) <= EQUAL_REWARDS:
            equal.append(group)
            continue
        counts = np.array([members is BaselineMembers.ALL or not member.demonstrated for member in of_group])
        if not counts.any():
            counts = ~counts
        values = _centered(rewards, counts, baseline)
        # If all members are equal, they teach nothing and would only dilute the loss.
        differ = np.ptp(rewards[counts]) > EQUAL_REWARDS
        values_by_episode |= {
            member.episode: float(value)
            for member, value in zip(of_group, values, strict=True)
            if value > 0 or (differ and not member.demonstrated)
        }
    negative = [episode for episode in sorted(values_by_episode) if values_by_episode[episode] < 0]
    keep_count = round(keep_negative * len(negative))
    dropped = sorted(random.Random(seed).sample(negative, len(negative) - keep_count))
    for episode in dropped:
        del values_by_episode[episode]
    return EpisodeAdvantages(values_by_episode, tuple(equal), tuple(dropped))


def _groups(episodes: Sequence[EpisodeReward]) -> dict[str, list[EpisodeReward]]:
    groups: dict[str, list[EpisodeReward]] = {}
    seen: set[str] = set()
    for episode in sorted(episodes, key=lambda item: item.episode):
        if not np.isfinite(episode.reward):
            raise DataError(f"the reward of episode {episode.episode} must be finite; got {episode.reward}")
        if episode.episode in seen:
            raise DataError(
                f"the rewards of one step must have each episode once; episode {episode.episode} occurs twice"
            )
        seen.add(episode.episode)
        groups.setdefault(episode.group, []).append(episode)
    return groups


def _centered(rewards: Floats, counts: NDArray[np.bool_], baseline: Baseline) -> Floats:
    """Return the advantages, shape (episodes,), of rewards that are not all equal.

    `counts` marks the episodes that the baseline is computed from. At least one is marked.
    """
    centered: Floats = rewards - rewards[counts].mean()
    if baseline is Baseline.DEVIATION:
        # If all members are equal, use the deviation of the whole group, which is above 0.
        deviation = rewards[counts].std() if np.ptp(rewards[counts]) > EQUAL_REWARDS else rewards.std()
        return np.asarray(centered / deviation, dtype=np.float64)
    if baseline is Baseline.LEAVE_ONE_OUT:
        # An episode that is not a member is compared with all members.
        own_weight = counts.sum() / max(1, counts.sum() - 1)
        return np.where(counts, centered * own_weight, centered)
    return centered
