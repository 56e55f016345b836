"""Front matter of Markdown in YAML and TOML: its fields become metadata, and a hostile one stays harmless text."""

from __future__ import annotations

from pathlib import Path

import pytest

from context_agent.types import Caption, Document
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
        captions=(Caption(0, 39, "Heading"),),
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


def test_front_matter_may_be_toml(tmp_path: Path) -> None:
    file = tmp_path / "note.md"
    file.write_text('+++\ntitle = "The Weir"\ndate = 2024-03-05\n[menu]\nweight = 2\n+++\n\nIt was built in 1901.\n')
    metadata = {"date": "2024-03-05", "day": 20240305, "menu": '{"weight": 2}', "path": "note.md"}
    assert only(file) == Document("note.md", "It was built in 1901.\n", "The Weir", metadata)


def test_toml_that_cannot_be_read_stays_in_the_text(tmp_path: Path) -> None:
    text = "+++\ntitle = 'The Weir'\nlevels = [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]\n+++\nText.\n"
    (tmp_path / "a.md").write_text(text)
    (document,), report = drawn(tmp_path / "a.md")
    assert (document.title, document.text) == ("The Weir", text)
    assert said(report)[0][2].endswith("The front matter stays in the text.")


@pytest.mark.parametrize("value", ["2024-13-45", "9" * 5_000])
def test_a_value_that_yaml_takes_for_another_type_stays_as_it_is_written(tmp_path: Path, value: str) -> None:
    (tmp_path / "a.md").write_text(f"---\ntitle: The Weir\nday: {value}\n---\nText.\n")
    document = only(tmp_path / "a.md")
    assert (document.title, document.text, document.metadata["day"]) == ("The Weir", "Text.\n", value)


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("title: 12:30", "12:30"),
        ("title: No", "No"),
        ("title: 2024-05-01", "2024-05-01"),
        ("Title: The Weir", "The Weir"),
        ("title: >-\n  The\n  Weir", "The Weir"),
        ("title: '[Draft] The Weir'", "[Draft] The Weir"),
        ("title: The Weir: a history", "The Weir: a history"),
        ("title: [The, Weir]", "Heading"),
        ("title:", "Heading"),
        ("title: null", "Heading"),
        ("title: ~", "Heading"),
        ("titles: The Weir", "Heading"),
    ],
)
def test_a_title_is_read_as_it_is_written(tmp_path: Path, line: str, title: str) -> None:
    (tmp_path / "a.md").write_text(f"---\n{line}\n---\n# Heading\n")
    assert only(tmp_path / "a.md").title == title
