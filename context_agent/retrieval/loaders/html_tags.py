"""The tags of an HTML page.

The tokenizer follows the HTML standard where it matters for text. It replaces `html.parser`, which in older releases of
Python takes time quadratic in the length of some malformed pages. A corpus may contain any page. No pattern here can
fail after it began, so each character is examined once or twice. An element that is never closed extends to the end, as
in a browser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape

_TOKEN = re.compile(
    r"""<!--(?:-?>|.*?(?:--!?>|\Z))
    |<(?P<close>/?)(?P<name>[a-z][^\s/>]*+)
      (?P<rest>(?:[^>=]++|=\s*+"[^"]*+(?:"|\Z)|=\s*+'[^']*+(?:'|\Z)|=)*+)(?:>|\Z)
    |<[/!?][^>]*+(?:>|\Z)""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)
NO_TEXT = frozenset(["iframe", "noframes", "noscript", "script", "style", "svg", "template"])
"""The elements whose content is never text."""
_NUMERIC = re.compile(r"&#(?:x0*[0-9a-f]{7,}|0*[0-9]{8,});?", re.IGNORECASE)


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
        if not closing and (name == "title" or (name in NO_TEXT and not (name == "svg" and rest.endswith("/")))):
            until, position = _end_of(name, page, position)
            inside = page[match.end() : until]
        yield Tag(before, name, closing, rest, match.start(), position, inside)
    yield Tag(page[position:], "", closing=False, attributes="", start=len(page), end=len(page))


def _end_of(name: str, page: str, position: int) -> tuple[int, int]:
    """Return the start and the end of the element's closing tag.

    If there is none, return the end of the page for both.
    """
    closing = re.compile(rf"</{name}(?=[\s/>])[^>]*>?", re.IGNORECASE).search(page, position)
    return closing.span() if closing else (len(page), len(page))


def unescaped(text: str) -> str:
    """Return the text with character references resolved. A number beyond Unicode becomes U+FFFD."""
    return unescape(_NUMERIC.sub("\ufffd", text)) if "&" in text else text
