"""YAML front matter of Markdown: its fields become metadata, and a hostile one stays harmless text."""

from __future__ import annotations

from pathlib import Path

import pytest

from context_agent.types import Document
from tests.support.loaded import drawn, only, said


def test_front_matter_becomes_metadata_and_leaves_the_text(tmp_path: Path) -> None:
    file = tmp_path / "note.md"
    file.write_text(
        "---\ntitle: The Weir\ndate: 2024-03-05\ntags: [river, dam]\ndraft: false\nlevel: 3\nempty:\npath: /etc\n"
        "people:\n  - Ada\n  - Bo\n---\n\n# Heading\n\nThe weir was built in 1901.\n"
    )
    assert only(file) == Document(
        "note.md",
        "# Heading\n\nThe weir was built in 1901.\n",
        "The Weir",
        {
            "date": "2024-03-05",
            "day": 20240305,
            "tags": '["river", "dam"]',
            "draft": False,
            "level": 3,
            "people": '["Ada", "Bo"]',
            "path": "note.md",
        },
    )


@pytest.mark.parametrize(
    ("front", "day"),
    [
        ("date: 2024-05-02", 20240502),
        ("date: '2024-05-02T10:00'", 20240502),
        ("date: 2024-05-02\nday: Friday", "Friday"),
        ("date: May 2024", None),
        ("date: '2024-13-01'", None),
        ("date: 2024", None),
    ],
)
def test_a_date_gives_the_day_as_a_number_that_filters_can_compare(tmp_path: Path, front: str, day: object) -> None:
    (tmp_path / "a.md").write_text(f"---\n{front}\n---\n\nThe weir was raised.\n")
    assert only(tmp_path / "a.md").metadata.get("day") == day


@pytest.mark.parametrize(
    ("front", "reason"),
    [
        ("a: [1, 2", "line 2 is not valid YAML"),
        ("title: {{title}}", "is not valid YAML"),
        ("day: 2024-13-45", "month must be in"),
        ("big: " + "9" * 5_000, "integer string conversion"),
        ("a: &x [1]\nb: [*x, *x]", "the front matter has aliases"),
        ("a: !!python/object/apply:os.system [touch hacked]", "is not valid YAML"),
        ("a: " + "[" * 5_000 + "]" * 5_000, "the front matter is nested more than"),
    ],
)
def test_front_matter_that_cannot_be_read_is_harmless_and_stays_in_the_text(
    tmp_path: Path, front: str, reason: str
) -> None:
    text = f"---\n{front}\n---\n# Heading\n"
    (tmp_path / "a.md").write_text(text)
    (document,), report = drawn(tmp_path / "a.md")
    assert (document.title, document.text, dict(document.metadata)) == ("Heading", text, {"path": "a.md"})
    assert reason in said(report)[0][2]
    assert (len(report.notices), report.skipped) == (1, 0)


@pytest.mark.parametrize("text", ["---\nA paragraph between two rules.\n---\nText.", "---\n- a\n- b\n---\nText."])
def test_what_stands_between_two_rules_is_text(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.md").write_text(text)
    assert only(tmp_path / "a.md").text == text
