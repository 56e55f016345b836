"""A pull parser for the XML of packed documents, which may come from strangers.

It keeps no tree. A grammar may say which children of which elements matter, and all other elements are passed over. So
the work for each byte is the same whatever the document says. Names are compared without their prefix. Expat's memory
grows with depth, with the length of a tag and with the number of different names, so these have limits. A document that
declares an entity or a default attribute, which multiply its size, is refused. No external entity is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import IO, NamedTuple
from xml.parsers import expat

from context_agent.errors import DataError

BLOCK_SIZE = 2**16
MAX_DEPTH = 1_000
MAX_NAMES = 10_000
"""Maximum number of different names of elements and attributes."""
MAX_TAG_LENGTH = 2**18
"""Maximum number of bytes of a tag, a comment or an instruction."""

Attributes = Mapping[str, str]
Grammar = Mapping[str, frozenset[str]]
"""The names of the child elements that matter, by the name of their parent. The root's parent is ""."""


class Kind(Enum):
    """The kind of an event."""

    START = "start"
    END = "end"
    TEXT = "text"


class Event(NamedTuple):
    """A start tag, an end tag, or text inside the element `name`."""

    kind: Kind
    name: str
    text: str = ""
    attributes: Attributes = {}  # noqa: RUF012 - never changed


def grammar(**children: str) -> Grammar:
    """Return a grammar from the children of each element, separated by spaces. `root` means the document."""
    return {name if name != "root" else "": frozenset(names.split()) for name, names in children.items()}


def attribute(attributes: Attributes, name: str) -> str:
    """Return the attribute with that name, with or without a prefix. If there is none, return an empty string."""
    if (value := attributes.get(name)) is not None:
        return value
    return reference(attributes, name)


def reference(attributes: Attributes, name: str) -> str:
    """Return the attribute with that name and a prefix, as in `r:id`. If there is none, return an empty string."""
    return next((value for key, value in attributes.items() if key.rpartition(":")[2] == name and ":" in key), "")


def xml_events(stream: IO[bytes], elements: Grammar | None, encoding: str | None = None) -> Iterator[Event]:
    """Yield the events of the elements that the grammar names, or of all elements without a grammar, in order.

    Args:
        stream: The XML.
        elements: The grammar.
        encoding: The encoding of the stream. Defaults to the one that the XML declares.

    Raises:
        DataError: If the XML exceeds a bound, declares an entity or a default attribute, or is in an encoding that
            the parser does not know.
        ExpatError: If the XML is not well-formed.
    """
    names: dict[str, str] = {}
    parser = expat.ParserCreate(encoding, intern=names)
    parser.buffer_text = True
    parser.buffer_size = BLOCK_SIZE
    handler = _Handler(elements)
    parser.StartElementHandler = handler.start
    parser.EndElementHandler = handler.end
    parser.CharacterDataHandler = handler.text
    parser.EntityDeclHandler = parser.AttlistDeclHandler = handler.declaration
    fed = 0
    while True:
        block = stream.read(BLOCK_SIZE)
        try:
            parser.Parse(block, not block)
        except (LookupError, ValueError) as error:
            raise DataError(f"the XML is in an encoding that the parser does not know ({error})") from error
        fed += len(block)
        yield from handler.taken()
        if not block:
            return
        if len(names) > MAX_NAMES:
            raise DataError(f"the XML has more than {MAX_NAMES:,} different names, so the file is not a document")
        if fed - parser.CurrentByteIndex > MAX_TAG_LENGTH:
            raise DataError(f"the XML has a tag of more than {MAX_TAG_LENGTH:,} bytes, so the file is not a document")


class _Handler:
    """A collector of the events in a block."""

    def __init__(self, elements: Grammar | None) -> None:
        self._elements = elements
        self._open = [""]
        self._skipped = 0
        self._events: list[Event] = []

    def taken(self) -> list[Event]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def start(self, name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(":")[2]
        known = self._elements is None or local in self._elements.get(self._open[-1], ())
        if self._skipped or not known:
            self._skipped += 1
            if self._skipped <= MAX_DEPTH:
                return
        else:
            self._open.append(local)
            self._events.append(Event(Kind.START, local, attributes=attributes))
            if len(self._open) <= MAX_DEPTH:
                return
        raise DataError(f"the XML is nested more than {MAX_DEPTH:,} levels deep, so the file is not a document")

    def end(self, _: str) -> None:
        if self._skipped:
            self._skipped -= 1
        else:
            self._events.append(Event(Kind.END, self._open.pop()))

    def text(self, text: str) -> None:
        if not self._skipped:
            self._events.append(Event(Kind.TEXT, self._open[-1], text))

    def declaration(self, *_: object) -> None:
        raise DataError("the XML declares an entity or a default attribute, so the file is not a document")
