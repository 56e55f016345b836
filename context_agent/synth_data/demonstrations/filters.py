"""Filters that select the episodes worth imitating, by the rules of Context-1's supervised stage.

Each rule is an option. An episode is dropped by the first rule that it breaks.

1. `malformed`: it did not end with its own ranking, or made more than `max_mistakes` mistakes.
2. `lost`: it saw gold that it did not return. Its trajectory recall exceeds its output recall by `max_gap` or more.
3. `short`: it made a single search. Such an episode is kept at random with probability `short_rate`.
4. `repeated`: its recalls exceed both thresholds (`min_trajectory_recall` and `min_output_recall`), but other episodes
   of its task are better. Only the best `high_per_task` stay.
5. `low`: a recall is below its threshold, but it returned some gold. It is kept at random with probability
   p = `low_rate` * mean(min(1, trajectory recall / its threshold), min(1, output recall / its threshold)).
6. `zero`: it returned no gold. For each task, `zero_per_task` such episodes are candidates. Their share of the kept
   episodes is at most `max_zero_share`.

Each random number is a digest of the seed and the episode. So the draw for an episode does not depend on the other
episodes or on their order. The Context-1 report gives the thresholds 0.5 and 0.4, and the share of 5%. It also limits
each query to one zero-recall and one high-recall episode. This project added the rates, the formula, the gap and the
number of mistakes. The rule `short` exists because a small model that learns from many episodes of a single search
stops after one search.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any

from context_agent.errors import ConfigError, DataError
from context_agent.harness.episode import StopReason


@dataclass(frozen=True, slots=True)
class ExpertEpisode:
    """The measurements of an episode.

    Attributes:
        task: The id of the task.
        rollout: The number of the episode among the episodes of its task.
        file: The name of the trajectory file.
        expert: The name of the expert.
        type: The type of the task.
        hops: The number of hops of the task.
        trajectory_recall: The share of the gold that the episode saw.
        output_recall: The share of the gold that it ranked.
        precision: The precision of its ranking.
        prune_accuracy: The share of the pruned chunks that are not gold. None if nothing was pruned.
        turns: The number of turns.
        tokens: The number of tokens placed in the context.
        searches: The number of searches.
        prunes: The number of turns with a prune.
        pruned: The number of pruned chunks.
        restores: The number of turns with a restoration.
        mistakes: The number of mistakes.
        stop_reason: The reason why the episode ended.
        bytes: The size of the trajectory file.
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
        """Return the episode as a row."""
        return asdict(self)

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> ExpertEpisode:
        """Return the episode that a row describes.

        Raises:
            DataError: If `file` is not the name of a file.
            KeyError: If a field is missing.
        """
        episode = ExpertEpisode(**{field.name: row[field.name] for field in fields(ExpertEpisode)})
        # The file is moved or deleted, so it must be in the folder of the run.
        if Path(str(episode.file)).name != episode.file:
            raise DataError(f"{episode.file!r} is not the name of a trajectory file. Use another folder for the run.")
        return episode


DROP_RULES = ("malformed", "lost", "short", "repeated", "low", "zero")
"""The rules that drop an episode, in the order in which they apply."""


KEPT_KINDS = ("high", "low", "zero")
"""The kinds of kept episodes: above both thresholds, below a threshold, and without gold."""


@dataclass(frozen=True, slots=True)
class DemonstrationFilters:
    """The limits of the rules, which the module's docstring describes.

    Attributes:
        min_trajectory_recall: The threshold of the trajectory recall.
        min_output_recall: The threshold of the output recall.
        low_rate: The factor in the probability that an episode below a threshold is kept.
        max_zero_share: The largest share of kept episodes without gold.
        zero_per_task: The number of candidates without gold for each task.
        high_per_task: The number of episodes above both thresholds that are kept for each task. 0 keeps all.
        max_gap: The smallest difference between the recalls for which an episode is dropped. 0 permits any difference.
        max_mistakes: The largest number of mistakes.
        short_rate: The probability that an episode with a single search is kept.
        seed: The seed of the random numbers.
    """

    min_trajectory_recall: float = 0.5
    min_output_recall: float = 0.4
    low_rate: float = 0.5
    max_zero_share: float = 0.05
    zero_per_task: int = 1
    high_per_task: int = 1
    max_gap: float = 0.5
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
                raise ConfigError(f"filter {name} must be from 0 to 1; got {getattr(self, name)}")
        for name in ("zero_per_task", "high_per_task", "max_mistakes"):
            if getattr(self, name) < 0:
                raise ConfigError(f"filter {name} must not be negative; got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class FilterVerdict:
    """The verdict on an episode.

    If the episode is kept, `reason` is one of `KEPT_KINDS`. If it is dropped, `reason` is one of `DROP_RULES`.
    """

    episode: ExpertEpisode
    keep: bool
    reason: str


def filter_episodes(episodes: Sequence[ExpertEpisode], filters: DemonstrationFilters) -> list[FilterVerdict]:
    """Return a verdict for each episode, in the order of the episodes. The order does not change the verdicts."""
    verdicts = {episode.file: _verdict_alone(episode, filters) for episode in episodes}
    _drop_repeated(verdicts, filters)
    _drop_zero(verdicts, filters)
    return [verdicts[episode.file] for episode in episodes]


def uniform_draw(seed: int, rule: str, file: str) -> float:
    """Return a number in [0, 1) that depends only on the seed, the rule and the episode."""
    digest = blake2b(f"{seed}:{rule}:{file}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _verdict_alone(episode: ExpertEpisode, filters: DemonstrationFilters) -> FilterVerdict:
    """Return the verdict of the rules that examine one episode by itself."""
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
    """Drop all but the best episodes of each task.

    The best episodes have the highest recalls, then the fewest mistakes, turns and tokens.
    """
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
    """If there are too many episodes without gold, drop the surplus.

    One limit applies to each task. The other limits their share of the kept episodes.
    """

    def order(episode: ExpertEpisode) -> tuple[float, ...]:
        return (uniform_draw(filters.seed, "zero", episode.file),)

    for file in _beyond(_kept_as("zero", verdicts), order, filters.zero_per_task):
        verdicts[file] = FilterVerdict(verdicts[file].episode, False, "zero")
    candidates = sorted(_kept_as("zero", verdicts), key=order)
    other_count = sum(verdict.keep for verdict in verdicts.values()) - len(candidates)
    share = filters.max_zero_share
    # Solves z <= share * (others + z). The small addition makes 0.05 * 20 equal 1 despite rounding errors.
    most = len(candidates) if share == 1 else int(share * other_count / (1 - share) + 1e-9)
    for episode in candidates[most:]:
        verdicts[episode.file] = FilterVerdict(episode, False, "zero")


def _kept_as(reason: str, verdicts: dict[str, FilterVerdict]) -> list[ExpertEpisode]:
    return [verdict.episode for verdict in verdicts.values() if verdict.keep and verdict.reason == reason]


def _beyond(
    episodes: Iterable[ExpertEpisode], order: Callable[[ExpertEpisode], tuple[float, ...]], most: int
) -> list[str]:
    """Order each task's episodes, and return the files of all episodes after the first `most`."""
    by_task: dict[str, list[ExpertEpisode]] = defaultdict(list)
    for episode in episodes:
        by_task[episode.task].append(episode)
    return [extra.file for group in by_task.values() for extra in sorted(group, key=order)[most:]]
