"""Runs that turn tasks into a folder of demonstrations; a killed run resumes.

    FOLDER/kept/*.jsonl        the trajectories that the filters kept: the input of supervised training
    FOLDER/trajectories.jsonl  a line for each of them: task, file, recalls, turns, tokens, expert (key `teacher`)
    FOLDER/dropped/*.jsonl     the other trajectories; FOLDER/dropped.jsonl has the rule that each broke
    FOLDER/report.json         the counts by rule, and the means of both
    FOLDER/episodes.jsonl      a line for each episode, with its journal, from which a rerun resumes

An episode's file appears whole or not at all. A rerun plays the episodes that are not in the journal, and those to be
kept whose file is missing or has another length. The filters are applied to all episodes in each run, so a rerun with
other filters plays no episode again.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from context_agent._support.journal import replacing
from context_agent._support.small_files import parse_json
from context_agent.agent import SearchAgent, SearchResult
from context_agent.errors import BudgetError, ConfigError, DataError, PolicyError, TrajectoryError
from context_agent.eval.gold import CorpusLookup, Gold, gold_of
from context_agent.eval.rerun import Cause, Difference, rerun
from context_agent.eval.scoring import failure, score
from context_agent.harness.episode import Limits
from context_agent.harness.profile import Profile, default
from context_agent.harness.tools import flatten_calls
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import read, write
from context_agent.harness.trajectory_folder import is_trajectory
from context_agent.pruning.budget import Budget
from context_agent.pruning.view import ActionTaken, EditApplied
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data import stages
from context_agent.synth_data.demonstrations.experts import Expert
from context_agent.synth_data.demonstrations.filters import (
    DemonstrationFilters,
    DemonstrationReport,
    ExpertEpisode,
    FilterVerdict,
    filter_episodes,
)
from context_agent.synth_data.stages import DropRow, KeptRows
from context_agent.synth_data.task import Task, encode_row, task_of, write_json, write_rows
from context_agent.tokens import TokenCounter
from context_agent.types import Question
from context_agent.version import __version__

_UNSAFE = re.compile(r"[^\w.-]+")
LONGEST_NAME = 80
"""Characters of a task's id in a file name."""


class EpisodePlayer:
    """Plays tasks for a stage: `work` takes a row of `episode_rows`."""

    def __init__(self, corpus: Corpus, expert: Expert, folder: Path, settings: DemonstrationSettings) -> None:
        """`folder` receives the trajectory files."""
        self._corpus, self._expert, self._folder, self._settings = corpus, expert, folder, settings

    async def work(self, row: Mapping[str, Any]) -> KeptRows:
        """Plays the row's task. Raises `DropRow` for what no rerun would change, else the error of policy or corpus."""
        task, rollout = task_of(row["task"], "task"), int(row["rollout"])
        gold = await self._gold(task.as_question)
        result = await self._search(task, gold, rollout)
        if (message := failure(result)) is not None:
            raise PolicyError(message)
        trajectory, name = result.trajectories[0], file_name(task, rollout)
        path = self._folder / name
        write(_without_timestamps(trajectory, path.stem), path)
        return KeptRows((_episode(task, rollout, result, gold, path).to_json(),))

    async def _gold(self, question: Question) -> Gold:
        if not question.gold and not question.facts:
            raise DropRow("no gold", "the task has neither gold documents nor facts")
        lookup = cast("CorpusLookup", self._corpus)
        gold = await stages.off_loop(self._corpus, lambda: gold_of(question, lookup))
        reachable = frozenset().union(*gold.documents.values(), *gold.chunks.values())
        if len(reachable) < gold.needs:
            raise DropRow("gold not in the index", f"missing: {', '.join(gold.missing[:5])}")
        return gold

    async def _search(self, task: Task, gold: Gold, rollout: int) -> SearchResult:
        with SearchAgent(
            self._corpus,
            self._expert(gold),
            profile=self._settings.profile,
            budget=self._settings.budget,
            limits=self._settings.limits,
            seed=self._settings.seed + rollout,
        ) as agent:
            try:
                return await agent.asearch(task.question, k=self._settings.profile.max_ranking, question_id=task.id)
            except (BudgetError, ConfigError) as error:
                raise DropRow("question does not fit", str(error)) from None


def episode_rows(tasks: Iterable[Task], rollouts: int) -> list[dict[str, Any]]:
    """Return the input rows of the stage: each task once for each rollout."""
    plain = [json.loads(encode_row(task.to_json())) for task in tasks]
    return [{"task": task, "rollout": number} for task in plain for number in range(rollouts)]


def file_name(task: Task, rollout: int) -> str:
    """Return the episode's file name: the task's id as far as it is safe, the digest of the task, and the rollout."""
    digest = blake2b(encode_row(task.to_json()).encode(), digest_size=6).hexdigest()
    return f"{_UNSAFE.sub('-', task.id)[:LONGEST_NAME].strip('.')}-{digest}-{rollout}.jsonl"


def _without_timestamps(trajectory: Trajectory, name: str) -> Trajectory:
    """Without clock readings and with a fixed id: playing the episode again gives the same bytes."""
    plain = trajectory.without_timestamps()
    return replace(plain, header=replace(plain.header, id=name))


