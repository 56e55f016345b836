"""SECURITY.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
}


def test_every_promise_names_tests_that_exist() -> None:
    test_names = re.findall(r"`(test_\w+)`", PAGE)
    assert len(test_names) > 20
    assert [name for name in test_names if name not in TESTS] == []


def test_every_path_exists() -> None:
    for path in re.findall(r"`(tests/[\w./]+)`", PAGE):
        assert (ROOT / path).exists(), path
