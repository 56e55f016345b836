"""Decoding of bytes to text.

`decode` tries these encodings in turn:

1. the encoding that the caller names
2. the encoding of a byte order mark (UTF-8, UTF-16, UTF-32), or UTF-16 without a mark
3. UTF-8, or ISO-2022-JP if its escape sequences occur
4. the encoding that the file declares
5. UTF-8 with a few damaged characters, which are replaced, or with a few lines in Windows-1252
6. an encoding of another language, such as Windows-1251 for Russian, if charset-normalizer proposes it and if the
   text is in that language. Of several, the one with the fewest letters that the language does not have
7. Windows-1252, if the share of bytes above ASCII is not larger than in Western European text

Other bytes with a NUL, or with many control characters, are not text. UTF-8 may have a few NULs, as
logs that were cut while a program wrote to them do, and as GNU's info files do. Other text in a legacy encoding of
another script raises an error, because it would be read as gibberish.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

from context_agent.errors import DataError
from context_agent.text.counts import counted
from context_agent.text.language_identification import code_of_language

BLOCK_BYTES = 2**20
"""The number of bytes read at a time."""
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins like UTF-16's, so it comes first
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
UTF16_SAMPLE = 8_192
"""The number of bytes at the beginning in which UTF-16 without a byte order mark is recognized."""
FEWEST_LATIN = 4
"""Minimum number of Latin characters, digits and spaces by which UTF-16 without a byte order mark is recognized."""
LARGEST_CONTROL_SHARE = 1 / 50
"""The share of control characters, or of NUL bytes, above which bytes are not text."""
LONGEST_ENCODING = 40
"""Maximum number of characters of an encoding's name."""
_NO_ENCODINGS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
"""Python codecs that are not used to store text. Some take time quadratic in the length."""
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_XML_DECLARATION = re.compile(rb"""<\?xml[^>?]{1,100}?\sencoding\s*=\s*["']([\w.:-]{1,40})["']""")
_COOKIE = re.compile(rb"(?:[^\n]{0,500}\n)?[^\n]{0,500}?coding[:=][ \t]*([\w.-]{1,40})")
"""A comment in the first two lines, as Python, Emacs and Vim write it: `-*- coding: koi8-r -*-`."""
_CATALOG = re.compile(rb"""^"Content-Type:[^"\n]{1,100}?charset=([\w.:-]{1,40})""", re.MULTILINE)
"""The header of a catalog of messages (`.po`)."""
_STYLE_SHEET = re.compile(rb"""@charset "([\w.:-]{1,40})";""")
DECLARED_WITHIN = 4_096
"""The number of first bytes of a file that may declare its encoding."""
_JIS = "iso2022_jp_2"
_SHIFTED_TO_JIS = re.compile(rb"\x1b\$[@B]")
_SUPERSETS = {
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "tis-620": "cp874",
    "iso8859-11": "cp874",
    "big5": "big5hkscs",
    "gb2312": "gb18030",
    "gbk": "gb18030",
}
"""The encodings that files in truth have if they declare another one.

The WHATWG Encoding Standard, sections 4.2 and 4.3, names them, and browsers read pages so. The quotation marks of
Windows would otherwise become control characters.
"""
_LANGUAGES = {
    "cp1252": "ca da de es fi fr is it nl no pt sv",
    "cp1250": "cs hr hu pl ro sk sl",
    "iso8859_2": "cs hr hu pl ro sk sl",
    "cp1251": "bg mk ru sr uk",
    "koi8_r": "ru",
    "koi8_u": "uk",
    "cp1253": "el",
    "cp1254": "tr",
    "cp1255": "he",
    "cp1256": "ar fa ur",
    "cp1257": "et lt lv",
    "cp932": "ja",
    "euc_jp": "ja",
    "gb18030": "zh",
    "big5": "zh",
    "cp949": "ko",
}
"""The languages in which text in an encoding must be, because charset-normalizer also takes French for Windows-1250."""
_ALPHABETS = {
    "ca": "àçèéíïòóúü",
    "cs": "áčďéěíňóřšťúůýž",
    "da": "åæéø",
    "de": "äéöüß",
    "es": "¡ª¿ºáéíñóúü",
    "et": "äõöšüž",
    "fi": "äåö",
    "fr": "àâæçèéêëîïôùûüÿœ",
    "hr": "čćđšž",
    "hu": "áéíóöőúüű",
    "is": "áæéíðóöúýþ",
    "it": "àèéìíîòóùú",
    "lt": "ąčęėįšųūž",
    "lv": "āčēģīķļņšūž",
    "nl": "áèéêëíïóöúü",
    "no": "åæèéêòóø",
    "pl": "ąćęłńóśźż",
    "pt": "ªºàáâãçéêíóôõúü",
    "ro": "ăâîşșţț",
    "sk": "áäčďéíĺľňóôŕšťúýž",
    "sl": "čćđšž",
    "sv": "äåéö",
    "tr": "âçğıîi̇öşüû",
}
"""The letters beyond ASCII of languages in Latin script, whose encodings differ in a few letters."""
_CUT = re.compile(rb"[\xc2-\xf4](?:[\x80-\xbf]|\r?\Z)")
"""The beginning of a character of UTF-8. It is damaged in a line that is not UTF-8."""
_DISTINCT = frozenset(["cp1250", "iso8859_2", "cp1253", "cp1254", "cp1255", "cp1257"])
"""The encodings that also count if charset-normalizer proposes another one first.

Bytes of other encodings, such as Chinese ones, often form words in the remaining encodings, too.
"""
_SIGNS = frozenset("\xa0«»‘’‚“”„–—…•°§€©®™·×")
"""The signs beyond ASCII that a text in any language may have."""
GUESSED_BYTES, GUESSED_CHARACTERS = 32_768, 10_000
"""The number of first bytes from which an encoding is guessed, and of first characters whose language is identified."""
FEWEST_GUESSED = 6
"""Minimum number of bytes above ASCII from which an encoding is guessed."""
SHORT_NOTE = 20
"""If a text has fewer bytes above ASCII, all its letters must be those of its language.

In Windows-1250, a short Italian note looks like Czech with a few Slovak letters.
"""
WESTERN_NOTE = (
    "the text was read as Windows-1252, because it is not UTF-8. If it is in another encoding, pass its --encoding."
)
NUL_REASON = "the file contains NUL bytes, so it is not text. If it is, pass its --encoding."
CONTROL_REASON = "the file is full of control characters, so it is not text. If it is, pass its --encoding."
_HIGH_BYTES = bytes(range(0x80, 0x100))


