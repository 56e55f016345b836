"""The command `ctx1 ui`, which indexes a folder and serves its search page in the browser."""

from __future__ import annotations

import re
import threading
import webbrowser
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from context_agent.cli import output
from context_agent.cli.index_options import CorpusOptions
from context_agent.cli.index_run import ChunkOptions, IndexRun, summary
from context_agent.cli.load_report import note_load_report
from context_agent.cli.parameters import EXISTING_FOLDER, FOLDER, OUTPUT_FOLDER, PORT, CommonOptions
from context_agent.cli.server_options import start_logs
from context_agent.errors import ConfigError, CorpusEmptyError
from context_agent.integrations.server.origins import LOOPBACK_NAMES
from context_agent.text.counts import counted

UI_HOST, UI_PORT = "127.0.0.1", 8320
"""The default address. The browser stores past questions by address, so the address should rarely change."""
GRACE_SECONDS = 2.0
"""Seconds in which a running search can finish after Ctrl-C."""
DIGEST_SIZE = 4


def ui(
    folder: Annotated[Path, EXISTING_FOLDER],
    /,
    *,
    path: Annotated[Path | None, FOLDER, Parameter(show_default="a folder in the user's cache folder")] = None,
    save: Annotated[Path | None, OUTPUT_FOLDER, Parameter(show_default="episodes, in the index's folder")] = None,
    port: Annotated[int | None, PORT, Parameter(show_default=f"{UI_PORT}, or a free one")] = None,
    no_browser: bool = False,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Index a folder and ask it questions in the browser.

    The first run indexes the folder. Later runs read only what has changed. Only this machine can reach the page, at
    http://127.0.0.1:8320. To stop the server, press Ctrl-C.

    Args:
        folder: Folder with your documents.
        path: Folder of the index. Its documents from other folders stay.
        save: Write trajectories and judgments to this folder.
        port: Port on 127.0.0.1.
        no_browser: Print the address without opening the browser.
    """
    from context_agent.agent import SearchAgent
    from context_agent.integrations.server.app import application_of
    from context_agent.integrations.server.live_index import LiveIndex
    from context_agent.integrations.server.process import serve
    from context_agent.integrations.server.service import Service
    from context_agent.integrations.server.settings import Settings

    home = _home(folder) if path is None else path
    index = CorpusOptions(path=home)
    # An index that the user names may have documents of other folders, too.
    changes = _update(index, folder, remove_missing=path is None)
    corpus = index.open()
    start_logs("error")

    def ready(url: str) -> None:
        fields = {"url": url, "chunks": corpus.count(), "index": str(home)}
        chunks = counted(corpus.count(), "passage")
        output.result(fields, f"{changes}\n{chunks} of {folder} at {url} (press Ctrl-C to stop)", as_json=common.json)
        if not no_browser:
            # A text browser in this terminal would hold up the server.
            threading.Thread(target=_open_browser, args=(url,), daemon=True).start()

    with SearchAgent(corpus, trajectories=save or home / "episodes") as agent:
        title = folder.resolve().name or str(folder)
        settings = Settings(hosts=LOOPBACK_NAMES, grace=GRACE_SECONDS, title=title)
        service = Service.of(agent, settings, LiveIndex(agent, index.open))
        serve(service, application_of(service), UI_HOST, _port(port), ready)
    output.note("stopped")
    return 0


def _update(index: CorpusOptions, folder: Path, *, remove_missing: bool) -> str:
    """Bring the index up to date with the folder, and return what changed.

    Raises:
        CorpusEmptyError: If the folder has no documents.
    """
    from context_agent.retrieval.loaders import LoadOptions, load

    run = IndexRun([str(folder)], load, LoadOptions(), ChunkOptions(), index, remove_missing=remove_missing)
    indexed = None
    try:
        with suppress(CorpusEmptyError):
            indexed = run.update()
    finally:
        note_load_report(run.read, verbose=False)
    if indexed is None or not indexed.chunks:
        raise CorpusEmptyError(f"there is nothing to index in {folder}. Choose a folder with text.")
    if indexed.warning:
        output.note(indexed.warning)
    return summary(run.read, indexed, index)


def _home(folder: Path) -> Path:
    """Return the folder of the index in the user's cache.

    It is named after the source folder, and each path has its own.
    """
    from context_agent._support.cache_folder import cache_folder

    resolved = folder.resolve()
    name = re.sub(r"[^\w.-]+", "-", resolved.name).strip("-.")[:40] or "folder"
    digest = blake2b(str(resolved).encode(errors="surrogateescape"), digest_size=DIGEST_SIZE).hexdigest()
    return cache_folder() / "ui" / f"{name}-{digest}"


def _port(port: int | None) -> int:
    """Return the port that the user chose.

    Without a choice, return the usual port, or 0 (any free one) if it is taken.
    """
    from context_agent.integrations.server.process import bind_socket

    if port is not None:
        return port
    try:
        with bind_socket(UI_HOST, UI_PORT):
            return UI_PORT
    except ConfigError:
        return 0


def _open_browser(url: str) -> None:
    if not webbrowser.open(url):
        output.note(f"no browser can be opened. Open this address: {url}")
