"""The reader of rich text (`.rtf`), which keeps the text without fonts, styles, pictures and other data.

The parser was written for this package, because the patterns of the library `striprtf` take time quadratic in the size
of a file. It follows the Rich Text Format Specification 1.9.1 (Microsoft, 2008).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from context_agent.errors import DataError
from context_agent.retrieval.loaders.decoding import decoded_as
from context_agent.retrieval.loaders.headings import heading_captions, marked_headings
from context_agent.retrieval.loaders.reading import Reading, content, document, storable
from context_agent.retrieval.loaders.sniffing import read_other_text
from context_agent.types import Document

MAX_DEPTH = 1_000
"""Maximum number of levels of nested groups."""
DEEPEST_HEADING = 6
"""The deepest level of a heading. The specification has nine, and the marks of a page have six."""
MAX_FONTS = 1_000
"""Maximum number of fonts whose character set is remembered."""
MAX_CODE_UNIT = 0xFFFF
WESTERN = "cp1252"

_MAGIC = b"{\\rtf"
_TOKEN = re.compile(
    rb"\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,9})? ?|\\'(?P<hex>[0-9a-fA-F]{2})|\\(?P<symbol>[^a-zA-Z])"
    rb"|(?P<brace>[{}])|[\r\n\0]+|(?P<text>[^\\{}\r\n\0]+)"
)
_CHARACTERS = {
    **dict.fromkeys(("par", "line", "sect", "page", "row", "column"), "\n"),
    **dict.fromkeys(("tab", "cell", "nestcell"), "\t"),
    "emdash": "\u2014",
    "endash": "\u2013",
    "bullet": "\u2022",
    "lquote": "\u2018",
    "rquote": "\u2019",
    "ldblquote": "\u201c",
    "rdblquote": "\u201d",
    "emspace": " ",
    "enspace": " ",
    "qmspace": " ",
}
_SYMBOLS = {b"~": "\u00a0", b"_": "-", b"\n": "\n", b"\r": "\n", b"{": "{", b"}": "}", b"\\": "\\"}
_DATA = frozenset(
    "fonttbl colortbl stylesheet info pict object objdata fldinst header headerl headerr headerf footer footerl "
    "footerr footerf themedata datastore latentstyles generator listtable listoverridetable rsidtbl revtbl xmlnstbl "
    "filetbl mmathPr nonshppict pntext sp shprslt bkmkstart bkmkend template private xe tc".split()
)
"""Control words that begin a group without text of the document."""
_CHARACTER_SETS = {
    77: "mac_roman",
    128: "cp932",
    129: "cp949",
    130: "johab",
    134: "cp936",
    136: "cp950",
    161: "cp1253",
    162: "cp1254",
    163: "cp1258",
    177: "cp1255",
    178: "cp1256",
    186: "cp1257",
    204: "cp1251",
    222: "cp874",
    238: "cp1250",
    254: "cp437",
    255: "cp850",
}
"""The code page of each font character set."""


def read_rtf(reading: Reading) -> Iterator[Document]:
    """Yield the text of a file, with the title that it states or else its first heading. Headings become captions.

    If the content is not rich text, yield it as plain text.
    """
    data = content(reading)
    if not data.startswith(_MAGIC):
        reading.stream.seek(0)
        yield from read_other_text(reading)
        return
    parsed = _parsed(data)
    text = storable(re.sub(r"\n{3,}", "\n\n", parsed.joined("text")).strip())
    headings = list(marked_headings(text, "page"))
    title = parsed.joined("title").strip() or next((heading.words for heading in headings), "")
    yield document(reading, text, title, captions=heading_captions(headings, len(text), title=title))


def _parsed(data: bytes) -> _Parser:
    parser, position = _Parser(), 0
    while position < len(data):
        token = _TOKEN.match(data, position)
        position = position + 1 if token is None else token.end()
        if token is None:
            continue
        if token["brace"]:
            parser.brace(opens=token["brace"] == b"{")
        elif token["word"]:
            word, number = token["word"].decode(), None if token["number"] is None else int(token["number"])
            if word == "bin":
                position += max(0, number or 0)
            else:
                parser.word(word, number)
        elif token["symbol"]:
            parser.symbol(token["symbol"])
        elif token["hex"]:
            parser.bytes(bytes.fromhex(token["hex"].decode()))
        elif token["text"]:
            parser.bytes(token["text"])
    parser.end_bytes()
    return parser


@dataclass(frozen=True, slots=True)
class _Group:
    r"""The state that applies until a group ends.

    Attributes:
        target: The text to which characters are added: "text", "title", or "" for none.
        encoding: The encoding of the group's font. If it is empty, the file's code page applies. None means the default
            font.
        replacements: The number of characters after `\u` that old readers show instead of the Unicode character.
        in_fonts: True inside the font table.
        deleted: True in text that an editor marked as deleted.
        level: The level of the heading that the text is part of, from 1, or 0 if it is none.
    """

    target: str = "text"
    encoding: str | None = None
    replacements: int = 1
    in_fonts: bool = False
    deleted: bool = False
    level: int = 0


@dataclass(slots=True)
class _Parser:
    """A parser that takes the tokens of a file in order, and collects its text and title."""

    _parts: dict[str, list[str]] = field(default_factory=lambda: {"text": [], "title": []})
    _group: _Group = field(default_factory=_Group)
    _outer: list[_Group] = field(default_factory=list)
    _bytes: bytearray = field(default_factory=bytearray)
    _skipped: int = 0
    r"""The number of characters after `\u` that are still to be skipped."""
    _in_heading: bool = False
    """True if the line of text has its marks already."""
    _page: str = WESTERN
    _fonts: dict[int, str] = field(default_factory=dict)
    _font: int = 0
    _default_font: int = 0
    _before: dict[str, int] = field(default_factory=dict)
    r"""The number of parts before the last `\upr`, whose first group is replaced by its second."""

    def joined(self, target: str) -> str:
        """Return the text that was collected for a target. Each surrogate pair becomes one character."""
        return "".join(self._parts[target]).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def brace(self, *, opens: bool) -> None:
        """Begin or end a group. If too many groups are nested, raise `DataError`."""
        self.end_bytes()
        self._skipped = 0
        if opens:
            if len(self._outer) >= MAX_DEPTH:
                raise DataError(f"the groups are nested more than {MAX_DEPTH:,} levels deep")
            self._outer.append(self._group)
        elif self._outer:
            self._group = self._outer.pop()

    def word(self, word: str, number: int | None) -> None:
        """Apply a control word."""
        self.end_bytes()
        if word in _CHARACTERS:
            self._add(_CHARACTERS[word], replaceable=True)
        elif word == "u" and number is not None:
            unit = number % (MAX_CODE_UNIT + 1) if abs(number) <= MAX_CODE_UNIT else 0xFFFD
            self._add(chr(unit))
            self._skipped = self._group.replacements
        elif word == "uc":
            self._group = replace(self._group, replacements=max(0, number or 0))
        elif word == "title" and self._outer:
            self._group = replace(self._group, target="title")
        elif word in _DATA and self._outer:
            self._group = replace(self._group, target="", in_fonts=word == "fonttbl")
        elif word == "ansicpg" and number:
            self._page = f"cp{number}"
        elif word == "deff" and number is not None:
            self._default_font = number
        elif word in {"f", "fcharset"} and number is not None:
            self._choose_font(word, number)
        elif word == "plain":
            self._group = replace(self._group, encoding=None, deleted=False)
        elif word == "deleted":
            self._group = replace(self._group, deleted=number != 0)
        elif word in {"pard", "outlinelevel"}:
            # `pard` has no number.
            level = 0 if number is None else number + 1
            self._group = replace(self._group, level=level if 0 <= level <= DEEPEST_HEADING else 0)
        else:
            self._begin_group(word)

    def _begin_group(self, word: str) -> None:
        r"""Apply a control word that begins a group with text of the document. `\*` may precede it."""
        if word == "upr":
            self._before = {target: len(parts) for target, parts in self._parts.items()}
        elif word in {"ud", "shpinst"} and self._outer:
            self._group = replace(self._group, target=self._outer[-1].target)
            if word == "ud":
                for target, length in self._before.items():
                    del self._parts[target][length:]
        elif word == "shptxt":
            self._add("\n")

    def symbol(self, symbol: bytes) -> None:
        """Apply a control symbol."""
        self.end_bytes()
        if symbol == b"*":
            self._group = replace(self._group, target="")
        elif character := _SYMBOLS.get(symbol):
            self._add(character, replaceable=True)

    def bytes(self, data: bytes) -> None:
        """Buffer bytes in the encoding of the font. They are decoded later, because two bytes may be one character."""
        if self._skipped:
            data, self._skipped = data[self._skipped :], max(0, self._skipped - len(data))
        if self._group.target and not self._group.deleted:
            self._bytes += data

    def end_bytes(self) -> None:
        """Decode the buffered bytes."""
        if self._bytes:
            data = bytes(self._bytes)
            self._bytes.clear()
            encoding = self._group.encoding
            if encoding is None and self._group.target == "text":
                encoding = self._fonts.get(self._default_font)
            text = decoded_as(data, encoding or self._page)
            self._append(data.decode(WESTERN, "replace") if text is None else text)

    def _add(self, character: str, *, replaceable: bool = False) -> None:
        if replaceable and self._skipped and character not in "\n\t":
            self._skipped -= 1
        elif self._group.target and not self._group.deleted:
            self._append(character)

    def _append(self, text: str) -> None:
        """Add text to its target. The first words of a heading get marks before them."""
        if self._group.target == "text":
            if text == "\n":
                self._in_heading = False
            elif self._group.level and not self._in_heading and text.strip():
                self._parts["text"].append("#" * self._group.level + " ")
                self._in_heading = True
        self._parts[self._group.target].append(text)

    def _choose_font(self, word: str, number: int) -> None:
        if not self._group.in_fonts:
            if word == "f":
                self._group = replace(self._group, encoding=self._fonts.get(number, ""))
        elif word == "f":
            self._font = number
        elif len(self._fonts) < MAX_FONTS:
            self._fonts[self._font] = _CHARACTER_SETS.get(number, "")
