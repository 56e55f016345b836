"""The names of records: the short texts inside a record that say what it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from context_agent.pruning.outlines import Outline
from context_agent.pruning.records import Value, Values

Run = Values | Outline
"""Consecutive values of one text."""

NAMING_KEYS = ("title", "name", "path", "file", "filename", "url", "key", "id")
"""Members of a record that name it, the best ones first. Their case does not matter."""
MOST_NAMING = 80
"""Maximum number of characters of the texts in which a record differs from its siblings."""
LONGEST_TEXT = 120
"""Maximum number of characters of a text that may tell records apart."""
MOST_MEMBERS = 64
"""Maximum number of members of an object, and the maximum number of pairs of a list, that are read."""
_PAIR_KEYS, _PAIR_VALUE = ("key", "name"), "value"
_ID = re.compile(r"^\d|\b(?=[A-Za-z_]{0,60}\d)\w{8,}|://")
"""The start of a number or of a date, or a part of an id or of an address. A text with it tells a reader little."""
_WORD = re.compile(r"[^\W\d_]{2}")
_NO_WORDS = ("true", "false", "null", "none")
_NAME_PAIR = re.compile(r"(?:.*[._-])?name$", re.I)


def own_name(run: Run, members: Sequence[Value]) -> str:
    """Return the member of an object that names it. If there is none, return the value of a pair such as a tag `Name`.

    An object without a name has an empty string.
    """
    named = {run.string(it.key).lower(): it for it in reversed(members) if it.key is not None}
    if said := next((said for key in NAMING_KEYS if key in named and (said := run.string(named[key]))), ""):
        return said
    pairs = (pair for member in members for pair in _pairs(run, member))
    return next((said for key, said in pairs if _NAME_PAIR.match(key)), "")


def only_name(run: Run, members: Sequence[Value]) -> str:
    """Return the name of the only member that is an object with a name, or else an empty string."""
    names = (own_name(run, run.parts(member)) for member in members if run.is_object(member))
    first, second = (*islice(filter(None, names), 2), "", "")[:2]
    return "" if second else first


def distinct_names(run: Run, records: Sequence[Value]) -> dict[Value, str]:
    """Return what tells records of a list apart: their names, then the short texts that are not equal in all of them.

    Numbers, dates, ids and addresses are left out, unless they are the name of a record. At most `MOST_NAMING`
    characters of each record are returned.
    """
    objects = [record for record in records if run.is_object(record)]
    if len(objects) < 2:
        return {}
    found = {record: dict(_texts(run, run.parts(record))) for record in objects}
    said: dict[str, set[str]] = {}
    for by_key in found.values():
        for key, text in by_key.items():
            said.setdefault(key, set()).add(text)
    names: dict[Value, str] = {}
    for record, by_key in found.items():
        members = run.parts(record)
        parts: list[str] = []
        room = MOST_NAMING
        others = (text for key, text in by_key.items() if len(said[key]) > 1)
        for text in (own_name(run, members) or only_name(run, members), *others):
            # The first text is cut if it is too long. Others are left out.
            if text and text not in parts and (not parts or len(text) <= room):
                parts.append(text[:room])
                room -= len(parts[-1]) + 1
        names[record] = " ".join(parts)
    return names


def _texts(run: Run, members: Sequence[Value], key: str = "", *, is_inner: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the short texts of an object, of its pairs and of the objects right inside it, each with its keys."""
    for member in islice(members, MOST_MEMBERS):
        name = f"{key}.{run.string(member.key)}" if member.key is not None else key
        if not run.is_container(member):
            text = run.string(member) if run.is_string(member) and member.end - member.start <= LONGEST_TEXT else ""
            if _tells(text):
                yield name, " ".join(text.split())
            continue
        yield from ((f"{name}.{own}", text) for own, text in _pairs(run, member) if _tells(text))
        parts = [] if is_inner else run.parts(member)
        if len(parts) == 1 and parts[0].key is None and run.is_object(parts[0]):
            parts = run.parts(parts[0])
        if parts and parts[0].key is not None:
            yield from _texts(run, parts, name, is_inner=True)


def _tells(text: str) -> bool:
    """Return True if a text has words, and is not a number, a date, an id or an address."""
    return _WORD.search(text) is not None and _ID.search(text) is None and text.lower() not in _NO_WORDS


def _pairs(run: Run, value: Value) -> Iterator[tuple[str, str]]:
    """Yield the key and the text of each pair in a list of pairs, such as tags or attributes.

    The text may be in an object that names its type, as in `{"key": "os", "value": {"stringValue": "linux"}}`.
    """
    if not run.is_container(value) or run.is_object(value):
        return
    for item in islice(run.parts(value), MOST_MEMBERS):
        members = run.parts(item) if run.is_object(item) else []
        named = {run.string(it.key).lower(): it for it in members if it.key is not None}
        key = next((run.string(named[it]) for it in _PAIR_KEYS if it in named), "")
        if len(members) != 2 or _PAIR_VALUE not in named or not key:
            return
        said = named[_PAIR_VALUE]
        inner = run.parts(said) if run.is_object(said) else [said]
        if len(inner) == 1 and run.is_string(inner[0]) and inner[0].end - inner[0].start <= LONGEST_TEXT:
            yield key, run.string(inner[0])
