"""The parts that lines without marks name: indented lines, tables and records, and where each part ends."""

from __future__ import annotations

import pytest

from context_agent.retrieval.loaders.outlines import (
    LONGEST_PARAGRAPH,
    LONGEST_PARENT,
    LONGEST_ROW,
    MOST_PARENTS,
    Lines,
    nested,
    text_captions,
)
from context_agent.types import Caption


def parts(text: str, lines: Lines = Lines.CODE, *, records: bool = False) -> list[tuple[str, str]]:
    """Return the name and the text of each part."""
    captions = text_captions(text, lines, records=records)
    return [(caption.text, text[caption.start : caption.end]) for caption in captions]


def names(text: str, lines: Lines = Lines.CODE, *, records: bool = False) -> list[str]:
    return [name for name, _ in parts(text, lines, records=records)]


def test_a_part_ends_with_the_part_that_it_begins_in() -> None:
    assert nested([Caption(5, 30, "inner"), Caption(0, 20, "outer"), Caption(20, 40, "next")]) == (
        Caption(0, 20, "outer"),
        Caption(5, 20, "inner"),
        Caption(20, 40, "next"),
    )


def test_of_two_parts_with_one_start_the_longer_one_is_outside() -> None:
    inner, outer = Caption(0, 10, "inner"), Caption(0, 20, "outer")
    assert nested([inner, outer]) == nested([outer, inner]) == (outer, inner)


def test_parts_inside_of_too_many_others_have_no_caption_but_those_after_them_do() -> None:
    deep = [Caption(at, 100, f"part {at}") for at in range(MOST_PARENTS + 1)]
    found = nested([*deep, Caption(100, 110, "after")])
    assert found == (*deep[:-1], Caption(100, 110, "after"))


def test_lines_inside_of_too_many_others_name_nothing_but_those_after_them_do() -> None:
    text = "\n".join(" " * at + f"level{'x' * at}" for at in range(MOST_PARENTS + 3)) + "\nafter\n child\n"
    assert names(text) == [f"level{'x' * at}" for at in range(MOST_PARENTS)] + ["after"]


def test_a_part_holds_the_line_that_names_it_and_the_lines_below() -> None:
    assert parts("def north():\n    open()\n    close()\ndef south():\n    wait()\n") == [
        ("def north()", "def north():\n    open()\n    close()\n"),
        ("def south()", "def south():\n    wait()"),
    ]


def test_a_tab_is_as_wide_as_four_spaces() -> None:
    assert names("north\n    upper\n\tlower\n     gate\n") == ["north", "lower"]


def test_a_text_that_begins_with_indented_lines_has_no_part_for_them() -> None:
    assert names("  first\nsecond\n  third\n") == ["second"]


def test_the_first_paragraph_of_a_text_may_name_the_indented_one_below_it() -> None:
    assert names("Opening hours\n\n   From nine to five\n", Lines.PROSE) == ["Opening hours"]
    assert names("It was late.\n", Lines.PROSE) == []


def test_a_line_of_a_paragraph_names_nothing() -> None:
    assert names("Some words\nOpening hours\n\n   From nine to five\n", Lines.PROSE) == []
    assert names("\nOpening hours\n   From nine to five\n", Lines.PROSE) == []


@pytest.mark.parametrize("fence", ["```", "````", "~~~", "```sh"])
def test_lines_of_code_in_a_fence_name_nothing_and_the_lines_below_it_do(fence: str) -> None:
    text = f"{fence}\nNORTH:\n  gate\n{fence[:4].removesuffix('s')}\nSOUTH:\n  gate\n"
    assert names(text, Lines.PROSE) == ["SOUTH"]


def test_a_fence_ends_with_as_many_marks_and_no_words_and_code_between_marks_is_no_fence() -> None:
    assert names("````md\n```\n- NORTH\n  - gate\n```\n````\n- SOUTH\n  - gate\n", Lines.LIST) == ["SOUTH"]
    assert names("```\n```sh\n- NORTH\n  - gate\n```\n- SOUTH\n  - gate\n", Lines.LIST) == ["SOUTH"]
    assert names("```code``` of a line\n\n- NORTH\n  - gate\n", Lines.LIST) == ["NORTH"]


