"""Which episodes are worth imitating: the rules of Context-1's supervised stage, each one an option.

An episode is dropped by the first rule that it breaks.

1. `malformed`: it did not end with its own ranking, or made more than `max_mistakes` mistakes.
2. `lost`: it saw gold that it did not return: trajectory recall - output recall >= `max_gap`.
3. `short`: with a single search it is kept at random with probability `short_rate`.
4. `repeated`: of a task's episodes above both thresholds (trajectory recall > `min_trajectory_recall` and output recall
   > `min_output_recall`) only the best `high_per_task` stay.
5. `low`: below a threshold, with some gold returned, it is kept at random with probability
   p = `low_rate` * mean(min(1, trajectory recall / its threshold), min(1, output recall / its threshold)).
6. `zero`: of the episodes that returned no gold, `zero_per_task` of each task are candidates, and at most a share of
   `max_zero_share` of the kept episodes are of this kind.

Randomness is a digest of seed and episode, so the draw for an episode does not depend on the other episodes or on their
order. The report publishes the thresholds 0.5 and 0.4, the 5 %, and the one zero-recall and one high-recall episode for
each query. The rates, the formula, the gap and the number of mistakes are this project's. A small model that learns
from many episodes of a single search ends its own after one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from hashlib import blake2b
from typing import Any

from context_agent.errors import ConfigError
from context_agent.harness.episode import StopReason


@dataclass(frozen=True, slots=True)
class ExpertEpisode:
    """The figures of an episode. Recalls and precision are those of its output and of all that it saw.

    `pruned` counts chunks, `prunes` and `restores` the turns with such an edit, `bytes` is the size of the file.
    """

    task: str
    rollout: int
    file: str
    expert: str
    type: str
    hops: int
    trajectory_recall: float
    output_recall: float
    precision: float
    prune_accuracy: float | None
    turns: int
    tokens: int
    searches: int
    prunes: int
    pruned: int
    restores: int
    mistakes: int
    stop_reason: str
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return the row of the episode."""
        return asdict(self)

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> ExpertEpisode:
        """Return the episode of a row. Raises `KeyError` if a field is missing."""
        return ExpertEpisode(**{field.name: row[field.name] for field in fields(ExpertEpisode)})


DROP_RULES = ("malformed", "lost", "short", "repeated", "low", "zero")
"""The rules that drop an episode, in order."""


KEPT_KINDS = ("high", "low", "zero")
"""The kinds of kept episodes: above both thresholds, sampled from below them, without any gold."""