@dataclass(frozen=True, slots=True)
class Decoded:
    """Text, its encoding, and a notice for the user, which is usually empty."""

    text: str
    encoding: str
    note: str = ""


def decode(data: bytes, encoding: str | None = None, declared: str | None = None, *, guess: bool = True) -> Decoded:
    """Return the text of `data`.

    Args:
        data: The bytes.
        encoding: The encoding that the caller names.
        declared: The encoding that a page declares. It is used if the page is not UTF-8.
        guess: False to guess no encoding but Windows-1252.

    Raises:
        DataError: If the bytes are not text.
    """
    if encoding or (encoding := utf_encoding(data)):
        try:
            return Decoded(data.decode(encoding), encoding)
        except (UnicodeError, ValueError) as error:
            raise DataError(f"the file is not valid {encoding} text ({error}). Pass another --encoding.") from error
    nuls = data.count(0)
    if nuls > len(data) * LARGEST_CONTROL_SHARE:
        raise DataError(NUL_REASON)
    try:
        decoded = _shifted(data) or Decoded(data.decode("utf-8"), "utf-8")
    except UnicodeDecodeError:
        if nuls:
            raise DataError(NUL_REASON) from None
        decoded = _declared(data, declared) or _damaged(data) or (_guessed(data) if guess else None) or _western(data)
    sample = decoded.text[:BLOCK_BYTES]
    if len(_CONTROL_CHARACTERS.findall(sample)) > len(sample) * LARGEST_CONTROL_SHARE:
        raise DataError(CONTROL_REASON)
    return decoded


