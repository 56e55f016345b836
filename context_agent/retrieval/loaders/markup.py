"""Extraction of the text of an HTML page.

The tokenizer follows the HTML standard where it matters for text. It replaces `html.parser`, which in older releases of
Python takes time quadratic in the length of some malformed pages. A corpus may contain any page. No pattern here can
fail after it began, so each character is examined once or twice. An element that is never closed extends to the end, as
in a browser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape

_TOKEN = re.compile(
    r"""<!--(?:-?>|.*?(?:--!?>|\Z))
    |<(?P<close>/?)(?P<name>[a-z][^\s/>]*+)
      (?P<rest>(?:[^>=]++|=\s*+"[^"]*+(?:"|\Z)|=\s*+'[^']*+(?:'|\Z)|=)*+)(?:>|\Z)
    |<[/!?][^>]*+(?:>|\Z)""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)
MOST_PARTS = 100_000
"""The most pieces of a page's text before they are joined."""
_DROPPED = frozenset(["iframe", "noframes", "noscript", "script", "style", "svg", "template"])
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_PARAGRAPHS = frozenset(
    "address article aside blockquote body details div dl fieldset figure figcaption footer form header hr html main"
    " nav ol p pre section summary table ul".split()
)
_LINES = frozenset("br caption dd dt legend li optgroup option select tbody tfoot thead tr".split())
_ASIDES = frozenset(["rp", "rt"])
"""The readings of the words in a ruby, and the parentheses that browsers without rubies show around them."""
_CELLS = frozenset(["td", "th"])
_NUMERIC = re.compile(r"&#(?:x0*[0-9a-f]{7,}|0*[0-9]{8,});?", re.IGNORECASE)
_META_CHARSET = re.compile(rb"""<meta[^>]{1,200}?charset\s*=\s*["']?([\w.:-]{1,40})""", re.IGNORECASE)


def declared_charset(data: bytes) -> str | None:
    """Return the charset that the page's `<meta charset>` declares within its first 2,048 bytes.

    If the page declares none, return None.
    """
    charset = _META_CHARSET.search(data[:2048])
    return charset[1].decode("ascii") if charset else None


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag and the text before it.

    Attributes:
        before: The text before the tag.
        name: The name in lower case. "" marks the end of the page.
        closing: Whether it is an end tag.
        attributes: The attributes, not parsed.
        start: Its offset in the page.
        end: The offset behind it.
        inside: The raw content of a title, or of an element that is never text (a script, a style). Such an element is
            one tag, from `start` to `end`.
    """

    before: str
    name: str
    closing: bool
    attributes: str
    start: int
    end: int
    inside: str = ""

    def get(self, attribute: str) -> str:
        """Return the attribute's value. If the tag lacks the attribute, return an empty string."""
        matched = re.search(
            rf"""(?:^|[\s"'/]){re.escape(attribute)}\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", self.attributes, re.I
        )
        return unescaped(next(value for value in matched.groups() if value is not None)).strip() if matched else ""


def tags(page: str) -> Iterator[Tag]:
    """Yield the page's tags in order. Comments and declarations are not part of any text."""
    position = 0
    while position < len(page) and (match := _TOKEN.search(page, position)):
        before = page[position : match.start()]
        name, rest, closing = (match["name"] or "").lower(), match["rest"] or "", bool(match["close"])
        inside, position = "", match.end()
        if not closing and (name == "title" or (name in _DROPPED and not (name == "svg" and rest.endswith("/")))):
            until, position = _end_of(name, page, position)
            inside = page[match.end() : until]
        yield Tag(before, name, closing, rest, match.start(), position, inside)
    yield Tag(page[position:], "", closing=False, attributes="", start=len(page), end=len(page))


def page_text(page: str) -> tuple[str, str]:
    """Return the title and the text of a page. The title is `<title>`, or else the first `<h1>`, or else empty.

    Blank lines separate blocks, headings begin with `#` as in Markdown, and scripts and styles are left out.
    """
    text = _Page()
    for tag in tags(page):
        text.add(tag.before)
        if tag.closing:
            text.closed(tag.name)
        elif tag.name == "title":
            text.title = text.title or " ".join(unescaped(tag.inside).split())
        elif tag.name not in _DROPPED and tag.name:
            text.opened(tag.name)
    text.end_ruby()
    return text.title or text.heading, "".join(text.parts).strip("\n")


def _end_of(name: str, page: str, position: int) -> tuple[int, int]:
    """Return the start and the end of the element's closing tag.

    If there is none, return the end of the page for both.
    """
    closing = re.compile(rf"</{name}(?=[\s/>])[^>]*>?", re.IGNORECASE).search(page, position)
    return closing.span() if closing else (len(page), len(page))


def unescaped(text: str) -> str:
    """Return the text with character references resolved. A number beyond Unicode becomes U+FFFD."""
    return unescape(_NUMERIC.sub("\ufffd", text)) if "&" in text else text


@dataclass(slots=True)
class _Page:
    """The text collected so far, with white space collapsed as in a browser, and the separator before the next word."""

    title: str = ""
    heading: str = ""
    parts: list[str] = field(default_factory=list)
    _newlines: int = 0
    _space: bool = False
    _mark: str = ""
    _verbatim: int = 0
    _heading_from: int | None = None
    _aside: str = ""
    """The name of the open element that is not in the line of the text: `rt` or `rp` in a ruby."""
    _readings: list[str] = field(default_factory=list)

    def add(self, raw: str) -> None:
        """Add the text between two tags."""
        if self._aside:
            if self._aside == "rt" and len(self._readings) < MOST_PARTS:
                self._readings.append(" ".join(unescaped(raw).split()))
            return
        text = unescaped(raw)
        if self._verbatim:
            words = text.strip("\n") if self._newlines else text
        else:
            words = " ".join(text.split())
            self._space |= text[:1].isspace()
        if not words:
            return
        if len(self.parts) > MOST_PARTS:
            self._join()
        if self.parts:
            self.parts.append("\n" * self._newlines or " " * self._space)
        self.parts += [self._mark, words]
        self._newlines, self._mark = 0, ""
        self._space = not self._verbatim and text[-1:].isspace()

    def _join(self) -> None:
        """Join the parts, which take ten times the memory of one string. A heading this long is not a heading."""
        self.parts = ["".join(self.parts)]
        self._heading_from = None

    def end_ruby(self) -> None:
        """Add the readings of a ruby in parentheses behind its words, which so stay together and can be found."""
        self._aside = ""
        readings, self._readings = "".join(self._readings), []
        if readings:
            self.add(f"({readings})")

    def opened(self, name: str) -> None:
        """Handle a start tag."""
        if name in _ASIDES:
            self._aside = name
        elif name == "rb":
            self._aside = ""
        self._verbatim += name == "pre"
        self._separate(name)
        if name in _HEADINGS:
            self._mark = _HEADINGS[name]
            if name == "h1" and not self.heading:
                self._heading_from = len(self.parts)

    def closed(self, name: str) -> None:
        """Handle an end tag."""
        if name in _ASIDES:
            self._aside = ""
        elif name == "ruby":
            self.end_ruby()
        if name == "pre" and self._verbatim:
            self._verbatim -= 1
        self._separate(name)
        if name in _HEADINGS:
            self._mark = ""
        if name == "h1" and self._heading_from is not None:
            self.heading = " ".join("".join(self.parts[self._heading_from :]).split()).removeprefix("# ")
            self._heading_from = None

    def _separate(self, name: str) -> None:
        if (self._aside or self._readings) and (name in _PARAGRAPHS or name in _HEADINGS or name in _LINES):
            self.end_ruby()  # it was never closed
        if name in _PARAGRAPHS or name in _HEADINGS:
            self._newlines = 2
        elif name in _LINES:
            self._newlines = min(2, self._newlines + 1) if name == "br" else max(1, self._newlines)
        elif name in _CELLS:
            self._space = True
