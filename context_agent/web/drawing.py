"""Drawings for pages: SVG text from matplotlib figures.

A drawing has real text, suits light and dark pages, and is the same byte for byte on every machine. Style attributes
become presentation attributes, because a page's security policy forbids inline styles. Everything drawn in `INK` takes
the color of the surrounding text.
"""

from __future__ import annotations

import io
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from context_agent._support.small_files import require_files
from context_agent.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#102030"
"""A placeholder for the text color of the page."""
PALETTE = ("#2f8fd8", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#8a8f98")
"""Colors that color-blind readers can distinguish, after Okabe and Ito (2008).

The blue is lighter than theirs, so it is readable on a dark background. Gray replaces sky blue. Black and yellow are
left out.
"""
DASHES = ("-", "--", ":", "-.")
PLOT_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
MAX_NAME = 40
"""The longest name in a legend, in characters."""
_SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"
_STANDALONE = "svg{color:#1a1d23}@media (prefers-color-scheme:dark){svg{color:#e6e8ec}}"


@contextmanager
def canvas() -> Iterator[type[Figure]]:
    """Yield matplotlib's `Figure` class, and apply the settings that all drawings share until the block ends.

    Raises:
        MissingExtraError: If matplotlib is not installed.
        DataError: If the working folder has a pipe or a device in place of matplotlib's settings.
    """
    if "matplotlib" not in sys.modules:
        # matplotlib reads this file when it is imported, and would wait for a pipe.
        require_files([Path("matplotlibrc")])
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
    """Return the figure as SVG text. Call this inside `canvas`.

    Args:
        figure: The figure to draw.
        name: A prefix for the ids in the SVG. It must be unique on the page.
        title: The label for screen readers.
        standalone: True if the drawing has its own text colors for light and dark backgrounds. If False, it takes the
            text color of the page.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    out = io.StringIO()
    mpl.rcParams["svg.hashsalt"] = name
    for patch in (figure.patch, *(panel.patch for panel in figure.axes)):
        patch.set(facecolor="none", edgecolor="none")
    # `Figure.savefig` draws everything twice.
    drawer: Any = FigureCanvasSVG(figure)  # matplotlib has no annotations for it
    drawer.print_svg(out, metadata={"Date": None, "Creator": None})
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
    """Return the text on one line, shortened to `MAX_NAME` characters.

    A dot replaces each character that XML forbids.
    """
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
    """Turn the style attribute into presentation attributes."""
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
