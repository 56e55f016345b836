"""One HTML file that needs nothing else: no server, no network, no library. The reports and the viewer are such pages.

The page's own content security policy forbids every request and every script or style but those written into it here,
which it knows by their hashes. Data is deflated and in base64, so that nothing in it can end an element; a script
reads it with `await pageData("name")` (see `page.js`).
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from importlib.resources import files

_ENDS = re.compile(r"</(?:script|style)|<!--", re.I)
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, the bidirectional overrides that could turn a line around, and halves of surrogate pairs."""


def page(
    title: str,
    body: str,
    *,
    data: Mapping[str, object] | None = None,
    scripts: Iterable[str] = (),
    styles: Iterable[str] = (),
) -> str:
    """The page as text. `title` is plain text; `body` is HTML whose every foreign word went through `escape`.

    Each entry of `data` is plain JSON data under a name of small letters, digits and dashes; parts are unpacked one by
    one as a script asks for them. `scripts` run in order when the body stands, as classic scripts in one scope.
    `styles` come after the base stylesheet. Inline event handlers and `style` attributes do not work in the page.
    Raises `ValueError` for a script or style that would end its own element, and for data that is no JSON.
    """
    sheets = [_own("page.css"), *(_checked(style) for style in styles)]
    programs = [_checked(script) for script in scripts]
    if data or programs:
        programs.insert(0, _own("page.js"))
    parts = "".join(_part(name, value) for name, value in (data or {}).items())
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(programs, sheets)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(title)}</title>\n"
        + "".join(f"<style>{sheet}</style>\n" for sheet in sheets)
        + f"</head>\n<body>\n{body}\n{parts}"
        + "".join(f"<script>{program}</script>\n" for program in programs)
        + "</body>\n</html>\n"
    )


def escape(text: str) -> str:
    """The text for use in HTML, in attributes too. Characters that can't be seen or turn text around are shown."""
    return html.escape(_UNSEEN.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text))


def _policy(programs: Iterable[str], sheets: Iterable[str]) -> str:
    allowed = " ".join(map(_hash, programs)) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src {' '.join(map(_hash, sheets))}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


def _part(name: str, value: object) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"data part {name!r}: a name is of small letters, digits and dashes")
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    packed = base64.b64encode(zlib.compress(text.encode("utf-8", "surrogatepass"))).decode("ascii")
    return f'<script type="application/octet-stream" id="data-{name}">{packed}</script>\n'


def _own(name: str) -> str:
    return (files("context_agent.eval") / name).read_text(encoding="utf-8")


def _checked(text: str) -> str:
    """The script or style, its line ends as the browser reads them: the hash is made of that."""
    if found := _ENDS.search(text):
        raise ValueError(f"a script or style may not contain {found[0]!r}: it would end its own element")
    return text.replace("\r\n", "\n").replace("\r", "\n")
