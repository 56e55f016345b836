"""grep finds what a check of every chunk alone would find, in linear time, and says what it cannot do."""

import random
import time

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from context_agent.errors import PatternError
from context_agent.retrieval.index.grep import LONGEST_PATTERN, Pattern, required_literal, scan
from context_agent.retrieval.index.text_table import TextTable

PIECES = [
    "foo",
    "bar",
    "abc",
    "zzz",
    "start",
    "end",
    "Hello w",
    " ",
    "\n",
    "x",
    "xx",
    "yyyy",
    "5 apple",
    "a.bccc",
    "ab{2}cd",
]
PIECES += ["Abcd", "é", "ß", "ſ", "K", "a{,3}bcd", "(abc)", "fooobar", "", "[", "|"]
PATTERNS = [
    *(
        r"foo|bar",
        r"abc",
        r"a[b\]c]def",
        r"(x|y)foo+bar",
        r"\bfoo\.bar\b",
        r"^start",
        r"end$",
        r"(?i)hELLO w",
        r"[^x]*zzz",
    ),
    *(
        r"\d+ apples?",
        r"x{2,3}yyyy",
        r"\Afoo",
        r"foo\z",
        r"(?s)a.b",
        r"\pLabc",
        r"\x41bcd",
        r"\x{41}bcd",
        r"\Qa.b\Eccc",
    ),
    *(
        r"(?-m:^foo)",
        r"a\nb",
        r"(?i)(foo)barr",
        r"[[:alpha:]]foo",
        r"\101bcd",
        r"fooo?bar",
        r"\s+foo",
        r"^$",
        r"\B",
        r"a|",
    ),
    *(
        r"x*",
        r"ab\{2\}cd",
        r"a{,3}bcd",
        r"(a(b)c)ddd",
        r"[]a]bcd",
        r"[^]a]bcd",
        r"\(abc\)",
        r"foo(?i)BAR",
        r"(?i)ſtart",
        r".",
    ),
]


def matching_texts(texts: list[str], pattern: str) -> list[int]:
    return list(scan(TextTable.of(texts), Pattern(pattern)))


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=5).map("".join), min_size=1, max_size=12))
def test_finds_exactly_what_each_chunk_alone_matches(texts: list[str]) -> None:
    table = TextTable.of(texts)
    assert [table.text(row) for row in range(len(table))] == texts
    for source in PATTERNS:
        expected = [row for row, text in enumerate(texts) if re2.search(source, text)]
        assert list(scan(table, Pattern(source))) == expected, source


def test_a_finder_that_is_often_wrong_is_given_up() -> None:
    texts = ["foo bar"] * 5_000 + ["foo!"]
    assert matching_texts(texts, r"(?:foo)!") == [5_000]
    assert matching_texts(texts, r"foo!\z") == [5_000]
    assert matching_texts(texts, r"\Afoo!") == [5_000]
    assert matching_texts(texts, r"(?s)bar.*!") == []


@pytest.mark.parametrize(
    ("source", "literal"),
    [
        ("born in 19\\d\\d", "born in 19"),
        ("a.b", ""),
        ("x|abcd", ""),
        ("abc?def", "def"),
        ("ab+cde", "cde"),
        ("(abc)", ""),
    ],
)
def test_the_literal_that_every_match_contains(source: str, literal: str) -> None:
    assert required_literal(source) == literal


def test_case_matters_unless_said() -> None:
    assert matching_texts(["Straße", "STRASSE"], "straße") == []
    assert matching_texts(["Straße", "STRASSE"], "(?i)straße") == [0]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        *((pattern, "look-ahead and look-behind") for pattern in ("(?=x)", "(?!x)y", "(?<=a)b", "(?<!a)b")),
        *((pattern, "back-references") for pattern in (r"(a)\1", r"(?P<a>x)(?P=a)", r"(?P<a>x)\k<a>")),
        *((pattern, "possessive") for pattern in ("(?>a)", "a*+")),
        *((pattern, "1,000") for pattern in ("a{2000}", "((a{100}){100}){100}")),
        ("", "empty"),
        ("a" * (LONGEST_PATTERN + 1), "4,096"),
        ("a" * 10_000_000, "10,000,000"),
        (r"x\Z", r"\\z"),
        ("(", "missing"),
        ("[a", "missing"),
        ("*a", "repetition"),
        ("\ud800", "surrogate"),
    ],
)
def test_what_cannot_be_used_says_why(source: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason) as excinfo:
        Pattern(source)
    assert len(str(excinfo.value)) < 300


@pytest.mark.parametrize("source", [r"(x+x+)+y", r"(a|aa)+$", r"(\w+\s?)*$q", r"(.*a){20}b", r"([a-z]+)*\d", r"(a*)*b"])
def test_patterns_that_hang_a_backtracking_engine_do_not(source: str) -> None:
    texts = ["a" * 5_000 + "!", "x" * 5_000, *("".join(random.Random(n).choices("ax ", k=400)) for n in range(2_000))]
    start = time.process_time()
    list(scan(TextTable.of(texts), Pattern(source)))
    assert time.process_time() - start < 5


def test_half_surrogates_in_a_text_do_no_harm() -> None:
    assert matching_texts(["a\ud800b", "ab"], "ab") == [1]
