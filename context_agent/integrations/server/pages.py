"""The routes of the page at `/` and of the viewer of episodes, and their Content-Security-Policy.

The files are public and contain nothing from the index. The page gets all data from the endpoints below `/v1`. If there
is a token, the page sends it.
"""

from __future__ import annotations

from context_agent._support.extras import extra
from context_agent.web import ui

with extra("serve"):
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route


PAGE_HEADERS = {
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
"""Header fields of every page and asset. A page loads only files of this server, and no other page may embed it."""


def is_public(path: str) -> bool:
    """Return True if the path belongs to the page itself. Such paths need no token."""
    return path == "/" or path.startswith(("/ui/", "/episodes/"))


def _answer(request: Request, name: str) -> Response:
    content, described = ui.page_file(name)
    headers = {**PAGE_HEADERS, **described}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers)


async def _ask(request: Request) -> Response:
    """Return the page where a user asks questions."""
    return _answer(request, "ask.html")


async def _episode(request: Request) -> Response:
    """Return the viewer. It then fetches the episode."""
    return _answer(request, "episode.html")


async def _asset(request: Request) -> Response:
    """Return a script or a style of the pages."""
    name = request.path_params["name"]
    if name not in ui.ASSETS:
        raise HTTPException(404)
    return _answer(request, name)


PAGE_ROUTES = (Route("/", _ask), Route("/episodes/{name}", _episode), Route("/ui/{name}", _asset))