def utf_encoding(data: bytes) -> str | None:
    """Return the encoding that the byte order mark or the NUL bytes at the beginning show, or else None."""
    marked = next((encoding for mark, encoding in _BYTE_ORDER_MARKS if data.startswith(mark)), None)
    return marked or _unmarked_utf16(data[:UTF16_SAMPLE])


def _unmarked_utf16(data: bytes) -> str | None:
    """Return the encoding if the bytes are UTF-16 without a byte order mark, or else None.

    In such a text, four characters and a tenth of all characters or more are Latin letters, digits, spaces and line
    breaks, whose upper byte is NUL. No character is a control character or unassigned.
    """
    even, odd = data[::2].count(0), data[1::2].count(0)
    most = max(even, odd)
    if most < FEWEST_LATIN or most * 20 < len(data) or most < 4 * min(even, odd):
        return None
    encoding = "utf-16-le" if odd > even else "utf-16-be"
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(data)
    except UnicodeDecodeError:
        return None
    kinds = {unicodedata.category(letter) for letter in set(text) - set("\t\n\f\r")}
    return None if kinds & {"Cc", "Cn", "Co"} else encoding


def _shifted(data: bytes) -> Decoded | None:
    """Return the text if it is ISO-2022-JP, whose bytes are also valid UTF-8. Otherwise return None."""
    text = decoded_as(data, _JIS) if _SHIFTED_TO_JIS.search(data) else None
    return None if text is None else Decoded(text, _JIS)


def _begins_shifted(block: bytes) -> bool:
    """Return True if a text that begins with these bytes is ISO-2022-JP. The last character may be cut."""
    with suppress(UnicodeDecodeError):
        return bool(_SHIFTED_TO_JIS.search(block) and codecs.getincrementaldecoder(_JIS)().decode(block))
    return False


def _declared(data: bytes, encoding: str | None) -> Decoded | None:
    """Return the text in the encoding that the file declares. If that fails, return None.

    A declaration in ASCII shows that the file is not UTF-16 or UTF-32, whatever it says.
    """
    if not encoding or _codec(encoding).startswith(("utf-16", "utf-32")):
        return None
    text = decoded_as(data, encoding)
    return None if text is None else Decoded(text, encoding)


def _codec(encoding: str) -> str:
    """Return Python's name of an encoding in which text is stored. Otherwise return an empty string.

    Files also declare names such as `x-sjis` and `iso-8859-8-i`, which Python has without the additions.
    """
    label = encoding.lower().removeprefix("x-").removesuffix("-i")
    try:
        name = codecs.lookup(label).name if len(encoding) <= LONGEST_ENCODING else ""
    except (LookupError, UnicodeError, ValueError):
        return ""
    return "" if name in _NO_ENCODINGS else name


def declared_encoding(data: bytes) -> str | None:
    """Return the encoding that a text declares, or else None.

    XML and style sheets declare it at their start. Code does so in a comment, and a catalog of messages in its header.
    """
    head = data[:DECLARED_WITHIN]
    declaration = (
        _XML_DECLARATION.match(head) or _STYLE_SHEET.match(head) or _COOKIE.match(head) or _CATALOG.search(head)
    )
    return declaration[1].decode("ascii") if declaration else None


def decoded_as(data: bytes, encoding: str) -> str | None:
    """Return the bytes decoded with the encoding that they declare, or with a superset that browsers take for it.

    If that fails, or if the encoding is not used to store text, return None.
    """
    codec = _codec(encoding)
    for name in filter(None, (_SUPERSETS.get(codec), codec)):
        with suppress(LookupError, UnicodeError, ValueError):
            return data.decode(name)
    return None


def _damaged(data: bytes) -> Decoded | None:
    """Return the text if it is UTF-8 in which a few characters are broken and many more are intact.

    Otherwise return None.

    Only characters beyond ASCII count as intact. A line without such characters is read as Windows-1252, because a log
    or a list may have been joined from files in several encodings.
    """
    text = data.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    intact = sum(not letter.isascii() for letter in text) - broken
    if intact <= 4 * broken:
        return None
    text = "\n".join(map(_line, data.split(b"\n")))
    damaged, western = text.count("\ufffd"), broken - text.count("\ufffd")
    notes = [f"{counted(damaged, 'damaged character')} replaced"] if damaged else []
    notes += [f"{counted(western, 'character')} read as Windows-1252, because a line is not UTF-8"] if western else []
    return Decoded(text, "utf-8", "; ".join(notes))


