"""The report of a run. It has the number of episodes by rule, and means over the played and the kept episodes."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from context_agent.synth_data.demonstrations.filters import (
    DROP_RULES,
    KEPT_KINDS,
    DemonstrationFilters,
    ExpertEpisode,
    FilterVerdict,
)


@dataclass(frozen=True, slots=True)
class EpisodeMeans:
    """Means over episodes. A mean is None if no episode has the measurement.

    Attributes:
        episodes: The number of episodes.
        trajectory_recall: The share of the gold that an episode saw.
        output_recall: The share of the gold that an episode ranked.
        precision: The precision of the ranking.
        prune_accuracy: The mean over the episodes with a prune.
        turns: The number of turns of an episode.
        tokens: The number of tokens that an episode placed in the context.
        searches: The number of searches of an episode.
        prunes: The number of turns with a prune.
        chunks_per_prune: The number of pruned chunks divided by the number of turns with a prune.
        restores: The number of turns with a restoration.
        hops: The number of episodes by hops.
    """

    episodes: int
    trajectory_recall: float | None
    output_recall: float | None
    precision: float | None
    prune_accuracy: float | None
    turns: float | None
    tokens: float | None
    searches: float | None
    prunes: float | None
    chunks_per_prune: float | None
    restores: float | None
    hops: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(episodes: Sequence[ExpertEpisode]) -> EpisodeMeans:
        """Return the means over these episodes."""
        prunes = sum(episode.prunes for episode in episodes)
        return EpisodeMeans(
            episodes=len(episodes),
            **{name: _mean(getattr(episode, name) for episode in episodes) for name in _MEANS},
            chunks_per_prune=sum(episode.pruned for episode in episodes) / prunes if prunes else None,
            hops={str(hops): count for hops, count in sorted(Counter(episode.hops for episode in episodes).items())},
        )


_MEANS = (
    "trajectory_recall",
    "output_recall",
    "precision",
    "prune_accuracy",
    "turns",
    "tokens",
    "searches",
    "prunes",
    "restores",
)


@dataclass(frozen=True, slots=True)
class DemonstrationReport:
    """The report of a run.

    Attributes:
        tasks: The number of tasks.
        episodes: The number of finished episodes.
        unplayed: The number of unfinished episodes by reason, such as missing gold or a failed server.
        kept: The number of kept episodes by kind.
        dropped: The number of dropped episodes by rule, in the order of the rules.
        played_figures: Means over the finished episodes.
        kept_figures: Means over the kept episodes.
        filters: The rules that selected the episodes.
        resumed: The number of episodes that earlier runs finished.
        again: The number of episodes that were played again, because their files were missing or truncated.
        failure: The error of the first episode that failed, or else of the first one that could not be played. Empty if
            all were played.
    """

    tasks: int
    episodes: int
    unplayed: Mapping[str, int]
    kept: Mapping[str, int]
    dropped: Mapping[str, int]
    played_figures: EpisodeMeans
    kept_figures: EpisodeMeans
    filters: DemonstrationFilters
    resumed: int = 0
    again: int = 0
    failure: str = ""

    @staticmethod
    def of(
        verdicts: Sequence[FilterVerdict],
        *,
        tasks: int,
        unplayed: Mapping[str, int],
        filters: DemonstrationFilters,
        failure: str = "",
        **counts: int,
    ) -> DemonstrationReport:
        """Return the report of these verdicts."""
        return DemonstrationReport(
            tasks=tasks,
            episodes=len(verdicts),
            unplayed=dict(unplayed),
            kept=_counts_by_name(KEPT_KINDS, (verdict.reason for verdict in verdicts if verdict.keep)),
            dropped=_counts_by_name(DROP_RULES, (verdict.reason for verdict in verdicts if not verdict.keep)),
            played_figures=EpisodeMeans.of([verdict.episode for verdict in verdicts]),
            kept_figures=EpisodeMeans.of([verdict.episode for verdict in verdicts if verdict.keep]),
            filters=filters,
            failure=failure,
            **counts,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data, with keys in a fixed order."""
        return asdict(self)

    def settled(self) -> dict[str, Any]:
        """Return the report without `resumed` and `again`, so that a resumed run writes the same file."""
        return {key: value for key, value in self.to_json().items() if key not in ("resumed", "again")}

    def figures(self) -> list[tuple[str, str, str]]:
        """Return the rows of a table.

        Each row has a measure, its value over the played episodes, and its value over the kept episodes.
        """
        both = asdict(self.played_figures), asdict(self.kept_figures)
        return [(name.replace("_", " "), _cell(both[0][name]), _cell(both[1][name])) for name in both[0]]


def _counts_by_name(names: Iterable[str], values: Iterable[str]) -> dict[str, int]:
    counts = Counter(values)
    return {name: counts[name] for name in names}


def _mean(values: Iterable[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return statistics.fmean(measured) if measured else None


def _cell(value: float | Mapping[str, int] | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {count:,}" for key, count in value.items()) or "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
