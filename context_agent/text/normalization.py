"""Unicode normalization in linear time.

Python sorts the combining marks after a letter by insertion, which takes quadratic time. For 80,000 marks it takes half
a minute. Unicode's stream-safe format (UAX #15, section 13) allows 30 marks in a row. No language needs more than 30.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Literal

MAX_MARKS = 30
"""The number of consecutive combining marks that are kept. Further marks are dropped."""
_MAY_BE_MARKS = re.compile(rf"[^\x00-\x7f]{{{MAX_MARKS + 1}}}")
_LAST_PLANE = 0x1FFFF
"""The last code point before the planes of Chinese characters. There are no combining marks in those planes."""


def normal_form(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """Return the text in a normal form. Of each run of combining marks, only the first `MAX_MARKS` are kept."""
    if text.isascii():
        return text
    if _MAY_BE_MARKS.search(text):
        text = _long_runs().sub(lambda run: run[0][:MAX_MARKS], text)
    return unicodedata.normalize(form, text)


@cache
def _long_runs() -> re.Pattern[str]:
    """Return a pattern for runs of more than `MAX_MARKS` characters that decompose into marks alone."""
    marks = "".join(re.escape(char) for char in map(chr, range(0x80, _LAST_PLANE)) if _is_mark(char))
    return re.compile(f"[{marks}]{{{MAX_MARKS + 1},}}")


def _is_mark(char: str) -> bool:
    return unicodedata.combining(unicodedata.normalize("NFKD", char)[0]) > 0


def well_formed(text: str) -> str:
    """Return the text with each lone surrogate replaced by `?`, so that UTF-8 can encode it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text
