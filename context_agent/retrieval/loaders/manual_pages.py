r"""Manual pages: their title, and their text without the macros that print it.

A page is written in roff with the macros of `man` or `mdoc`. Sections become headings, and requests for the layout are
left out. The arguments of unknown macros stay, because most of them are text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import methodcaller

MANUAL_PAGE = re.compile(r"^\.(?:TH|Dd) ", re.MULTILINE)
"""The first macro of a manual page."""
MANUAL_WITHIN = 16_384
"""The number of characters at the beginning of a manual page in which its first macro stands, below a license."""
_FONT = re.compile(r"\\[fs](?:\[[^\]\n]{0,20}\]|\([^\n]{2}|[-+]\d|[^\n])|\\m\[[^\]\n]{0,20}\]|\\[%/,cud]")
"""Changes of the font and its size, and hints for the division of lines."""
_ESCAPES = {
    "-": "-", "oq": "‘", "cq": "’", "lq": "“", "rq": "”", "aq": "'", "Aq": "'", "dq": '"', "em": "—", "en": "–",
    "bu": "•", "co": "©", "ha": "^", "ti": "~", "rs": "\\", "ga": "`", "<=": "≤", ">=": "≥", "->": "→",
    "&": "", ":": "", "|": "", "^": "", " ": " ", "~": " ", "0": " ", "e": "\\", "--": "—", 'L"': '"', 'R"': '"',
    "C`": "", "C'": "", "C+": "C++", "ss": "ß", "AE": "Æ", "ae": "æ", "OE": "Œ", "oe": "œ", "/O": "Ø", "/o": "ø",
    "/L": "Ł", "/l": "ł", "Fo": "«", "Fc": "»", "Eu": "€", "eu": "€", "sc": "§", "de": "°", "r!": "¡", "r?": "¿",
}  # fmt: skip
"""The characters of the escapes, by their names. `C` begins those of the strings that pod2man defines."""
_ACCENTS = dict(zip("`'^~:,ov", "\u0300\u0301\u0302\u0303\u0308\u0327\u030a\u030c", strict=True))
"""The combining character of each accent, which precedes its letter in the name of an escape."""
_ESCAPE = re.compile(r"\\(?:\*?\(([^\n]{2})|\*?\[([^\]\n]{1,20})\]|([-&:|^ ~e0]))")
_SECTION = re.compile(r"^\.S[Hh][ \t][^\n]*\n", re.MULTILINE)
_NAME = re.compile(
    r"(?:\.(?:\\\"[^\n]*+|PP)?\n)*+"
    r"(?:([^.\n][^\n]*+)|\.Nm ([^\s,]++)[^\n]*+\n(?:\.Nm [^\n]*+\n)*+\.Nd ([^\n]++))"
)
"""The name of a program and what it does, in the first section of its manual page, whose heading may be in any
language."""
_LINK = re.compile(r"\.so [^\n]{1,200}\n?")
_REQUEST = re.compile(r"[.'][ \t]*+([^\s\\]*+)[ \t]*+([^\n]*+)")
_COMMENT = re.compile(r"""(?<!\\)\\["#][^\n]*+""")
_ARGUMENT = re.compile(r'"((?:[^"]++|"")*+)"?|((?:\\ |[^\s"]|(?<=\S)")++)')
_LAYOUT = frozenset(
    "Bd Bk Bl Dd De Ds Dt EE EX Ed Ek El HP INDENT IX LINKSTYLE LP ME Os P PD PP Pp RE RS Re Rs Sm TE TP TQ TS UC UE"
    " UNINDENT Xc Xo YS ad als bp br cc ce ds fam fi ft hw hy in it ll lt mk mso na ne nf nh nop nr ns pl ps rm rr rs"
    " rt sp ss ta ti tr vs".split()
)
"""Requests and macros whose arguments are not text."""
_BREAKS = frozenset("EE EX HP LP P PP Pp Bd Bl El Ed IP It RE RS sp TP TQ TS TE nf fi SY YS INDENT".split())
"""Macros that begin a paragraph."""
_VERBATIM = frozenset(["Bd", "EX", "nf"])
_FILLED = frozenset(["Ed", "EE", "fi", "TE"])
"""Requests after which lines stay as they are, and after which they are joined again."""
_DEFINITIONS = frozenset("am am1 de de1 dei ig".split())
"""Requests that define a macro, or a comment, up to a line of two dots."""
_CONDITIONS = frozenset(["el", "ie", "if", "while"])
_FONTS = frozenset(["BI", "BR", "IB", "IR", "RB", "RI"])
"""Macros that alternate between two fonts, so their arguments are printed without a space."""
_HEADINGS = {"SH": "##", "Sh": "##", "SS": "###", "Ss": "###"}
_WRAPPERS = {
    "Op": "[]", "Oo": "[]", "Bq": "[]", "Bo": "[]", "Pq": "()", "Po": "()", "Aq": "<>", "Ao": "<>", "Brq": "{}",
    "Bro": "{}", "Dq": '""', "Do": '""', "Qq": '""', "Qo": '""', "Sq": "''", "So": "''", "Ql": "''",
}  # fmt: skip
"""Macros of `mdoc` that print marks around the rest of their line, or up to the macro that closes them."""
_CLOSERS = {"Oc": "]", "Bc": "]", "Pc": ")", "Ac": ">", "Brc": "}", "Dc": '"', "Qc": '"', "Sc": "'"}
_SILENT = frozenset(
    "Ad An Ap Ar At Cd Cm Dv Em Er Ev Fa Ft Ic In It Li Lk Ms Mt Nm No Pa Pf Sh Ss St Sx Sy Tn Va Vt Xo Xc".split()
)
"""Macros of `mdoc` of which only the arguments are printed."""
_NAMES = {"Nd": "—", "Bx": "BSD", "Fx": "FreeBSD", "Nx": "NetBSD", "Ox": "OpenBSD", "Ux": "UNIX"}
"""Macros of `mdoc` that print a text of their own."""
_INLINE = frozenset(["Fl", "Fn", "Xr", *_NAMES])
_CLOSING = frozenset(".,;:!?)]")
LONGEST_DEFINITION = 500
"""Maximum number of lines of the definition of a macro or of a table's columns."""
LONGEST_PROGRAM = 40
"""Maximum number of characters of the name of a program that `.Nm` repeats. A page can repeat it in every line."""
MOST_NESTED = 100
"""Maximum number of macros in a line that print marks around the rest of the line."""


