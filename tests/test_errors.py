"""A message that is a part of another message keeps a single full stop, and no number of an error."""

from __future__ import annotations

import ast
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import context_agent
from context_agent.errors import DataError, reason_of


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("it is damaged.. Restore it.", "it is damaged. Restore it."),
        ("did you mean a?. Pass a.", "did you mean a? Pass a."),
        ("a cannot be read (b is missing. Restore b.). Pass c.", "a cannot be read (b is missing. Restore b). Pass c."),
        ("a cannot be read (is b there?). Pass c.", "a cannot be read (is b there?). Pass c."),
        ("choose from a, b ...", "choose from a, b ..."),
        ("a cannot be read (b ...). Pass c.", "a cannot be read (b ...). Pass c."),
        ("a.b.c (in a.). ", "a.b.c (in a). "),
        ("the folder ../a..b is empty", "the folder ../a..b is empty"),
        (".. has no documents", ".. has no documents"),
        ("/tmp/.. (Is a directory)", "/tmp/.. (Is a directory)"),
    ],
)
def test_a_full_stop_follows_no_other(text: str, message: str) -> None:
    assert str(DataError(text)) == message


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/x"), "No space left on device"),
        (OSError("the archive ends early"), "the archive ends early"),
        (ValueError("I/O error: No space left on device (os error 28)"), "I/O error: No space left on device"),
        (RuntimeError("[Errno 13] Permission denied: 'x'"), "Permission denied: 'x'"),
        (KeyError("r"), "'r' is missing"),
        (ValueError(), "ValueError"),
    ],
)
def test_a_reason_has_no_number(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


def test_a_reason_names_the_file_in_a_folder() -> None:
    missing = FileNotFoundError(errno.ENOENT, "No such file or directory", "/data/model/config.json")
    assert reason_of(missing, inside=Path("/data/model")) == "config.json: No such file or directory"
    assert reason_of(missing, inside=Path("/other")) == "/data/model/config.json: No such file or directory"


OS_ERRORS = {"OSError", "FileNotFoundError", "PermissionError", "LOADING_ERRORS"}


def printed_errors(tree: ast.AST) -> Iterator[int]:
    """Yield the lines on which a handler of system errors prints such an error with its number."""
    for handler in ast.walk(tree):
        if isinstance(handler, ast.ExceptHandler) and handler.type and handler.name:
            caught = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}
            for node in ast.walk(handler) if caught & OS_ERRORS else ():
                value = node.value if isinstance(node, ast.FormattedValue) else None
                if isinstance(value, ast.Name) and value.id == handler.name:
                    yield value.lineno


def test_no_message_has_the_number_of_a_system_error() -> None:
    root = Path(context_agent.__file__).parent
    found = [
        f"{path.relative_to(root)}:{line}"
        for path in sorted(root.rglob("*.py"))
        if "OSError" in (text := path.read_text(encoding="utf-8")) or "LOADING_ERRORS" in text
        for line in printed_errors(ast.parse(text))
    ]
    assert found == [], "write {reason_of(error)} in place of {error}"
