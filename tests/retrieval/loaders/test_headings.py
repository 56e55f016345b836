"""The headings of a text in each markup: which lines are headings, their levels, and the parts that they name."""

from __future__ import annotations

import pytest

from context_agent.retrieval.loaders.headings import (
    LONGEST_HEADING,
    MOST_CAPTIONS,
    Heading,
    heading_captions,
    latex_headings,
    marked_headings,
    plain_headings,
    plain_words,
    section_headings,
    shortened,
    underlined_headings,
)
from context_agent.retrieval.loaders.text_files import markdown_title
from context_agent.types import Caption


def marked(text: str, markup: str = "markdown") -> list[tuple[int, str]]:
    """Return the levels and the words of the headings, and check where they begin."""
    headings = list(marked_headings(text, markup))
    assert all(text[heading.start - 1 : heading.start] in {"", "\n", " "} for heading in headings)
    return [(heading.level, heading.words) for heading in headings]


def test_a_part_ends_at_the_next_heading_of_its_level_or_above() -> None:
    headings = [Heading(0, 1, "a"), Heading(10, 2, "b"), Heading(20, 2, "c"), Heading(30, 1, "d")]
    assert heading_captions(headings, 40) == (
        Caption(0, 30, "a"),
        Caption(10, 20, "b"),
        Caption(20, 30, "c"),
        Caption(30, 40, "d"),
    )


def test_a_heading_that_repeats_the_title_names_nothing_and_ends_the_parts_before_it() -> None:
    headings = [Heading(0, 1, "Weir"), Heading(5, 2, ""), Heading(10, 2, "North"), Heading(20, 1, "WEIR")]
    assert heading_captions(headings, 40, title="weir") == (Caption(10, 20, "North"),)
    assert [caption.text for caption in heading_captions(headings, 40)] == ["Weir", "North", "WEIR"]


def test_a_part_of_level_0_ends_with_the_text() -> None:
    assert heading_captions([Heading(0, 0, "name"), Heading(5, 1, "path")], 9) == (
        Caption(0, 9, "name"),
        Caption(5, 9, "path"),
    )


def test_headings_beyond_the_most_captions_name_nothing() -> None:
    headings = [Heading(at, 1, str(at)) for at in range(MOST_CAPTIONS + 5)]
    captions = heading_captions(headings, MOST_CAPTIONS + 5)
    assert len(captions) == MOST_CAPTIONS
    assert captions[-1] == Caption(MOST_CAPTIONS - 1, MOST_CAPTIONS + 5, str(MOST_CAPTIONS - 1))


def test_a_long_heading_is_shortened_to_one_line() -> None:
    assert shortened("a\n b", 3) == "a b"
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abc..."
    (caption,) = heading_captions([Heading(0, 1, "x" * 200)], 9)
    assert caption.text == "x" * (LONGEST_HEADING - 3) + "..."


def test_the_headings_of_markdown_have_marks_tags_or_a_rule_below() -> None:
    text = "# One #\n   ### Three\n<h2 id='a'>Two</h2>\n\nRuled\n=====\n\nLower\n---\n#none\n    # code\n"
    assert marked(text) == [(1, "One"), (3, "Three"), (2, "Two"), (1, "Ruled"), (2, "Lower")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("# Notes on C#", "Notes on C#"),
        ("## F# ##", "F#"),
        ("# Notes #", "Notes"),
        ("# ###", ""),
        ("<h1>C#</h1>", "C#"),
    ],
)
def test_only_marks_that_stand_apart_close_a_heading(line: str, words: str) -> None:
    assert [heading.words for heading in marked_headings(line, "markdown")] == [words]
    assert markdown_title(line) == words


def test_a_rule_below_several_lines_underlines_no_title() -> None:
    assert marked("First\n=====\n") == [(1, "First")]
    assert marked("\n\nFirst\n=====\n") == [(1, "First")]
    assert marked("words\nand words\n---\n") == []
    assert marked("\nwords\n---\n") == []
    assert marked("- item\n---\n") == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("```\n# code\n```\n# one\n", ["one"]),
        ("````\n# code\n```\n# code\n`````\n# one\n", ["one"]),
        ("```\n# code\n~~~\n# code\n```\n# one\n", ["one"]),
        ("```\nName\n====\n```\n# one\n", ["one"]),
        ("# one\n```\n# code\n", ["one"]),
        ("```\n```python\n# code\n```\n# one\n", ["one"]),
        ("```code``` of a paragraph\n\n# one\n", ["one"]),
    ],
)
def test_lines_in_a_fence_are_no_headings(text: str, found: list[str]) -> None:
    assert [words for _, words in marked(text)] == found
    assert markdown_title(text) == found[0]


