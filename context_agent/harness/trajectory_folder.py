"""The trajectories of several files and folders.

Some files may be cut, of another version, or still being written. A file that cannot be read is reported with the
reason, and the others are read. Files that are not trajectories are counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from context_agent._support.small_files import MAX_BYTES, parse_json
from context_agent.errors import ConfigError, DataError, TrajectoryError, joined_reasons
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import TRAJECTORY_SUFFIX, read

PAGE_SUFFIX = ".html"
"""Suffix of the page that `ctx1 view` writes next to the trajectories."""


@dataclass(frozen=True, slots=True)
class LoadedTrajectory:
    """A trajectory from a file.

    Attributes:
        path: The file.
        run: A short name of its folder.
        trajectory: The trajectory.
        problem: The reason why the trajectory does not replay. If it replays, None.
    """

    path: Path
    run: str
    trajectory: Trajectory
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class TrajectoryFiles:
    """The trajectories of files and folders.

    Attributes:
        loaded: The trajectories, in order of path.
        problems: Why each other trajectory file could not be read.
        ignored: The number of files that are not trajectories.
    """

    loaded: tuple[LoadedTrajectory, ...]
    problems: tuple[str, ...] = ()
    ignored: int = 0


@dataclass(slots=True)
class _Files:
    loaded: list[tuple[Path, Trajectory, str | None]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    ignored: int = 0


def read_all(
    paths: Sequence[Path], advance: Callable[[int, int | None], None] = lambda done, total: None
) -> TrajectoryFiles:
    """Read files, and folders with all their subfolders.

    Args:
        paths: Files and folders.
        advance: A function that is called after each file with the number of files read and the number of all files.

    Returns:
        The trajectories, and why others could not be read.

    Raises:
        DataError: If a path does not exist, or there is no trajectory at all.
    """
    candidates = list(_files(paths))
    state = _Files()
    for number, (path, is_argument) in enumerate(candidates, start=1):
        _read(path, is_argument, state)
        advance(number, len(candidates))
    if not state.loaded:
        raise DataError(_no_trajectory(paths, state))
    runs = _run_names(path for path, _, _ in state.loaded)
    loaded = tuple(
        LoadedTrajectory(path, runs[path.parent], trajectory, problem) for path, trajectory, problem in state.loaded
    )
    return TrajectoryFiles(loaded, tuple(state.problems), state.ignored)


def _files(paths: Iterable[Path]) -> Iterator[tuple[Path, bool]]:
    """Yield each file once, and whether it is itself one of the paths."""
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise DataError(f"{path} does not exist. Pass a trajectory file or a folder.")
        files = sorted(filter(_is_user_file, path.rglob("*"))) if path.is_dir() else [path]
        for file in files:
            if (resolved := file.resolve()) not in seen:
                seen.add(resolved)
                yield file, file == path


def _is_user_file(path: Path) -> bool:
    """Return True if the user made the file. Hidden files and pages that `ctx1 view` wrote do not count."""
    return path.is_file() and path.suffix != PAGE_SUFFIX and not path.name.startswith(".")


def _read(path: Path, is_argument: bool, files: _Files) -> None:
    if not is_argument and not (path.suffix == TRAJECTORY_SUFFIX and is_trajectory(path)):
        files.ignored += 1
        return
    try:
        trajectory = read(path)
    except TrajectoryError as error:
        files.problems.append(str(error) if str(path) in str(error) else f"{path}: {error}")
    except (RecursionError, AttributeError, ConfigError) as error:
        files.problems.append(f"{path}: the file is not a valid trajectory ({error})")
    else:
        files.loaded.append((path, trajectory, _replay_problem(trajectory)))


def is_trajectory(path: Path) -> bool:
    """Return True if the first line is a trajectory's header, or the beginning of a truncated header."""
    try:
        with path.open("rb") as stream:
            line = stream.readline(MAX_BYTES)
        return line.startswith(b'{"kind":"header"') or dict(parse_json(line)).get("kind") == "header"
    except (OSError, ValueError, TypeError):
        return False


def _replay_problem(trajectory: Trajectory) -> str | None:
    """Return the reason why the trajectory does not replay. If it replays, return None."""
    try:
        trajectory.verify()
    except TrajectoryError as error:
        return str(error)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"its values are not those of a trajectory ({type(error).__name__}: {error})"
    return None


def _run_names(paths: Iterable[Path]) -> dict[Path, str]:
    """Return a short name for each folder.

    For a single folder, it is the folder's name. For several folders, it is each folder's path relative to their common
    parent.
    """
    folders = {path.parent: str(path.parent.resolve()) for path in paths}
    common = os.path.commonpath(folders.values())
    names = {folder: os.path.relpath(resolved, common) for folder, resolved in folders.items()}
    return {folder: Path(folders[folder]).name if name == "." else name for folder, name in names.items()}


def _no_trajectory(paths: Sequence[Path], files: _Files) -> str:
    names = ", ".join(str(path) for path in paths)
    if len(paths) == 1 and paths[0].is_file() and files.problems:
        return files.problems[0]
    reasons = files.problems or [f"{files.ignored} other files" if files.ignored else "no files"]
    remedy = "Write some with `ctx1 search --save FOLDER` or SearchAgent(trajectories=FOLDER)."
    listed, remedy = joined_reasons(reasons[:3], remedy)
    more = f"; {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return f"there is no trajectory in {names} ({listed}{more}). {remedy}"
