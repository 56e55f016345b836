"""The messages of a catalog of translations (`.po`, GNU gettext), as people read them."""

from __future__ import annotations

import re

_STRING = re.compile(r'(msg[a-z_]{2,12}(?:\[\d{1,3}\])?[ \t]*+)?"([^\n]*)"')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "r": "", "t": "\t"}
_TEAM = re.compile(r'^"Language-Team: {0,9}([^\W\d_][^<(\\"\n]{0,60})', re.MULTILINE)
_LANGUAGE = re.compile(r'^"Language: {0,9}(\w[\w@-]{1,20})', re.MULTILINE)
_REFERENCES = ("#~", "#:", "#,", "#|")
"""The beginnings of comments that programs write: old messages, places in the code, flags and earlier texts."""
HEADER_WITHIN = 16_384
"""The number of characters at the beginning of a catalog in which its language is searched."""


def catalog_text(text: str) -> str:
    """Return the messages with their translations below them, and a blank line between two messages.

    The strings are joined, without keywords, quotes and escapes. Comments of people stay. References to code, flags and
    messages that are no longer used are left out.
    """
    entries: list[str] = []
    lines: list[list[str]] = []
    keyword = ""
    for line in (*text.split("\n"), ""):
        string = _STRING.fullmatch(line.strip())
        begins = not string or (string[1] or "").strip() in {"msgctxt", "msgid"}
        if lines and begins and (not line.strip() or keyword.startswith("msgstr")):
            texts = ("".join(pieces).strip() for pieces in lines)
            entries.append("\n".join(dict.fromkeys(filter(None, texts))))
            lines.clear()
            keyword = ""
        if string is None:
            if not line.startswith(_REFERENCES):
                lines.append([line.lstrip("#. ") if line.startswith("#") else line])
        elif string[1] or not lines:
            keyword = string[1] or ""
            lines.append([_unescaped(string[2])])
        else:
            lines[-1].append(_unescaped(string[2]))
    return "\n\n".join(filter(None, entries))


def catalog_language(text: str) -> str:
    """Return the language that the header of a catalog names. If it names none, return an empty string."""
    head = text[:HEADER_WITHIN]
    found = _TEAM.search(head) or _LANGUAGE.search(head)
    return found[1].strip() if found and not found[1].startswith("LANGUAGE") else ""  # as in a template


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), text)
