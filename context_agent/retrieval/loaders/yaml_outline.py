"""The large values inside a YAML file, which are its sections. They are found by their indentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, pairwise

from context_agent.retrieval.loaders.content_lines import MAX_ENTRIES, MAX_LABEL
from context_agent.retrieval.loaders.headings import Heading
from context_agent.retrieval.loaders.json_outline import LEAST_VALUE, MAX_KEYS
from context_agent.retrieval.loaders.reading import one_line, storable
from context_agent.types import Section

MIN_BORDERS = 3
"""The number of borders of a file with one document and a mark at its beginning."""
_LINE = re.compile(
    r"""^(?P<indent>\ *+)(?:(?P<item>-)(?=[\ \n])|(?P<key>[^\s:\#"'-][^:\n]{0,199}|"[^"\n]{1,200}"|'[^'\n]{1,200}')
    :(?P<rest>(?=\s)[^\n]*+)|(?=[^\s\#]))""",
    re.MULTILINE | re.VERBOSE,
)
"""A line that is not empty and no comment: an item of a list, a key with its value, or another line."""
_BELOW = ("", "|", ">", "&", "!")
"""How the line of a key goes on if the value begins below it: with nothing, a block, an anchor or a tag."""

_NAMED = re.compile(r"^ {0,2}(?:kind|name|namespace|title|id):[ \t]++([^\s#][^\n#]{0,99})", re.MULTILINE)
"""A line that names a document of several in a file."""
_DOCUMENT = re.compile(r"^---(?:[ \t][^\n]*+)?$", re.MULTILINE)
NAMED_WITHIN = 1_000
"""The number of characters at the beginning of a document in which its names are searched."""


def yaml_documents(text: str) -> Iterator[Heading]:
    """Yield the names of the documents of a file that has several, such as manifests."""
    borders = [0, *(found.end() for found in islice(_DOCUMENT.finditer(text), MAX_ENTRIES)), len(text)]
    if len(borders) > MIN_BORDERS:
        for start, end in pairwise(borders):
            names = (found[1].strip("\"' ") for found in _NAMED.finditer(text, start, min(end, start + NAMED_WITHIN)))
            words = " ".join(dict.fromkeys(names))
            first = start + len(text[start : start + NAMED_WITHIN]) - len(text[start : start + NAMED_WITHIN].lstrip())
            yield Heading(first, 0, words)


def yaml_sections(text: str, name: str) -> tuple[Section, ...]:
    """Return the large values in a YAML text that begin on the line below their key, titled by the keys.

    The first section is the whole text, so a short text stays one chunk. A text without large values has no sections.

    Args:
        text: The YAML text.
        name: The name with which the titles begin.
    """
    found: list[Section] = []
    opened: list[tuple[int, int, str]] = []
    """The indentation, the start and the key of each open value."""

    def close(indent: int, end: int, *, is_item: bool) -> None:
        while opened and (opened[-1][0] > indent or (opened[-1][0] == indent and not is_item)):
            if end - opened[-1][1] >= LEAST_VALUE and len(opened) <= MAX_KEYS:
                keys = ".".join(key for _, _, key in opened)
                found.append(Section(opened[-1][1], end, one_line(storable(f"{name}: {keys}"))[:MAX_LABEL]))
            opened.pop()

    for line in _LINE.finditer(text):
        indent = len(line["indent"])
        close(indent, line.start(), is_item=line["item"] is not None)
        value = (line["rest"] or "").partition(" #")[0].strip()
        if line["key"] is not None and value[:1] in _BELOW:
            opened.append((indent, line.start(), line["key"].strip("\"' ")))
    close(-1, len(text), is_item=False)
    found.sort(key=lambda section: section.start)
    return (Section(0, len(text), name), *found[:MAX_ENTRIES]) if found else ()
