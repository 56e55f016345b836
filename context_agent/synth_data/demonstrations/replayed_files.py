"""Files of recorded trajectories that are replayed on today's corpus, and the first view of each that differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from context_agent.errors import ConfigError, DataError, TrajectoryError
from context_agent.eval.rerun import Cause, Difference, rerun
from context_agent.harness.profile import Profile
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import read
from context_agent.harness.trajectory_folder import is_trajectory
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.stages import ProgressCallback
from context_agent.tokens import TokenCounter
from context_agent.version import __version__


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """The settings of the comparison with a record. `eval.rerun.rerun` describes them."""

    counter: TokenCounter | None = None
    profile: Profile | None = None
    recorded_profile: bool = False
    any_corpus: bool = False


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of replaying a file.

    Attributes:
        path: The file.
        difference: The first difference. None if all views are equal.
        question: The question. Empty if the file cannot be read.
        version: The version of the harness that recorded the file. Empty if the file cannot be read.
        turns: The number of turns.
    """

    path: Path
    difference: Difference | None
    question: str = ""
    version: str = ""
    turns: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the result as a row of a report."""
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
    """The counts over all replayed files.

    Attributes:
        checked: The number of files.
        same: The number of files without a difference.
        causes: The number of files with a difference, by its cause.
        versions: The number of files by the version that recorded them.
        version: The version that replayed them.
    """

    checked: int
    same: int
    causes: dict[str, int]
    versions: dict[str, int]
    version: str = __version__

    @staticmethod
    def of(results: Sequence[ReplayResult]) -> ReplaySummary:
        """Return the summary of these results, with causes in the order of `Cause`."""
        counted = Counter(result.difference.cause for result in results if result.difference is not None)
        causes = {cause.value: counted[cause] for cause in Cause if counted[cause]}
        versions = Counter(result.version or "unknown" for result in results)
        return ReplaySummary(len(results), len(results) - counted.total(), causes, dict(sorted(versions.items())))

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain data, with keys in a fixed order."""
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
    settings: ReplaySettings | None = None,
    *,
    advance: ProgressCallback = lambda done, total: None,
) -> list[ReplayResult]:
    """Replay the episode of each file. A file that cannot be read counts as a difference.

    Args:
        paths: The trajectory files.
        corpus: The corpus that the episodes search.
        settings: The settings of the comparison.
        advance: A function that is called with the number of finished files and the total.
    """
    files = list(paths)
    results = []
    for number, path in enumerate(files, start=1):
        results.append(await check_file(path, corpus, settings or ReplaySettings()))
        advance(number, len(files))
    return results


async def check_file(path: Path, corpus: Corpus, settings: ReplaySettings) -> ReplayResult:
    """Replay the episode of a file.

    Raises:
        CorpusError: If the corpus cannot be used.
    """
    trajectory = read_or_problem(path)
    if isinstance(trajectory, str):
        return ReplayResult(path, Difference(Cause.UNSOUND, -1, trajectory))
    difference = await rerun(
        trajectory,
        corpus,
        counter=settings.counter,
        profile=settings.profile,
        recorded_profile=settings.recorded_profile,
        any_corpus=settings.any_corpus,
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
    """Return the trajectory files in `paths`, which may be files or folders, each once.

    Files in a folder are ordered by path. A file in `paths` is not examined before it is returned.

    Raises:
        DataError: If a path does not exist, or if there is no trajectory.
    """
    files = dict.fromkeys(file for path in paths for file in _files_in(path))
    if not files:
        raise DataError(
            f"there is no trajectory in {', '.join(map(str, paths))}. Record some with `ctx1 search --save FOLDER`."
        )
    return list(files)


def _files_in(path: Path) -> Iterator[Path]:
    if not path.exists():
        raise DataError(f"{path} does not exist. Pass a trajectory file or a folder.")
    if path.is_dir():
        yield from (file for file in sorted(path.rglob("*.jsonl")) if file.is_file() and is_trajectory(file))
    else:
        yield path
