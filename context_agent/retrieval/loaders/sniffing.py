"""Checks of a file's content: binary, a private key, generated, minified, or text that people write.

A folder may have files of any name, so the first bytes of a file decide. A file is left out for its content only if it
was found in a folder. A file that the user names is read, unless it is binary.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import PurePath

from context_agent.errors import DataError
from context_agent.retrieval.loaders.decoding import LARGEST_CONTROL_SHARE, unix_lines, utf_encoding
from context_agent.retrieval.loaders.manual_pages import is_link, is_manual_page
from context_agent.retrieval.loaders.plain_markup import readable_text, stated_title, written_captions
from context_agent.retrieval.loaders.reading import LeftOutError, Reading, content, decoded, document, storable
from context_agent.retrieval.loaders.text_files import TITLE_SEARCH_CHARACTERS, text_title
from context_agent.retrieval.loaders.yaml_outline import yaml_sections
from context_agent.types import Document

HEAD_BYTES = 8_192
"""The number of bytes at the beginning of a file that are examined."""
ALL_CONTROL = bytes(byte for byte in range(32) if byte not in b"\t\n\v\f\r\x1b") + b"\x7f"
GENERATED_REASON = "the file is generated. To read it, name it as a source."
MINIFIED_REASON = "the file is minified. To read it, name it as a source."
PRIVATE_KEY_REASON = "the file contains a private key. To read it, name it as a source."
COMPRESSED_REASON = "a compressed file. To read its text, unpack it."
ARCHIVE_REASON = "an archive. To read its files, unpack it."
DATABASE_REASON = "a database. To read a table, export it: sqlite3 -csv -header FILE 'SELECT * FROM TABLE' > TABLE.csv"
_BINARY = {
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"GIF8": "an image",
    b"II*\0": "an image",
    b"MM\0*": "an image",
    b"PK\3\4": ARCHIVE_REASON,
    b"PK\5\6": ARCHIVE_REASON,
    b"7z\xbc\xaf\x27\x1c": ARCHIVE_REASON,
    b"Rar!\x1a": ARCHIVE_REASON,
    b"\x1f\x8b": COMPRESSED_REASON,
    b"BZh": COMPRESSED_REASON,
    b"\xfd7zXZ\0": COMPRESSED_REASON,
    b"\x28\xb5\x2f\xfd": COMPRESSED_REASON,
    b"ARROW1": "a table of Arrow. Save it as parquet.",
    b"ID3": "audio",
    b"OggS": "audio or video",
    b"fLaC": "audio",
    b"RIFF": "an image, audio or video",
    b"\x7fELF": "a program",
    b"MZ": "a program",
    b"\xca\xfe\xba\xbe": "a program",
    b"\0asm": "a program",
    b"SQLite format 3\0": DATABASE_REASON,
    b"\xd0\xcf\x11\xe0": "a file of an old Office or of Outlook. Save it in a current format, such as .docx or .eml.",
}
"""The kind of a binary file, by its first bytes."""
_TAR_MAGIC_AT = 257
_WITHOUT_NUL = (b"\x89PNG", b"\xff\xd8\xff", b"\x1f\x8b", b"7z\xbc\xaf\x27\x1c", b"\x28\xb5\x2f\xfd")
"""First bytes that no text begins with."""
LOCK_FILES = frozenset({"go.sum", "npm-shrinkwrap.json", "package-lock.json", "packages.lock.json", "pnpm-lock.yaml"})
"""Names of files that package managers write. Files that end in `.lock` or `.lockfile` count too."""
MARK_WITHIN = 1_000
"""The number of characters at the beginning of a file in which a generator's mark counts."""
_CHANGELOGS = frozenset({"changelog", "changes"})
"""The names of lists of changes. Programs write them from what people wrote."""
_MAIL_INDEX = "// <!-- <mdb:mork:z"
"""The beginning of an index that Thunderbird keeps beside each mailbox."""
INDEX_FILES = frozenset({"search_index.json", "searchindex.js"})
"""Names of the indexes that generators of documentation write for the search in a browser. They repeat the pages."""
_PAGE_INDEX = re.compile(
    r'\s*+(?:var (?:NAVTREE\w{0,20}|searchData)\s*+=|var \w{1,300} =\n\[\n {4}\[ "|<map (?:id|name)='
    r"|(?:member|module|package|tag|type)SearchIndex ?=|[0-9a-f]{32,128}\s*+\Z)"
)
"""The beginning of an index of pages that Doxygen or Javadoc writes for a browser, and a file of one checksum."""
_TEX_OUTPUT = re.compile(
    r"\\relax\s*+\\|\\(?:contentsline|babel@toc|BOOKMARK|headcommand)\b|\\beamer@\w|# Fdb version \d|PWD /|"
    r"This is [\w-]{0,20}TeX, Version"
)
"""The beginning of a file that LaTeX, BibTeX or latexmk writes beside a document. It repeats headings, or is a log."""
_SOURCE_MAP = re.compile(r'\s*+\{\s*+"version"\s*+:\s*+3\b')
LEAST_MINIFIED = 1_000
"""Minimum number of characters of a text that may be minified. A shorter text costs little."""
MINIFIED_LINE = 400
"""The average number of characters in a line above which a text may be minified. Paragraphs have more white space."""
MINIFIED_SPACE = 0.08
"""The share of white space below which such a text is minified. English prose has 0.16."""
MINIFIED_ASCII = 0.9
"""The share of ASCII characters above which such a text is minified. Some scripts use no spaces."""


