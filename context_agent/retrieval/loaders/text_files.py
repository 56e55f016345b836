"""The readers of plain text, Markdown, reStructuredText and HTML, in which a file is one document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from context_agent.retrieval.loaders.decoding import unix_lines
from context_agent.retrieval.loaders.entry_files import ANKI, BOOKMARKS, read_anki, read_bookmarks
from context_agent.retrieval.loaders.front_matter import split_front_matter
from context_agent.retrieval.loaders.headings import (
    UNDERLINE_SLACK,
    marked_headings,
    plain_headings,
    plain_title,
    underlined_headings,
    without_closing_marks,
)
from context_agent.retrieval.loaders.html_text import declared_charset, page_text, read_page
from context_agent.retrieval.loaders.outlines import Lines, text_captions
from context_agent.retrieval.loaders.reading import LeftOutError, Reading, content, decoded, document, storable
from context_agent.retrieval.loaders.titles import placed_title
from context_agent.retrieval.loaders.turns import conversation
from context_agent.retrieval.loaders.whatsapp import read_turns
from context_agent.text.fences import fenced_spans, without_fenced
from context_agent.types import Document

_HEADING = re.compile(r"^ {0,3}(?:#{1,6}[ \t]+([^\n]*)|([^\s#>|][^\n]*)\n {0,3}=+[ \t]*$)", re.MULTILINE)
"""A heading that begins with `#`, or a line of text above a line of equals signs."""
_PAGE_HEADING = re.compile(r"<h1[\s>]", re.IGNORECASE)
_REDIRECT = re.compile(r"""<meta\s++http-equiv\s*+=\s*+["']?refresh["']?\s[^>;]{0,99};""", re.IGNORECASE)
_PAGE_SOURCES = "_sources"
"""The folder in which Sphinx keeps copies of the sources beside the pages, such as `gates.rst.txt`."""
_SYMBOL_INDEX = ('class="genindex-jumpbox"', 'class="modindex-jumpbox"')
"""Marks of a page of Sphinx that lists the names of all other pages."""
_SEARCH_PAGE = re.compile(r"""<script[^>]{0,99}\ssrc=["'][^"'>]{0,99}searchtools\.js""")
"""A mark of the page on which Sphinx shows what a browser's search finds."""
LONGEST_REDIRECT = 300
"""Maximum number of characters of the text of a page that only leads to another page."""
_HTML_TABLE = re.compile(r"^[ \t]{0,8}<table\b", re.MULTILINE | re.IGNORECASE)
_TABLE_END = re.compile("</table>", re.IGNORECASE)
_WIKI_LINK = re.compile(r"(?<![`\[])\[\[[^\s\[\]|#^][^\[\]\n]{0,199}\]\](?![`(])")
"""A link to another note by its name, as in Obsidian and Logseq."""
_RST_HEADING = re.compile(
    r"^(?:([=\-~^\"'#*+`:._])\1{2,}+[ \t]*\n[ \t]*(\S[^\n]*)\n\1{3,}+[ \t]*$"
    r"|((?:``?|:[a-z][a-z:]{0,30}:`)?[^\s=\-~^\"'#*+`:.][^\n]*)\n([=\-~^\"'#*+`:._])\4{2,}+[ \t]*$)",
    re.MULTILINE,
)
"""A title with a line of punctuation below it, or with such lines above and below it."""
_TEXT_HEADING = re.compile(
    r"\A(?:[ \t]*\n|\.\. [^\n]*\n)*+"
    r"(?:([=\-~^*#+])\1{2,199}+\n[ \t]*)?([\w`:][^\n]{0,149})\n([=\-~^*#+])\3{2,199}+[ \t]*(?:\n|\Z)"
)
"""An underlined first line of plain text. Only blank lines and directives of reStructuredText may precede it."""
_RST_MARKS = re.compile(r"(?::[a-z][a-z:]{0,30}:(?=`))?``?[!~]?")
"""The marks of code and of names in a title, such as :mod:`!json`."""
TITLE_SEARCH_CHARACTERS = 16_384
"""The number of characters of a Markdown file in which its title is searched."""


def read_text(reading: Reading) -> Iterator[Document]:
    """Yield the unchanged text, titled by its first line if that is underlined, or else by the file's name.

    The messages of a chat of WhatsApp are sections. So are the notes that Anki exports.
    """
    path = PurePath(reading.path)
    if reading.found and _PAGE_SOURCES in path.parts and len(path.suffixes) > 1:
        raise LeftOutError("a copy of a page's source. To read such copies, name their folder as a source.")
    text = decoded(reading, content(reading)).text
    if text.startswith(ANKI):
        yield read_anki(reading, unix_lines(text))
        return
    text = storable(unix_lines(text))
    if chat := conversation(reading, read_turns(text), joins=True):
        yield chat
        return
    title = text_title(text[:TITLE_SEARCH_CHARACTERS])
    headings = plain_headings(text)
    captions = text_captions(text, Lines.PROSE, headings=headings, title=title, records=True)
    yield document(reading, text, placed_title(reading, title), captions=captions)


def text_title(text: str) -> str:
    """Return the underlined first line of a plain text. If the first line is not underlined, return ""."""
    found = _TEXT_HEADING.match(text)
    if found is None:
        return ""
    title = found[2].rstrip()
    underlined = len(found[0].rstrip().rpartition("\n")[2])
    return _RST_MARKS.sub("", title) if underlined + UNDERLINE_SLACK >= len(title) else ""


def read_markdown(reading: Reading) -> Iterator[Document]:
    """Yield the source, in which tables of HTML have a line for each row. Its front matter becomes metadata.

    The title is the `title` in the front matter, or else the first heading. Notes that link to each other by name are
    named by their files, so the name comes before the heading.
    """
    title, front, text = split_front_matter(reading, unix_lines(decoded(reading, content(reading)).text))
    text = storable(_with_plain_tables(text))
    if not title:
        title, name = markdown_title(text[:TITLE_SEARCH_CHARACTERS]), PurePath(reading.path).stem
        is_named = name.lower() in title.lower()
        if title and not is_named and _WIKI_LINK.search(without_fenced(text[:TITLE_SEARCH_CHARACTERS])):
            title = f"{name}: {title}"
    captions = text_captions(text, Lines.LIST, headings=marked_headings(text, "markdown"), title=title)
    yield document(reading, text, placed_title(reading, title), front, captions=captions)


def _with_plain_tables(text: str) -> str:
    """Return a text in Markdown in which the tables of HTML outside of fenced code are plain text."""
    if not _HTML_TABLE.search(text):
        return text
    parts: list[str] = []
    position = 0
    for start, end in (*fenced_spans(text), (len(text), len(text))):
        while (table := _HTML_TABLE.search(text, position, start)) and (
            stop := _TABLE_END.search(text, table.end(), start)
        ):
            plain = page_text(text[table.start() : stop.end()])[1]
            parts += [text[position : table.start()], plain or text[table.start() : stop.end()]]
            position = stop.end()
        parts.append(text[position:end])
        position = end
    return "".join(parts)


def read_rst(reading: Reading) -> Iterator[Document]:
    """Yield the unchanged reStructuredText, titled by its first heading."""
    text = storable(unix_lines(decoded(reading, content(reading)).text))
    heading = next((match[2] or match[3] for match in _RST_HEADING.finditer(text[:TITLE_SEARCH_CHARACTERS])), "")
    title = _RST_MARKS.sub("", heading)
    captions = text_captions(text, Lines.PROSE, headings=underlined_headings(text), title=title)
    yield document(reading, text, placed_title(reading, title), captions=captions)


def read_html(reading: Reading) -> Iterator[Document]:
    """Yield the page's text without its navigation, titled by `<title>` or the first `<h1>`.

    The bookmarks of a browser are sections.
    """
    data = content(reading)
    page = unix_lines(decoded(reading, data, declared_charset(data)).text)
    if page[: len(BOOKMARKS)].lower() == BOOKMARKS:
        yield read_bookmarks(reading, page)
        return
    title, text, headings = read_page(page, navigation=False)
    if reading.found and len(text) <= LONGEST_REDIRECT and _REDIRECT.search(page):
        raise LeftOutError("a page that leads to another page")
    if reading.found and (any(mark in page for mark in _SYMBOL_INDEX) or _SEARCH_PAGE.search(page)):
        raise LeftOutError("an index of other pages. To read it, name it as a source.")
    text = storable(text)
    captions = text_captions(text, Lines.LIST, headings=marked_headings(text, "page", known=headings), title=title)
    yield document(reading, text, placed_title(reading, title), captions=captions)


def markdown_title(text: str) -> str:
    """Return the first heading outside of fenced code, in Markdown or HTML. If there is none, return ""."""
    text = without_fenced(text)
    heading, page = _HEADING.search(text), _PAGE_HEADING.search(text)
    if page and (heading is None or page.start() < heading.start()) and (title := page_text(text[page.start() :])[0]):
        return title
    return plain_title(without_closing_marks(heading[1] or heading[2] or "")) if heading else ""