def is_manual_page(text: str) -> bool:
    """Return True if the text is a manual page."""
    return text.lstrip()[:1] in {".", "'"} and MANUAL_PAGE.search(text, 0, MANUAL_WITHIN) is not None


def is_link(text: str) -> bool:
    """Return True if the text only names another manual page, which is shown in its place."""
    return _LINK.fullmatch(text) is not None


def manual_title(text: str) -> str:
    """Return the name of a program and what it does. If the page states none, return an empty string."""
    if not (page := MANUAL_PAGE.search(text, 0, MANUAL_WITHIN)):
        return ""
    section = _SECTION.search(text, page.end(), page.end() + MANUAL_WITHIN)
    name = _NAME.match(text, section.end()) if section else None
    if name is None:
        return ""
    return _plain(name[1].strip() if name[1] else f"{name[2]} - {name[3].strip()}")


def manual_text(text: str) -> str:
    """Return the text of a manual page, with a heading above each section and a blank line above each paragraph."""
    page = MANUAL_PAGE.search(text, 0, MANUAL_WITHIN)
    printer = _Printer()
    lines = deque(text[page.start() if page else 0 :].split("\n"))
    is_closed = True
    while lines:
        raw = lines.popleft()
        line = _COMMENT.sub("", raw).rstrip()
        request = _REQUEST.match(line)
        if request is None:
            if line or not raw.strip():
                printer.print_line(line)
        elif request[1] in _DEFINITIONS:
            names = request[2].split()[0 if request[1] == "ig" else 1 :]
            last = f".{names[0] if names else '.'}"
            is_closed = is_closed and _drop_until(lines, partial(_is_end, last))
        elif request[1] == "TS":  # the columns are described up to a line that ends with a dot
            is_closed = is_closed and _drop_until(lines, methodcaller("endswith", "."))
            printer.begin_paragraph(verbatim=True)
        elif request[1] and request[1] not in _CONDITIONS:
            printer.request(request[1], request[2])
    printer.begin_paragraph()
    return "\n".join(printer.done).strip("\n") + "\n"


def _is_end(last: str, line: str) -> bool:
    return line.replace(" ", "") == last


def _drop_until(lines: deque[str], is_last: Callable[[str], bool]) -> bool:
    """Drop the first lines up to the last one of a definition. If it has no end, drop nothing and return False."""
    at = next((at for at, line in enumerate(islice(lines, LONGEST_DEFINITION)) if is_last(line)), -1)
    for _ in range(at + 1):
        lines.popleft()
    return at >= 0


