"""Runs that turn tasks into a folder of demonstrations. A killed run can be resumed.

    FOLDER/kept/*.jsonl        the trajectories that the filters kept: the input of supervised training
    FOLDER/trajectories.jsonl  a line for each of them: task, file, recalls, turns, tokens, expert
    FOLDER/tasks.jsonl         their tasks, for rewards: each of these questions has a demonstration
    FOLDER/dropped/*.jsonl     the other trajectories; FOLDER/dropped.jsonl has the rule that each broke
    FOLDER/report.json         the counts by rule, and the means of both
    FOLDER/episodes.jsonl      a line for each episode, with its journal, from which a rerun resumes

An episode's file is always complete. A rerun plays the episodes that are not in the journal. It also plays kept
episodes again if their file is missing or has another length. Each run applies the filters to all episodes, so a rerun
with other filters plays no episode again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from context_agent._support.small_files import files_in, parse_json, require_files
from context_agent.errors import DataError
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data import stages
from context_agent.synth_data.demonstrations.experts import Expert
from context_agent.synth_data.demonstrations.filters import ExpertEpisode, FilterVerdict, filter_episodes
from context_agent.synth_data.demonstrations.player import DemonstrationSettings, EpisodePlayer, episode_rows, file_name
from context_agent.synth_data.demonstrations.report import DemonstrationReport
from context_agent.synth_data.json_files import write_json, write_rows
from context_agent.synth_data.task import Task, write_tasks

STAGE = "trajectories"


EPISODES, INDEX, DROPPED, REPORT = "episodes.jsonl", "trajectories.jsonl", "dropped.jsonl", "report.json"
TASKS = "tasks.jsonl"


NEW, KEPT, REJECTED = "new", "kept", "dropped"
"""The folders of trajectory files: not judged yet, kept, and dropped."""


MOST_ROUNDS = 3
"""The number of rounds in which lost episodes are played again before the run fails."""


async def make_demonstrations(
    tasks: Sequence[Task],
    corpus: Corpus,
    expert: Expert,
    folder: Path,
    settings: DemonstrationSettings,
    *,
    pool: stages.StagePool | None = None,
    advance: stages.ProgressCallback | None = None,
) -> DemonstrationReport:
    """Play every task, filter the episodes, and sort their files into folders.

    A failure affects only its own episode, and the report counts it. Examples are a failed server, a task with gold
    that is not in the corpus, and a question that is too long for the window.

    Args:
        tasks: The tasks to play.
        corpus: The corpus to search.
        expert: The expert that plays.
        folder: The folder of the run.
        settings: The settings of the run.
        pool: Worker processes that play the episodes. Their context is an `EpisodePlayer` with the folder `NEW`.
        advance: A function that is called with the number of finished episodes and the total.

    Raises:
        DataError: If there are no tasks, or if the folder contains a link.
        ConfigError: If the folder was started with other settings.
    """
    if not tasks:
        raise DataError("there are no tasks to play. Pass a file with at least one task.")
    # The run moves and deletes files in its folder. A link would lead it to files of another folder.
    require_files(files_in(folder), links=False)
    player = EpisodePlayer(corpus, expert, folder / NEW, settings)
    out, inputs = folder / EPISODES, episode_rows(tasks, settings.rollouts)
    resumed, again = None, 0
    for _ in range(MOST_ROUNDS):
        done = await stages.run_stage(
            STAGE,
            inputs,
            stages.row_function(EpisodePlayer.work, player, pool),
            out,
            concurrency=settings.concurrency if pool is None else pool.capacity,
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
        raise DataError(
            f"{len(lost)} trajectory files disappeared from {folder} after they were written. Check the disk, and "
            "that every machine sees this folder, or use another folder."
        )
    _sort_files(folder, verdicts, keep_dropped=settings.keep_dropped)
    kept = {verdict.episode.file for verdict in verdicts if verdict.keep}
    rollouts = range(settings.rollouts)
    unplayed = _unplayed(out)
    write_tasks(folder / TASKS, (task for task in tasks if kept & {file_name(task, number) for number in rollouts}))
    report = DemonstrationReport.of(
        verdicts,
        tasks=len(tasks),
        unplayed=dict(sorted(Counter(row["reason"] for row in unplayed).items())),
        filters=settings.filters,
        failure=done.failure or next((row["detail"] for row in unplayed), ""),
        resumed=max(0, (resumed or 0) - again),
        again=again,
    )
    write_json(folder / REPORT, report.settled())
    return report


def _episodes(out: Path) -> list[ExpertEpisode]:
    with out.open(encoding="utf-8") as stream:
        return [ExpertEpisode.from_json(parse_json(line)) for line in stream]


def _unplayed(out: Path) -> list[Mapping[str, Any]]:
    """Return the rows of the episodes that were not played, with their reasons."""
    with stages.dropped_path(out).open(encoding="utf-8") as stream:
        return [parse_json(line) for line in stream]


def _episode_path(folder: Path, episode: ExpertEpisode) -> Path | None:
    """Return the path of the episode's complete file. If it is missing or truncated, return None."""
    for name in (NEW, KEPT, REJECTED):
        path = folder / name / episode.file
        if path.is_file() and path.stat().st_size == episode.bytes:
            return path
    return None


def _sort_files(folder: Path, verdicts: Iterable[FilterVerdict], *, keep_dropped: bool) -> None:
    """Move each file to the folder of its verdict, and write the two lists. Repeating this changes nothing."""
    judged = list(verdicts)
    selected, rest = ([verdict for verdict in judged if verdict.keep is keep] for keep in (True, False))
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


def _move_unlisted(folder: Path, selected: set[str]) -> None:
    """Move files that are not in `selected` to the dropped ones, and delete incomplete files.

    Episodes of tasks that this run was not given stay in the journal. A run with their tasks restores them.
    """
    for path in (*(folder / NEW).glob("*"), *(folder / KEPT).glob("*")):
        if path.suffix == ".partial":
            path.unlink()
        elif path.parent.name == NEW or path.name not in selected:
            path.replace(folder / REJECTED / path.name)
    if (folder / NEW).is_dir():
        (folder / NEW).rmdir()
