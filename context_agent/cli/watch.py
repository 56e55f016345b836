"""Waiting for changes of source files, for `ctx1 index --watch`."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import click

from context_agent.retrieval.loaders.report import RULES_FILE
from context_agent.retrieval.loaders.sources import TOOL_FOLDERS

DEBOUNCE, STEP = 2_000, 200
"""Milliseconds: changes are collected until none has come for `STEP`, at most for `DEBOUNCE`."""


def changes(sources: Sequence[str], index: Path | None, *, no_ignore: bool) -> Iterator[None]:
    """Yields once as soon as the sources are watched, then after each batch of changes; until Ctrl-C.

    Hidden entries, the index folder and, unless `no_ignore`, the folders of tools do not count.
    """
    from watchfiles import Change, watch

    if "-" in sources:
        raise click.UsageError("--watch needs files or folders: standard input (-) cannot be watched")
    paths = [Path(source).resolve() for source in sources]
    folders = {path for path in paths if stat.S_ISDIR(path.stat().st_mode)}
    skipped = None if index is None else index.resolve()

    def ignored(name: str) -> bool:
        return name.startswith(".") or (name in TOOL_FOLDERS and not no_ignore)

    def counts(_: Change, name: str) -> bool:
        path = Path(name)
        if path in paths or path.name == RULES_FILE:
            return True
        below = [path.relative_to(folder).parts for folder in folders if path.is_relative_to(folder)]
        return any(not any(map(ignored, parts)) for parts in below) and not (skipped and path.is_relative_to(skipped))

    roots = folders | {path.parent for path in paths if path not in folders}
    watching = watch(
        *roots,
        watch_filter=counts,
        debounce=DEBOUNCE,
        step=STEP,
        rust_timeout=STEP,
        yield_on_timeout=True,
        ignore_permission_denied=True,
    )
    with suppress(KeyboardInterrupt):
        for number, batch in enumerate(watching):
            if batch or not number:
                yield