def test_only_known_lines_are_headings() -> None:
    text = "# comment\n## North\n"
    assert [heading.words for heading in marked_headings(text, "page", known={"## North"})] == ["North"]
    assert [heading.words for heading in marked_headings(text, "page", known=())] == []


@pytest.mark.parametrize(
    ("markup", "text", "found"),
    [
        ("page", "# a\n ## b\n###### c\n####### d\n", [(1, "a"), (6, "c")]),
        ("manual", "# a\n## b\n### c\n", [(2, "b"), (3, "c")]),
        ("asciidoc", "= a\n== b\n----\n=== code\n----\n## c\n....\n= code\n", [(1, "a"), (2, "b"), (2, "c")]),
        ("org", "* a\n** b\n *c\n*d*\n", [(1, "a"), (2, "b")]),
        ("wiki", "= a =\n== b ==\n== c =\n=== d ===  \n", [(1, "a"), (2, "b"), (3, "d")]),
        ("textile", "h1. a\nh3. b\nh7. c\nh2.d\n", [(1, "a"), (3, "b")]),
        ("typst", "= a\n== b\n==c\n", [(1, "a"), (2, "b")]),
    ],
)
def test_each_markup_has_its_own_headings(markup: str, text: str, found: list[tuple[int, str]]) -> None:
    assert marked(text, markup) == found


def underlined(text: str) -> list[tuple[int, str]]:
    return [(heading.level, heading.words) for heading in underlined_headings(text)]


def test_the_first_kind_of_rule_is_that_of_level_1() -> None:
    text = "====\nWeir\n====\n\nNorth\n=====\n\nUpper\n-----\n\nSouth\n=====\n\n====\nPort\n====\n"
    assert underlined(text) == [(1, "Weir"), (2, "North"), (3, "Upper"), (2, "South"), (1, "Port")]


def test_a_rule_that_is_much_shorter_than_the_line_above_it_underlines_no_title() -> None:
    assert underlined("Weirs\n===\n") == [(1, "Weirs")]
    assert underlined("Weirs  \n===\n") == [(1, "Weirs")]
    assert underlined("A weir\n===\n") == []
    assert underlined("A weir\n===\nNorth\n-----\n") == [(1, "North")]
    assert underlined("----\nWeir\n====\n") == []


def test_roles_and_marks_are_not_in_the_words_of_a_title() -> None:
    assert underlined(":class:`Weir` and **gate**\n==========================\n") == [(1, "Weir and gate")]


def test_the_headings_of_plain_text_are_ruled_numbered_or_in_capitals() -> None:
    blocks = ("WEIRS", "1. North", "words", "1.2. Upper", "words", "2 South", "Ruled\n-----", "NORTHERN GATES", "3. no")
    text = "\n\n".join(blocks)
    assert [(heading.level, heading.words) for heading in plain_headings(text)] == [
        (10, "WEIRS"),
        (20, "1. North"),
        (21, "1.2. Upper"),
        (20, "2 South"),
        (30, "Ruled"),
        (10, "NORTHERN GATES"),
    ]
    assert [text[heading.start :].startswith(heading.words) for heading in plain_headings(text)] == [True] * 6


def test_a_numbered_line_of_a_paragraph_is_no_heading() -> None:
    assert list(plain_headings("words\n1. North\n\nwords\n")) == []
    assert list(plain_headings("\n1. North\nwords\n")) == []
    assert list(plain_headings("\n1. North;\n\nwords\n")) == []


def test_each_section_of_settings_is_a_part() -> None:
    text = "[north]\na = 1\n[[gates]]\n['Upper gate'] # old\n [no]\n[x] y\n"
    assert [(heading.level, heading.words) for heading in section_headings(text)] == [
        (1, "north"),
        (1, "gates"),
        (1, "Upper gate"),
    ]


def test_the_commands_of_latex_have_levels() -> None:
    text = "\\part{A}\n  \\chapter*{B}\n\\section[c]{C}\n\\subsection{D}\n\\paragraph{E}\n"
    headings = list(latex_headings(text, lambda argument: argument.strip("{}")))
    assert [(heading.level, heading.words) for heading in headings] == [
        (0, "A"),
        (1, "B"),
        (2, "[c]{C"),
        (3, "D"),
        (5, "E"),
    ]
    assert all(text[heading.start] == "\\" for heading in headings)


def test_the_words_of_a_heading_have_no_links_and_marks() -> None:
    assert plain_words("The [**north** gate](gate.md) `open` {#gate}") == "The north gate open"
    assert plain_words("![a](b) <b>bold</b> snake_case __init__") == "a bold snake_case init"
