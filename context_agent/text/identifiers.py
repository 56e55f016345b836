"""The identifiers in a text: names in code, versions, options, codes and dates, each as one term.

A search by words divides an identifier into its parts. The words of `_make_self_pipe` are common in code, so a longer
name with the same words may rank above it. The identifier as a whole is rare.

People write a code as `E-1074`, `E1074` or `E 1074`, and a date in even more ways. As a term, each has one spelling.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import NamedTuple

from context_agent.text.dates import WrittenDate, dates
from context_agent.text.normalization import with_plain_numbers

MAX_CHARACTERS, MOST_JOINED = 80, 400
"""The maximum length of an identifier, and of words that are joined by marks. Longer ones are encoded data."""
_COMPOUND = re.compile(r"(?<!\w)(?:(?:--)?\w+(?:(?:::|->|[.:#/\\@+=-])\w+)++|_*+[^\W_]++_\w++)", re.ASCII)
"""Words that are joined by marks, or one word with an underscore inside. All other words are skipped quickly."""
_CODE = re.compile(
    r"(?<![\w-])(?:[A-Za-z]{1,12}+\d[^\W_]*+|[A-Z]{1,4}+ \d{2,7}+|(?!(?:1[5-9]|20)\d\d\b)\d{4,40}+)(?!\w)"
    r"(?![.:#/\\@+=-]\w)",
    re.ASCII,
)
"""A word of letters and digits, capital letters before a number, or a number of four digits that may be no year."""
_SHORTEST_CODE = 4
"""Minimum number of characters of a code with one digit. `Q3` and `mp3` are words."""
_SEPARATOR = re.compile(r"::|->|[:#/\\@+=]")
_PART = re.compile(r"[a-z\d]+")
_VERSION = re.compile(r"\Av(?=\d+\.)")
_MONTH = len("202105")
"""The number of characters of a month."""


def identifier_spans(text: str) -> Iterator[tuple[int, str]]:
    """Yield the start and the text of each run of joined words that has an identifier, as written."""
    for compound in _COMPOUND.finditer(text):
        if _of_compound(compound[0]):
            yield compound.start(), compound[0]


def identifiers(text: str) -> list[str]:
    """Return the identifiers in a text in lower case, as often as they occur.

    An identifier has several parts, and an underscore, a digit, or a dot. A word with hyphens alone, such as
    `well-known`, is not an identifier, but an option such as `--dry-run` is. Of a dotted name, the pairs and single
    names inside it are returned, too, with and without the underscores at their start. So `Selector._make_pipe` also
    counts as `_make_pipe` and as `make_pipe`. A code has no hyphens. A date is `20210503`, and its month counts, too.
    """
    text = with_plain_numbers(text)
    written = list(dates(text))
    names = chain.from_iterable(names for _, names in _spans(text, written))
    readings = [reading for date in written for reading in date.readings]
    return [*names, *readings, *dict.fromkeys(reading[:_MONTH] for reading in readings if reading[_MONTH:])]


def asked_identifiers(question: str) -> list[Asked]:
    """Return the identifiers in a question, each once. A date does not count as its month."""
    question = with_plain_numbers(question)
    written = list(dates(question))
    asked = [Asked(question[date.start : date.end], date.readings) for date in written]
    for span, names in _spans(question, written):
        asked += [Asked(span, (name,)) for name in names]
    return list({one.spellings: one for one in asked}.values())


class Asked(NamedTuple):
    """An identifier in a question as written, and as a term. An ambiguous date may be one of several terms."""

    surface: str
    spellings: tuple[str, ...]


def _spans(text: str, written: Sequence[WrittenDate]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the words in which identifiers other than dates are, and these identifiers."""
    inside = {(date.start, date.end) for date in written}
    for compound in _COMPOUND.finditer(text):
        if compound.span() not in inside:
            yield compound[0], _of_compound(compound[0])
    for code in _CODE.finditer(text):
        if code.span() not in inside and (name := _code(code[0])):
            yield code[0], (name,)


def _code(written: str) -> str:
    """Return a code as identifiers are compared. If it is an ordinary word, return an empty string."""
    is_word = len(written) < _SHORTEST_CODE and sum(map(str.isdigit, written)) < 2
    return "" if is_word or len(written) > MAX_CHARACTERS else written.lower().replace(" ", "")


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
    if any(map(str.isdigit, name)):
        name = name.replace("-", "")
    return _without_zeros(_VERSION.sub("", name, count=1))


def _without_zeros(name: str) -> str:
    """Return a version without the zeros at its end, because `1.2` is also written `1.2.0`."""
    numbers = name.split(".")
    while len(numbers) > 2 and numbers[-1] == "0" and all(map(str.isdigit, numbers)):
        del numbers[-1]
    return ".".join(numbers)
