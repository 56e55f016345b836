r"""The titles of files in markup that has no reader of its own, and the letters that such files write as escapes.

Words with escapes inside, such as `G{\"o}del`, are not found by a search. The rest of the markup stays as it is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from pathlib import PurePath

from context_agent.retrieval.loaders.catalogs import catalog_language, catalog_text
from context_agent.retrieval.loaders.headings import (
    latex_headings,
    marked_headings,
    plain_headings,
    section_headings,
)
from context_agent.retrieval.loaders.manual_pages import is_manual_page, manual_text, manual_title
from context_agent.retrieval.loaders.outlines import Lines, text_captions
from context_agent.retrieval.loaders.yaml_outline import yaml_documents
from context_agent.types import Caption

TITLE_SEARCH_CHARACTERS = 16_384
"""The number of characters at the beginning of a file in which its title is searched."""
LONGEST_ESCAPED_TITLE = 1_000
_LATEX = (".bib", ".bst", ".cls", ".ltx", ".sty", ".tex")
_YAML = (".yaml", ".yml")
_CATALOGS = (".po", ".pot")
_ASCIIDOC = re.compile(r"^[=#] (\S[^\n]*)", re.MULTILINE)
_WIKI = re.compile(r"^=([^=\n]++)=[ \t]*$", re.MULTILINE)
_FIRST_WIKI = re.compile(r"\A={1,6}([^=\n]++)=")
"""A heading of any level at the beginning. Further ones are those of sections, and the file's name is the title."""
_API_TITLE = re.compile(
    r"\A(?:#[^\n]*\n|---[ \t]*\n|\n)*+[\"']?(?:openapi|swagger|asyncapi)[\"']?:[^\n]*\n"
    r"(?:(?!info:)[^\n]*\n){0,99}+info:[ \t]*\n(?:[ \t#][^\n]*\n|\n){0,99}?[ \t]{1,8}title:[ \t]*+[\"']?([^\n\"']*)"
)
"""The title of an API, in a description that begins with its format."""
_TITLES: Mapping[str, tuple[re.Pattern[str], ...]] = {
    **dict.fromkeys((".adoc", ".asciidoc"), (_ASCIIDOC,)),
    **dict.fromkeys((".yaml", ".yml"), (_API_TITLE,)),
    **dict.fromkeys((".mediawiki", ".wiki"), (_WIKI, _FIRST_WIKI)),
    ".org": (
        re.compile(r"^#\+title:([^\n]*)", re.IGNORECASE | re.MULTILINE),
        re.compile(r"^\*{1,9} ([^\n]*)", re.MULTILINE),
    ),
    ".pod": (re.compile(r"^=head1[ \t]++NAME[ \t]*\n[ \t]*\n[ \t]*([^\n]*)", re.MULTILINE | re.IGNORECASE),),
    ".textile": (re.compile(r"^h1\. ([^\n]*)", re.MULTILINE),),
    ".typ": (re.compile(r"^= ([^\n]*)", re.MULTILINE),),
}
"""The patterns of a title, by extension. The first one that is found counts."""
_MARKUPS = {
    ".adoc": "asciidoc",
    ".asciidoc": "asciidoc",
    ".mediawiki": "wiki",
    ".org": "org",
    ".textile": "textile",
    ".typ": "typst",
    ".wiki": "wiki",
}
_SETTING = re.compile(
    r"[ \t]*+(?:[#;}\])]|//|/\*|--|[\[<{]|[\w.$\"'/-]{1,80}+[ \t]*+[:=]|[^\n]{0,400}[{(\[;,][ \t]*+$)"
)
"""A line of settings or of code."""
_FIELDS = re.compile(r"(?:[^\W\d_][\w-]{0,40}:(?:[ \t]++[^\n]*+)?\n(?:[ \t]++[^\n]*+\n)*+){2,}+(?=\n)")
"""The fields at the beginning of a text that say what it is about, as in a letter. A blank line ends them."""
_STATED_MARKUP = re.compile(
    r"^(?:Description-)?Content-Type:[ \t]*+text/(markdown|x-rst)\b", re.MULTILINE | re.IGNORECASE
)
SETTINGS_WITHIN = 8_192
"""The number of characters at the beginning of a text that show whether its lines are settings."""
_LATEX_TITLES = (re.compile(r"\\title\*?(?=[\[{])"), re.compile(r"\\(?:chapter|section)\*?(?=[\[{])"))
_LATEX_NOTE = re.compile(r"\\(?:thanks|footnote|label)\{[^{}]*+\}")
_TEXINFO = (".texi", ".texinfo", ".txi")
_TEXINFO_TITLE = re.compile(r"^@(?:settitle|title|node Top\n@top|chapter)[ \t]++([^\n]*)", re.MULTILINE)
_TEXINFO_MARKS = re.compile(r"@[a-z]{1,20}\{([^{}\n]*+)\}")
_LATEX_LOGO = re.compile(r"\\(?=[a-zA-Z]{0,10}TeX(?![a-zA-Z]))")
"""The mark of a name such as TeX, LaTeX and BibTeX."""
_LATEX_MARKS = re.compile(r"\\(?:[a-zA-Z]{1,40}\*?|\\|(?=[&%#_]))|[$~]")
_WITHOUT_BRACES = str.maketrans("", "", "{}")
_ACCENTS = dict(zip("`'^~\"=.uvHcdbrk", map(chr, (
    0x300, 0x301, 0x302, 0x303, 0x308, 0x304, 0x307, 0x306, 0x30C, 0x30B, 0x327, 0x323, 0x331, 0x30A, 0x328
)), strict=True))  # fmt: skip
"""The combining character of each accent in LaTeX."""
_LETTERS = {
    "ss": "ß",
    "o": "ø",
    "O": "Ø",
    "aa": "å",
    "AA": "Å",
    "ae": "æ",
    "AE": "Æ",
    "oe": "œ",
    "OE": "Œ",
    "l": "ł",
    "L": "Ł",
}
_ACCENT = re.compile(
    r"(?<!\\)(?P<outer>\{)?\\(?:(?P<sign>[`'^~\"=.])|(?P<name>[uvHcdbrk])(?:(?=\{)|(?(outer)(?= )|(?!))))"
    r"[ ]?(?P<inner>\{)?\\?(?P<letter>[a-zA-Z])(?(inner)\})(?(outer)\})"
)
_LETTER = re.compile(
    r"\{\\(ss|[oO]|aa|AA|ae|AE|oe|OE|[lL])\}|(?<!\\)\\(ss|[oO]|aa|AA|ae|AE|oe|OE|[lL])(?:\{\}|[ ](?=[a-z]))"
)
_CAPITAL = re.compile(r"(?<![\\a-zA-Z\]}])\{([A-Z]{1,20})\}(?=[a-z])")
_UNICODE = re.compile(r"(?<!\\)(?:\\u[0-9a-fA-F]{4})++")


