"""The identifiers in a text: names in code, versions, options, and codes, each as one term.

A search by words divides an identifier into its parts. The words of `_make_self_pipe` are common in code, so a longer
name with the same words may rank above it. The identifier as a whole is rare.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, pairwise

MAX_CHARACTERS, MOST_JOINED = 80, 400
"""The maximum length of an identifier, and of words that are joined by marks. Longer ones are encoded data."""
_COMPOUND = re.compile(r"(?<!\w)(?:(?:--)?\w+(?:(?:::|->|[.:#/\\@+=-])\w+)++|_*+[^\W_]++_\w++)", re.ASCII)
"""Words that are joined by marks, or one word with an underscore inside. All other words are skipped quickly."""
_SEPARATOR = re.compile(r"::|->|[:#/\\@+=]")
_PART = re.compile(r"[a-z\d]+")
_VERSION = re.compile(r"\Av(?=\d+\.)")


def identifier_spans(text: str) -> Iterator[tuple[int, str]]:
    """Yield the start and the text of each run of joined words that has an identifier, as written."""
    for compound in _COMPOUND.finditer(text):
        if _of_compound(compound[0]):
            yield compound.start(), compound[0]


def identifiers(text: str) -> list[str]:
    """Return the identifiers in a text in lower case, in order of appearance, and as often as they occur.

    An identifier has several parts, and an underscore, a digit, or a dot. A word with hyphens alone, such as
    `well-known`, is not an identifier, but an option such as `--dry-run` is. Of a dotted name, the pairs and single
    names inside it are returned, too, with and without the underscores at their start. So `Selector._make_pipe` also
    counts as `_make_pipe` and as `make_pipe`.
    """
    return list(chain.from_iterable(map(_of_compound, _COMPOUND.findall(text))))


@lru_cache(maxsize=1 << 14)
def _of_compound(compound: str) -> tuple[str, ...]:
    """Return the identifiers in words that are joined by marks. A name recurs often in the code of a project."""
    if len(compound) > MOST_JOINED:
        return ()
    names = (name for name in _SEPARATOR.split(compound.lower()) if len(name) <= MAX_CHARACTERS)
    return tuple(chain.from_iterable(dict.fromkeys(filter(None, map(_identifier, _inside(name)))) for name in names))


def _inside(name: str) -> Iterator[str]:
    """Yield the name, and the names inside it."""
    yield name
    yield name.lstrip("_")
    parts = name.split(".")
    if len(parts) > 2 and not parts[-1].isdigit():
        yield from map(".".join, pairwise(parts))
    for part in parts:
        yield part
        yield part.lstrip("_")
        if "_" in part and "-" in part:
            yield from part.split("-")


def _identifier(name: str) -> str:
    """Return the name as identifiers are compared. If it is not an identifier, return an empty string."""
    is_option = name.startswith("--")
    parts = _PART.findall(name)
    if len(parts) < 2 or ("_" not in name and all(len(part) == 1 and part.isalpha() for part in parts)):
        return ""
    if not (is_option or "_" in name or "." in name or any(map(str.isdigit, name))):
        return ""
    name = name.strip("-").rstrip("_")
    return _VERSION.sub("", name, count=1)