def _episode(task: Task, rollout: int, result: SearchResult, gold: Gold, path: Path) -> ExpertEpisode:
    (trajectory,) = result.trajectories
    try:
        scores, _ = score(task.as_question, result, gold=gold)
    except TrajectoryError as error:
        raise PolicyError(f"the trajectory does not replay: {error}") from error
    profile = trajectory.header.profile
    actions = [event.action for event in trajectory.events if isinstance(event, ActionTaken)]
    edits = [event.edit for event in trajectory.events if isinstance(event, EditApplied)]
    calls = [call for action in actions for call in flatten_calls(action.calls, profile.tools)]
    return ExpertEpisode(
        task=task.id,
        rollout=rollout,
        file=path.name,
        expert=trajectory.header.policy,
        type=task.type,
        hops=task.hops or gold.needs,
        trajectory_recall=scores["trajectory_recall"] or 0.0,
        output_recall=scores["recall"] or 0.0,
        precision=scores["precision"] or 0.0,
        prune_accuracy=scores["prune_accuracy"],
        turns=result.turns,
        tokens=result.tokens,
        searches=sum(call.name == "search_corpus" for call in calls),
        prunes=sum(bool(edit.pruned) for edit in edits),
        pruned=sum(len(edit.pruned) for edit in edits),
        restores=sum(bool(edit.restored) for edit in edits),
        mistakes=int(scores["mistakes"] or 0),
        stop_reason=result.stop_reason,
        bytes=path.stat().st_size,
    )


STAGE = "trajectories"
EPISODES, INDEX, DROPPED, REPORT = "episodes.jsonl", "trajectories.jsonl", "dropped.jsonl", "report.json"
NEW, KEPT, REJECTED = "new", "kept", "dropped"
"""Folders of trajectory files: not judged yet, kept, dropped."""
MOST_ROUNDS = 3
"""Rounds in which lost episodes are played again before the run fails."""


@dataclass(frozen=True, slots=True)
class DemonstrationSettings:
    """How tasks are played and what is kept. `expert` describes the expert's options, for the journal."""

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
        """Return what must be equal for a run to resume another: all that an episode depends on besides its task."""
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
    pool: stages.StagePool | None = None,
    advance: Callable[[int, int | None], None] | None = None,
) -> DemonstrationReport:
    """Plays every task, filters the episodes and sorts their files. Raises `DataError` without tasks.

    With a `pool`, its processes play the episodes; their context is an `EpisodePlayer` with the folder `NEW`.

    A failure (a server, a task whose gold is not in the corpus, a question too long for the window) only affects its
    own episode and is counted in the report. Raises `ConfigError` for a folder that was started with other settings.
    """
    if not tasks:
        raise DataError("there are no tasks to play")
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
            f"{folder}: {len(lost)} trajectory files disappeared after they were written: check the disk, and "
            "that every machine sees this folder, or use another one"
        )
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
        return [ExpertEpisode.from_json(parse_json(line)) for line in stream]


def _unplayed(out: Path) -> Mapping[str, int]:
    with stages.dropped_path(out).open(encoding="utf-8") as stream:
        return dict(sorted(Counter(parse_json(line)["reason"] for line in stream).items()))


def _episode_path(folder: Path, episode: ExpertEpisode) -> Path | None:
    """Return the path of the episode's complete file; None if it is missing or cut."""
    for name in (NEW, KEPT, REJECTED):
        path = folder / name / episode.file
        if path.is_file() and path.stat().st_size == episode.bytes:
            return path
    return None


def _sort_files(folder: Path, verdicts: Iterable[FilterVerdict], *, keep_dropped: bool) -> None:
    """Moves each file to the folder of its verdict and writes the two lists. Repeating it changes nothing."""
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
    """Moves files that are not in `selected` to the dropped ones and deletes incomplete files.

    Episodes of tasks that this run was not given stay in the journal and return with their tasks.
    """
    for path in (*(folder / NEW).glob("*"), *(folder / KEPT).glob("*")):
        if path.suffix == ".partial":
            path.unlink()
        elif path.parent.name == NEW or path.name not in selected:
            path.replace(folder / REJECTED / path.name)
    if (folder / NEW).is_dir():
        (folder / NEW).rmdir()


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """What a record is compared with; see `eval.rerun.rerun`."""

    counter: TokenCounter | None = None
    profile: Profile | None = None
    recorded_profile: bool = False
    any_corpus: bool = False


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """A file and the first difference of its replay; None if all views are equal.

    `question`, and the `version` of the harness that recorded it, are empty for a file that cannot be read.
    """

    path: Path
    difference: Difference | None
    question: str = ""
    version: str = ""
    turns: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the row of a report."""
        row: dict[str, Any] = {"file": str(self.path), "question": self.question, "version": self.version}
        if self.difference is None:
            return {**row, "same": True, "turns": self.turns}
        difference = self.difference
        return {
            **row,
            "same": False,
            "cause": difference.cause.value,
            "turn": difference.turn,
            "detail": difference.detail,
        }


@dataclass(frozen=True, slots=True)
class ReplaySummary:
    """Counts of equal and different episodes, the latter by cause, and of the versions that recorded them."""

    checked: int
    same: int
    causes: dict[str, int]
    versions: dict[str, int]
    version: str = __version__

    @staticmethod
    def of(results: Sequence[ReplayResult]) -> ReplaySummary:
        """Return the counts of these results, with causes in the order of `Cause`."""
        counted = Counter(result.difference.cause for result in results if result.difference is not None)
        causes = {cause.value: counted[cause] for cause in Cause if counted[cause]}
        versions = Counter(result.version or "unknown" for result in results)
        return ReplaySummary(len(results), len(results) - counted.total(), causes, dict(sorted(versions.items())))

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain data."""
        return {
            "checked": self.checked,
            "same": self.same,
            "differ": self.checked - self.same,
            "causes": self.causes,
            "recorded_by": self.versions,
            "version": self.version,
        }


