"""The large values inside a JSON file, which are its sections, and the keys and names of all values."""

from __future__ import annotations

import json
import re

from context_agent.retrieval.loaders.content_lines import MAX_ENTRIES, MAX_LABEL
from context_agent.retrieval.loaders.headings import LONGEST_HEADING, MOST_CAPTIONS, shortened
from context_agent.retrieval.loaders.outlines import nested
from context_agent.retrieval.loaders.reading import one_line, storable
from context_agent.types import Caption, Section

LEAST_VALUE = 400
"""Minimum number of characters of a value that is a section. Smaller values stay with those around them."""
MOST_NAMES = 2
"""Maximum number of names of an object: its key and a name inside, or two names inside."""
MAX_KEYS = 8
"""Maximum number of levels of keys that name a section, and of levels of sections inside each other."""
_TOKEN = re.compile(r'"((?:[^"\\]++|\\.?)*+)(?:"(\s*+:)?|\Z)|([\[{])|[\]}]', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:r\\n|.)", re.DOTALL)
_BREAKS = {r"\r\n": "\n", r"\n": "\n", r"\r": "\n", r"\t": "\t"}
_NAMES = frozenset(["host", "id", "key", "name", "service", "title"])
"""The keys whose values name an object."""
LEAST_CAPTIONED = 100
"""Minimum number of characters of an object or list that has a caption."""


def with_line_breaks(text: str) -> str:
    r"""Return a JSON text in which the line breaks and tabs of strings are not escaped.

    A search does not find the first word of a line after `\n`.
    """
    return _ESCAPE.sub(lambda escape: _BREAKS.get(escape[0], escape[0]), text)


def _unquoted(string: str) -> str:
    """Return the words of a string of a JSON text, which may have line breaks."""
    words: str = json.loads(f'"{string}"', strict=False)
    return words


def json_captions(text: str) -> tuple[Caption, ...]:
    """Return the captions of the objects and lists in a JSON text: their keys, and the names that objects have inside.

    Args:
        text: A valid JSON text, in which strings may have line breaks.
    """
    found: list[Caption] = []
    opened: list[tuple[int, list[str]]] = []
    """Where each open object or list begins, and its names."""
    start, key = 0, None
    for token in _TOKEN.finditer(text):
        if token[3]:
            opened.append((token.start() if key is None else start, [] if key is None else [key]))
            key = None
        elif token[1] is None:
            begin, names = opened.pop()
            if names and token.end() - begin >= LEAST_CAPTIONED and len(found) < MOST_CAPTIONS:
                found.append(Caption(begin, token.end(), ": ".join(names)))
            key = None
        elif token[2]:
            start, key = token.start(), shortened(_unquoted(token[1]), LONGEST_HEADING)
        else:
            if opened and key is not None and key.lower() in _NAMES and len(opened[-1][1]) < MOST_NAMES:
                opened[-1][1].append(shortened(_unquoted(token[1]), LONGEST_HEADING))
            key = None
    return nested(found)


def json_sections(text: str, name: str) -> tuple[Section, ...]:
    """Return the large objects and lists in a JSON text, titled by the keys that lead to them.

    The first section is the whole text, so a short text stays one chunk. A text without large values has no sections.

    Args:
        text: A valid JSON text, in which strings may have line breaks.
        name: The name with which the titles begin.
    """
    found: list[Section] = []
    path: list[str] = []
    opened: list[tuple[int, str | None]] = []
    """Where each open object or list begins, with its key. A value in a list has none."""
    start, key = 0, None
    for token in _TOKEN.finditer(text):
        if token[3]:
            opened.append((start if key is not None else token.start(), key))
            if key is not None:
                path.append(key[:MAX_LABEL])
            key = None
        elif token[1] is None:
            begin, own = opened.pop()
            if own is not None:
                if len(path) <= MAX_KEYS and token.end() - begin >= LEAST_VALUE:
                    found.append(
                        Section(begin, token.end(), one_line(storable(f"{name}: {'.'.join(path)}"))[:MAX_LABEL])
                    )
                path.pop()
            key = None
        elif token[2]:
            start, key = token.start(), _unquoted(token[1])
        else:
            key = None
    found.sort(key=lambda section: section.start)
    return (Section(0, len(text), name), *found[:MAX_ENTRIES]) if found else ()
