"""The reader of source code. A file is a document, and its definitions are sections.

A section's title is the path and the qualified name. Without the extra `code`, or if no definition is found, the file
is cut by lines like any text.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import PurePath

from context_agent.errors import DataError
from context_agent.retrieval.loaders.decoding import unix_lines
from context_agent.retrieval.loaders.definitions import GRAMMARS, LARGEST_PARSED, Grammar, definitions_of
from context_agent.retrieval.loaders.outlines import Lines, text_captions
from context_agent.retrieval.loaders.reading import Reading, content, decoded, document, storable
from context_agent.retrieval.loaders.sniffing import check_written
from context_agent.types import Document, Section

NO_GRAMMAR = 'the file is cut by lines. To cut code by functions and classes, run `pip install "context-agent[code]"`.'


def read_code(reading: Reading) -> Iterator[Document]:
    """Yield a file of code, titled by its path, with a section for each definition."""
    text = storable(unix_lines(decoded(reading, content(reading)).text))
    check_written(reading, text)
    grammar = GRAMMARS.get(PurePath(reading.path).suffix.lower())
    metadata = {"language": grammar.language} if grammar else {}
    sections = _sections(reading, text, grammar) if grammar else ()
    captions = () if sections else text_captions(text, Lines.CODE)
    yield document(reading, text, reading.path, metadata, sections, captions=captions)


def _sections(reading: Reading, text: str, grammar: Grammar) -> tuple[Section, ...]:
    """Return the definitions in order. An outer definition comes before those inside it."""
    if len(text) > LARGEST_PARSED:
        return ()
    try:
        definitions = definitions_of(source := text.encode("utf-8"), grammar)
    except ImportError:
        reading.report.note(reading.name, NO_GRAMMAR, kind="code")
        return ()
    except DataError as error:
        reading.report.note(reading.name, str(error))
        return ()
    offsets = _offsets(source, {at for start, end, _ in definitions for at in (start, end)})
    path = storable(reading.path)
    return tuple(Section(offsets[start], offsets[end], f"{path}: {name}") for start, end, name in definitions)


def _offsets(data: bytes, positions: set[int]) -> dict[int, int]:
    """Convert offsets in bytes to offsets in characters."""
    ordered = [0, *sorted(positions)]
    lengths = (len(data[start:end].decode("utf-8", "ignore")) for start, end in pairwise(ordered))
    return dict(zip(ordered[1:], accumulate(lengths), strict=True))