async def check_files(
    paths: Iterable[Path],
    corpus: Corpus,
    terms: ReplaySettings | None = None,
    *,
    advance: Callable[[int, int | None], None] = lambda done, total: None,
) -> list[ReplayResult]:
    """Replays each file's episode. A file that cannot be read counts as a difference."""
    files = list(paths)
    results = []
    for number, path in enumerate(files, start=1):
        results.append(await check_file(path, corpus, terms or ReplaySettings()))
        advance(number, len(files))
    return results


async def check_file(path: Path, corpus: Corpus, terms: ReplaySettings) -> ReplayResult:
    """Replays a file's episode. Raises `CorpusError` for a corpus that cannot be used."""
    trajectory = read_or_problem(path)
    if isinstance(trajectory, str):
        return ReplayResult(path, Difference(Cause.UNSOUND, -1, trajectory))
    difference = await rerun(
        trajectory,
        corpus,
        counter=terms.counter,
        profile=terms.profile,
        recorded_profile=terms.recorded_profile,
        any_corpus=terms.any_corpus,
    )
    header = trajectory.header
    turns = 0 if trajectory.end is None else trajectory.end.turns
    return ReplayResult(path, difference, header.question, header.version, turns)


def read_or_problem(path: Path) -> Trajectory | str:
    """Return the trajectory of a file, or the reason why it cannot be read."""
    try:
        return read(path)
    except (TrajectoryError, RecursionError, AttributeError, ConfigError) as error:
        return str(error)


def trajectory_files(paths: Sequence[Path]) -> list[Path]:
    """Return the trajectory files among these files and in these folders, each once, ordered by path.

    Files that are named themselves are not examined. Raises `DataError` for a path that does not exist, and if there is
    no trajectory.
    """
    files = dict.fromkeys(file for path in paths for file in _files_in(path))
    if not files:
        raise DataError(
            f"no trajectory in {', '.join(map(str, paths))}: record some with `ctx1 serve --trajectories FOLDER`"
        )
    return list(files)


def _files_in(path: Path) -> Iterator[Path]:
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    if path.is_dir():
        yield from (file for file in sorted(path.rglob("*.jsonl")) if file.is_file() and is_trajectory(file))
    else:
        yield path


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """A trajectory file, with its row in the list of kept or dropped ones."""

    path: Path
    row: dict[str, Any]


def write_selection(
    folder: Path, selected: Sequence[ReplayRow], dropped: Sequence[ReplayRow], report: dict[str, Any]
) -> None:
    """Copies the kept files to `folder`, as `ctx1 train sft` reads it, with lists of kept and dropped ones and a
    report.

    Files that an earlier call kept and this one does not are deleted. Raises `ConfigError` for a folder of `ctx1 synth
    trajectories`, and for two files of the same name.
    """
    if (folder / EPISODES).exists():
        raise ConfigError(f"{folder} holds the episodes of `ctx1 synth trajectories`: name another folder")
    names = Counter(row.path.name for row in selected)
    if (twice := next((name for name, count in names.items() if count > 1), None)) is not None:
        raise ConfigError(f"{names[twice]} files have the name {twice}: check their folders one at a time")
    target = folder / KEPT
    target.mkdir(parents=True, exist_ok=True)
    for row in selected:
        with row.path.open("rb") as source, replacing(target / row.path.name) as copy:
            shutil.copyfileobj(source, copy)
    for name in _indexed_names(folder / INDEX) - set(names):
        (target / name).unlink(missing_ok=True)
    write_rows(folder / INDEX, ({"file": row.path.name, **row.row} for row in selected))
    write_rows(folder / DROPPED, ({"file": row.path.name, **row.row} for row in dropped))
    write_json(folder / REPORT, report)


def _indexed_names(index: Path) -> set[str]:
    """Return the file names in an earlier list: only those files were copied by an earlier call."""
    names = set()
    for line in index.read_text(encoding="utf-8").splitlines() if index.exists() else ():
        with suppress(ValueError, TypeError, KeyError):
            names.add(str(parse_json(line)["file"]))
    return {name for name in names if Path(name).name == name}
