"""Self-contained HTML pages, such as the viewer, the report and the review page.

The page's content security policy forbids every request. It allows only the page's own scripts and styles, which it
identifies by their hashes. Data is compressed and base64-encoded, so nothing in it can end an element. A script reads
the data with `await pageData("name")` (see `page.js`).
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
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, lone surrogates, and bidirectional overrides, which can reverse a line."""


def page(
    title: str,
    body: str,
    *,
    data: Mapping[str, object] | None = None,
    scripts: Iterable[str] = (),
    styles: Iterable[str] = (),
) -> str:
    """Return a self-contained page as HTML.

    Inline event handlers and `style` attributes do not work in the page.

    Args:
        title: The title, as plain text.
        body: HTML. All external text in it must have gone through `escape`.
        data: JSON data by name. A name consists of lowercase letters, digits and hyphens. A script unpacks the entries
            one by one.
        scripts: Classic scripts, which run after the body, in order and in one scope.
        styles: Style sheets, which follow the base style sheet.

    Raises:
        ValueError: If a script or style would end its own element, if a name of `data` is invalid, or if the data has
            infinity or NaN.
        TypeError: If the data is not JSON.
    """
    sheets = [asset("page.css"), *(_checked(style) for style in styles)]
    programs = [_checked(script) for script in scripts]
    if data or programs:
        programs.insert(0, asset("page.js"))
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
    """Return the text, escaped for HTML and for attributes. Unprintable characters are spelled out as code points."""
    return html.escape(_UNPRINTABLE.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text))


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
        raise ValueError(f"the name of a data part must have only lowercase letters, digits and hyphens; got {name!r}")
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    packed = base64.b64encode(zlib.compress(text.encode("utf-8", "surrogatepass"))).decode("ascii")
    return f'<script type="application/octet-stream" id="data-{name}">{packed}</script>\n'


def asset(name: str) -> str:
    """Return the content of a file that all pages share: `page.js` or `page.css`."""
    return (files("context_agent.web") / name).read_text(encoding="utf-8")


def _checked(text: str) -> str:
    """Return the script or style with the line ends that a browser sees.

    A browser normalizes line ends before it computes the hash.

    Raises:
        ValueError: If the text would end its own element.
    """
    if match := _ENDS.search(text):
        raise ValueError(f"a script or style must not contain {match[0]!r}, which would end its own element")
    return text.replace("\r\n", "\n").replace("\r", "\n")
