"""Which recorded episodes the harness and corpus of today still reproduce: `eval.rerun` over many files."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from context_agent.errors import ConfigError, DataError, TrajectoryError
from context_agent.eval.rerun import Cause, Difference, rerun
from context_agent.eval.view.loading import is_trajectory
from context_agent.harness.profile import Profile
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import read
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.demonstrations.runs import DROPPED, EPISODES, INDEX, KEPT, REPORT
from context_agent.synth_data.task import write_json, write_rows
from context_agent.tokens import TokenCounter
from context_agent.version import __version__


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
        """The row of a report."""
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
        """The counts of these results, with causes in the order of `Cause`."""
        counted = Counter(result.difference.cause for result in results if result.difference is not None)
        causes = {cause.value: counted[cause] for cause in Cause if counted[cause]}
        versions = Counter(result.version or "unknown" for result in results)
        return ReplaySummary(len(results), len(results) - counted.total(), causes, dict(sorted(versions.items())))

    def to_json(self) -> dict[str, Any]:
        """The summary as plain data."""
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
    """The trajectory of a file, or the reason why it cannot be read."""
    try:
        return read(path)
    except (TrajectoryError, RecursionError, AttributeError, ConfigError) as error:
        return str(error)


def trajectory_files(paths: Sequence[Path]) -> list[Path]:
    """The trajectory files among these files and in these folders, each once, ordered by path.

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
        partial = target / f".{row.path.name}.partial"
        shutil.copyfile(row.path, partial)
        partial.replace(target / row.path.name)
    for name in _indexed_names(folder / INDEX) - set(names):
        (target / name).unlink(missing_ok=True)
    write_rows(folder / INDEX, ({"file": row.path.name, **row.row} for row in selected))
    write_rows(folder / DROPPED, ({"file": row.path.name, **row.row} for row in dropped))
    write_json(folder / REPORT, report)


def _indexed_names(index: Path) -> set[str]:
    """The file names in an earlier list: only those files were copied by an earlier call."""
    names = set()
    for line in index.read_text(encoding="utf-8").splitlines() if index.exists() else ():
        with suppress(ValueError, TypeError, KeyError):
            names.add(str(json.loads(line)["file"]))
    return {name for name in names if Path(name).name == name}
