"""`ctx1 ui`: a folder as a page in the browser, where one asks."""

from __future__ import annotations

import re
import threading
import webbrowser
from hashlib import blake2b
from pathlib import Path
from typing import Annotated

from context_agent.cli import options, output
from context_agent.cli.command import EXISTING_FOLDER, FOLDER, Argument, IntegerRange, Json, Option, command
from context_agent.cli.index import ChunkOptions, IndexRun, summary
from context_agent.cli.serve import LOOPBACK, start_logs
from context_agent.errors import ConfigError

HOST, PORT = "127.0.0.1", 8320
"""The usual address: past questions are kept by address, so it should rarely change."""
GRACE = 2.0
"""Seconds that a running search has to finish after Ctrl-C."""
DIGEST_SIZE = 4


@command
def ui(
    folder: Annotated[Path, Argument("FOLDER", EXISTING_FOLDER)],
    *,
    path: Annotated[
        Path | None, Option("Folder of the index.", FOLDER, default="a folder in the user's cache folder")
    ] = None,
    trajectories: Annotated[
        Path | None,
        Option("Write trajectories and judgements to this folder.", FOLDER, default="episodes, in the index's folder"),
    ] = None,
    port: Annotated[
        int | None, Option("Port on 127.0.0.1.", IntegerRange(0, 65_535), default=f"{PORT}, or a free one")
    ] = None,
    no_browser: Annotated[bool, Option("Print the address without opening the browser.")],
    as_json: Json,
) -> int:
    """Index a folder and ask it questions in the browser.

    The first run indexes FOLDER; later runs only read what has changed. Only this machine can reach the page, at
    http://127.0.0.1:8320. Ctrl-C ends it.
    """
    from context_agent.agent import SearchAgent
    from context_agent.integrations.server.app import application_of
    from context_agent.integrations.server.service import LiveIndex, Service, Settings
    from context_agent.integrations.server.transport import serve

    home = _home(folder) if path is None else path
    index = options.CorpusOptions(path=home)
    changes = _update(index, folder)
    corpus = index.open()
    start_logs("error")

    def ready(url: str) -> None:
        fields = {"url": url, "chunks": corpus.count(), "index": str(home)}
        chunks = output.count(corpus.count(), "passage")
        output.result(fields, f"{changes}\n{chunks} of {folder} at {url}; press Ctrl-C to stop", as_json=as_json)
        if not no_browser:
            # A text browser in this terminal would hold up the server.
            threading.Thread(target=_open_browser, args=(url,), daemon=True).start()

    with SearchAgent(corpus, trajectories=trajectories or home / "episodes") as agent:
        title = folder.resolve().name or str(folder)
        settings = Settings(hosts=LOOPBACK, grace=GRACE, title=title)
        service = Service.of(agent, settings, LiveIndex(agent, index.open))
        serve(service, application_of(service), HOST, _port(port), ready)
    output.note("stopped")
    return 0


def _update(index: options.CorpusOptions, folder: Path) -> str:
    """Brings the index up to date with the folder, and returns what changed. Raises `CorpusEmptyError`."""
    from context_agent.retrieval.loaders import LoadOptions, load

    run = IndexRun([str(folder)], load, LoadOptions(), ChunkOptions(), index, remove_missing=True)
    try:
        indexed = run.update()
    finally:
        output.note_load_report(run.read, verbose=False)
    if indexed.warning:
        output.note(indexed.warning)
    return summary(run.read, indexed, index)


def _home(folder: Path) -> Path:
    """The folder of the index in the user's cache: named after the source folder, and different for each path."""
    from platformdirs import user_cache_path

    resolved = folder.resolve()
    name = re.sub(r"[^\w.-]+", "-", resolved.name).strip("-.")[:40] or "folder"
    digest = blake2b(str(resolved).encode(errors="surrogateescape"), digest_size=DIGEST_SIZE).hexdigest()
    return user_cache_path("context-agent") / "ui" / f"{name}-{digest}"


def _port(port: int | None) -> int:
    """The port: without a choice the usual one, or 0 (any free one) if that is taken."""
    from context_agent.integrations.server.transport import bind_socket

    if port is not None:
        return port
    try:
        with bind_socket(HOST, PORT):
            return PORT
    except ConfigError:
        return 0


def _open_browser(url: str) -> None:
    if not webbrowser.open(url):
        output.note(f"cannot open a browser; open this address: {url}")
