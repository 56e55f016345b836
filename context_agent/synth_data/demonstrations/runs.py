"""Tasks to a folder of trajectories to imitate, resumable at any moment.

    FOLDER/kept/*.jsonl        the trajectories that the filters kept: what supervised training reads
    FOLDER/trajectories.jsonl  a line for each of them: task, file, recalls, turns, tokens, teacher
    FOLDER/dropped/*.jsonl     the others, and in FOLDER/dropped.jsonl the rule that each broke
    FOLDER/report.json         the counts by rule, and the figures of both
    FOLDER/episodes.jsonl      a line for each episode played, with its journal: what a rerun goes on from

An episode's file appears whole or not at all. A rerun plays what is not in the journal and what is lost: an episode
that is to be kept, but whose file is gone or is not as long as it was. The filters are applied anew each time, to all
episodes, so a rerun with other filters plays nothing again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from context_agent.episode import Limits
from context_agent.errors import DataError
from context_agent.profiles import Profile, default
from context_agent.pruning.budget import Budget
from context_agent.retrieval.protocol import Corpus
from context_agent.synth_data import stages
from context_agent.synth_data.demonstrations.episodes import EpisodePlayer, ExpertEpisode, episode_rows
from context_agent.synth_data.demonstrations.experts import Expert
from context_agent.synth_data.demonstrations.filters import (
    DemonstrationFilters,
    DemonstrationReport,
    FilterVerdict,
    filter_episodes,
)
from context_agent.synth_data.task import Task, write_json, write_rows

STAGE = "trajectories"
EPISODES, INDEX, DROPPED, REPORT = "episodes.jsonl", "trajectories.jsonl", "dropped.jsonl", "report.json"
NEW, KEPT, REJECTED = "new", "kept", "dropped"
"""Folders of trajectory files: played and not yet judged, kept, dropped."""
MOST_ROUNDS = 3
"""Times that lost episodes are played again, before the folder is taken for one that loses files."""


@dataclass(frozen=True, slots=True)
class DemonstrationSettings:
    """How tasks are played and what is kept. `expert` describes the expert's options, for the journal to compare."""

    rollouts: int = 1
    profile: Profile = field(default_factory=default)
    budget: Budget = field(default_factory=Budget)
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    concurrency: int = 8
    filters: DemonstrationFilters = field(default_factory=DemonstrationFilters)
    keep_dropped: bool = True
    expert: str = ""

    def journaled(self, corpus: Corpus) -> dict[str, object]:
        """What must be equal for a run to go on from another: all that an episode depends on, beside its task."""
        return {
            "teacher": self.expert,
            "corpus": corpus.name,
            "profile": self.profile.to_json(),
            "budget": asdict(self.budget),
            "limits": asdict(self.limits),
            "seed": self.seed,
        }


async def make_demonstrations(
    tasks: Sequence[Task],
    corpus: Corpus,
    expert: Expert,
    folder: Path,
    settings: DemonstrationSettings,
    *,
    advance: Callable[[int, int | None], None] | None = None,
) -> DemonstrationReport:
    """Plays every task, judges the episodes and settles their files. Raises `DataError` where there is no task.

    What fails (a server, a task whose gold is not in the corpus, a question too long for the window) costs its own
    episode alone, and is counted in the report. Raises `ConfigError` for a folder begun with other settings.
    """
    if not tasks:
        raise DataError("there are no tasks to play")
    player = EpisodePlayer(
        corpus,
        expert,
        folder / NEW,
        profile=settings.profile,
        budget=settings.budget,
        limits=settings.limits,
        seed=settings.seed,
    )
    out, inputs = folder / EPISODES, episode_rows(tasks, settings.rollouts)
    resumed, again = None, 0
    for _ in range(MOST_ROUNDS):
        done = await stages.run_stage(
            STAGE,
            inputs,
            player.work,
            out,
            concurrency=settings.concurrency,
            settings=settings.journaled(corpus),
            advance=advance,
        )
        resumed = done.resumed if resumed is None else resumed
        verdicts = filter_episodes(_episodes(out), settings.filters)
        lost = {
            verdict.episode.file
            for verdict in verdicts
            if verdict.keep and _episode_path(folder, verdict.episode) is None
        }
        if not lost:
            break
        again += len(lost)
        stages.redo_inputs(out, lambda row: row["file"] in lost)  # noqa: B023 (called before the next round)
    else:
        raise DataError(f"{folder}: {len(lost)} trajectory files vanish as soon as they are written")
    _sort_files(folder, verdicts, keep_dropped=settings.keep_dropped)
    report = DemonstrationReport.of(
        verdicts,
        tasks=len(tasks),
        unplayed=_unplayed(out),
        filters=settings.filters,
        resumed=max(0, (resumed or 0) - again),
        again=again,
    )
    write_json(folder / REPORT, report.settled())
    return report


def _episodes(out: Path) -> list[ExpertEpisode]:
    with out.open(encoding="utf-8") as stream:
        return [ExpertEpisode.from_json(json.loads(line)) for line in stream]


def _unplayed(out: Path) -> Mapping[str, int]:
    with stages.dropped_path(out).open(encoding="utf-8") as stream:
        return dict(sorted(Counter(json.loads(line)["reason"] for line in stream).items()))


def _episode_path(folder: Path, episode: ExpertEpisode) -> Path | None:
    """Where the episode's file lies, whole; None where it is gone or was cut."""
    for name in (NEW, KEPT, REJECTED):
        path = folder / name / episode.file
        if path.is_file() and path.stat().st_size == episode.bytes:
            return path
    return None


def _sort_files(folder: Path, verdicts: Iterable[FilterVerdict], *, keep_dropped: bool) -> None:
    """Moves every file to where its verdict sends it, and writes the two lists. Done twice, it changes nothing."""
    selected, rest = _sorted(verdicts)
    for name in (KEPT, REJECTED):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for verdict in (*selected, *rest):
        path = _episode_path(folder, verdict.episode)
        target = folder / (KEPT if verdict.keep else REJECTED) / verdict.episode.file
        if path is not None and path != target:
            path.replace(target)
        if path is not None and not verdict.keep and not keep_dropped:
            target.unlink()
    _move_unlisted(folder, {verdict.episode.file for verdict in selected})
    write_rows(folder / INDEX, ({"kept_as": verdict.reason, **verdict.episode.to_json()} for verdict in selected))
    write_rows(folder / DROPPED, ({"reason": verdict.reason, **verdict.episode.to_json()} for verdict in rest))


def _sorted(verdicts: Iterable[FilterVerdict]) -> tuple[list[FilterVerdict], list[FilterVerdict]]:
    selected: list[FilterVerdict] = []
    rest: list[FilterVerdict] = []
    for verdict in verdicts:
        (selected if verdict.keep else rest).append(verdict)
    return selected, rest


def _move_unlisted(folder: Path, selected: set[str]) -> None:
    """Leaves nothing but what is listed among the kept: half-written files go for good, the rest to the dropped ones.

    Episodes of tasks that this run was not given stay in the journal, so they come back when their tasks do.
    """
    for path in (*(folder / NEW).glob("*"), *(folder / KEPT).glob("*")):
        if path.suffix == ".partial":
            path.unlink()
        elif path.parent.name == NEW or path.name not in selected:
            path.replace(folder / REJECTED / path.name)
    if (folder / NEW).is_dir():
        (folder / NEW).rmdir()
