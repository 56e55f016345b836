"""The reader of XML dumps of whole sites. Each page of a MediaWiki, or post of Stack Exchange, is a document.

Dumps are larger than documents, so they are read page by page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from xml.parsers.expat import ExpatError

from context_agent.errors import DataError
from context_agent.retrieval.loaders.decoding import unix_lines
from context_agent.retrieval.loaders.html_text import page_text
from context_agent.retrieval.loaders.reading import LeftOutError, Reading, document, identifier, storable
from context_agent.retrieval.loaders.rows import from_row
from context_agent.retrieval.loaders.sniffing import read_other_text
from context_agent.retrieval.loaders.xml_events import Event, Kind, grammar, xml_events
from context_agent.types import Document, MetadataValue

_ROOT = re.compile(rb"<(mediawiki|posts)(?=[\s>])")
ROOT_WITHIN = 1_000
"""The number of first bytes in which the root of a dump is searched."""
PER_PIECE = 16
"""The number of characters that each piece of text uses up in addition to its own, because a piece takes memory."""
_ELEMENTS = grammar(
    root="mediawiki posts", mediawiki="page", page="title ns redirect revision", revision="timestamp text", posts="row"
)


def is_dump(head: bytes) -> bool:
    """Return True if XML that begins with these bytes is the dump of a site."""
    return _ROOT.search(head[:ROOT_WITHIN]) is not None


def read_dump(reading: Reading) -> Iterator[Document]:
    """Yield the pages or posts of a dump. Redirects and pages without text are left out.

    If the XML is damaged, what precedes the damage is read.
    """
    page, posts, count = _Page(reading.options.max_size), 0, 0
    try:
        for event in xml_events(reading.stream, _ELEMENTS):
            if event.name == "row" and event.kind is Kind.START:
                posts += 1
                found = _post(reading, posts, event)
            elif event.name == "page" and event.kind is Kind.END:
                found = page.documents(reading)
                page = _Page(reading.options.max_size)
            else:
                page.add(event)
                continue
            for whole in found:
                count += 1
                yield whole
    except (ExpatError, DataError) as error:
        if count:
            raise DataError(f"the XML is damaged ({error}). Its first {count:,} pages were read.") from error
        reading.note_once(f"the file was read as plain text ({error})")
        reading.stream.seek(0)
        yield from read_other_text(reading)
        return
    if not count:
        raise LeftOutError("the file is empty: it contains no text")


def _post(reading: Reading, number: int, event: Event) -> Iterator[Document]:
    """Yield the document of a post, whose fields are attributes. Its body is HTML."""
    fields = dict(event.attributes)
    if body := fields.get("Body"):
        fields["Body"] = page_text(unix_lines(body))[1]
    yield from from_row(reading, number, fields)


@dataclass(slots=True)
class _Page:
    """A page of a wiki. Of several revisions, the last one counts.

    Attributes:
        most: Maximum number of characters of the text.
        fields: The pieces of each element's text.
    """

    most: int
    fields: dict[str, list[str]] = field(default_factory=dict)
    _size: int = 0
    _is_redirect: bool = False

    def add(self, event: Event) -> None:
        """Add an event inside the page. Text beyond the limit is counted, but not kept."""
        if event.kind is Kind.START:
            self._is_redirect = self._is_redirect or event.name == "redirect"
            if event.name == "revision":
                self._size = 0
            self.fields[event.name] = []
        elif event.kind is Kind.TEXT and event.name in self.fields:
            self._size += len(event.text) + PER_PIECE
            if self._size <= self.most:
                self.fields[event.name].append(event.text)

    def documents(self, reading: Reading) -> Iterator[Document]:
        """Yield the document of the page, unless it is a redirect, empty or too large."""
        title, text, date, space = ("".join(self.fields.get(name, ())) for name in ("title", "text", "timestamp", "ns"))
        if self._size > self.most:
            reading.skip(f"page {title[:100]!r}: {reading.options.too_large('the page')}")
        elif not self._is_redirect and text.strip():
            metadata: dict[str, MetadataValue] = {"date": date[:30]} if date.strip() else {}
            if space.strip() not in {"", "0"}:
                metadata["namespace"] = space.strip()[:30]
            whole = document(reading, text, title, metadata)
            yield replaced(whole, id=f"{whole.id}#{identifier(storable(whole.title))[:200]}")
