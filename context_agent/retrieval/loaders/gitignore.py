"""The rules of a `.gitignore`, matched as Git matches them and in linear time.

Git's own matcher is `wildmatch` on bytes. Here each rule with a wildcard becomes a regular expression with the same
meaning, and RE2 runs all of them at once. The last rule that matches decides. If some of the rules exclude and others
include, they are halved until they agree. A rule that can match nothing, such as one with an unclosed bracket, is
dropped, as Git drops it.

A file of rules may come from a stranger, so its size is checked before it is compiled. `GitIgnore.parse` refuses a file
that is too large: whoever reads a folder must then leave the folder out, since nobody knows what the rules exclude.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Self

from context_agent.errors import DataError

if TYPE_CHECKING:
    import re2

MAX_RULES_BYTES = 2**18
"""Maximum number of bytes of all rule files that apply in a folder."""
MAX_RULES = 10_000
MAX_RULE_BYTES = 1_000
"""Maximum number of bytes of a rule."""
MAX_WILDCARDS = 2_000
"""Maximum number of wildcards (asterisks, question marks and brackets) in all rules that have several.

Each of them may be active at every byte of a name.
"""

_FOLDER_MARK = b"\0"
"""The byte that is appended to the path of a folder, for rules that match only folders."""
_SEGMENT, _PATH = rb"[^/\x00]", rb"[^\x00]*"
"""One byte of a name, and any part of a path."""
_UNMATCHABLE = frozenset(b"\0/")
"""Bytes that neither `?` nor a bracket matches, because no name contains them."""
_SPECIAL = re.compile(rb"[*?\[\\]")
_ASTERISK, _BACKSLASH, _HYPHEN = b"*\\-"
_PRINTED = frozenset(range(0x20, 0x7F))
_UPPER, _LOWER, _DIGITS = (frozenset(text) for text in (bytes(range(65, 91)), bytes(range(97, 123)), b"0123456789"))
_ALPHABETIC = _UPPER | _LOWER
_CLASSES = {
    b"alnum": _ALPHABETIC | _DIGITS,
    b"alpha": _ALPHABETIC,
    b"blank": frozenset(b" \t"),
    b"cntrl": frozenset(range(0x20)) | {0x7F},
    b"digit": _DIGITS,
    b"graph": _PRINTED - {0x20},
    b"lower": _LOWER,
    b"print": _PRINTED,
    b"punct": _PRINTED - {0x20} - _ALPHABETIC - _DIGITS,
    b"space": frozenset(b" \t\n\r"),
    b"upper": _UPPER,
    b"xdigit": _DIGITS | frozenset(b"abcdefABCDEF"),
}
"""The bytes of the named classes, as Git defines them without a locale."""


class _NeverMatchesError(Exception):
    """The error for a rule that matches nothing. Git ignores such a rule."""


class _Kind(Enum):
    """The kind of a rule, which says what the rule is compared with."""

    NAME = auto()
    SUFFIX = auto()
    """The end of a name, as in `*.log`."""
    NAME_EXPRESSION = auto()
    PATH_EXPRESSION = auto()
    """An expression for the path from the folder of the rules."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule.

    `text` is a literal or a regular expression. If the rule matches only folders, it ends with the folder mark.
    """

    excludes: bool
    kind: _Kind
    text: bytes
    wildcards: int = 0


class GitIgnore:
    """The compiled rules of one file."""

    def __init__(self, rules: Sequence[_Rule]) -> None:
        texts: dict[_Kind, list[bytes]] = {kind: [] for kind in _Kind}
        for rule in rules:
            texts[rule.kind].append(rule.text)
        self._rules = rules
        self._effects = {rule.excludes for rule in rules}
        self._names, self._suffixes = frozenset(texts[_Kind.NAME]), frozenset(texts[_Kind.SUFFIX])
        self._suffix_lengths = {len(suffix) for suffix in self._suffixes}
        self._name_expression = _compiled(texts[_Kind.NAME_EXPRESSION])
        self._path_expression = _compiled(texts[_Kind.PATH_EXPRESSION])
        self._halves: tuple[GitIgnore, GitIgnore] | None = None

    @classmethod
    def parse(cls, data: bytes, *, room: int = MAX_RULES_BYTES) -> Self:
        """Compile the rules of one file.

        Args:
            data: The bytes of the file.
            room: The largest size of the file in bytes. Files in the folders above have used the rest of the limit.

        Raises:
            DataError: If the file exceeds a limit, or a rule cannot be compiled.
        """
        if len(data) > room:
            raise DataError(f"the file and those of the folders above have more than {MAX_RULES_BYTES:,} bytes")
        lines = list(_lines(data))
        if len(lines) > MAX_RULES:
            raise DataError(f"the file has {len(lines):,} rules, more than {MAX_RULES:,}")
        if max(map(len, lines), default=0) > MAX_RULE_BYTES:
            raise DataError(f"the file has a rule of more than {MAX_RULE_BYTES:,} bytes")
        rules = [rule for line in lines if (rule := _rule(line))]
        if sum(rule.wildcards for rule in rules if rule.wildcards > 1) > MAX_WILDCARDS:
            raise DataError(
                f"the file has more than {MAX_WILDCARDS:,} asterisks, question marks and brackets in its rules"
            )
        return cls(rules)

    def excludes(self, path: bytes, *, is_folder: bool) -> bool | None:
        """Return True if the last rule that matches excludes the path, and False if it includes the path.

        If no rule matches, return None.

        Args:
            path: The path of a file or folder from the folder of the rules, with slashes and without a leading one.
            is_folder: Whether the path is a folder.
        """
        if not self._any_matches(path) and not (is_folder and self._any_matches(path + _FOLDER_MARK)):
            return None
        if len(self._effects) == 1:
            return self._rules[0].excludes
        if self._halves is None:
            middle = len(self._rules) // 2
            self._halves = GitIgnore(self._rules[:middle]), GitIgnore(self._rules[middle:])
        earlier, later = self._halves
        decision = later.excludes(path, is_folder=is_folder)
        return earlier.excludes(path, is_folder=is_folder) if decision is None else decision

    def _any_matches(self, path: bytes) -> bool:
        name = path[path.rfind(b"/") + 1 :]
        return bool(
            name in self._names
            or any(name[-length:] in self._suffixes for length in self._suffix_lengths)
            or (self._name_expression and self._name_expression.fullmatch(name))
            or (self._path_expression and self._path_expression.fullmatch(path))
        )


def _compiled(expressions: list[bytes]) -> re2._Regexp[bytes] | None:
    """Compile a regular expression that matches what any of the expressions matches.

    Without expressions, return None.
    """
    import re2

    if not expressions:
        return None
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False  # or RE2 writes to the terminal
    options.never_capture = True
    try:
        return re2.compile(b"|".join(expressions), options)
    except re2.error as error:
        raise DataError("the file has rules that are too large to compile") from error
    finally:
        re2.purge()  # or RE2 keeps the last 128 expressions


def _lines(data: bytes) -> Iterator[bytes]:
    """Yield the lines that may state a rule, without the spaces at their end."""
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        text = line.removesuffix(b"\r").partition(b"\0")[0]
        if text and not text.startswith(b"#"):
            yield _without_trailing_spaces(text)


def _without_trailing_spaces(line: bytes) -> bytes:
    """Return the line without trailing spaces. If a backslash precedes them, the first one stays."""
    stripped = line.rstrip(b" ")
    backslashes = len(stripped) - len(stripped.rstrip(b"\\"))
    return line[: len(stripped) + 1] if backslashes % 2 else stripped


def _rule(line: bytes) -> _Rule | None:
    """Return the rule in a line. If it matches nothing, return None."""
    excludes = not line.startswith(b"!")
    pattern = line.removeprefix(b"!")
    mark = _FOLDER_MARK if pattern.endswith(b"/") else b""
    pattern = pattern.removesuffix(b"/")
    if not pattern:
        return None
    by_name = b"/" not in pattern
    special = _SPECIAL.search(pattern)
    if by_name and special is None:
        return _Rule(excludes, _Kind.NAME, pattern + mark)
    if by_name and pattern[0] == _ASTERISK and len(pattern) > 1 and _SPECIAL.search(pattern, 1) is None:
        return _Rule(excludes, _Kind.SUFFIX, pattern[1:] + mark)
    # Git compares the text before the first special character, and its matcher gets the rest. So two asterisks count as
    # the first of a path in `ab**/c`, too.
    border = special.start() if special else len(pattern)
    literal, rest = pattern[:border].removeprefix(b"/"), pattern[border:]
    try:
        parts = list(_translated(rest, by_name))
    except _NeverMatchesError:
        return None
    kind = _Kind.NAME_EXPRESSION if by_name else _Kind.PATH_EXPRESSION
    wildcards = sum(part.startswith((b"[", b"(")) for part in parts)
    return _Rule(excludes, kind, b"".join([re.escape(literal), *parts, re.escape(mark)]), wildcards)


def _translated(pattern: bytes, by_name: bool) -> Iterator[bytes]:
    """Yield the parts of the regular expression for a `wildmatch` pattern.

    Raise `_NeverMatchesError` if it matches nothing.
    """
    at = 0
    while at < len(pattern):
        start, byte = at, pattern[at : at + 1]
        at += 1
        if byte == b"*":
            while pattern[at : at + 1] == b"*":
                at += 1
            follows, first = pattern[at : at + 2], start == 0 or pattern[start - 1 : start] == b"/"
            if by_name or at - start == 1 or not first or not (follows[:1] in {b"", b"/"} or follows == b"\\/"):
                yield _SEGMENT + b"*"
            elif follows.startswith(b"/"):
                yield b"(?:" + _PATH + b"/)?"
                at += 1
            else:
                yield _PATH
        elif byte == b"?":
            yield _SEGMENT
        elif byte == b"[":
            members, at = _bracket(pattern, at)
            yield _class(members)
        elif byte != b"\\":
            yield re.escape(byte)
        elif at < len(pattern):
            yield re.escape(pattern[at : at + 1])
            at += 1
        else:
            raise _NeverMatchesError


def _bracket(pattern: bytes, at: int) -> tuple[set[int], int]:
    """Return the bytes that a bracket expression matches, and its end. `at` is the offset after the opening bracket."""
    negated = pattern[at : at + 1] in {b"!", b"^"}
    at += negated
    members: set[int] = set()
    previous, first = 0, at
    while at == first or pattern[at : at + 1] != b"]":
        byte = _byte(pattern, at)
        if byte == _BACKSLASH:
            at += 1
            byte = _byte(pattern, at)
            members.add(byte)
        elif byte == _HYPHEN and previous and pattern[at + 1 : at + 2] not in {b"", b"]"}:
            at += 2 if pattern[at + 1] == _BACKSLASH else 1
            members.update(range(previous, _byte(pattern, at) + 1))
            byte = 0
        elif pattern.startswith(b"[:", at) and (named := _class_name(pattern, at)) is not None:
            if named not in _CLASSES:
                raise _NeverMatchesError
            members |= _CLASSES[named]
            at, byte = at + len(named) + 3, 0
        else:
            members.add(byte)
        previous = byte
        at += 1
    return (set(range(256)) - members if negated else members), at + 1


def _byte(pattern: bytes, at: int) -> int:
    if at >= len(pattern):
        raise _NeverMatchesError
    return pattern[at]


def _class_name(pattern: bytes, at: int) -> bytes | None:
    """Return the name in `[:name:]`. If the text at the position has another form, return None."""
    end = pattern.find(b"]", at + 2)
    if end < 0:
        raise _NeverMatchesError
    return pattern[at + 2 : end - 1] if end > at + 2 and pattern[end - 1 : end] == b":" else None


def _class(members: set[int]) -> bytes:
    """Return the regular expression that matches one of the bytes."""
    found = sorted(members - _UNMATCHABLE)
    if not found:
        raise _NeverMatchesError
    starts = [byte for byte in found if byte - 1 not in members or byte - 1 in _UNMATCHABLE]
    ends = [byte for byte in found if byte + 1 not in members or byte + 1 in _UNMATCHABLE]
    return b"[%s]" % b"".join(b"\\x%02x-\\x%02x" % pair for pair in zip(starts, ends, strict=True))