def binary_kind(head: bytes) -> str:
    """Return the kind of binary file that begins with these bytes. If it may be text, return an empty string."""
    if utf_encoding(head):
        return ""
    kind = next((kind for magic, kind in _BINARY.items() if head.startswith(magic)), "")
    if head.startswith(b"ustar", _TAR_MAGIC_AT):
        kind = ARCHIVE_REASON
    has_nul = b"\0" in head
    if head.startswith(_WITHOUT_NUL) or (kind and has_nul):
        return kind
    controls = len(head) - len(head.translate(None, ALL_CONTROL))
    is_binary = controls > len(head) * LARGEST_CONTROL_SHARE or (has_nul and not _begins_utf8(head))
    return (kind or "binary") if is_binary else ""


def _begins_utf8(head: bytes) -> bool:
    """Return True if the bytes are UTF-8. The last character may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def check_head(reading: Reading) -> None:
    """Raise `LeftOutError` if the first bytes are not text, or if they contain a private key. The stream is rewound."""
    head = reading.stream.read(HEAD_BYTES)
    reading.stream.seek(0)
    if kind := binary_kind(head):
        raise LeftOutError(f"not text but {kind}")
    if not reading.found:
        return
    if not head.strip():
        raise LeftOutError("the file is empty: it contains no text")
    if b"PRIVATE KEY-----" in head or b"PRIVATE KEY BLOCK-----" in head or head.startswith(b"PuTTY-User-Key-File"):
        raise LeftOutError(PRIVATE_KEY_REASON)


def check_written(reading: Reading, text: str) -> None:
    """Raise `LeftOutError` if a program generated or minified the text of a file that was found in a folder."""
    if not reading.found:
        return
    if is_generated(reading.path, text):
        raise LeftOutError(GENERATED_REASON)
    if is_minified(reading.path, text):
        raise LeftOutError(MINIFIED_REASON)


def read_other_text(reading: Reading) -> Iterator[Document]:
    """Yield the text of a file that has no reader of its own, titled by its title in markup or by the file's path."""
    try:
        text = decoded(reading, content(reading)).text
    except DataError as error:
        raise LeftOutError(str(error)) from error
    check_written(reading, text)
    text = unix_lines(text)
    if reading.found and is_link(text):
        raise LeftOutError("a link to another manual page")
    title = stated_title(reading.path, text)
    if not title and not PurePath(reading.path).suffix:  # such as README
        title = text_title(text[:TITLE_SEARCH_CHARACTERS])
    title = title or reading.path
    is_yaml = PurePath(reading.path).suffix.lower() in {".yaml", ".yml"}
    sections = yaml_sections(text, title) if is_yaml else ()
    is_manual = is_manual_page(text)
    text = storable(readable_text(reading.path, text))
    captions = written_captions(reading.path, text, title, is_manual=is_manual)
    yield document(reading, text, title, sections=sections, captions=captions)


def is_generated(path: str, text: str) -> bool:
    """Return True if the name or a mark at the beginning shows that a program wrote the file."""
    name = PurePath(path).name
    if name in LOCK_FILES or name.endswith((".lock", ".lockfile")):
        return True
    if text.startswith(_MAIL_INDEX) or name in INDEX_FILES or _PAGE_INDEX.match(text) or _TEX_OUTPUT.match(text):
        return True
    if name.endswith(".map") and _SOURCE_MAP.match(text):
        return True
    if PurePath(name).stem.lower() in _CHANGELOGS or is_manual_page(text):
        return False
    lines = text[:MARK_WITHIN].lower().splitlines()
    return any(_has_mark(" ".join(lines[at : at + 2])) for at in range(len(lines)))


def _has_mark(words: str) -> bool:
    """Return True if the words have a generator's mark: @generated, <auto-generated>, or an instruction not to edit."""
    warns = "do not edit" in words or "do not modify" in words or "do not change" in words
    return "@generated" in words or "<auto-generated" in words or ("generated" in words and warns)


def is_minified(path: str, text: str) -> bool:
    """Return True if a text is minified, so that its lines are long and have little white space."""
    name = PurePath(path).name.lower()
    if ".min." in name and len(text) >= LEAST_MINIFIED:
        return True
    length = len(text)
    lines = text.count("\n") + 1
    if length < LEAST_MINIFIED or length < MINIFIED_LINE * lines:
        return False
    space = sum(text.count(character) for character in " \t\n")
    ascii_count = len(text.encode("ascii", "ignore"))
    return space < MINIFIED_SPACE * length and ascii_count > MINIFIED_ASCII * length