def _line(line: bytes) -> str:
    """Return a line as UTF-8. If nothing in it beyond ASCII is a character of UTF-8 or a part of one, it is western."""
    text = line.decode("utf-8", "replace")
    if "\ufffd" in text and all(letter.isascii() or letter == "\ufffd" for letter in text) and not _CUT.search(line):
        with suppress(UnicodeDecodeError):
            return line.decode("cp1252")
    return text


def _guessed(data: bytes) -> Decoded | None:
    """Return the text in the encoding of its language. If it is not recognized or Windows-1252, return None."""
    sample = data[:GUESSED_BYTES]
    high = len(sample) - len(sample.translate(None, _HIGH_BYTES))
    if high < FEWEST_GUESSED:
        return None
    from charset_normalizer import from_bytes

    found: tuple[int, str, str] | None = None
    proposed = [match.encoding for match in from_bytes(sample, cp_isolation=[*_LANGUAGES], preemptive_behaviour=False)]
    for encoding in dict.fromkeys(["cp1252", *proposed[:1], *filter(_DISTINCT.__contains__, proposed)]):
        languages, text = _LANGUAGES.get(encoding, "").split(), decoded_as(data, encoding)
        if text is None or (language := code_of_language(text[:GUESSED_CHARACTERS])) not in languages:
            continue
        foreign = _count_foreign(text[:GUESSED_CHARACTERS], language)
        if (not foreign or high >= SHORT_NOTE) and (found is None or foreign < found[0]):
            found = foreign, encoding, text
    if found is None or found[1] == "cp1252":
        return None
    name = codecs.lookup(found[1]).name
    note = f"the text was read as {name}, because it is not UTF-8. If it is in another encoding, pass its --encoding."
    return Decoded(found[2], name, note)


def _count_foreign(text: str, language: str) -> int:
    """Return how many characters beyond ASCII a text in Latin script has that its language does not use."""
    if not (letters := _ALPHABETS.get(language)):
        return 0
    return sum(not letter.isascii() and letter not in _SIGNS and letter.lower() not in letters for letter in text)


def _western(data: bytes) -> Decoded:
    high = len(data) - len(data.translate(None, _HIGH_BYTES))
    try:
        if high > 0.3 * len(data):
            raise DataError("the text is neither UTF-8, UTF-16 nor Windows-1252. Pass its --encoding.")
        return Decoded(data.decode("cp1252"), "cp1252", WESTERN_NOTE)
    except UnicodeDecodeError as error:
        raise DataError("the text is neither UTF-8, UTF-16 nor Windows-1252. Pass its --encoding.") from error


def stream_encoding(stream: BinaryIO, encoding: str | None) -> tuple[str, str]:
    """Return the encoding of a seekable stream, and a notice for the user.

    The stream is read in blocks and rewound.

    Raises:
        DataError: If the stream is not text.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    nuls = size = 0
    try:
        while block := stream.read(BLOCK_BYTES):
            if encoding or (encoding := utf_encoding(block) if stream.tell() == len(block) else None):
                return encoding, ""
            nuls, size = nuls + block.count(0), size + len(block)
            if nuls > size * LARGEST_CONTROL_SHARE:
                raise DataError(NUL_REASON)
            try:
                decoder.decode(block)
            except UnicodeDecodeError:
                if nuls:
                    raise DataError(NUL_REASON) from None
                decoded = decode(block)
                return decoded.encoding, decoded.note
            if _begins_shifted(block):
                return _JIS, ""
        return "utf-8", ""
    finally:
        stream.seek(0)


def unix_lines(text: str) -> str:
    """Return the text with a single newline at the end of every line."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def codec_with_mark(encoding: str) -> str:
    """Return the encoding. For UTF-8, return the codec that also accepts a byte order mark."""
    return "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
