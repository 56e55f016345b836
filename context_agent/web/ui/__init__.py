"""The search page of the server, as files.

The page loads only its own files. All pages share the base style and script. To show an episode, the search page uses
the viewer's scripts.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path

from context_agent.web import page, viewer

PAGES = ("ask.html", "episode.html")
ASSETS = (
    *("api.js", "ask.css", "ask.js", "episode.js", "icon.svg", "live.js", "ranking.js", "settings.js"),
    *("page.css", "page.js", "view.css", *viewer.SCRIPTS),
)
"""The scripts, styles and images that the pages load."""
CONTENT_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".html": "text/html"}


@cache
def page_file(name: str) -> tuple[bytes, dict[str, str]]:
    """Return the content of a file of the search page, and the headers that describe it: its type and its tag.

    Args:
        name: A file name from `PAGES` or `ASSETS`.

    Raises:
        KeyError: If the name is neither in `PAGES` nor in `ASSETS`.
    """
    if name not in (*PAGES, *ASSETS):
        raise KeyError(name)
    if name in ("page.css", "page.js"):
        text = page.asset(name)
    elif name in ("view.css", *viewer.SCRIPTS):
        text = viewer.asset(name)
    else:
        text = (files("context_agent.web.ui") / name).read_text(encoding="utf-8")
    content = text.encode()
    tag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
    kind = CONTENT_TYPES[Path(name).suffix]
    return content, {"Content-Type": f"{kind}; charset=utf-8", "ETag": tag}
