"""Reading of small JSON or TOML files, and of lines of JSON, that may come from an untrusted source.

Size and nesting are checked before anything is parsed. No file can therefore take more memory than its bound allows or
cause a `RecursionError`. Every reader of a folder from outside uses these functions. It adds to the `ValueError` which
file is invalid and how to make it again.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, AnyStr

from context_agent.errors import DataError

MAX_BYTES = 4_000_000
"""Maximum number of bytes of a small JSON file."""
MAX_TOML_BYTES = 1_000_000
MAX_LINE_BYTES = 64_000_000
"""Maximum number of bytes of one line of JSON."""
MAX_DEPTH = 100
"""Maximum number of levels of nested lists and objects."""
MAX_KEY_PARTS = 16
"""Maximum number of levels of nested lists and tables in TOML, and the maximum number of parts of a dotted key."""
MAX_EXPANSION = 200
"""The largest factor by which a compressed file of lines may expand."""
_HOLLOW_SIZE = 64_000_000
"""The size in bytes below which a file is never considered hollow."""
_HOLLOW_SHARE = 100
"""A larger file is refused if fewer than one in this many of its bytes are on the disk."""
_MAX_EXTENTS = 10_000

_NOT_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[^\[\]{}"]++', re.DOTALL)
_TOML_STRING = re.compile(
    r'"""(?:[^"\\]++|\\[\s\S]|"(?!""))*+(?:"{3,5})?|\'\'\'(?:[^\']++|\'(?!\'\'))*+(?:\'{3,5})?'
    r'|"(?:[^"\\\n]++|\\.)*+"?|\'[^\'\n]*+\'?|#[^\n]*+'
)
_LONG_INTEGER = re.compile(r"(?<![\w.+-])[+-]?[1-9][\d_]{4000,}+(?![\w.-]|[ \t]*=)")
"""A decimal number that Python would refuse to read without naming its key."""
_KEY = re.compile(r"(?<![\w.-])([\w.-]++)[ \t]*+=")
_LARGEST = 2**63 - 1
_LONG_KEY = re.compile(rf"(?<![\w-])[\w-]++(?:[ \t]*+\.[ \t]*+[\w-]++){{{MAX_KEY_PARTS}}}")


def read_bytes(path: str | Path, limit: int = MAX_BYTES) -> bytes:
    """Return the contents of a file of at most `limit` bytes.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is larger, or if it is a pipe, a socket or a device, which could block forever.
    """
    with open(path, "rb", opener=_without_blocking) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("the path is a pipe, a socket or a device, not a file")
        return _at_most(file, limit)


def read_json(path: str | Path, limit: int = MAX_BYTES) -> Any:
    """Return the value in a small JSON file.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is too large, nested too deeply, not a file, or not JSON in UTF-8.
    """
    return parse_json(read_bytes(path, limit))


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: If the text is not JSON, or if it is nested more than `MAX_DEPTH` levels deep.
    """
    text = text if isinstance(text, str) else decoded_json(text)
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(_NOT_BRACKETS.sub("", text), MAX_DEPTH)
    return json.loads(text)


def decoded_json(data: bytes) -> str:
    """Return a JSON text in UTF-8, UTF-16 or UTF-32, without a byte order mark.

    Raises:
        ValueError: If the bytes are not in the encoding that their beginning shows.
    """
    return data.decode(json.detect_encoding(data), "surrogatepass")


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the tables of a small TOML file. The file may be a pipe that the user named.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is too large, nested too deeply, or not TOML in UTF-8.
    """
    with Path(path).open("rb") as file:
        return parse_toml(_at_most(file, MAX_TOML_BYTES).decode("utf-8-sig"))


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Raises:
        ValueError: If the text is not TOML, if it has more than `MAX_KEY_PARTS` levels, or if a number needs more than
            64 bits.
    """
    # Without strings and comments, but with all positions as in the text.
    bare = _TOML_STRING.sub(lambda matched: (" " if matched[0].startswith("#") else "s") * len(matched[0]), text)
    _check_depth(re.sub(r"[^\[\]{}]++", "", bare), MAX_KEY_PARTS)
    if _LONG_KEY.search(bare):
        raise ValueError(f"a key has more than {MAX_KEY_PARTS} parts")
    if digits := _LONG_INTEGER.search(bare):
        spans = [key.span(1) for key in _KEY.finditer(bare, 0, digits.start())]
        raise ValueError(_too_large(text[slice(*spans[-1])] if spans else "a value"))
    tables = tomllib.loads(text, parse_float=_float)
    _check_numbers(tables, "")
    return tables


def _float(text: str) -> float:
    """Return a number of TOML. If it is finite but too large for a float, return a whole number that is refused."""
    value = float(text)
    return _LARGEST + 1 if math.isinf(value) and "inf" not in text else value


def _check_numbers(value: Any, key: str) -> None:
    """Raise `ValueError` if a number in the value needs more than 64 bits. `key` is the dotted key of the value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            _check_numbers(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for inner in value:
            _check_numbers(inner, key)
    elif isinstance(value, int) and not -_LARGEST - 1 <= value <= _LARGEST:
        raise ValueError(_too_large(key))


def _too_large(key: str) -> str:
    return f"{key} is a number that does not fit into 64 bits"


def read_lines(stream: IO[AnyStr], *, limit: int = MAX_LINE_BYTES, total: int | None = None) -> Iterator[AnyStr]:
    """Yield the lines of a stream.

    Args:
        stream: The stream, of text or bytes.
        limit: Maximum number of bytes of a line.
        total: Maximum number of bytes of all lines together. Defaults to no limit.

    Raises:
        ValueError: If a line or the stream is too large.
    """
    size = number = 0
    while line := stream.readline(limit + 1):
        number += 1
        size += len(line)
        if len(line) > limit:
            raise ValueError(f"line {number} has more than {limit:,} bytes")
        if total is not None and size > total:
            raise ValueError(f"the file unpacks to more than {total:,} bytes, {MAX_EXPANSION} times its size")
        yield line


def files_in(folder: Path) -> Iterator[Path]:
    """Yield all files and folders below a folder, without following links."""
    for parent, folders, names in os.walk(folder):
        yield from (Path(parent, name) for name in (*folders, *names))


def require_files(paths: Iterable[Path], *, links: bool = True) -> None:
    """Raise an error for a path that is not a file or folder, or for a file that consists almost entirely of holes.

    Opening a pipe would wait forever, and a sparse file of terabytes fits into a small archive.

    Args:
        paths: Files and folders. A path that does not exist is ignored, because another process may have deleted it.
        links: Whether symbolic links are allowed. A process that writes to a folder would follow its links out of it.

    Raises:
        DataError: If there is such a path.
    """
    for path in paths:
        try:
            status = path.stat() if links else path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(status.st_mode):
            raise DataError(f"{path} is a link, but this folder may contain only files. Delete the link.")
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise DataError(f"{path} is a pipe, a socket or a device, not a file. Delete it.")
        if stat.S_ISREG(status.st_mode) and is_hollow(path, status):
            raise DataError(f"{path} has {status.st_size:,} bytes, but almost none of them are on the disk. Delete it.")


def is_hollow(path: Path, status: os.stat_result) -> bool:
    """Return True if a large file consists almost entirely of holes.

    Neither this package nor Chroma writes such files.
    """
    allocated = getattr(status, "st_blocks", None)
    if status.st_size < _HOLLOW_SIZE or allocated is None or allocated * 512 * _HOLLOW_SHARE > status.st_size:
        return False
    # Some file systems count blocks late. For these, the holes are counted.
    return _data_bytes(path, status.st_size // _HOLLOW_SHARE) * _HOLLOW_SHARE < status.st_size


def _data_bytes(path: Path, enough: int) -> int:
    """Return the number of bytes of a file that are not in holes. Counting stops at `enough`."""
    found = position = 0
    with path.open("rb") as file:
        for _ in range(_MAX_EXTENTS):
            try:
                start = os.lseek(file.fileno(), position, os.SEEK_DATA)
                position = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            except OSError as error:
                # ENXIO means that no data follows. Any other error means that the file system does not report holes.
                return found if error.errno == errno.ENXIO else enough + 1
            found += position - start
            if found > enough:
                break
    return found


def _without_blocking(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _at_most(file: IO[bytes], limit: int) -> bytes:
    data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"the file has more than {limit:,} bytes")
    return data


def _check_depth(brackets: str, limit: int) -> None:
    depth = 0
    for bracket in brackets:
        depth += 1 if bracket in "[{" else -1
        if depth > limit:
            raise ValueError(f"the value is nested more than {limit} levels deep")