@dataclass(slots=True)
class _Printer:
    """The printed lines of a page. The lines of a paragraph are joined, as they are when the page is printed."""

    done: list[str] = field(default_factory=list)
    _words: list[str] = field(default_factory=list)
    _verbatim: bool = False
    _tag: bool = False
    """True if the next line is the name of an entry, which stands above its text."""
    _whole_tag: bool = False
    """True if the name of the entry goes on up to the macro `Xc`."""
    _tight: bool = False
    """True if words are printed without spaces, up to the macro `Sm on`."""
    _program: str = ""

    def begin_paragraph(self, *, verbatim: bool | None = None) -> None:
        """Print a blank line, unless the last line is one. If `verbatim` is given, further lines stay as they are."""
        self._break()
        if self.done and self.done[-1]:
            self.done.append("")
        self._verbatim = self._verbatim if verbatim is None else verbatim

    def print_line(self, line: str) -> None:
        """Print a line of text."""
        if self._verbatim:
            if line not in ("T{", "T}"):
                self.done.append(_plain(line.removeprefix("T}").removesuffix("T{")))
            return
        if not line:
            self.begin_paragraph()
            return
        if line[0].isspace():
            self._break()
        text = _plain(line.removesuffix("\\"))
        self._words.append(text if self._tight or not self._words else f" {text}")
        if self._tag and not self._whole_tag:
            self._break()

    def request(self, name: str, rest: str) -> None:
        """Print the arguments of a request or a macro."""
        words = [(found[1] or "").replace('""', '"') or found[2] or "" for found in _ARGUMENT.finditer(rest)]
        if name == "Nm":
            if not words or words[0] in _CLOSING:
                words = [self._program, *words]
            elif len(words[0]) <= LONGEST_PROGRAM:
                self._program = self._program or words[0]
        if name in _BREAKS or name in _HEADINGS:
            is_verbatim = True if name in _VERBATIM else False if name in _FILLED or name in _HEADINGS else None
            self.begin_paragraph(verbatim=is_verbatim)
        if name in _HEADINGS:
            self.done += [f"{_HEADINGS[name]} {_plain(_inline(words))}", ""] if words else []
            return
        if name == "Sm":
            self._tight = words[:1] == ["off"]
            self._words += [" "] if self._tight and self._words else []  # a space before the first of these words
        self._tag = self._tag or name in {"IP", "TP", "TQ", "It"}
        self._whole_tag = name != "Xc" and (self._whole_tag or (name == "It" and "Xo" in words))
        if name == "Xc" and self._tag:
            self._break()
        words = words[:1] if name == "IP" else [] if name in _LAYOUT or name == "TP" else words
        if any(words) or name in _NAMES:
            whole = [name, *words] if name in _WRAPPERS or name in _CLOSERS or name in _INLINE else words
            self.print_line("".join(words) if name in _FONTS else _inline(whole, tight=self._tight))
        elif name == "IP":
            self._tag = False

    def _break(self) -> None:
        """End the line that is being filled."""
        if self._words:
            self.done.append("".join(self._words))
            self._words, self._tag, self._whole_tag = [], False, False


def _inline(words: Sequence[str], *, tight: bool = False) -> str:
    """Return the words of a line of `mdoc`, in which macros may follow each other, with or without spaces."""
    printed: list[str] = []
    closers: list[str] = []
    dashes, joined = "", tight
    is_flag = False
    end = len(words)
    while end > 1 and words[end - 1] in _CLOSING:
        end -= 1
    rest = iter(words[:end])
    for word in rest:
        follows_flag, is_flag = is_flag, word == "Fl"
        if is_flag:
            dashes = f"{dashes}-" if follows_flag else "-"
            continue
        text = word
        if word in _WRAPPERS and len(closers) < MOST_NESTED:
            opening = _WRAPPERS[word][0]
            closers += [] if word.endswith("o") else [_WRAPPERS[word][1]]
            printed.append(opening if joined or not printed else f" {opening}")
            joined = True
            continue
        if word in _CLOSERS:
            text, joined = _CLOSERS[word], True
        elif word == "Ns":
            joined = True
            continue
        elif word in _NAMES:
            text = _NAMES[word]
        elif word in _SILENT:
            dashes = ""
            continue
        elif word in {"Xr", "Fn"}:
            text = next(rest, "")
            text += f"({next(rest, '')})" if word == "Xr" else "()"
        elif word not in _CLOSING and word != "|":
            text = f"{dashes}{word}"
        printed.append(text if joined or not printed or word in _CLOSING else f" {text}")
        joined = tight
    return "".join([*printed, *reversed(closers), *words[end:]])  # punctuation follows a closing bracket


def _plain(text: str) -> str:
    """Return a line without changes of the font, with the characters that its escapes stand for."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_character, _FONT.sub("", text))


def _character(escape: re.Match[str]) -> str:
    name = escape[1] or escape[2] or escape[3]
    if name.startswith("u") and len(name) in (5, 6):
        try:
            return chr(int(name[1:], 16))
        except (ValueError, OverflowError):
            return escape[0]
    if name not in _ESCAPES and len(name) == 2 and name[0] in _ACCENTS and name[1].isalpha():
        letter = unicodedata.normalize("NFC", name[1] + _ACCENTS[name[0]])
        return letter if len(letter) == 1 else escape[0]
    return _ESCAPES.get(name, escape[0])
