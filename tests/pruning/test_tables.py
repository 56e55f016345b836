"""Tables in a text: their titles, the names of their columns, and their rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from context_agent.pruning.tables import LONGEST_HEADER, LONGEST_TITLE, MOST_PREAMBLE, inherited_cells, tables
from tests.support.growth import MOST_GROWTH, growth

LEFT_OUT = "... 3 rows omitted"


def found(text: str) -> list[tuple[str, str, str, list[str]]]:
    """Return the form, the title, the names of the columns and the rows of each table."""
    assert all(it.first <= it.start and it.cells for it in tables(text, 0, len(text)))
    return [
        (it.form, text[it.first : it.start], it.labels, [text[first:last] for first, last in it.rows])
        for it in tables(text, 0, len(text))
    ]


def bars(*rows: str, rule: str = "|---|---|") -> str:
    return "\n".join(["| name | port |", rule, *rows])


def csv_rows(count: int) -> list[str]:
    return [f"quay{row},{row}" for row in range(count)]


def bar_rows(count: int) -> list[str]:
    return [f"| quay{row} | {row} |" for row in range(count)]


def rows_of(text: str) -> list[str]:
    """Return the rows of the tables in a text."""
    return [row for *_, rows in found(text) for row in rows]


FORMS = {
    "cell": ("name,port", csv_rows),
    "row": ("| name | port |\n|---|---|", bar_rows),
    "text": ("NAME    PORT  AT", lambda count: [f"quay{row}   {row}     x" for row in range(count)]),
}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("form", FORMS)
def test_a_table_has_three_rows(form: str, end: str) -> None:
    header, rows = FORMS[form]
    names = "NAME PORT AT" if form == "text" else "name port"
    for count in (2, 3):
        text = "\n".join([header, *rows(count)]).replace("\n", end)
        assert found(text) == ([(form, "", names, rows(3))] if count == 3 else [])


@pytest.mark.parametrize("form", FORMS)
def test_the_short_line_above_a_header_is_the_title(form: str) -> None:
    header, rows = FORMS[form]
    table = "\n".join([header, *rows(4)])
    for length, is_title in ((1, True), (LONGEST_TITLE - 1, True), (LONGEST_TITLE, False)):
        title = "x" * length
        text = f"{'It rained. ' * 20}\n\n{title}\n{table}"
        assert [title for _, title, *_ in found(text)] == [f"{title}\n" if is_title else ""]


def test_the_nearest_of_several_lines_is_the_title_of_a_table_with_bars() -> None:
    assert [title for _, title, *_ in found(f"It rained.\nThen.\nQuays:\n{bars(*bar_rows(3))}")] == ["Quays:\n"]


@pytest.mark.parametrize("form", ["cell", "row"])
def test_a_few_short_lines_may_say_that_rows_are_missing(form: str) -> None:
    header, rows = FORMS[form]
    before, after = rows(9)[:6], rows(9)[6:]

    def read(*marks: str) -> list[str]:
        return rows_of("\n".join([header, *before, *marks, *after]))

    assert read(*[LEFT_OUT] * 5) == [*before, *after]
    assert read(*[LEFT_OUT] * 6) == before
    assert read(LEFT_OUT.ljust(LONGEST_TITLE, ".")) == [*before, *after]
    assert read(LEFT_OUT.ljust(LONGEST_TITLE + 1, ".")) == before
    assert read("It rained.") == before


BOX = """\
┌──────┬──────┐
│ name │ port │
├──────┼──────┤
│ a    │ 1    │
│ b    │ 2    │
│ c    │ 3    │
└──────┴──────┘"""


@pytest.mark.parametrize(
    ("text", "names", "rows", "cells", "bar"),
    [
        pytest.param(
            bars(*"|a |1 |,|b |2 |,|c |3 |".split(",")), "name port", "|a |1 |,|b |2 |,|c |3 |", 2, "|", id="md"
        ),
        pytest.param(
            "name | port\n---|---\na | 1\nb | 2\nc | 3", "name port", "a | 1,b | 2,c | 3", 2, "", id="no bars"
        ),
        pytest.param(
            "| name | port\n|---|---\n| a | 1\n| b | 2\n| c | 3",
            "name port",
            "| a | 1,| b | 2,| c | 3",
            2,
            "|",
            id="left",
        ),
        pytest.param(
            "name | port\n---|---\n| a | 1\n| b | 2\n| c | 3",
            "name port",
            "| a | 1,| b | 2,| c | 3",
            2,
            "",
            id="a header without bars",
        ),
        pytest.param(
            bars("a | 1", "| b | 2", "| c | 3"), "name port", "a | 1,| b | 2,| c | 3", 2, "", id="a row without bars"
        ),
        pytest.param(BOX, "name port", "│ a    │ 1    │,│ b    │ 2    │,│ c    │ 3    │", 2, "│", id="box"),
        pytest.param(
            "  | name | port |\n  |---|---|\n  | a | 1 |\n  | b | 2 |\n  | c | 3 |",
            "name port",
            "  | a | 1 |,  | b | 2 |,  | c | 3 |",
            2,
            "|",
            id="indented",
        ),
        pytest.param(
            "+---+---+\n| name | port |\n+---+---+\n| a | 1 |\n| b | 2 |\n| c | 3 |\n+---+---+",
            "name port",
            "| a | 1 |,| b | 2 |,| c | 3 |",
            2,
            "|",
            id="mysql",
        ),
        pytest.param(bars("a | 1", "b | 2", "c | 3"), "name port", "a | 1,b | 2,c | 3", 2, "", id="rows without bars"),
    ],
)
def test_a_table_with_bars(text: str, names: str, rows: str, cells: int, bar: str) -> None:
    (table,) = tables(text, 0, len(text))
    assert (table.labels, table.cells, table.delimiter) == (names, cells, bar)
    assert ",".join(text[first:last] for first, last in table.rows) == rows


RULE = "|---|---|"
HEADER = "| name | port |"


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        pytest.param([RULE, *bar_rows(4)], [], id="no header"),
        pytest.param(["It rained.", RULE, *bar_rows(4)], [], id="a header without bars"),
        pytest.param([HEADER, RULE, *bar_rows(3), RULE, *bar_rows(1)], bar_rows(3), id="two sections"),
        pytest.param([HEADER, RULE, *bar_rows(3), RULE, RULE, *bar_rows(2)], bar_rows(3), id="the next table"),
        pytest.param([HEADER, RULE, *bar_rows(3), "It rained.", *bar_rows(2)], bar_rows(3), id="a line of text"),
        pytest.param(
            [HEADER, RULE, "| a | 1 |", RULE, "| b | 2 |", RULE, "| c | 3 |"],
            ["| a | 1 |", "| b | 2 |", "| c | 3 |"],
            id="a grid",
        ),
        pytest.param(
            [HEADER, RULE, *["| a | 1 |", "| | 2 |", "| | 3 |", RULE] * 3],
            ["| a | 1 |\n| | 2 |\n| | 3 |"] * 3,
            id="a grid of three lines a row",
        ),
        pytest.param(
            [HEADER, RULE, *bar_rows(4), RULE, *bar_rows(4), RULE, *bar_rows(4)],
            bar_rows(4),
            id="sections of four lines",
        ),
        pytest.param([HEADER, RULE, *bar_rows(4), RULE, "| a | 1 |"], bar_rows(4), id="a sum below a table"),
    ],
)
def test_the_rows_of_a_table_with_bars_end_at_a_separator_except_in_a_grid(lines: list[str], rows: list[str]) -> None:
    assert rows_of("\n".join(lines)) == rows


def test_the_rule_above_a_total_is_in_its_row() -> None:
    text = "Ab  Bc  Cd\n----------\na   b   1\na   b   2\na   b   3\n----------\nal      6\n"
    assert rows_of(text) == ["a   b   1", "a   b   2", "a   b   3", "----------\nal      6"]


@pytest.mark.parametrize(
    ("lines", "names", "rows"),
    [
        pytest.param(["Quays", "-----  ----", "a      1", "b      2", "c      3"], "Quays", 3, id="one name"),
        pytest.param(["Quays  Port", "-----  ----", "a      1", "b      2", "c      3"], "Quays Port", 3, id="a rule"),
        pytest.param(["-----  ----", "A  B  C", "a  b  c", "a  b  c", "a  b  c"], "A B C", 3, id="a rule above names"),
        pytest.param(["It.", "Quay  Port", "----  ----", "a  1", "b  2", "c  3"], "Quay Port", 3, id="a line above it"),
        pytest.param(
            ["It.", "So.", "Quay  Port", "----  ----", "a  1", "b  2", "c  3"], "Quay Port", 3, id="two lines"
        ),
        pytest.param(["Ab  Bc  Cd", *["a   b   1"] * 50, "a   b   x"], "Ab Bc Cd", 51, id="fifty rows are read"),
        pytest.param(["Ab  Bc  Cd", *["a   b   1"] * 49, "a   b   x"], "", 0, id="the fiftieth row is read"),
        pytest.param(["Ab  Bc  Cd".ljust(498) + "Ef", *["a   b   1"] * 3], "Ab Bc Cd Ef", 3, id="a wide header"),
        pytest.param(["Ab  Bc  Cd".ljust(499) + "Ef", *["a   b   1"] * 3], "", 0, id="a header that is too wide"),
        pytest.param(
            ["Ab  Bc  Cd", "a   b   1", "a   b   1234", "a   b   12"], "Ab Bc Cd", 3, id="rows of other lengths"
        ),
        pytest.param(
            ["Ab  Bc  Cd", "aa  bb  11", "aa  bb  11", "aa  bb  11"], "Ab Bc Cd", 3, id="cells as wide as names"
        ),
        pytest.param(["Ab  Bc Cd Ef", *["a   b  c  123"] * 3], "Ab Bc Cd Ef", 3, id="rows longer than the header"),
        pytest.param(["A  Bc  Cd", "a  b   1", "a  b   1", "a  b   1"], "A Bc Cd", 3, id="a name of one letter"),
        pytest.param(["Quays  Port", "-----  ----", "a      1", "b      2"], "", 0, id="a rule above two rows"),
        pytest.param(["1  2", "-----  ----", "a      1", "b      2", "c      3"], "", 0, id="numbers above a rule"),
        pytest.param(["-----  ----", "a      1", "b      2", "c      3"], "", 0, id="a rule above all"),
        pytest.param(
            ["Quays  Port", "-----  ----", "a      1", "b      2", "c 3", "d 4"],
            "Quays Port",
            4,
            id="half of the rows are aligned",
        ),
        pytest.param(
            ["Quays  Port", "-----  ----", "a      1", "b      2", "c 3", "d 4", "e 5"],
            "",
            0,
            id="fewer rows are aligned",
        ),
        pytest.param(["A  B  C", "a  b  c", "a  b  c", "a  b  c"], "A B C", 3, id="capitals"),
        pytest.param(["A  B", "a  b", "a  b", "a  b"], "", 0, id="two names in capitals"),
        pytest.param(["A B C", "a  b  c", "a  b  c", "a  b  c"], "", 0, id="names without gaps"),
        pytest.param(["  A B C  ", "a  b  c", "a  b  c", "a  b  c"], "", 0, id="gaps around names"),
        pytest.param(["A  B  7", "a  b  c", "a  b  c", "a  b  c"], "", 0, id="a number among names in capitals"),
        pytest.param(["It rained.", "A  B  C", "a  b  c", "a  b  c", "a  b  c"], "A B C", 3, id="a line above"),
        pytest.param(["It rained.", "Then.", "A  B  C", "a  b  c", "a  b  c", "a  b  c"], "", 0, id="two lines above"),
        pytest.param(["Ab  Bc  Cd", "a   b   1", "a   b   1", "a   b   1"], "Ab Bc Cd", 3, id="a column of numbers"),
        pytest.param(["Ab  Bc  Cd", "a   b   1", "a   b   1", "a   b   x"], "", 0, id="a column of some numbers"),
        pytest.param(["Ab  B2  Cd", "a   b   1", "a   b   1", "a   b   1"], "Ab B2 Cd", 3, id="a name with a digit"),
        pytest.param(["Ab  234  Cd", "a   b    1", "a   b    1", "a   b    1"], "", 0, id="a number as a name"),
        pytest.param(["Ab  B234  Cd", "a   b     1", "a   b     1", "a   b     1"], "", 0, id="a name with a number"),
        pytest.param(
            ["   A  B  C", "day      ", "1  4  5  6", "2  4  5  6", "3  4  5  6"], "A B C", 3, id="a name of the rows"
        ),
        pytest.param(
            ["   Ab  Bc  Cd", "dy          ", "1   4   5   6", "2   4   5   6", "..  ..  ..  ..", "3   4   5   6"],
            "Ab Bc Cd",
            4,
            id="a row of dots",
        ),
        pytest.param(["Ab  B=  Cd", "a   b   1", "a   b   1", "a   b   1"], "", 0, id="a name with a mark of code"),
        pytest.param(["Ab  Bc Cd", "a   b  1", "a   b  1"], "", 0, id="numbers in two rows"),
        pytest.param(["Ab  Bc  Cd", "aaaaaab 1", "aaaaaab 1", "aaaaaab 1"], "", 0, id="words across columns"),
        pytest.param(["Ab  Bc  Cd", *["a   b   1"] * 9, "aaaaaab 1"], "Ab Bc Cd", 10, id="a wide row of ten"),
        pytest.param(["Ab  Bc  Cd", *["a   b   1"] * 8, "aaaaaab 1"], "", 0, id="a wide row of nine"),
        pytest.param(["Ab  --  Cd", *["a   b   1"] * 4], "", 0, id="two names and a mark"),
        pytest.param(["Ab  Bc  Cd", "-" * 10, *["a   b   1"] * 3], "Ab Bc Cd", 3, id="a rule as wide as the table"),
        pytest.param(["Ab  Bc  Cd", "=" * 10, *["a   b   1"] * 3], "Ab Bc Cd", 3, id="a double rule"),
        pytest.param(
            ["Ab  Bc  Cd", "-" * 10, *["a   b   1"] * 3, "-" * 10, "al      3", "-" * 10], "Ab Bc Cd", 4, id="a total"
        ),
        pytest.param(["Ab  Bc  Cd", "-" * 10, *["a   b   1"] * 2], "", 0, id="a rule and two rows"),
        pytest.param(["Ab  Bc  Cd", "-a" * 5, *["a   b   1"] * 2, "a   b   x"], "", 0, id="dashes that are no rule"),
    ],
)
def test_a_table_with_aligned_columns(lines: list[str], names: str, rows: int) -> None:
    text = "\n".join(lines)
    found_tables = [(it.labels, len(it.rows), it.cells, it.delimiter) for it in tables(text, 0, len(text))]
    assert found_tables == ([(names, rows, 1, "")] if rows else [])


@pytest.mark.parametrize(
    ("lines", "names", "rows"),
    [
        pytest.param(["a,b", "1,2", "3,4", "5,6"], "a b", 3, id="two columns"),
        pytest.param(["a,a", "1,2", "3,4", "5,6"], "", 0, id="equal names"),
        pytest.param(["a,", "1,2", "3,4", "5,6"], "", 0, id="an empty name"),
        pytest.param(["a,7", "1,2", "3,4", "5,6"], "", 0, id="a number as a name"),
        pytest.param(["a,b=", "1,2", "3,4", "5,6"], "", 0, id="a mark of code in a name"),
        pytest.param(
            ["a," + "b" * LONGEST_HEADER, "1,2", "3,4", "5,6"], "a " + "b" * LONGEST_HEADER, 3, id="a long name"
        ),
        pytest.param(["a," + "b" * (LONGEST_HEADER + 1), "1,2", "3,4", "5,6"], "", 0, id="a name that is too long"),
        pytest.param(["a, b, c", "1, 2, 3", "1, 2, 3", "1, 2, 3"], "a b c", 3, id="a space after each comma"),
        pytest.param(["a, b", "1, 2", "1, 2", "1, 2"], "", 0, id="two names after spaces"),
        pytest.param(["a, b c, d", "1, 2, 3", "1, 2, 3", "1, 2, 3"], "", 0, id="a name of two words after a space"),
        pytest.param(["a; b; c", "1; 2; 3", "1; 2; 3", "1; 2; 3"], "a b c", 3, id="a space after each semicolon"),
        pytest.param(["a\tb c\td", "1\t2\t3", "1\t2\t3", "1\t2\t3"], "a b c d", 3, id="tabs"),
        pytest.param(["a|b", "1|2", "3|4", "5|6"], "a b", 3, id="bars without a rule"),
        pytest.param(["a b | c | d", "1 | 2 | 3", "1 | 2 | 3", "1 | 2 | 3"], "a b c d", 3, id="bars between spaces"),
        pytest.param(["a-1 | b", "a-1 | c", "a-2 | d", "a-1 | e"], "", 0, id="what a program writes before each line"),
        pytest.param(["a,b", "1, 2", "3, 4", "5,6"], "a b", 3, id="half of the cells after spaces"),
        pytest.param(["a,b", "1, 2", "3, 4", "5, 6"], "", 0, id="most cells after spaces"),
        pytest.param(["a,b", "1,2", "3,4", "5,6", "x", "x", "x", "x"], "a b", 3, id="half of the lines are rows"),
        pytest.param(["a,b", "1,2", "3,4", "5,6", "x", "x", "x", "x", "x"], "", 0, id="fewer lines are rows"),
        pytest.param(["a,b", "1,2", "3,4", "5,6", "x", "x", "x", "x", ""], "a b", 3, id="a line break at the end"),
        pytest.param(["a,b,c", "1, 2,3", "1, 2,3", "1, 2,3"], "a b c", 3, id="some cells after spaces"),
        pytest.param(["a,b", '5" pipe,1', "2,3", "4,5"], "a b", 3, id="a mark of inches"),
        pytest.param(["a,b", "1,2", "3,4", '5,"6', "", '7"'], "a b", 3, id="a cell that ends the text"),
        pytest.param(
            ["2026-03-02 10:00:00 INFO x,y", "a,b", "1,2", "3,4", '5,"6', "", '7"'],
            "a b",
            3,
            id="below an entry of a log",
        ),
        pytest.param(
            ["a,b", "1,2", "3,4", '5,"6', "", "c,d", "1,2", "3,4", "5,6", "", '7"'], "a b", 3, id="a table in a cell"
        ),
        pytest.param(["It rained.", "a,b", "1,2", "3,4", "5,6"], "a b", 3, id="a line above"),
        pytest.param(["It rained.", "Then.", "a,b", "1,2", "3,4", "5,6"], "a b", 3, id="two lines above"),
        pytest.param(
            ["of;7", "to;8", "by;9", *["a;b;c"], *["1;2;3"] * 4], "a b c", 4, id="lines with fewer cells above"
        ),
        pytest.param(["x"] * MOST_PREAMBLE + ["a,b"] + ["1,2"] * 9, "a b", 9, id="as many lines above as may be"),
        pytest.param(["x"] * (MOST_PREAMBLE + 1) + ["a,b"] + ["1,2"] * 12, "", 0, id="too many lines above"),
        pytest.param(["x", "x", "x", "x", "x", "a,b", "1,2", "3,4", "5,6"], "", 0, id="most lines are above"),
        pytest.param(["x", "x", "x", "x", "a,b", "1,2", "3,4", "5,6"], "a b", 3, id="half of the lines are above"),
        pytest.param(["a,b;c", "1,2;3", "1,2;3", "1,2;3"], "a,b c", 3, id="commas in names"),
        pytest.param(["a,b", '1,"2', '3"', "3,4", "5,6"], "a b", 3, id="a cell of two lines"),
        pytest.param(
            ["a,b", '1,"2', "", '3"', "3,4", "5,6", "", "It rained."], "a b", 3, id="a cell with a blank line"
        ),
        pytest.param(["a,b", "1,2", "3,4", "5,6", '7,"8', "x,y"], "a b", 3, id="a cell that nothing closes"),
        pytest.param(["2026-03-02 10:00:00 INFO a,b", "1,2", "3,4", "5,6"], "", 0, id="an entry of a log"),
        pytest.param(
            [f" 112{row}:\t48 8{row} e5\tmov    %rsp,%rb{row}" for row in "abcdef"], "", 0, id="a disassembly"
        ),
    ],
)
def test_a_table_with_delimiters(lines: list[str], names: str, rows: int) -> None:
    tables_found = found("\n".join(lines))
    assert [(said, len(spans)) for _, _, said, spans in tables_found] == ([(names, rows)] if rows else [])


def test_a_row_has_all_lines_of_its_cells() -> None:
    table = 'a,b\n1,"2\n\n3"\n3,4\n5,6'
    rows = ['1,"2\n\n3"', "3,4", "5,6"]
    assert rows_of(f"{table}\n\nIt rained.") == rows
    assert rows_of(f"It rained, again.\n\nIt, and\nsnow, fell.\n\n{table}\n\n{table}") == [*rows, *rows]


def test_cells_of_tables_that_are_none_are_not_read_again_for_each_block() -> None:
    block = 'a,b,c|d\n 5, 2, 3" p\n 1, 2,"x\n\n'
    assert growth(lambda text: [*tables(text, 0, len(text))], lambda size: block * size, 400) < MOST_GROWTH


def test_a_cell_is_not_read_beyond_the_part_of_the_text() -> None:
    block = 'a,b|c\n1, 2|3\n1, 2|3\n1, 2|3\n"1, 2|3\n\n'
    text = f'{block}{"4" * 20}"|5'
    (table,) = tables(text, 0, len(block) + 15)
    assert (table.delimiter, len(table.rows)) == ("|", 3)


def test_several_tables_of_a_text() -> None:
    text = "\n\n".join(["It rained.", "a,b\n1,2\n3,4\n5,6", bars(*bar_rows(3)), "c\td\n1\t2\n3\t4\n5\t6\n"])
    assert [names for _, _, names, _ in found(text)] == ["a b", "name port", "c d"]
    first, last = text.index("| name"), text.index("c\td") + 3
    assert [table.labels for table in tables(text, first, last)] == ["name port"]


@pytest.mark.parametrize(
    ("text", "inherited"),
    [
        pytest.param("a,b,c\nx,1,2\n,3,4\n,,5\ny,,6\n,7,8", ["", "x", "x 3", "", "y"], id="cell"),
        pytest.param("a,b\nx,1\n,\n,2", ["", "", ""], id="an empty row ends a group"),
        pytest.param("a | b\n---|---\nx | 1\n | 2\n | 3", ["", "x", "x"], id="row without outer bars"),
        pytest.param("a;b\nx;1\n;2\n;3", ["", "x", "x"], id="semicolons"),
        pytest.param(bars("| x | 1 |", "| | 2 |", "| y | 3 |", "| | |"), ["", "x", "", ""], id="row"),
        pytest.param("AB    CD  EF\nx y   1   2\n      3   4\nz     5   6", ["", "x y", ""], id="text"),
        pytest.param("AB  CD  EF\n  1  x  y\n 12  x  y\n1    x  y", ["", "", ""], id="numbers"),
    ],
)
def test_a_row_inherits_the_cells_above_its_empty_ones(text: str, inherited: Sequence[str]) -> None:
    (table,) = tables(text, 0, len(text))
    assert inherited_cells(text, table) == inherited
