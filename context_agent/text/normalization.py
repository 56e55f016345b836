"""Unicode normalization in linear time.

Python sorts the combining marks after a letter by insertion, which takes quadratic time. For 80,000 marks it takes half
a minute. Unicode's stream-safe format (UAX #15, section 13) allows 30 marks in a row. No language needs more than 30.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import filterfalse
from typing import Literal

MAX_MARKS = 30
"""The number of consecutive combining marks that are kept. Further marks are dropped."""
_MAY_BE_MARKS = re.compile(rf"[^\x00-\x7f]{{{MAX_MARKS + 1}}}")
_LAST_PLANE = 0x1FFFF
"""The last code point before the planes of Chinese characters. There are no combining marks in those planes."""
_SILENT = re.compile(
    "[\u00ad\u200c\u200d\u2060\ufeff\u0640"  # Soft hyphens, joiners, and the stretched line of Arabic.
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"  # Accents, and points of Hebrew.
    "\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed"  # Vowels of Arabic.
    "\u093c\u094d\u09bc\u09cd\u0a3c\u0a4d\u0abc\u0acd\u0b3c\u0b4d\u0bcd"  # Dots and joints of Indian scripts.
    "\u0c3c\u0c4d\u0cbc\u0ccd\u0d3b\u0d3c\u0d4d\u0dca"
    "\u2116\u2120\u2122]|(?<=[!-\u052f])\u200b(?=[!-\u052f])"  # Signs, and breaks inside a word.
)
_VARIANTS = {"\u06a9": "\u0643", "\u06cc": "\u064a", "\u0649": "\u064a", "\u0130": "I"}
_VARIANTS |= dict.fromkeys("\u0622\u0623\u0625\u0671", "\u0627")
_VARIANTS |= {"ё": "е", "Ё": "Е", "ς": "σ", "\u0928\u094d": "\u0902", "\u0901": "\u0902"}
_VARIANTS |= dict(zip("άέήίϊΐόύϋΰώΆΈΉΊΪΌΎΫΏ", "αεηιιιουυυωΑΕΗΙΙΟΥΥΩ", strict=True))
"""Letters that keyboards confuse or that writers spell in two ways.

These are kaf, yeh and alef of Persian and Arabic, the dotted capital of Turkish, the Russian `ё`, the accents and the
last sigma of Greek, and the nasal sounds of Hindi.
"""
_PLAIN = {"ß": "ss", "ẞ": "SS", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D"}
_PLAIN |= {"æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "þ": "th", "Þ": "TH", "ı": "i"}
_UNDIVIDED = re.compile("[ßẞøØłŁđĐðÐæÆœŒþÞı]")
_VARIANT = re.compile("\u0928\u094d(?=[\u0915-\u0939])|[" + "".join(filter(str.isalpha, _VARIANTS)) + "\u0901]")
_OTHER_DIGIT = re.compile(r"[^\D0-9]")
_GROUPED = re.compile(
    r"\d(?<![\d.,]\d)(?:(?:\d{0,2},\d{3}|\d?(?:,\d{3}){2,5})(?!,?\d)"
    r"|\d{0,2}(?:(?:[\u00a0\u2009\u202f'’]\d{3})++(?!\d)|\.\d{3}\.\d{3}(?!\.?\d)))"
)
"""A number whose thousands are separated. A single dot may also be a decimal point.

Three or more groups of three digits with commas are a list, such as `500,502,503`. The pattern matches a digit before
it looks behind it, so that `re` skips all other characters quickly.
"""
_MEASURED = re.compile(
    r"\d(?<!\w\d)\d*+(?=(?:[kmgt]i?b|[kmg]bit|[kmg]bps|[kmg]?hz|[km]?wh|[km]w|mah|[kmµ]g|(?<=\d\d)g|[mcd]l|[kcmn]m|min"
    r"|sec|ms|hrs?|px|dpi|rpm|psi|eur|usd|gbp)\b)",
    re.IGNORECASE,
)
"""A number before a unit that is written without a space, as in `16GB`. `5G` is the name of a network."""


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


def without_silent(text: str) -> str:
    """Return the text without the characters inside words that writers may leave out.

    These are soft hyphens, joiners, stress marks, and the vowel points of Arabic and Hebrew. Accented letters that
    Unicode has as one character stay, except those of Greek. Letters that keyboards confuse become one letter, and the
    digits of all scripts become those of ASCII.
    """
    if text.isascii():
        return text
    text = _VARIANT.sub(lambda letter: _VARIANTS[letter[0]], normal_form("NFC", text))
    return _OTHER_DIGIT.sub(lambda digit: str(unicodedata.digit(digit[0])), _SILENT.sub("", text))


def with_plain_numbers(text: str) -> str:
    """Return the text with `2048` for `2,048` and with a space between a number and its unit."""
    return _MEASURED.sub(r"\g<0> ", _GROUPED.sub(lambda number: re.sub(r"\D", "", number[0]), text))


def without_marks(text: str) -> str:
    """Return the text in its compatibility form (NFKD), without accents and all other combining marks.

    Latin letters that Unicode does not decompose, such as `ß` and `ł`, become plain ones.
    """
    bare = "".join(filterfalse(unicodedata.combining, normal_form("NFKD", text)))
    return _UNDIVIDED.sub(lambda letter: _PLAIN[letter[0]], bare)


def plain(text: str) -> str:
    """Return the text in lower case, without marks, in Unicode's form NFC, in which Korean syllables are characters."""
    return normal_form("NFC", without_marks(text.lower()))


@cache
def vowel_signs() -> str:
    r"""Return the vowel signs of Asian scripts, for a class of a pattern.

    They are part of a word, but `\w` does not match them. Those of Thai are only the ones that `text.scripts` keeps.
    """
    signs = (chr(code) for code in range(0x0900, 0x1B00) if code not in range(0x0E00, 0x0E80))
    return "\u0e31-\u0e3a" + "".join(
        sign for sign in signs if unicodedata.category(sign) in ("Mn", "Mc") and not unicodedata.combining(sign)
    )


def comparison_key(text: str) -> str:
    """Return a key that texts share if they differ only in case and spacing."""
    return " ".join(text.split()).casefold()


def well_formed(text: str) -> str:
    """Return the text with each lone surrogate replaced by `?`, so that UTF-8 can encode it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text
