"""Fenced code is found where Markdown has it."""

from __future__ import annotations

import pytest

from context_agent.text.fences import fenced_spans, without_fenced
from tests.support.growth import MOST_GROWTH, growth


@pytest.mark.parametrize(
    ("text", "outside"),
    [
        ("a\n```\nx\n```\nb\n", "a\n\nb\n"),
        ("a\n~~~sh\nx\n```\n~~~\nb\n", "a\n\nb\n"),
        ("a\n````\n```\nx\n```\ny\n````\nb\n", "a\n\nb\n"),
        ("a\n```md\n```sh\nx\n```\nb\n", "a\n\nb\n"),
        ("```x``` is code\nb\n", "```x``` is code\nb\n"),
        ("1. a\n\n      ```\n# x\n      ```\nb\n", "1. a\n\n\nb\n"),
        ("a\r\n```\r\nx\r\n```\r\nb\r\n", "a\r\n\nb\r\n"),
        ("a\n```\nx\n", "a\n"),
        ("- a\n  ```sh\n  x\n\n  y\nb\n\n~~~\nz\n~~~~\nc\n", "- a\nb\n\n\nc\n"),
        ("", ""),
    ],
)
def test_fenced_code_ends_with_as_many_marks_or_with_its_item(text: str, outside: str) -> None:
    assert without_fenced(text) == outside


def test_a_rule_below_a_title_begins_no_code() -> None:
    text = "Quay\n~~~~\nwords\n"
    assert [*fenced_spans(text, {5})] == []
    assert [*fenced_spans(text)] == [(5, len(text))]


@pytest.mark.parametrize("lines", ["```a\n", "  ```a\n", "~~~a\n```b\n"])
def test_code_that_is_not_closed_takes_linear_time(lines: str) -> None:
    assert growth(lambda text: [*fenced_spans(text)], lambda size: lines * size, 2_000) < MOST_GROWTH
