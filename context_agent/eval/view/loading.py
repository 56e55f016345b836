"""Trajectory files as a user keeps them: single or in folders, some cut, some of another version, some still growing.

A file that can't be shown is named with its reason and stops nothing. Files that are no trajectories are counted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from context_agent.errors import ConfigError, DataError, TrajectoryError
from context_agent.harness import trajectory_file
from context_agent.harness.trajectory import Trajectory

SUFFIX = ".jsonl"
PAGE_SUFFIX = ".html"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A trajectory that was read. `run` names its folder among those read; `problem` says why it doesn't replay."""

    path: Path
    run: str
    trajectory: Trajectory
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    """All that was found: trajectories in order of path, a line for each file that can't be shown, and how many others
    lay beside them."""

    loaded: tuple[Loaded, ...]
    problems: tuple[str, ...] = ()
    ignored: int = 0


@dataclass(slots=True)
class _Found:
    loaded: list[tuple[Path, Trajectory, str | None]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    ignored: int = 0


def load(paths: Sequence[Path], advance: Callable[[int, int | None], None] = lambda done, total: None) -> Collection:
    """Reads files and folders, these with all folders in them. `advance` is told how many are done, and of how many.

    Raises `DataError` for a path that is not there and where no trajectory at all was found.
    """
    files = list(_files(paths))
    found = _Found()
    for number, (path, named) in enumerate(files, start=1):
        _take(path, named, found)
        advance(number, len(files))
    if not found.loaded:
        raise DataError(_nothing(paths, found))
    runs = _runs(path for path, _, _ in found.loaded)
    loaded = tuple(Loaded(path, runs[path.parent], trajectory, why) for path, trajectory, why in found.loaded)
    return Collection(loaded, tuple(found.problems), found.ignored)


def _files(paths: Iterable[Path]) -> Iterator[tuple[Path, bool]]:
    """Each file once, and whether it was named itself."""
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise DataError(f"{path}: no such file or folder")
        inside = sorted(filter(_counts, path.rglob("*"))) if path.is_dir() else [path]
        for one in inside:
            if (whole := one.resolve()) not in seen:
                seen.add(whole)
                yield one, one == path


def _counts(path: Path) -> bool:
    """Whether it is a file of the user's; pages that were made here lie beside the trajectories."""
    return path.is_file() and path.suffix != PAGE_SUFFIX and not path.name.startswith(".")


def _take(path: Path, named: bool, found: _Found) -> None:
    if not named and not (path.suffix == SUFFIX and is_trajectory(path)):
        found.ignored += 1
        return
    try:
        trajectory = trajectory_file.read(path)
    except TrajectoryError as error:
        found.problems.append(str(error) if str(path) in str(error) else f"{path}: {error}")
    except (RecursionError, AttributeError, ConfigError) as error:
        found.problems.append(f"{path}: no sound trajectory ({error})")
    else:
        found.loaded.append((path, trajectory, _unsound(trajectory)))


def is_trajectory(path: Path) -> bool:
    """Whether the first line is a trajectory's header, or the beginning of one that was cut."""
    try:
        with path.open("rb") as stream:
            line = stream.readline()
        return line.startswith(b'{"kind":"header"') or dict(json.loads(line)).get("kind") == "header"
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def _unsound(trajectory: Trajectory) -> str | None:
    """Why the trajectory does not replay, None where it does."""
    try:
        trajectory.verify()
    except TrajectoryError as error:
        return str(error)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"its values are not those of a trajectory ({type(error).__name__}: {error})"
    return None


def _runs(paths: Iterable[Path]) -> dict[Path, str]:
    """A short name for each folder: its own where there is one, else its path from what all have in common."""
    folders = {path.parent: str(path.parent.resolve()) for path in paths}
    common = os.path.commonpath(folders.values())
    names = {folder: os.path.relpath(whole, common) for folder, whole in folders.items()}
    return {folder: Path(folders[folder]).name if name == "." else name for folder, name in names.items()}


def _nothing(paths: Sequence[Path], found: _Found) -> str:
    where = ", ".join(str(path) for path in paths)
    reasons = found.problems or [f"{found.ignored} other files there" if found.ignored else "nothing there"]
    more = f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return (
        f"no trajectory to show in {where}: {'; '.join(reasons[:3])}{more}. "
        "`ctx1 search --save FOLDER` and SearchAgent(trajectories=FOLDER) write them"
    )
