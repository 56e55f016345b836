"""The page at `/`: its files, its security policy, and the recorded episodes that it links to.

The files are public and hold nothing of the index: the page gets everything by the endpoints below `/v1`, with the
token if there is one. It uses the scripts and styles of the viewer, which `/episodes/ID` shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from typing import Any

from context_agent._support.extras import extra
from context_agent.errors import DataError, TrajectoryError
from context_agent.eval import page, view
from context_agent.eval.view.loading import load
from context_agent.eval.view.model import view_data
from context_agent.harness.trajectory import Trajectory
from context_agent.integrations.feedback import FeedbackLog
from context_agent.pruning.view import ToolResult

with extra("serve"):
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

OWN = ("api.js", "ask.css", "ask.js", "episode.js", "icon.svg", "live.js", "ranking.js", "settings.js")
"""Files of the page in the folder `ui`, besides the HTML."""
SHARED, VIEWER = ("page.css", "page.js"), ("view.css", *view.SCRIPTS)
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".html": "text/html"}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


def is_public(path: str) -> bool:
    """Whether the path is one of the page's own, which need no token."""
    return path == "/" or path.startswith(("/ui/", "/episodes/"))


@cache
def _file(name: str) -> tuple[bytes, dict[str, str]]:
    """The content of a file, and its headers. Raises `KeyError` for a name that is not the page's."""
    if name in SHARED:
        text = page.asset(name)
    elif name in VIEWER:
        text = view.asset(name)
    elif name in (*OWN, "ask.html", "episode.html"):
        text = (files("context_agent.integrations.server") / "ui" / name).read_text(encoding="utf-8")
    else:
        raise KeyError(name)
    content = text.encode()
    kind = TYPES[Path(name).suffix]
    tag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
    return content, {**HEADERS, "Content-Type": f"{kind}; charset=utf-8", "ETag": tag}


def _answer(request: Request, name: str) -> Response:
    content, headers = _file(name)
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers)


async def _ask(request: Request) -> Response:
    """`GET /`."""
    return _answer(request, "ask.html")


async def _episode(request: Request) -> Response:
    """`GET /episodes/{name}`; the viewer fetches the episode."""
    return _answer(request, "episode.html")


async def _asset(request: Request) -> Response:
    """`GET /ui/{name}`."""
    name = request.path_params["name"]
    if name not in (*OWN, *SHARED, *VIEWER):
        raise HTTPException(404)
    return _answer(request, name)


ROUTES = (Route("/", _ask), Route("/episodes/{name}", _episode), Route("/ui/{name}", _asset))


def episode_data(log: FeedbackLog, name: str) -> dict[str, Any]:
    """A recorded episode and those of its sub-agents, as the viewer reads them, without paths.

    Raises `DataError` for a trajectory that is unknown or cannot be shown.
    """
    log.header(name)
    main = log.folder / f"{name}.jsonl"
    try:
        (loaded,) = load([main]).loaded
        shown = view_data(load([main, *_sub_agents(log, loaded.trajectory)]))
    except DataError:  # Its message names the path.
        raise DataError(f"the trajectory {name!r} cannot be read") from None
    if not shown.rows:
        raise DataError(f"the trajectory {name!r} cannot be shown")
    rows = tuple(replace(row, file=Path(row.file).name, run="") for row in shown.rows)
    return view.page_data(replace(shown, rows=rows, problems=()))


def _sub_agents(log: FeedbackLog, trajectory: Trajectory) -> Iterator[Path]:
    """The files of the sub-agents that the trajectory started, if they are there."""
    for event in trajectory.events:
        for sub_agent in event.delegated if isinstance(event, ToolResult) else ():
            with suppress(TrajectoryError):
                log.header(sub_agent.id)
                yield log.folder / f"{sub_agent.id}.jsonl"