@dataclass(frozen=True, slots=True)
class DemonstrationFilters:
    """The values of the rules, described in the module's docstring."""

    min_trajectory_recall: float = 0.5
    min_output_recall: float = 0.4
    low_rate: float = 0.5
    max_zero_share: float = 0.05
    zero_per_task: int = 1
    high_per_task: int = 1
    """0 for all."""
    max_gap: float = 0.5
    """0 for any."""
    max_mistakes: int = 2
    short_rate: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in (
            "min_trajectory_recall",
            "min_output_recall",
            "low_rate",
            "max_zero_share",
            "max_gap",
            "short_rate",
        ):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"filter {name} must be in 0..1; got {getattr(self, name)}")
        for name in ("zero_per_task", "high_per_task", "max_mistakes"):
            if getattr(self, name) < 0:
                raise ConfigError(f"filter {name} must not be negative; got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class FilterVerdict:
    """The verdict on an episode: kept as one of `KEPT_KINDS`, or dropped by one of the `DROP_RULES`."""

    episode: ExpertEpisode
    keep: bool
    reason: str


def filter_episodes(episodes: Sequence[ExpertEpisode], filters: DemonstrationFilters) -> list[FilterVerdict]:
    """Return a verdict for each episode, in their order. The verdicts do not depend on the order."""
    verdicts = {episode.file: _verdict_alone(episode, filters) for episode in episodes}
    _drop_repeated(verdicts, filters)
    _drop_zero(verdicts, filters)
    return [verdicts[episode.file] for episode in episodes]


def uniform_draw(seed: int, rule: str, file: str) -> float:
    """Return a number in [0, 1) that depends on seed, rule and episode alone."""
    digest = blake2b(f"{seed}:{rule}:{file}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _verdict_alone(episode: ExpertEpisode, filters: DemonstrationFilters) -> FilterVerdict:
    """Return the verdict by the rules for a single episode."""
    seen, returned = episode.trajectory_recall, episode.output_recall
    if episode.stop_reason != StopReason.FINISHED or episode.mistakes > filters.max_mistakes:
        return FilterVerdict(episode, False, "malformed")
    if filters.max_gap and seen - returned >= filters.max_gap:
        return FilterVerdict(episode, False, "lost")
    if episode.searches <= 1 and uniform_draw(filters.seed, "short", episode.file) >= filters.short_rate:
        return FilterVerdict(episode, False, "short")
    if returned == 0:
        return FilterVerdict(episode, True, "zero")
    if seen > filters.min_trajectory_recall and returned > filters.min_output_recall:
        return FilterVerdict(episode, True, "high")
    shares = (
        _threshold_share(seen, filters.min_trajectory_recall),
        _threshold_share(returned, filters.min_output_recall),
    )
    drawn = uniform_draw(filters.seed, "low", episode.file)
    return FilterVerdict(episode, drawn < filters.low_rate * sum(shares) / 2, "low")


def _threshold_share(value: float, threshold: float) -> float:
    return min(1.0, value / threshold) if threshold else 1.0


def _drop_repeated(verdicts: dict[str, FilterVerdict], filters: DemonstrationFilters) -> None:
    """Drop a task's episodes after the best: highest recalls, then fewest mistakes, turns and tokens."""
    if not filters.high_per_task:
        return

    def order(episode: ExpertEpisode) -> tuple[float, ...]:
        recalls = (-episode.output_recall, -episode.trajectory_recall)
        return (
            *recalls,
            episode.mistakes,
            episode.turns,
            episode.tokens,
            uniform_draw(filters.seed, "repeated", episode.file),
        )

    for file in _beyond(_kept_as("high", verdicts), order, filters.high_per_task):
        verdicts[file] = FilterVerdict(verdicts[file].episode, False, "repeated")


def _drop_zero(verdicts: dict[str, FilterVerdict], filters: DemonstrationFilters) -> None:
    """Drop the episodes without gold beyond those allowed for a task, then beyond their share of the kept ones."""

    def order(episode: ExpertEpisode) -> tuple[float, ...]:
        return (uniform_draw(filters.seed, "zero", episode.file),)

    for file in _beyond(_kept_as("zero", verdicts), order, filters.zero_per_task):
        verdicts[file] = FilterVerdict(verdicts[file].episode, False, "zero")
    candidates = sorted(_kept_as("zero", verdicts), key=order)
    other_count = sum(verdict.keep for verdict in verdicts.values()) - len(candidates)
    share = filters.max_zero_share
    # z <= share * (others + z); a hair more, since 0.05 * 20 must be 1 after rounding.
    most = len(candidates) if share == 1 else int(share * other_count / (1 - share) + 1e-9)
    for episode in candidates[most:]:
        verdicts[episode.file] = FilterVerdict(episode, False, "zero")


def _kept_as(reason: str, verdicts: dict[str, FilterVerdict]) -> list[ExpertEpisode]:
    return [verdict.episode for verdict in verdicts.values() if verdict.keep and verdict.reason == reason]


def _beyond(
    episodes: Iterable[ExpertEpisode], order: Callable[[ExpertEpisode], tuple[float, ...]], most: int
) -> list[str]:
    """Return the files of each task's episodes after the first `most` in that order."""
    by_task: dict[str, list[ExpertEpisode]] = defaultdict(list)
    for episode in episodes:
        by_task[episode.task].append(episode)
    return [extra.file for group in by_task.values() for extra in sorted(group, key=order)[most:]]
