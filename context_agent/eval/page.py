"""Self-contained HTML pages and the drawings in them. The reports and the viewer are such pages.

The page's content security policy forbids every request, and every script and style except the page's own, which it
identifies by their hashes. Data is compressed and base64-encoded, so nothing in it can end an element; a script reads
it with `await pageData("name")` (see `page.js`).

Drawings are SVG from matplotlib figures: with real text, for light and dark pages, and reproducible byte for byte.
Style attributes become presentation attributes, because the page's security policy forbids inline styles. Everything
drawn in `INK` takes the color of the surrounding text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import re
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from context_agent.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ENDS = re.compile(r"</(?:script|style)|<!--", re.I)
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, bidirectional overrides, which can reverse a line, and lone surrogates."""
INK = "#102030"
"""A placeholder for the text color of the page."""
PALETTE = ("#2f8fd8", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#8a8f98")
"""Colors that color-blind readers can distinguish, after Okabe and Ito (2008), with a lighter blue that is readable
on a dark background, gray instead of sky blue, and without black and yellow."""
DASHES = ("-", "--", ":", "-.")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
MAX_NAME = 40
"""Longest name in a legend, in characters."""
_SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"
_STANDALONE = "svg{color:#1a1d23}@media (prefers-color-scheme:dark){svg{color:#e6e8ec}}"


def page(
    title: str,
    body: str,
    *,
    data: Mapping[str, object] | None = None,
    scripts: Iterable[str] = (),
    styles: Iterable[str] = (),
) -> str:
    """Return the page as text. `title` is plain text; `body` is HTML in which all external text went through `escape`.

    Each entry of `data` is plain JSON data under a name of lowercase letters, digits and hyphens; a script unpacks the
    entries one by one. `scripts` run in order after the body, as classic scripts in one scope. `styles` follow the base
    stylesheet. Inline event handlers and `style` attributes do not work in the page. Raises `ValueError` for a script
    or style that would end its own element, and for data that is not JSON.
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
    """Return the text for use in HTML, including attributes. Unprintable characters and overrides are spelled out."""
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
        raise ValueError(f"data part {name!r}: use lowercase letters, digits and hyphens")
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    packed = base64.b64encode(zlib.compress(text.encode("utf-8", "surrogatepass"))).decode("ascii")
    return f'<script type="application/octet-stream" id="data-{name}">{packed}</script>\n'


def asset(name: str) -> str:
    """Return the script or the style that all pages share: `page.js`, `page.css`."""
    return (files("context_agent.eval") / name).read_text(encoding="utf-8")


def _checked(text: str) -> str:
    """Return the script or style with line ends as the browser reads them, because the hash is computed from those."""
    if match := _ENDS.search(text):
        raise ValueError(f"a script or style may not contain {match[0]!r}, which would end its own element")
    return text.replace("\r\n", "\n").replace("\r", "\n")


@contextmanager
def canvas() -> Iterator[type[Figure]]:
    """matplotlib's `Figure`, with the settings that all drawings share. Raises `MissingExtraError`."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "plots") from None
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # missing glyphs: the browser uses its own font
        mpl.rcdefaults()
        mpl.rcParams.update(_settings())
        yield Figure


def svg(figure: Figure, name: str, title: str, *, standalone: bool = True) -> str:
    """Return the figure as SVG text; call it inside `canvas`. Ids start with `name`; `title` is the label for screen
    readers.

    A standalone drawing has text colors for light and dark; otherwise it takes those of the page.
    """
    import matplotlib as mpl

    out = io.StringIO()
    mpl.rcParams["svg.hashsalt"] = name
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    root = ET.fromstring(out.getvalue())  # noqa: S314 - matplotlib wrote it
    _clean(root, name)
    root.set("role", "img")
    root.set("aria-label", plain(title))
    root.set("stroke-linejoin", "round")
    if standalone:
        style = ET.Element(f"{{{_SVG}}}style")
        style.text = _STANDALONE
        root.insert(0, style)
    ET.register_namespace("", _SVG)
    return ET.tostring(root, encoding="unicode") + "\n"


def plain(text: str) -> str:
    """Return the text on one line, without characters that XML does not allow, shortened to `MAX_NAME`."""
    line = re.sub(
        r"[^\u0020-\u007e\u00a0-\u2029\u202f-\u2065\u2070-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "·", text
    )
    return line if len(line) <= MAX_NAME else f"{line[: MAX_NAME - 1]}…"


def _clean(root: ET.Element, name: str) -> None:
    used = {reference for element in root.iter() for reference in _references(element)}
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    for element in root.iter():
        _flatten(element)
        identity = element.attrib.pop("id", "")
        if identity in used:
            element.set("id", f"{name}-{identity}")
        if target := element.attrib.pop(_LINK, None):
            element.set("href", f"#{name}-{target[1:]}")
        for key, value in element.attrib.items():
            element.set(key, "currentColor" if value.lower() == INK else value.replace("url(#", f"url(#{name}-"))


def _references(element: ET.Element) -> Iterator[str]:
    for value in element.attrib.values():
        yield from re.findall(r"url\(#([^()]+)\)", value)
    if _LINK in element.attrib:
        yield element.attrib[_LINK][1:]


def _flatten(element: ET.Element) -> None:
    """Turns the style attribute into presentation attributes."""
    for rule in element.attrib.pop("style", "").split(";"):
        key, _, value = (part.strip() for part in rule.partition(":"))
        if key == "font":
            size = re.search(r"(?<![\d.])([\d.]++)px", value)
            element.set("font-size", size[1] if size else "10")
            element.set("font-family", "system-ui, sans-serif")
            if "bold" in value or re.match(r"[67]00 ", value):
                element.set("font-weight", "600")
        elif key:
            element.set(key, value)


def _settings() -> Any:
    ink = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color")
    return {
        **dict.fromkeys(ink, INK),
        "text.parse_math": False,
        "svg.fonttype": "none",
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.15,
        "grid.linewidth": 0.8,
        "legend.frameon": False,
        "lines.linewidth": 1.8,
        "lines.markersize": 5,
        "figure.constrained_layout.use": True,
    }