def test_a_short_line_names_the_indented_lines_and_a_long_one_only_in_code() -> None:
    long = "word " * 21 + "end:"
    assert names(f"{long}\n  gate\n", Lines.PROSE) == []
    assert names(f"{long[10:]}\n  gate\n", Lines.PROSE) == [f"{'word ' * 15}wo..."]
    assert names(f"{'x' * (LONGEST_PARAGRAPH - 1)}:\n  gate\n", Lines.PROSE) == [f"{'x' * (LONGEST_PARENT - 3)}..."]
    assert names(f"{long}\n  gate\n", Lines.CODE) == [f"{'word ' * 15}wo..."]


def test_in_a_list_only_items_name_the_lines_below_them() -> None:
    assert names("Gates:\n  - North\n    - Upper\n", Lines.LIST) == ["North"]
    assert names("- North\nUpper\n  - gate\n", Lines.LIST) == []


def test_a_line_without_letters_or_with_a_comment_names_nothing() -> None:
    assert names("{\n  12: 13\n    14\n# gates\n  open()\n") == []


def test_the_mark_of_an_item_and_a_remark_are_not_in_the_name() -> None:
    assert names("12) North gate\n    open\n") == ["North gate"]
    assert names("module north {  # the old one\n  open\n}\n") == ["module north"]


TABLE = "gate | level\n1 | high\n2 | low\n"


def test_three_lines_with_bars_are_a_table_named_by_its_first_line() -> None:
    assert parts(f"{TABLE}End.\n", Lines.PROSE) == [("gate, level", TABLE)]
    assert parts(f"Seen:\n\n{TABLE}", Lines.PROSE) == [("gate, level", TABLE)]
    assert names("gate | level\n1 | high\n", Lines.PROSE) == []


def test_a_table_has_the_title_that_is_directly_above_it() -> None:
    assert names(f"Weirs\n{TABLE}", Lines.PROSE) == ["Weirs: gate, level"]
    assert names(f"A\n{TABLE}", Lines.PROSE) == ["A: gate, level"]
    assert names(f"-s\n{TABLE}", Lines.PROSE) == ["gate, level"]
    assert names(f"{'w' * LONGEST_PARENT}\n{TABLE}", Lines.PROSE) == [f"{'w' * LONGEST_PARENT}: gate, level"]
    assert names(f"{'w' * (LONGEST_PARENT + 1)}\n{TABLE}", Lines.PROSE) == ["gate, level"]


def test_a_row_that_is_too_long_ends_a_table() -> None:
    row = "2 | low ".ljust(LONGEST_ROW - 1)
    assert parts(f"gate | level\n1 | high\n{row}\n", Lines.PROSE) == [
        ("gate, level", f"gate | level\n1 | high\n{row}\n")
    ]
    assert parts(f"{TABLE}{row} \n", Lines.PROSE) == [("gate, level", TABLE)]


def test_a_table_has_no_title_of_the_lines_with_bars_before_it() -> None:
    assert names(f"{TABLE}\n{TABLE}", Lines.PROSE) == ["gate, level", "gate, level"]
    assert names(f"{TABLE}Weirs\n{TABLE}", Lines.PROSE) == ["gate, level", "Weirs: gate, level"]
    assert names(f"north | south\nWeirs\n{TABLE}", Lines.PROSE) == ["Weirs: gate, level"]


def test_a_table_whose_first_line_has_a_cell_without_letters_has_no_name() -> None:
    assert names("gate | 7\n1 | high\n2 | low\n", Lines.PROSE) == []
    assert names("| gate | |\n| 1 | high |\n| 2 | low |\n", Lines.PROSE) == ["gate"]


def test_the_key_that_occurs_first_names_the_outer_record_in_any_case() -> None:
    text = "Host: a\nname: b\nlevel 1\nNAME: c\nlevel 2\nhost: d\nlevel 3\n"
    assert parts(text, records=True) == [
        ("a", "Host: a\nname: b\nlevel 1\nNAME: c\nlevel 2\n"),
        ("b", "name: b\nlevel 1\n"),
        ("c", "NAME: c\nlevel 2\n"),
        ("d", "host: d\nlevel 3\n"),
    ]


def test_the_lines_at_the_beginning_name_a_text_with_records() -> None:
    text = "Place: north\nLevel: low\n\nwords\n"
    assert parts(text, records=True) == [("Place: north, Level: low", text)]
    assert text_captions(text, Lines.CODE) == ()
