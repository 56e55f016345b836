"""Changes of the files and folders that an index was made from."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from context_agent.errors import ConfigError, DataError, reason_of

DEBOUNCE, STEP = 2_000, 200
"""Maximum time to collect changes, and the time without a change that ends it, in milliseconds."""


def changes(sources: Sequence[str], index: Path | None, *, no_ignore: bool) -> Iterator[None]:
    """Yield once as soon as the sources are watched, and then after each batch of changes. End at Ctrl-C.

    Hidden entries and the index folder are ignored, and so are the folders of tools unless `no_ignore` is set. Links
    are not followed. Each folder is watched by itself, and is watched again with its subfolders when one appears or
    disappears.
    """
    if "-" in sources:
        raise ConfigError(
            "--watch needs files or folders, and standard input (-) cannot be watched. Name a file or a folder."
        )
    paths = [Path(source).resolve() for source in sources]
    skipped = None if index is None else index.resolve()
    with suppress(KeyboardInterrupt):
        while True:
            watched = _watched(paths, skipped, no_ignore=no_ignore)
            for number, batch in enumerate(_batches(watched, paths, skipped, no_ignore=no_ignore)):
                if batch and watched != _watched(paths, skipped, no_ignore=no_ignore):
                    break  # the new watch yields as soon as it is set up, so nothing is missed
                if batch or not number:
                    yield


def _watched(paths: Sequence[Path], skipped: Path | None, *, no_ignore: bool) -> dict[Path, int]:
    """Return the folders to watch with their inodes.

    The inode distinguishes a folder from an earlier one with the same name.
    """
    from context_agent.retrieval.loaders.folders import subfolders

    watched: dict[Path, int] = {}
    for path in paths:
        folders = subfolders(path, no_ignore=no_ignore) if path.is_dir() else _nearest_folder(path)
        for folder in folders:
            if not (skipped and folder.is_relative_to(skipped)):
                with suppress(OSError):
                    watched[folder] = folder.stat().st_ino
    return watched


def _nearest_folder(path: Path) -> list[Path]:
    """Return the folder of a file. If the path is missing, return the nearest existing folder above it."""
    return [next(above for above in path.parents if above.is_dir())]


def _batches(
    watched: Collection[Path], paths: Sequence[Path], skipped: Path | None, *, no_ignore: bool
) -> Iterator[object]:
    """Yield the changes in the folders, and an empty set while there are none. If a folder has disappeared, end.

    Raises:
        DataError: If the folders cannot be watched.
    """
    from watchfiles import Change, watch

    from context_agent.retrieval.loaders.folders import RULES_FILE, is_passed_over

    def counts(_: Change, name: str) -> bool:
        path = Path(name)
        if path.name == RULES_FILE or any(source.is_relative_to(path) for source in paths):
            return True
        below = [path.relative_to(source).parts for source in paths if path.is_relative_to(source)]
        shown = any(not any(is_passed_over(part, no_ignore=no_ignore) for part in parts) for parts in below)
        return shown and not (skipped and path.is_relative_to(skipped))

    try:
        yield from watch(
            *watched,
            watch_filter=counts,
            debounce=DEBOUNCE,
            step=STEP,
            rust_timeout=STEP,
            yield_on_timeout=True,
            recursive=False,
            ignore_permission_denied=True,
        )
    except FileNotFoundError:
        return  # a folder disappeared before it was watched
    except OSError as error:
        raise DataError(
            f"{len(watched):,} folders cannot be watched ({reason_of(error)}). Name fewer folders, raise "
            "fs.inotify.max_user_watches, or index without --watch."
        ) from error
