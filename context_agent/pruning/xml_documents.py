"""XML documents in tool results. A document has one root, and its elements become passages."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple
from xml.parsers import expat

_TOKEN = re.compile(
    r"<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|<\?.*?(?:\?>|\Z)"
    r"|<!DOCTYPE(?:[^<>\"']++|\"[^\"<]*+\"|'[^'<]*+')*+>"
    r"|<(?P<close>/)?(?P<name>(?!!)[^\s<>/\"']++)(?:[^<>\"'/]++|/(?!>)|\"[^\"<]*+\"|'[^'<]*+')*+(?P<empty>/)?>",
    re.S,
)
_START = re.compile(r"^[ \t]*+<(?:\?xml|!DOCTYPE|[A-Za-z_])", re.M)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.S)
_ATTRIBUTE = re.compile(r"(?<![\w.-])([a-z]++)\s*+=\s*+(\"[^\"<]*+\"|'[^'<]*+')")
_ROWSPAN = re.compile(r"\browspan\s{0,9}=\s{0,9}[\"'](\d{1,4})[\"']", re.I)
_PAGES = ("html", "body", "main", "article", "section", "div")
"""The roots of pages of HTML. Their headings say more than their elements."""
_DECLARATION = re.compile(r"<!(?:DOCTYPE[^<>\[]*+[<\[]|ENTITY|ATTLIST|ELEMENT|NOTATION)")
"""The start of declarations, which can define entities. A document may name its type without them."""


@dataclass(slots=True)
class Element:
    """An element of an XML document.

    Attributes:
        name: The tag name.
        start: The offset of its start tag.
        inner: The offset after its start tag.
        inner_end: The offset of its end tag.
        end: The offset after its end tag.
        children: Its child elements.
    """

    name: str
    start: int
    inner: int
    inner_end: int = 0
    end: int = 0
    children: list[Element] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Document:
    """An XML document.

    Attributes:
        start: The offset where it begins, with its declaration or its type.
        root: Its root.
        comments: The spans of the comments before the root.
    """

    start: int
    root: Element
    comments: tuple[tuple[int, int], ...]


class Member(NamedTuple):
    """A child element. In a property list, it is the value of a key.

    Attributes:
        start: The offset where it begins, with its key.
        element: The element.
        key: The text of its key, or an empty string.
    """

    start: int
    element: Element
    key: str = ""


def document(text: str, start: int, end: int) -> Document | None:
    """Return the XML document in a part of a text. If there is none, return None.

    Lines of text may precede and follow the document. A document that consists mostly of text, that declares entities,
    or that is a page of HTML is not read.
    """
    first, last = _START.search(text, start, end), text.rfind(">", start, end)
    if first is None or last < 0:
        return None
    start, end = text.index("<", first.start()), last + 1
    if _DECLARATION.search(text, start, end):
        return None
    parser = expat.ParserCreate("utf-8")
    try:
        parser.Parse(text[start:end].encode(), True)
    except (expat.ExpatError, UnicodeEncodeError):
        return None
    root = _root(text, start, end)
    if (
        root is None
        or root.name.lower() in _PAGES
        or 2 * sum(child.end - child.start for child in root.children) < root.end - root.start
    ):
        return None
    comments = tuple(comment.span() for comment in _COMMENT.finditer(text, start, root.start))
    return Document(start, root, comments)


def members(element: Element, text: str) -> list[Member]:
    """Return the child elements. In a property list, each value has the key before it."""
    children = element.children
    if not _has_keys(element):
        return [Member(child.start, child) for child in children]
    return [
        Member(key.start, value, text[key.inner : key.inner_end].strip())
        for key, value in zip(children[::2], children[1::2], strict=True)
    ]


def _has_keys(element: Element) -> bool:
    children = element.children
    return len(children) % 2 == 0 and all(child.name == "key" and not child.children for child in children[::2])


def _root(text: str, start: int, end: int) -> Element | None:
    root: Element | None = None
    open_elements: list[Element] = []
    for token in _TOKEN.finditer(text, start, end):
        if token["name"] is None:
            continue
        if token["close"]:
            element = open_elements.pop()
            element.inner_end, element.end = token.start(), token.end()
            continue
        element = Element(token["name"], token.start(), token.end(), token.end(), token.end())
        if open_elements:
            open_elements[-1].children.append(element)
        elif root is None:
            root = element
        if not token["empty"]:
            open_elements.append(element)
    return root


def name(element: Element, names: tuple[str, ...], text: str) -> str:
    """Return what names an element: an attribute with one of these names, or the text of such a child.

    If neither exists, the only child that has a name gives it, such as `<metadata>`. If there is none, return an empty
    string.
    """
    own = _own_name(element, names, text)
    if own:
        return own
    inner = filter(None, (_own_name(child, names, text) for child in element.children))
    first, second = (*islice(inner, 2), "", "")[:2]
    return "" if second else first


def _own_name(element: Element, names: tuple[str, ...], text: str) -> str:
    said = {key: quoted[1:-1] for key, quoted in reversed(_ATTRIBUTE.findall(text, element.start, element.inner))}
    for _, child, key in reversed(members(element, text)):
        if not child.children and (inner := text[child.inner : child.inner_end].strip()):
            said.setdefault((key or child.name).lower(), inner)
    return next((said[it] for it in names if it in said), "")


def row_labels(element: Element, text: str) -> dict[int, str]:
    """Return what the rows of a table say about each row below them, by the offset of the row.

    These are the names of the columns, and the name of a group that only the first row of the group has. The cells of
    the other rows are empty there, or the first one spans them.
    """
    rows = [row for part in [element, *element.children] for row in part.children if row.name.lower() == "tr"]
    labels: dict[int, str] = {}
    columns = group = ""
    spanned = width = 0
    for row in rows:
        cells = [cell for cell in row.children if cell.name.lower() in {"td", "th"}]
        if cells and all(cell.name.lower() == "th" for cell in cells):
            columns = " ".join(_words(cell, text) for cell in cells)
            continue
        if not cells:
            continue
        first = _words(cells[0], text)
        is_inside = spanned > 0 or (not first and len(cells) >= width)
        labels[row.start] = f"{columns} {group if is_inside else ''}".strip()
        width = max(width, len(cells))
        if spanned > 0:
            spanned -= 1
        elif first:
            group = first
            span = _ROWSPAN.search(text, cells[0].start, cells[0].inner)
            spanned = int(span[1]) - 1 if span else 0
    return labels


def _words(element: Element, text: str) -> str:
    return " ".join(_TOKEN.sub(" ", text[element.inner : element.inner_end]).split())
