"""The parts of an HTML page that lead to other pages: menus, breadcrumbs, links in footers, and banners about cookies.

Elements and ARIA roles name such parts. Because some pages use them for other things, a part is left out only if most
of its text is links and buttons, and if it has no main heading and no main text. A part that is never closed stays.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from context_agent.retrieval.loaders.html_tags import Tag

MOST_OPEN = 32
"""Maximum number of parts inside each other that are examined."""
LONGEST_BANNER = 4_000
"""Maximum number of characters of a banner about cookies."""
LONGEST_SKIP = 60
"""Maximum number of characters of the link at the start of a page by which readers skip its navigation."""
_NAMES = frozenset(["nav", "search"])
_ROLES = frozenset("contentinfo doc-pagelist doc-toc menu menubar navigation search".split())
_CLASSES = frozenset("footer mainmenu menu nav navbar navbox navigation pagination sidebar site-footer subnav".split())
"""The words of classes and ids that usually name such parts. They stand alone or at the end, as in `page-nav`."""
_EDIT_LINKS = "mw-editsection"
"""The class of the links beside a heading by which readers of a wiki edit its section."""
_ROWS = frozenset("bottomnav breadcrumb breadcrumbs navfooter navheader navpath topnav".split())
"""The classes and labels of rows with titles of pages, some of which are not links. Programs that make documentation
write such rows, too."""
LEAST_LINKED, LEAST_LINKED_ROW = 0.5, 0.25
"""The share of links and buttons in the text above which a part, or such a row, is left out."""
_HOLDERS = frozenset("aside dialog div footer form header menu nav ol p search section span table ul".split())
"""The elements that may be such parts."""
_CONTROLS = frozenset(["a", "button", "label", "option"])
_MAIN = frozenset(["article", "h1", "main"])
_SECTIONS = frozenset(["article", "blockquote", "figure", "main", "section"])
"""The elements whose footers are part of the text."""
_CONSENT = re.compile("cookie|consent", re.IGNORECASE)
_BANNER = re.compile("(?:cookie|consent)s?[-_]?(?:banner|bar|consent|dialog|message|modal|notice|popup)", re.IGNORECASE)
MOST_SKIPS = 3
"""Maximum number of links at the start of a page by which readers skip its navigation."""
KEPT_SHARE = 0.1
"""The least text that must remain for each character that is left out, unless the page names its main text."""
_ENTRIES = ("dd", "dt", "li", "td")
"""The elements in which a link at the start of a page is an entry of a list."""
_COUNTED = _HOLDERS | _CONTROLS | _SECTIONS | {*_ENTRIES, "select"}
"""The elements whose open ones are counted."""
_MARKS = frozenset("¶§🔗⚓↩")
"""The texts of links to a place on the same page. In a heading, `#` is one, too."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The state of a page's text before a part, which it has again if the part is left out.

    Attributes:
        length: The number of pieces of the text.
        newlines: The line breaks before the next word.
        space: Whether a space is before the next word.
        mark: The mark of a heading before the next word.
    """

    length: int
    newlines: int
    space: bool
    mark: str


@dataclass(frozen=True, slots=True)
class _Part:
    """A part that may be left out.

    Attributes:
        name: The name of the element.
        depth: The number of open elements of this name, including it.
        before: The state of the page's text before it.
        kind: `links` if it must be mostly links, `row` if it needs fewer links, `banner` if it must have a button,
            `skip` for a link by which readers skip the navigation, `edit` for the links by which they edit a section,
            or `mark` for a sign that links to a place on the same page.
        characters: The characters that were read before it.
        controls: The characters in links and buttons that were read before it.
        headings: The characters in headings that were read before it.
        buttons: The buttons that were read before it.
    """

    name: str
    depth: int
    before: Restored
    kind: str
    characters: int
    controls: int
    headings: int
    buttons: int


@dataclass(slots=True)
class Navigation:
    """The open parts of a page, and how much of their text is links and buttons."""

    _parts: list[_Part] = field(default_factory=list)
    _open: Counter[str] = field(default_factory=Counter)
    _control: str = ""
    """The name of the open link or button."""
    _characters: int = 0
    _controls: int = 0
    _headings: int = 0
    _buttons: int = 0
    _skips: int = 0
    _dropped: int = 0
    _has_main: bool = False

    def is_most(self) -> bool:
        """Return True if nearly all of the page was left out, although no element holds its main text."""
        least = 0 if self._has_main else self._dropped * KEPT_SHARE
        return self._dropped > 0 and self._characters <= least

    def add(self, count: int, *, in_heading: bool) -> None:
        """Count the characters of a text."""
        self._characters += count
        self._headings += count if in_heading else 0
        if self._control and not in_heading:
            self._controls += count

    def forget(self) -> None:
        """Keep the open parts, because the positions of their texts changed."""
        self._parts.clear()

    def opened(self, tag: Tag, before: Restored) -> None:
        """Handle a start tag."""
        name = tag.name
        if name in _MAIN or (tag.attributes and tag.get("role").lower() == "main"):
            self._parts.clear()
            self._has_main |= name != "h1"
        if name not in _COUNTED or (tag.attributes.endswith("/") and not tag.get("href")):
            return
        self._open[name] += 1
        self._buttons += name == "button"
        if name in _CONTROLS and (name != "a" or tag.get("href")):
            self._control = name
        if (kind := self._kind(tag, before.length)) and len(self._parts) < MOST_OPEN:
            counts = self._characters, self._controls, self._headings, self._buttons
            self._parts.append(_Part(name, self._open[name], before, kind, *counts))

    def _kind(self, tag: Tag, length: int) -> str:
        """Return the kind of the part that a tag opens, or an empty string."""
        name = tag.name
        if name == "a" and tag.get("href").startswith("#"):
            is_first = not length and not any(self._open[element] for element in _ENTRIES)
            return "skip" if is_first and self._skips < MOST_SKIPS else "mark"
        if name == "footer":
            return "" if any(self._open[element] for element in _SECTIONS) else "links"
        kind = _named_kind(tag) if name in _HOLDERS and tag.attributes else ""
        return kind or ("links" if name in _NAMES else "")

    def closed(self, name: str, texts: list[str], *, in_heading: bool) -> Restored | None:
        """Handle an end tag. If it ends a part that is left out, return the state before the part.

        Args:
            name: The name of the element.
            texts: The pieces of the page's text.
            in_heading: True inside a heading.
        """
        if name not in _COUNTED:
            return None
        depth = self._open[name]
        self._open[name] = max(0, depth - 1)
        if name in (self._control, "select"):
            self._control = ""
        at = next((at for at, part in enumerate(self._parts) if (part.name, part.depth) == (name, depth)), None)
        if at is None:
            return None
        part = self._parts[at]
        del self._parts[at:]
        size = self._characters - part.characters
        if not size or not self._is_left_out(part, size, texts, in_heading=in_heading):
            return None
        self._skips += part.kind == "skip"
        self._dropped += size if part.kind in {"links", "row"} else 0
        self._characters, self._controls, self._headings = part.characters, part.controls, part.headings
        return part.before

    def _is_left_out(self, part: _Part, size: int, texts: list[str], *, in_heading: bool) -> bool:
        """Return True if a part of this size is navigation."""
        linked, prose = self._controls - part.controls, size - (self._headings - part.headings)
        match part.kind:
            case "links":
                return linked > LEAST_LINKED * prose
            case "row":
                return linked > LEAST_LINKED_ROW * prose
            case "banner":
                return size <= LONGEST_BANNER and self._buttons > part.buttons
            case "edit":
                return size <= LONGEST_SKIP
            case "skip" if not in_heading:
                return size <= LONGEST_SKIP
        text = "".join(texts[part.before.length :]).strip("# \n") if size == 1 else ""
        return text in _MARKS or (size == 1 and not text and in_heading)


def _named_kind(tag: Tag) -> str:
    """Return the kind of the part that the attributes of an element name, or an empty string."""
    role, named = tag.get("role").lower(), f"{tag.get('class')} {tag.get('id')}"
    names = {part for name in named.lower().split() for part in (name, name.rpartition("-")[2])}
    if _EDIT_LINKS in names:
        return "edit"
    if not _ROWS.isdisjoint({*names, tag.get("aria-label").lower()}):
        return "row"
    if role in _ROLES or names & _CLASSES:
        return "links"
    is_dialog = tag.name == "dialog" or role in {"alertdialog", "dialog"}
    asks = _CONSENT.search(f"{named} {tag.get('aria-label')}") if is_dialog else _BANNER.search(named)
    return "banner" if asks else ""
