"""Spans of text that people don't read: encoded text, hex dumps, minified code, numbers, long white space."""

from __future__ import annotations

import pytest

from context_agent.pruning.binary import MINIFIED_LINE, SHORTEST, binary_spans, dense_parts, is_dense, is_encoded

SAMPLE = 1_000
"""The characters at the start of a long line that are read."""


def run(of: str = "abcdEFGH0123", length: int = SHORTEST) -> str:
    return (of * length)[:length]


def line(marks: str, *, blanks: int = 0, letters: int = 0, fill: str = "0123456789.") -> str:
    """Return a long line whose sample ends with blanks, a word of some letters, and marks."""
    end = f"{' ' * blanks}{'x' * letters}{marks}.."
    return f"{run(fill, SAMPLE - len(end))}{end}{'.' * (MINIFIED_LINE - SAMPLE)}"


DUMP = "".join(f"{row * 8:08x}: 7f45 4c46 0201 0100 .ELF\n" for row in range(4))
SPARSE_DUMP = "0000 aabb ccaa aabb aabb xy\n"
BASE64 = "".join(f"{run(length=60)}\n" for _ in range(4))
OCTETS = "".join(f"        {':'.join(f'{(row * 47 + it * 31) % 256:02x}' for it in range(18))}:\n" for row in range(3))
WHITE = " " * 998
PROSE = "It rained in the port. " * 200


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(f"Rain.\n{WHITE}\nSnow.", [WHITE], id="white space without the line break at each end"),
        pytest.param(f"Rain.\n{WHITE[1:]}\nSnow.", [], id="short white space"),
        pytest.param(run(), [run()], id="base64"),
        pytest.param(run()[1:], [], id="short base64"),
        pytest.param(run("abEF012"), [], id="few distinct characters"),
        pytest.param(run("abcEF012"), [run("abcEF012")], id="just enough distinct characters"),
        pytest.param(run("abcdef0123"), [run("abcdef0123")], id="hexadecimal digits"),
        pytest.param(run("0123456789"), [], id="decimal digits"),
        pytest.param(f"Modulus:\n{OCTETS}Exponent: 3\n", [OCTETS.rstrip()], id="bytes of a key"),
        pytest.param(
            f"{OCTETS}        0a:1b\nExponent: 3\n", [f"{OCTETS}        0a:1b"], id="a short last line of bytes"
        ),
        pytest.param(f"{OCTETS.upper()}", [OCTETS.upper().rstrip()], id="bytes in capitals at the end"),
        pytest.param("".join(OCTETS.splitlines(keepends=True)[:2]), [], id="two lines of bytes"),
        pytest.param("11:22:33:44:55:66 dev eth0\n" * 9, [], id="addresses of devices"),
        pytest.param("11:22:33:44:55:66\n" * 9, [], id="addresses of devices alone"),
        pytest.param(run("abcdefABCDEF"), [], id="letters of hexadecimal digits"),
        pytest.param(run("ghijklm0123"), [], id="a long name in lower case"),
        pytest.param("0" + run("abcdEFGH", 199), ["0" + run("abcdEFGH", 199)], id="a digit at the start"),
        pytest.param(f"data:image/png;base64,{run('ABCDEFGHIJ', 300)}", [], id="the name of a type is no content"),
        pytest.param(f"Rain.\n{DUMP}Snow.", [DUMP.strip()], id="a hex dump"),
        pytest.param(SPARSE_DUMP * 4, [(SPARSE_DUMP * 4).strip()], id="a hex dump of few characters"),
        pytest.param(SPARSE_DUMP.replace("y", "x") * 4, [], id="a hex dump of too few characters"),
        pytest.param(f"Rain.\n{BASE64}\nSnow.", [BASE64.strip()], id="lines of base64"),
        pytest.param(BASE64.replace("\n", "\r\n"), [BASE64.replace("\n", "\r\n").strip()], id="as in a letter"),
        pytest.param(BASE64.upper(), [], id="lines of capitals"),
        pytest.param("".join(f"{run('abcdefghij', 60)}\n" for _ in range(4)), [], id="lines of small letters"),
        pytest.param(f"{PROSE[:1799]} {run()}", [run()], id="base64 in a long line"),
        pytest.param(f"{PROSE[:1798]} {run()}", [run()], id="base64 in a line"),
        pytest.param(line("", fill="abcEFG01."), [line("", fill="abcEFG01.")], id="a long token"),
        pytest.param(line(";", fill="abcEFG01."), [], id="a long token with a mark"),
    ],
)
def test_what_people_do_not_read(text: str, found: list[str]) -> None:
    assert [text[start:end] for start, end, _ in binary_spans(text)] == found


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        pytest.param(line("=" * 84), True, id="numbers between many marks"),
        pytest.param(line("=" * 80), False, id="fewer marks"),
        pytest.param(line("=" * 84, blanks=80), True, id="a few blanks"),
        pytest.param(line("=" * 84, blanks=90), False, id="more blanks"),
        pytest.param(line("=" * 84, letters=199), True, id="few words"),
        pytest.param(line("=" * 84, letters=200), False, id="words of records"),
        pytest.param(line("=" * 80 + "{{;;", letters=200), True, id="the marks of code"),
        pytest.param(line("=" * 80 + "{{{;", letters=200), False, id="one semicolon"),
        pytest.param(line("=" * 84, fill="012345678é."), False, id="a character that is not ASCII"),
    ],
)
def test_a_long_line_of_many_marks_is_code_or_numbers(text: str, is_found: bool) -> None:
    assert is_dense(text) is is_found
    assert not is_encoded(text)


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        (run(), True),
        (BASE64[: 3 * 61], False),
        (PROSE, False),
        (run() + " " + PROSE[: SHORTEST - 2], True),
        (run() + " " + PROSE[: SHORTEST - 1], False),
        (PROSE[: SHORTEST + 99] + " " + run(), False),
    ],
)
def test_a_text_is_encoded_if_more_than_half_of_it_is(text: str, is_found: bool) -> None:
    assert is_encoded(text) is is_found
    assert not is_dense(text)


def test_a_hex_dump_is_dense_and_base64_is_encoded() -> None:
    spans = binary_spans(f"{DUMP}\nRain.\n{BASE64}\n{run()}\n{WHITE}\n")
    assert [span.is_dense for span in spans] == [True, False, False, False]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("abcd", ["abcd"]),
        ("abcdefgh", ["abcd", "efgh"]),
        ("abcdefghi", ["abcd", "efgh", "i"]),
        ("ab,d,fgh", ["ab,", "d,fg", "h"]),
        ("ab,,efgh", ["ab,,", "efgh"]),
        ("ab;,efgh", ["ab;", ",efg", "h"]),
        ("ab};efgh", ["ab}", ";efg", "h"]),
        ("ab}\nefgh", ["ab}\n", "efgh"]),
        (",bcdefgh", [",bcd", "efgh"]),
    ],
)
def test_a_dense_text_is_cut_after_its_lines_blocks_statements_and_items(text: str, parts: list[str]) -> None:
    offset = 3
    found = dense_parts(f"xyz{text}xyz", offset, offset + len(text), 4)
    assert [f"xyz{text}"[start:end] for start, end in found] == parts
