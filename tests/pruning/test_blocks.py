"""Where plain text is cut, with sizes so small that each rule shows in a line.

In a drawing, «label→…» is a passage, and `b20` stands for a word of 20 letters. Log entries are cut at `small`, other
lines at `target`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from context_agent.pruning import blocks
from context_agent.pruning.blocks import Passage, Sizes, is_log, is_log_entry, text_spans, trimmed, with_aligned_numbers

SIZES = Sizes(tiny=4, small=10, target=40, rows=4, largest=80)


def check(drawing: str) -> None:
    text = re.sub(r"«([^»→]*→)?|»", "", drawing)
    text = re.sub(r"(?<![a-z])([a-z])(\d\d+)", lambda word: word[1] * int(word[2]), text)
    drawn, position = "", 0
    for start, end, label in text_spans(text, SIZES):
        drawn += f"{text[position:start]}«{f'{label}→' if label else ''}{text[start:end]}»"
        position = end
    drawn += text[position:]
    assert re.sub(r"([a-z])\1{8,}", lambda word: f"{word[1]}{len(word[0])}", drawn) == drawing


@pytest.mark.parametrize(
    "drawing",
    [
        "«aaaaaaaa\n\nb20»",
        "«a10»\n\n«b20»",
        "«aaaaaaaa\n\nb70»",
        "«aaaaaaaa»\n\n«b71»",
        "«x30»\n\n«a10»\n\n«b20»",
        "«x30»\n\n«aaaaaaaa\n\nb70»",
        "«x30»\n\n«aaaaaaaa»\n\n«b71»",
        "\n\n«  a20»\n\n\t\n«b20»  \n \n",
        "«a10\n\n b27»",
        "«a10»\n\n«a10→ b28»",
        "«x30»\n\n«a10\n\n b27»",
        "«x30»\n\n«a10»\n\n«a10→ b28»",
        "« a10»\n\n« b20»",
        "« a10»\n\n«b20»",
        "«a10\n\n\n\n  b20»\n\n«a10→  c20»",
    ],
)
def test_a_block_below_the_small_size_or_an_inner_block_is_joined(drawing: str) -> None:
    """The first is done up to the largest size, and the second up to the target size."""
    check(drawing)


@pytest.mark.parametrize(
    "drawing",
    [
        "«a20\n\n7»\n\n«\fb20\n\n8»\n\n«\fc20»",
        "«a20»\n\n«b10»\n\n«\fc20»",
        "«a20\n\nbbbbbbbb»\n«\fc20»",
        "«a20\n\n7»\n\n«\fbbb»\n\n«\fc20»",
        "«a20»\n\n«# H»\n\n«H→\fb20»",
        "«a20»\n\n«7 \f8\n\nb20»",
    ],
)
def test_the_last_lines_of_a_page_stay_with_the_lines_before_them(drawing: str) -> None:
    """The number of a page was at the beginning of the next page."""
    check(drawing)


@pytest.mark.parametrize(
    "drawing",
    [
        "«aaaa»\n\n«# H\nb20»",
        "«----\n\n# H\nb20»",
        "«bbbb\n\naaaa»\n\n«# H\nb20»",
        "«a20»\n\n«# H\n\nb70»",
        "«# H\n\nb20»\n\n«# I\n\nb20»",
        "«01.02.2024, 10:00 - Ana: a20»\n«01.02.2024, 10:01 - Bo: b20»",
        "«a20\n```»\n«b20»\n\n«c20\n# d\ne20»\n«```»\n\n«f20»",
        "«-[ RECORD 1 ]\na20\n\nb20»\n«-[ RECORD 2 ]\na20\n\nb20»",
        "«x30»\n\n«-[ RECORD 1 ]\na20\n\nb43»\n«-[ RECORD 2 ]\na20\n\nb44»",
        "«x30»\n\n«-[ RECORD 1 ]\na20»\n\n«a20→b44»\n\n«-[ RECORD 2 ]\na20»\n\n«a20→b46»",
        "«a20»\n\n«```\n-[ RECORD 1 ]\nb20\n\nc20\n```»\n\n«-[ RECORD 2 ]\nd20\n\ne20»",
    ],
)
def test_a_heading_a_record_or_a_message_begins_a_block(drawing: str) -> None:
    """A record up to the largest size stays whole."""
    check(drawing)


CHAIN = "During handling of the above exception, x"


@pytest.mark.parametrize(
    "drawing",
    [
        f"«a10\n\n{CHAIN}\n\nb10»",
        f"«a10\n{CHAIN}\n\nb15»",
        f"«x30»\n\n«a12\n{CHAIN}\n\nb15»",
        f"«a35\n\n{CHAIN}»\n\n«b10»",
        f"«x30»\n\n«a35\n\n{CHAIN}»\n\n«b10»",
        f"«a12\n{CHAIN}\nzz»\n\n«b15»",
        f"«{CHAIN}\n\nb35»",
    ],
)
def test_tracebacks_around_a_line_that_links_them_are_joined(drawing: str) -> None:
    check(drawing)


@pytest.mark.parametrize(
    "drawing",
    [
        "«a20 »«b20 »«c20 d20 e20»",
        "«x30»\n\n«a20 »«b20 »«c20 d20 e20»",
        "«a50.» «B20.» «c20 d20»",
        "«a40»«a40»«a10 »«b40»«b50»",
        "«a80»",
        "«x30»\n\n«a80»",
        "«a40»«a41»",
        "«Ha18. Hb16.» «Hc18.» «Hd30.»",
        "«Ha18.» «Hb17.» «Hc18.» «Hd30.»",
        "«x30»\n\n«Ha18. Hb16.» «Hc18.» «Hd30.»",
        "«aaaaaaaa b31»«b59»",
        "«a10 »«b40»«b50»",
        "«a15 b15 »«c60»",
        "«{a15},{b15},»«{c60}»",
        "«{a15}, {b15}, »«{c60}»",
        "«a15,b10;»«c70»",
        "«a15&b10|»«c70»",
        "«b40»\n\n«a79»\n«b20»",
        "«b40»\n\n«a40»«a40»\n«b20»",
        "«Ha77.» «Hb40.»",
        "«Ha39»«a39.» «Hb40.»",
    ],
)
def test_a_long_line_is_cut_at_sentences_then_at_blanks(drawing: str) -> None:
    check(drawing)


@pytest.mark.parametrize(
    "drawing",
    [
        "«a10),(b10,c10),»«(d60»",
        "«a10},{b10 c10}, »«{d60»",
        "«a15], »«[b15 c60»",
        "«a15 b15 »«c30,d30»",
        "«a30,»«b30,c40»",
        "«a15;b15&»«c60»",
        "«a10|b15;»«c60»",
        "«a39,»«b60»",
        "«a40»«,b60»",
        "«aaaaaaaa,b31»«b60»",
    ],
)
def test_a_long_line_is_cut_between_records_and_without_blanks_after_a_mark(drawing: str) -> None:
    check(drawing)


@pytest.mark.parametrize(
    "drawing",
    [
        "«a30»\n«b30»\n«c30»",
        "«a19\nb19»\n«c19»\n«d30»",
        "«a19»\n«b20»\n«c19»\n«d30»",
        "«x30»\n\n«a19\nb19»\n«c19»\n«d30»",
        "«a30\n b30»\n«c30\n d30»",
        "«a30\n\tb20»\n«c30\n d30»",
        "«a30\n│ b20»\n«c30\n d30»",
        "«  1\ta30\n  2\t b20»\n«  3\tc30\n  4\t d30»",
        "«a20\n  b20\n}»\n«c50»",
        "«a20\n b20\n}»\n«c50»",
        "«a30»\n«b20\n}»\n«c50»",
        "«a20\n  b10\n  c10\nKeyError: x»\n«d50»",
        "«$ a20\nb20»\n«$ c20\nd20»\n«$ e20»",
        "«$ a20\nb20»\n«c20»\n«$ d20\ne20»",
        "«a20»\n«$ b20\nc20»\n«d20»",
        "«a40»\n«Trace:\n  b20»\n«c40»",
        "«  1\ta10\n  2\t b10»\n«  3\tc10\n  4\t d10»\n«  5\te30»",
        "«a38»\n«}»\n«c60»",
        "«a36»\n«in f:\nb20»\n«c60»",
        "«a.py:1:b20:»\n«c.py:1:d30»\n«e60»",
        "«  1\ta30:»\n«b30»\n«d60»",
        "«web-1 | a20\nweb-1 |   b20»\n«db-12 | c30»",
        "«web | a20»\n«web |   b30»\n«web | c20»",
        "«#7 2.331 a20\n#7 2.33   b20»\n«#7 3.118 c30»",
        "«a10»\n«Traceback (most recent call last):\n  b9\nQuay: c20»\n«d60»",
        "«a.c:1:b30\n  1 | c20\n    | ^»\n«d.c:3:e50\n  3 | f10»",
        "«a30\n  1\tb10»\n«  2\tc50»",
        "«a37\n}»\n«c60»",
        "«a20\n b30\nend»\n«c60»",
        "«a20\n b30\nEND;»\n«c60»",
        "«a20\n b30»\n«end of c20»\n«d60»",
        "«a20\n b20\nelse\n c20»\n«d60»",
        "«a20\n b20\nexcept x:\n c20»\n«d60»",
        "«a20\n b20»\n«except x20»\n«d60»",
    ],
)
def test_a_line_stays_with_the_line_that_it_belongs_to(drawing: str) -> None:
    check(drawing)


@pytest.mark.parametrize(
    "drawing",
    [
        "«10:00:00 a»\n«10:00:01 b»\n«10:00:02 c»",
        "«10:00:00 aaa»\n«b20»\n«10:00:02 c»\n«10:00:03 d20»",
        "«10:00:00 a20\nTrace:\n  b20»\n«10:00:01 c20»\n«10:00:02 d20»",
        "«Nov 16 09:14:22 h p: a\nNov 16 09:14:22 h p:   b20»\n«Nov 16 09:14:23 h p: c»\n«Nov 16 09:14:24 h p: d»",
        "«10:00:00 Traceback (most recent call last):\n  b20\n  c»\n«10:00:01 d»\n«10:00:02 e»",
        "«10:00:00 a20»\n«Trace»\n«b20»\n«10:00:01 c20»\n«10:00:02 d20»",
        "«10:00:00 a20»\n«Trace:\nb20»\n«10:00:01 c20:»\n«10:00:02 d20»",
        "«x [10:00:00] »«x [10:00:00]→a30 »«x [10:00:00] a30→b40»«x [10:00:00] a30 b40→ c40»\n«x [10:00:01] x»\n«x»",
        "«x [10:00:00]\n   b20»\n«x [10:00:00]→  c20\n   d20\n   e20»\n«x [10:00:01] x\nx [10:00:02] y»",
        "«x [10:00:01] aaa»\n«x [10:00:02] bbb»\n«x [10:00:03] c»\n«x [10:00:04] »«x [10:00:04]→a30 b40»",
        "«x [10:00:01] aaa»\n«x [10:00:02] bbb»\n«x [10:00:03] c»\n«x [10:00:04] d\nTrace:\n  b20»\n«x [10:00:04] d»",
    ],
)
def test_each_log_entry_is_a_passage(drawing: str) -> None:
    """The rest of an entry that is cut has its first words as a label."""
    check(drawing)


def test_a_traceback_with_a_time_before_each_line_is_a_passage() -> None:
    """Each line of the log of a GitHub action was a passage, and the exception was apart from the traceback."""
    raised = [
        "Traceback (most recent call last):",
        '  File "/work/quay.py", line 8, in close',
        "    self.post(ship)",
        "quay.PortClosed: rain",
    ]
    lines = [f"2026-11-16T10:00:0{n}.1234567Z {it}" for n, it in enumerate(["Run pytest", *raised, "exit code 1"])]
    text = "\n".join(lines)
    parts = [text[start:end] for start, end, _ in text_spans(text, Sizes.of(text))]
    assert "\n".join(lines[1:5]) in parts


@pytest.mark.parametrize(
    "drawing",
    [
        "«Title: a20\nURL: b»\n«Title: c20\nURL: d»\n«Title: e20\nURL: f»",
        "«A\ta20\nB\tb»\n«A\tc20\nB\td»\n«A\te20\nB\tf»",
        "«xxx:»\n« A: a20\nB: b»\n« A: c20\nB: d\n\ne10»\n« A: f20\nB: g»",
        "«Title: a20\nURL: b»\n«Title: c20\nURL: d10\n e30»\n«Title: e20\nURL: f»",
    ],
)
def test_records_whose_fields_have_keys_are_not_cut_or_joined(drawing: str) -> None:
    check(drawing)


@pytest.mark.parametrize(
    "drawing",
    [
        "«a.py:1:abcde\na.py:2:b18»\n«b.py:1:c20»\n«b.py:2:d20»",
        "«a.py:1:abcde»\n«b.py:1:c20»\n«b.py:2:d20 e20»",
        "«a.py:1:a15\n  b9\na.py:3:c»\n«b.py:1:d40»",
        "«a.py:1:abcd\na.py:2:e»\n«b.py:1:f\nb.py:2:g»\n«c60»",
        "«b40»\n«a.py:1:a\nb.py:1:b»\n«c40»",
        "«b40»\n«a.py:1:ab»\n«b.py:1:b»\n«c40»",
        "«2024-01-02 a20»\n«2024-01-03 b20»\n«2025-01-03 c40»",
    ],
)
def test_lines_about_one_file_stay_together(drawing: str) -> None:
    check(drawing)


@pytest.mark.parametrize(
    "drawing",
    [
        '«heading "A" a20\n  b20»\n«heading "B" c20\n  d20»',
        '«  a20»\n«  heading "B" c20\n    d20»',
        '«xxx\n  heading "B" c20»\n«B xxx→    d20 e40»',
        "«<html>\n<p>a20\nb20\n</p>»\n«<p>c20\nd20»",
        "«<html>\n<div>a10\n<b>b20»\n«<div>c20\nd30»",
        "«aaaaa\n<html>\n<p>a20\nb20\n</p>»\n«<p>c20\nd20»",
        '«b40»\n«xx aaaaaa»\n«heading "B" c»\n«B→d60»',
        '«b40»\n«xx aaaaa\nheading "B" c»\n«B→d60»',
        "«b40»\n«xx aaaaaa\nheadings of c»\n«d60»",
    ],
)
def test_a_page_is_cut_at_its_headings_and_blocks(drawing: str) -> None:
    check(drawing)


@pytest.mark.parametrize(
    "drawing",
    [
        "«aaaaa\n   b20»\n«aaaaa→  c20\n   d20\n   e20»\n«aaaaa→  f20\n   g20»",
        "«aaaaa\n  b20\n  c20\n  d20»\n«aaaaa→  e20\n  f20»",
        "«aaaaa\n b70»\n«aaaaa b60→  c20\n  d20»",
        "«aaaaa\n  b20\n  c20\n  d20»\n«aaaaa→  e20»\n«f20»",
        "«x30»\n\n«aaaaa\n   b20»\n«aaaaa→  c20\n   d20\n   e20»\n«aaaaa→  f20\n   g20»",
        "«aaaaa\n  b20\n  c20\n  d20»\n«aaaaa→  eeeeeee»\n«ffff»",
        "«aaaaa\n  b20\n  c20\n  d20»\n«aaaaa→  eeee\nffff»",
        "«aaaaa\n   bb»\n«aaaaa→  c30\n   d20\n   e10»\n«aaaaa c30→   f20»",
        "«7\ta10\n8\t  b20\n9\t  c20»\n«a10→10\t  d20\n11\t  e20»",
        "«aaaaa\n  b20\n  b20\n  c25»\n«aaaaa→  d20»",
        "«aaaaaaaa\n  b20\n   c20\n   d20»\n«aaaaaaaa b20→   e20»",
        "«a.aaaaaaa»\n«a.aaaaaaa→  b20\n   c20\n   d20»\n«a.aaaaaaa b20→   e20»",
        "«aaaaa\n  b20\n  c20»\n«aaaaa→  d31\n}»\n«e20»",
    ],
)
def test_a_long_entry_is_cut_at_its_last_least_indented_line(drawing: str) -> None:
    check(drawing)


@pytest.mark.parametrize(
    ("most", "drawing"),
    [
        (0, "«a20»\n\n«# b\n\n# c\n\n# d»\n\n«# e\n\n# f»"),
        (1, "«a20»\n\n«# b»\n\n«# c\n\n# d\n\n# e»\n\n«# f»"),
        (2, "«a20»\n\n«# b»\n\n«# c»\n\n«# d\n\n# e\n\n# f»"),
        (5, "«a20»\n\n«# b»\n\n«# c»\n\n«# d»\n\n«# e»\n\n«# f»"),
    ],
)
def test_few_blocks_stay_short_before_headings(most: int, drawing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MOST_SHORT", most)
    check(drawing)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("10:00:00 a\n10:00:01 b", False),
        ("10:00:00 a\n10:00:01 b\nc", True),
        ("10:00:00 a\n10:00:01 b\nc\nd", False),
        ("10:00:00 a\n10:00:01 b\n10:00:02 c\nd", True),
        ("10:00:00 a\nb\nc\nd", False),
    ],
)
def test_most_of_at_least_three_lines_of_a_log_are_entries(text: str, is_one: bool) -> None:
    assert is_log(text) is is_one


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("10:00:00 a", True),
        ("INFO a", True),
        ("level=info a", True),
        ("a" * 41 + "10:00:00", False),
        ("a" * 40 + "10:00:00", True),
        ("abc1234f (Ana 2024-01-02 10:00:00 +0000 7) x = 1", False),
        ("    Started:      Mon, 16 Nov 2026 09:14:22 +0000", False),
        ("Modify: 2026-11-30 19:46:41.562263471 +0000\nChange: x", False),
        ("Not After : Dec 31 09:37:37 2030 GMT", False),
        ("at = '2026-11-30T10:00:00Z',", False),
        ("LOG_LEVEL=DEBUG", False),
        ('"mode": "INFO",', False),
        ("job: 2026-11-30 10:00:00 done", True),
        ("a: INFO b", True),
        ('{"level":"info"', True),
        ('x level="warn" y', True),
        ("one level of three", False),
        ("a level (b", False),
    ],
)
def test_an_entry_shows_its_time_or_level_at_its_start(line: str, is_one: bool) -> None:
    assert is_log_entry(line) is is_one


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("a", (0, 1)),
        (" \n\n  a \n", (3, 6)),
        ("  a\n b", (0, 6)),
        (" \n ", None),
        ("", None),
    ],
)
def test_blank_lines_and_the_blanks_at_the_end_are_trimmed(text: str, span: Sequence[int] | None) -> None:
    assert trimmed(text, 0, len(text)) == span
    moved = trimmed(f"x{text}y", 1, 1 + len(text))
    assert moved == (span and (span[0] + 1, span[1] + 1))


def test_sizes_follow_the_text_and_the_budget() -> None:
    plain = Sizes(40, 100, 600, 40, 1_200)
    assert Sizes.of("a") == Sizes.of("") == Sizes.of("a" * 200_000, 1_600) == Sizes.of("a", 5_000) == plain
    assert Sizes.of("a" * 200_001) == Sizes(40, 100, 600, 600, 1_200)
    assert Sizes.of("a" * 1_600_000) == Sizes(80, 200, 1_200, 1_200, 2_400)
    assert Sizes.of("雨") == Sizes(10, 25, 150, 10, 300)
    assert Sizes.of("雨a") == Sizes(25, 62, 375, 25, 750)
    assert Sizes.of("a", 1_200) == Sizes(40, 100, 450, 40, 900)
    assert Sizes.of("a", 1) == Sizes(40, 100, 400, 40, 800)
    assert Sizes.of("a", 1, is_fine=True) == Sizes.of("a", is_fine=True) == Sizes(40, 100, 240, 40, 480)


def test_a_passage_is_by_default_plain_text_that_was_not_counted() -> None:
    assert Passage("a", 0, 1) == Passage("a", 0, 1, "", "text", 0, 0, 0, 1, ",", binary=False, items=())


@pytest.mark.parametrize(
    ("text", "aligned"),
    [
        ("  12 a\n   3 b\n   1 c", "##12 a\n###3 b\n###1 c"),
        ("of:\n  12 a\n   3 b\n 100 c\nand", "of:\n #12 a\n ##3 b\n 100 c\nand"),
        ("x\n\n 1.5K a\n  20% b\n    3 c", "x\n\n#1.5K a\n##20% b\n####3 c"),
        ("  12 a\n   3 b", "  12 a\n   3 b"),
        ("of:\n  1 a\n  2 b\n  3 c", "of:\n  1 a\n  2 b\n  3 c"),
        ("  12 a\n  3 b\n  1 c", "  12 a\n  3 b\n  1 c"),
        ("  12\ta\n   3\tb\n   1\tc", "  12\ta\n   3\tb\n   1\tc"),
        (" 12,\n  3,\n  1,", " 12,\n  3,\n  1,"),
    ],
)
def test_spaces_that_align_numbers_are_no_indentation(text: str, aligned: str) -> None:
    assert with_aligned_numbers(text).replace("\u2007", "#") == aligned