def readable_text(path: str, text: str) -> str:
    """Return the text of a file with the letters that its escapes stand for.

    A manual page is returned without macros, and a catalog of translations without keywords.
    """
    extension = PurePath(path).suffix.lower()
    if extension in _LATEX:
        text = _LETTER.sub(_letter, _ACCENT.sub(_accented, text))
        return _CAPITAL.sub(r"\1", text) if extension == ".bib" else text
    if extension in _CATALOGS:
        return catalog_text(text)
    if extension == ".properties":
        return _UNICODE.sub(_unescaped, text)
    if is_manual_page(text) and (printed := manual_text(text)).strip():
        return printed
    return text


def stated_title(path: str, text: str) -> str:
    """Return the title that a file in markup states. If it states none, return an empty string."""
    extension, head = PurePath(path).suffix.lower(), text[:TITLE_SEARCH_CHARACTERS]
    if extension in {".tex", ".ltx"}:
        head = readable_text(path, head)
        found = next((found for pattern in _LATEX_TITLES if (found := pattern.search(head))), None)
        return latex_argument(head[found.end() :][:LONGEST_ESCAPED_TITLE]) if found else ""
    if extension in _TEXINFO:
        return _TEXINFO_MARKS.sub(r"\1", found[1]).strip() if (found := _TEXINFO_TITLE.search(head)) else ""
    if extension in _CATALOGS:
        language = catalog_language(text)
        return f"{path} ({language})" if language else path
    if is_manual_page(text):
        return manual_title(text)
    patterns = _TITLES.get(extension, ())
    return next((found[1].strip() for pattern in patterns if (found := pattern.search(head)) and found[1].strip()), "")


def written_captions(path: str, text: str, title: str, *, is_manual: bool) -> tuple[Caption, ...]:
    """Return the captions of a file that has no reader of its own.

    Args:
        path: The path of the file.
        text: The text that `readable_text` returned.
        title: The title of the file.
        is_manual: Whether the text is that of a manual page.
    """
    extension = PurePath(path).suffix.lower()
    if extension in _CATALOGS:
        return ()
    lines, records = Lines.LIST, False
    if extension in _LATEX:
        headings = latex_headings(text, latex_argument)
    elif markup := _MARKUPS.get(extension):
        headings = marked_headings(text, markup)
    elif is_manual:
        headings, lines = marked_headings(text, "manual"), Lines.PROSE
    elif extension in _YAML:
        headings, lines = yaml_documents(text), Lines.CODE
    elif _has_settings(text):
        headings, lines, records = section_headings(text), Lines.CODE, True
    elif (stated := _STATED_MARKUP.search(_fields(text))) and stated[1].lower() == "markdown":
        headings = marked_headings(text, "markdown")
    else:
        headings, lines, records = plain_headings(text), Lines.PROSE, not stated
    return text_captions(text, lines, headings=headings, title=title, records=records)


def _fields(text: str) -> str:
    """Return the fields that a text begins with, up to a blank line."""
    found = _FIELDS.match(text, 0, SETTINGS_WITHIN)
    return found[0] if found else ""


def _has_settings(text: str) -> bool:
    """Return True if most of the first lines of a text are settings or code, such as names with values.

    Fields at the beginning do not count if other text follows them.
    """
    fields = len(_fields(text))
    begin = fields if text[fields:].strip() else 0
    lines = [line for line in text[begin : begin + SETTINGS_WITHIN].splitlines() if line.strip()]
    return 2 * sum(_SETTING.match(line) is not None for line in lines) > len(lines)


def latex_argument(text: str) -> str:
    """Return the words of the argument with which a text begins, behind an optional one."""
    if text.startswith("["):
        text = text.partition("]")[2]
    depth = 0
    for end, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth <= 0:
            text = _LATEX_NOTE.sub("", _LATEX_LOGO.sub("", text[:end]))
            return _LATEX_MARKS.sub(" ", text).translate(_WITHOUT_BRACES).strip()
    return ""


def _accented(escape: re.Match[str]) -> str:
    return unicodedata.normalize("NFC", escape["letter"] + _ACCENTS[escape["sign"] or escape["name"]])


def _letter(escape: re.Match[str]) -> str:
    return _LETTERS[escape[1] or escape[2]]


def _unescaped(escapes: re.Match[str]) -> str:
    codes = bytes.fromhex(escapes[0].replace("\\u", ""))
    return codes.decode("utf-16-be", "replace")
