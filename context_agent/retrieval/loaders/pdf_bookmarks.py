"""The bookmarks of a PDF file.

pypdf's own `outline` copies the destination and the colors of each bookmark. In a file whose bookmarks share a long
array, that takes quadratic time and memory. This module reads only the title and the page of a bookmark.

PDF 1.7 (ISO 32000-1:2008) defines bookmarks in section 12.3.3, destinations in 12.3.2, and name trees in 7.9.6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from context_agent.retrieval.loaders.headings import LONGEST_HEADING, MOST_CAPTIONS
from context_agent.retrieval.loaders.pdf_objects import entry, resolved

if TYPE_CHECKING:
    from pypdf import PdfReader

LONGEST_TITLE = 2 * LONGEST_HEADING
"""Maximum number of characters of a title that are read."""
DEEPEST_BOOKMARK = 100
"""Maximum number of levels of bookmarks."""
MOST_NAMES = 100_000
"""Maximum number of entries of the tree of named destinations that are read."""
LONGEST_NAME = 1_000
"""Maximum number of characters of the name of a destination."""


class Bookmark(NamedTuple):
    """A bookmark: the index of its page, its level from 1, and its title."""

    page: int
    level: int
    title: str


def bookmarks(reader: PdfReader) -> Iterator[Bookmark]:
    """Yield the bookmarks of a file in order. Leave out those that are damaged or lead to no page of the file."""
    catalog = entry(reader.trailer, "/Root")
    first = entry(entry(catalog, "/Outlines"), "/First")
    if first is None:
        return
    pages = {page.indirect_reference.idnum: index for index, page in enumerate(reader.pages) if page.indirect_reference}
    destinations = _named_destinations(catalog)
    opened = [first]
    visited = set[int]()
    while opened and len(visited) < MOST_CAPTIONS:
        node = opened[-1]
        if not isinstance(node, dict) or id(node) in visited:
            opened.pop()
            continue
        visited.add(id(node))
        title, page = entry(node, "/Title"), _page(node, pages, destinations)
        if isinstance(title, str) and page is not None:
            yield Bookmark(page, len(opened), title[:LONGEST_TITLE])
        opened[-1] = entry(node, "/Next")
        if len(opened) < DEEPEST_BOOKMARK:
            opened.append(entry(node, "/First"))


def _page(node: Any, pages: Mapping[int, int], destinations: Mapping[Any, Any]) -> int | None:
    """Return the index of the page that a bookmark leads to."""
    place = entry(node, "/Dest")
    if place is None:
        action = entry(node, "/A")
        place = entry(action, "/D") if entry(action, "/S") == "/GoTo" else None
    if isinstance(place, str | bytes):
        place = resolved(destinations.get(place)) if len(place) <= LONGEST_NAME else None
    if isinstance(place, dict):
        place = entry(place, "/D")
    return pages.get(getattr(place[0], "idnum", 0)) if isinstance(place, list) and place else None


def _named_destinations(catalog: Any) -> dict[Any, Any]:
    """Return the destinations that have names. Files before PDF 1.2 have a dictionary of them, later ones a tree."""
    named = entry(catalog, "/Dests")
    if isinstance(named, dict):
        return named
    found: dict[Any, Any] = {}
    waiting = [entry(entry(catalog, "/Names"), "/Dests")]
    visited = set[int]()
    entries = 0
    while waiting and entries < MOST_NAMES:
        node = resolved(waiting.pop())
        if not isinstance(node, dict) or id(node) in visited:
            continue
        visited.add(id(node))
        names, kids = entry(node, "/Names"), entry(node, "/Kids")
        entries += 1
        if isinstance(names, list):
            entries += len(names)
            pairs = ((resolved(name), place) for name, place in zip(names[::2], names[1::2], strict=False))
            found |= {
                name: place for name, place in pairs if isinstance(name, str | bytes) and len(name) <= LONGEST_NAME
            }
        if isinstance(kids, list):
            entries += len(kids)
            waiting += kids[::-1]
    return found
