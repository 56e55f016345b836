"""The readers of files whose entries are chunks.

These are bibliographies (BibTeX, RIS, EndNote's and PubMed's), directories (LDIF, RFC 2849), manuals in GNU's Info
format, notes of Anki, and bookmarks of browsers.
"""

from __future__ import annotations

import base64
import binascii
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import PurePath

from context_agent.retrieval.loaders.content_lines import MAX_ENTRIES, MAX_LABEL, Entry, entries_document
from context_agent.retrieval.loaders.decoding import unix_lines
from context_agent.retrieval.loaders.html_tags import tags, unescaped
from context_agent.retrieval.loaders.html_text import page_text
from context_agent.retrieval.loaders.plain_markup import latex_argument, readable_text
from context_agent.retrieval.loaders.reading import Reading, content, decoded, document, one_line, storable
from context_agent.types import Document, Section

TITLE_WITHIN = 16_384
"""The number of characters at the beginning of an entry in which its title is searched."""


@dataclass(frozen=True, slots=True)
class EntryFormat:
    """How the entries of a format begin, and the fields that name an entry. The first one that an entry has counts."""

    start: re.Pattern[str]
    titles: tuple[re.Pattern[str], ...]


FORMATS = {
    ".bib": EntryFormat(
        re.compile(r"^[ \t]*@(?!comment|preamble|string)[a-z]+[ \t]*[{(][ \t]*([^\s,{}()]*)", re.I | re.M),
        (re.compile(r'^[ \t]*title[ \t]*=[ \t]*([{"][^\n]*(?:\n[ \t]+[^\s@][^\n=]*$)*+)', re.I | re.M),),
    ),
    ".ris": EntryFormat(re.compile(r"^TY  - ", re.M), (re.compile(r"^(?:T1|TI|CT|BT)  - ?([^\n]+)", re.M),)),
    ".enw": EntryFormat(re.compile(r"^%0 ", re.M), (re.compile(r"^%T ([^\n]+)", re.M),)),
    ".nbib": EntryFormat(re.compile(r"^PMID- ", re.M), (re.compile(r"^TI  - ([^\n]+(?:\n {6}[^\n]+)*+)", re.M),)),
    **dict.fromkeys(
        (".info", *(f".info-{number}" for number in range(1, 10))),
        EntryFormat(re.compile("^\x1f\n", re.M), (re.compile(r"\AFile: [^\n]*?\bNode: ([^,\n]+)"),)),
    ),
    ".ldif": EntryFormat(
        re.compile(r"^dn:", re.I | re.M),
        (re.compile(r"^cn: ([^\n]+)", re.I | re.M), re.compile(r"^dn: ([^\n]+)", re.I | re.M)),
    ),
}
"""The formats, by extension."""
_ENCODED = re.compile(r"^([\w.;-]{1,200}):: ?([^\n]*)$", re.M)
_FOLDER = re.compile(r"h\d", re.I)
LONGEST_FOLDER = 80
"""Maximum number of characters of the name of a folder. The name is repeated in each bookmark of the folder."""
BOOKMARKS = "<!doctype netscape-bookmark-file-1>"
"""The beginning of a file of bookmarks, in lower case. All browsers write such files."""
ANKI = "#separator:"
"""The beginning of notes that Anki exports as text."""
_SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "space": " ", "pipe": "|", "colon": ":"}


def read_entries(reading: Reading) -> Iterator[Document]:
    """Yield the text of the file. Each entry is a section, titled by its title and its key."""
    text = storable(readable_text(reading.path, unix_lines(decoded(reading, content(reading)).text)))
    extension = PurePath(reading.path).suffix.lower()
    if extension == ".ldif":
        text = _ENCODED.sub(_plain, text.replace("\n ", ""))
    form = FORMATS[extension]
    name = PurePath(reading.path).stem
    sections: list[Section] = []
    begun = list(islice(form.start.finditer(text), MAX_ENTRIES + 1))
    for found, following in pairwise([*begun, None]):
        if found is not None and len(sections) < MAX_ENTRIES:
            end = following.start() if following else len(text)
            label = _label(form, found, text[found.start() : min(end, found.start() + TITLE_WITHIN)].lstrip("\x1f\n"))
            sections.append(Section(found.start(), end, f"{name}: {label}" if label else name))
    yield document(reading, text, name if sections else PurePath(reading.path).name, sections=tuple(sections))


def _label(form: EntryFormat, begun: re.Match[str], entry: str) -> str:
    title = next((found[1] for pattern in form.titles if (found := pattern.search(entry))), "")
    if title.startswith('"'):
        title = "{" + title[1:].partition('"')[0] + "}"
    if title.startswith("{"):
        title = latex_argument(title)
    key = begun[1] if begun.re.groups else ""
    return one_line(f"{title} ({key})" if title and key else title or key)[:MAX_LABEL]


def _plain(line: re.Match[str]) -> str:
    """Return a line of LDIF with its value decoded. A value that is not text is left out."""
    try:
        value = base64.b64decode(line[2], validate=True).decode()
    except (binascii.Error, ValueError):
        return f"{line[1]}: (binary)"
    return f"{line[1]}: {' '.join(value.splitlines())}"


def read_anki(reading: Reading, text: str) -> Document:
    """Return the notes that Anki exports as text. Each note is a section, titled by its first field."""
    lines = text.split("\n")
    first = next((at for at, line in enumerate(lines) if not line.startswith("#")), len(lines))
    head = dict(line[1:].split(":", 1) for line in lines[:first] if ":" in line)
    stated = head.get("separator", "tab")
    delimiter = _SEPARATORS.get(stated.lower(), stated[:1] or "\t")
    csv.field_size_limit(max(csv.field_size_limit(), reading.options.max_size))
    notes = csv.reader(io.StringIO("\n".join(lines[first:]), newline=""), delimiter=delimiter)
    is_html = head.get("html", "").lower() == "true"
    return entries_document(reading, (_note(cells, is_html=is_html) for cells in notes), PurePath(reading.path).stem)


def _note(cells: list[str], *, is_html: bool) -> Entry:
    fields = [page_text(cell)[1] if is_html and ("<" in cell or "&" in cell) else cell.strip() for cell in cells]
    fields = [field for field in fields if field]
    return Entry(fields[0] if fields else "", "\n".join(fields))


def read_bookmarks(reading: Reading, page: str) -> Document:
    """Return the bookmarks of a browser. Each is a section with its name, its address, its folder and its notes."""
    return entries_document(reading, _bookmarks(page), PurePath(reading.path).stem)


def _bookmarks(page: str) -> Iterator[Entry]:
    name = address = folder = notes = ""
    for tag, after in pairwise(tags(page)):
        words = " ".join(unescaped(after.before).split())
        if tag.closing:
            continue
        if tag.name == "a" or _FOLDER.fullmatch(tag.name):
            if address:
                yield _bookmark(name, address, folder, notes)
            name, address, notes = words, tag.get("href") if tag.name == "a" else "", ""
            folder = folder if tag.name == "a" else words[:LONGEST_FOLDER]
        elif tag.name == "dd":
            notes = words
    if address:
        yield _bookmark(name, address, folder, notes)


def _bookmark(name: str, address: str, folder: str, notes: str) -> Entry:
    return Entry(name or address, "\n".join(filter(None, [name, address, folder and f"Folder: {folder}", notes])))
