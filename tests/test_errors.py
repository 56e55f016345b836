"""A message that is a part of another message keeps a single full stop."""

from __future__ import annotations

import pytest

from context_agent.errors import DataError


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
