"""Texts of a given length that have made a program slow: long runs, markers without ends, millions of tiny parts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

RANDOM = random.Random(7)
BASE64 = "".join(RANDOM.choices("ABCDEFGHIJKLMabcdefghijklm0123456789+/", k=4_001))


def repeated(unit: str, length: int) -> str:
    """Return the unit again and again, cut to the length."""
    return (unit * (length // len(unit) + 1))[:length]


UNITS = {
    "tags between blank lines": "<div class='x'>\n\n",
    "long tags between blank lines": f"<div class='{'x' * 120}'>\n\n",
    "tags": "<a>",
    "tags on lines": "<a>\n",
    "open tags": "<a",
    "titles without an end": "<doc>\n<title>",
    "a page": "<p>hello world, this is a text</p>\n\n<title>x</title>\n",
    "blank lines": "\n",
    "blank lines with spaces": "\n   \t\r",
    "spaces": " ",
    "carriage returns": "\r",
    "lines of Windows": "\r\n",
    "brackets": "[",
    "pairs of brackets": "[]",
    "numbers in brackets": f"[1]{' ' * 600}{'.' * 600}\n\n",
    "numbered titles": "1. title\n\n",
    "fences": "```\n",
    "fences of two kinds": "```\n~~~\n",
    "headings": "# a\n\n",
    "hashes": "# ",
    "hits": "<result>\n[1]\n---\n",
    "rules": f"---{' ' * 2_000}x\n",
    "dashes": "-",
    "pieces of JSON": '{"a": [1, {"b": "',
    "quotes of CSV": '"a","b""c",',
    "quotes": '"',
    "a word": "x",
    "capitals": "A",
    "humps": "aB",
    "sentences": "Ab cd ef. ",
    "stops": ".",
    "stops and spaces": ". ",
    "stops on lines": ".\n",
    "stops of Chinese": "。",
    "Chinese": "漢",
    "Thai": "ก",
    "marks": "\u0301",
    "marks out of order": "\u0301\u0316",
    "joiners": "\u200d",
    "families": "👨‍👩‍👧",
    "line separators": "\u2028",
    "surrogates": "\ud800",
    "zeros": "\0",
    "base64": BASE64,
    "hashes of commits": "deadbeef ",
    "digits": "1",
    "digits and dashes": "1-",
    "matches in files": "a.py:1:x\nb.py:2:y\n",
    "log": "12:00:01 INFO x\n",
    "levels": "level    ",
    "tiny lines": "a\n",
    "tiny paragraphs": "a\n\n",
    "underscores": "_",
    "dotted names": "a.",
    "marks of names": "ab/-@#",
    "names": "A_b1/c.d ",
    "tables": "| a | b |\n|---|---|\n",
    "stubs": "[1 passage pruned, 1 tokens; restore: p1]\n\n",
    "requests": "restore: p1-p9, p3, ",
}
"""What is repeated, by name."""


def _half(first: str, second: str) -> Callable[[int], str]:
    return lambda length: first * (length // 2) + second * (length // 2)


def _after(start: str, unit: str) -> Callable[[int], str]:
    return lambda length: start + repeated(unit, length)


MADE: dict[str, Callable[[int], str]] = {
    "spaces, then stops": lambda length: "[1]" + _half(" ", ".")(length),
    "a number, then stops": lambda length: "1." + _half(" ", ".")(length),
    "a result, then marks": _after("result 1", "!"),
    "a result, then spaces": _after("result 1", " "),
    "a result, then both": _after("result 1", "! \t"),
    "a result, then lines": lambda length: "x\n\nresult 1" + _half("\n", ".")(length),
    "a fence without an end": _after("```\n", "~~~\n\n"),
    "a heading of spaces": _after("#", " "),
    "brackets without an end": _half("[", "]"),
    "objects in objects": lambda length: '{"a":' * (length // 6) + "1" + "}" * (length // 6),
    "a string in lists": lambda length: "[" * 6 + json.dumps(repeated("ab cd. ", length)) + "]" * 6,
    "numbers in a list": lambda length: json.dumps([1] * (length // 3)),
    "empty lists": lambda length: json.dumps([[]] * (length // 4)),
    "small strings": lambda length: json.dumps(["abc def ghi jkl " * 8] * (length // 132)),
    "small and large strings": lambda length: json.dumps(["a", "b" * 101] * (length // 110)),
    "members": lambda length: json.dumps({str(number): "v" * 101 for number in range(length // 112)}),
    "one name again and again": lambda length: f"{{{','.join([chr(34) + 'a' + chr(34) + ':1'] * (length // 6))}}}",
    "escaped lines": lambda length: json.dumps("\n" * (length // 2)),
    "escaped characters": lambda length: f'"{chr(92)}u0041' + "\\u0041" * (length // 6) + '"',
    "a number of many digits": lambda length: f"[{'1' * length}]",
    "a fraction of many digits": lambda length: f"[1.{'1' * length}]",
    "spaces in a list": lambda length: f"[1{' ' * length}]",
    "different words": lambda length: " ".join(f"w{number}" for number in range(length // 7)),
    "different paragraphs": lambda length: "\n\n".join(f"par {n} {'xyz ' * 30}" for n in range(length // 130)),
    "ids to restore": lambda length: "restore: " + ", ".join(f"p{number}" for number in range(length // 8)),
    "a stub of many digits": _after("[", "1"),
}
"""Texts that are no repetition, by name."""

TEXTS: dict[str, Callable[[int], str]] = {
    **{name: lambda length, unit=unit: repeated(unit, length) for name, unit in UNITS.items()},  # type: ignore[misc]
    **MADE,
}
