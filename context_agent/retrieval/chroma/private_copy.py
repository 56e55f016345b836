"""A private copy of a local Chroma folder, which Chroma's client may open and write to."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from context_agent.errors import CorpusCorruptError, CorpusError
from context_agent.retrieval.chroma.database import (
    BUSY_SECONDS,
    DATABASE_FILE,
    JOURNAL_FILE,
    UnreadableError,
    damaged,
    last_sequence,
    open_database,
    require_own_journal,
    require_sound,
    segment_id,
    vector_files,
)
from context_agent.retrieval.chroma.vector_files import VECTOR_FILES, vectors_are_intact
from context_agent.retrieval.index.snapshot import COPY_PREFIX

_MAX_ATTEMPTS = 8
_MAX_EQUAL_ATTEMPTS = 5
"""The number of attempts if no program changes the files. The pauses between them take 1.5 seconds."""
_COPIED_FILES = (DATABASE_FILE, JOURNAL_FILE, f"{DATABASE_FILE}-wal")


@contextmanager
def private_copy(folder: Path, collection: str, scratch: Path) -> Iterator[Path]:
    """Yield a copy of the database and of one collection's vector index, in a new folder under `scratch`.

    The copy is consistent even if other processes write at the same time. It is deleted when the context ends.

    Raises:
        CorpusError: If there is no room for the copy.
        CorpusCorruptError: If every attempt gives an inconsistent copy.
    """
    _check_room(folder, scratch)
    seen: list[dict[str, tuple[int, int, int]]] = []
    for attempt in range(_MAX_ATTEMPTS):
        seen.append(_stamps(folder))
        with tempfile.TemporaryDirectory(prefix=COPY_PREFIX, dir=scratch, ignore_cleanup_errors=True) as target:
            if _copied(folder, collection, Path(target)):
                yield Path(target)
                return
        if seen.count(seen[-1]) == _MAX_EQUAL_ATTEMPTS:
            break
        time.sleep(0.1 * 2**attempt)
    raise CorpusCorruptError(
        f"the vector index of the collection in {folder} is damaged, or a program keeps changing it. Stop programs "
        "that write to it, and try again. If this does not help, restore the folder from a backup."
    )


def remove_copies(scratch: Path) -> None:
    """Delete the copies of processes that were killed."""
    for child in scratch.glob(f"{COPY_PREFIX}*"):
        shutil.rmtree(child, ignore_errors=True)


@contextmanager
def database_copy(folder: Path) -> Iterator[Path]:
    """Yield a copy of the database alone, in a temporary folder. If it keeps changing, raise `UnreadableError`."""
    with tempfile.TemporaryDirectory(prefix=COPY_PREFIX, ignore_cleanup_errors=True) as target:
        _copy_files(folder, Path(target))
        yield Path(target)


def _copied(folder: Path, collection: str, target: Path) -> bool:
    """Copy the files. Return True if the database and the vector index are from the same moment."""
    before = _stamps(folder)
    _copy_database(folder, target)
    require_sound(folder, target)
    with open_database(target, 0) as copy:
        segment = segment_id(copy, collection, "VECTOR")
        saved = last_sequence(copy, segment)
    source = vector_files(folder, segment)
    if source is None:
        return saved == 0
    (target / segment).mkdir()
    for name in VECTOR_FILES:
        with suppress(FileNotFoundError):
            shutil.copy2(source / name, target / segment / name)
    after = _stamps(folder)
    unchanged = all(before.get(name) == after[name] for name in after if name.startswith(f"{segment}/"))
    return unchanged and saved == _saved_now(folder, segment, saved) and vectors_are_intact(target / segment)


def _saved_now(folder: Path, segment: str, default: int) -> int:
    """Return the number of the last log entry that the saved vector index includes.

    If the database cannot be read, return `default`.
    """
    try:
        with open_database(folder, BUSY_SECONDS) as database:
            return last_sequence(database, segment)
    except UnreadableError:
        return default


def _stamps(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return the size, time and inode of each file in a folder and in its subfolders."""
    stats = {}
    for file in (*folder.glob("*"), *folder.glob("*/*")):
        with suppress(FileNotFoundError):
            if not file.is_dir():
                stats[file.relative_to(folder).as_posix()] = file.stat()
    return {name: (stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats.items()}


def _copy_database(folder: Path, target: Path) -> None:
    try:
        with open_database(folder, BUSY_SECONDS) as database, closing(sqlite3.connect(target / DATABASE_FILE)) as copy:
            database.backup(copy)
    except UnreadableError:
        _copy_files(folder, target)


def _copy_files(folder: Path, target: Path) -> None:
    """Copy a database with its journal. Opening the copy for writing rolls back a killed writer's transaction."""
    for attempt in range(_MAX_ATTEMPTS):
        before = _stamps(folder)
        for name in _COPIED_FILES:
            (target / name).unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                shutil.copy2(folder / name, target / name)
        after = _stamps(folder)
        if all(before.get(name) == after.get(name) for name in _COPIED_FILES):
            require_own_journal(folder, target)
            try:
                with closing(sqlite3.connect(target / DATABASE_FILE)) as database:
                    database.execute("pragma journal_mode = delete")
                    database.execute("select count(*) from collections")
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                if str(getattr(error, "sqlite_errorname", "")).startswith(("SQLITE_FULL", "SQLITE_IOERR")):
                    message = f"the copy of {folder / DATABASE_FILE} in {target.parent} cannot be written ({error})"
                    raise CorpusError(f"{message}. Free some space there.") from error
                raise damaged(folder / DATABASE_FILE, error) from error
            return
        time.sleep(0.1 * 2**attempt)
    raise UnreadableError(f"{folder / DATABASE_FILE} cannot be copied while it is written. Try again later.")


def _check_room(folder: Path, scratch: Path) -> None:
    copied = (
        *(folder / name for name in _COPIED_FILES),
        *(file for name in VECTOR_FILES for file in folder.glob(f"*/{name}")),
    )
    needed = sum(file.stat().st_size for file in copied if file.exists())
    free = shutil.disk_usage(scratch).free
    if free < needed * 1.1:
        raise CorpusError(
            f"reading the collection in {folder} takes a copy of {needed / 1e6:,.0f} MB, but {scratch} has only "
            f"{free / 1e6:,.0f} MB free. Free some space, or name another folder with cache=."
        )
