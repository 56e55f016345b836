"""Small files from outside: size and nesting are checked before they are parsed."""

from __future__ import annotations

import io
import json
import math
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent._support.question_files import load_questions
from context_agent._support.small_files import (
    MAX_DEPTH,
    MAX_KEY_PARTS,
    is_hollow,
    parse_json,
    parse_toml,
    read_bytes,
    read_json,
    read_lines,
    read_toml,
    require_files,
)
from context_agent.errors import DataError

SCALARS = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=200)


@given(VALUES, st.booleans())
def test_json_that_is_not_deep_is_read_as_json_reads_it(value: object, ascii_only: bool) -> None:
    text = json.dumps([value] * 40, ensure_ascii=ascii_only)
    assert parse_json(text) == json.loads(text)


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    "text",
    [
        nested(MAX_DEPTH + 1),
        "[" * 1_000_000,
        '{"a":' * 500_000,
        '["' + '\\"]' * 200 + '",' + "[" * 500,
        '"\\\\"' + "[" * 500,
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_deep_json_is_refused_before_it_is_parsed(text: str, encoding: str) -> None:
    for form in (text, text.encode(encoding)):
        with pytest.raises(ValueError, match=f"nested more than {MAX_DEPTH} levels deep"):
            parse_json(form)


def test_brackets_in_texts_are_no_nesting() -> None:
    text = json.dumps({"a": "[" * 5_000 + '\\"' * 300, "b": "{" * 5_000, "c": json.loads(nested(MAX_DEPTH - 1))})
    assert parse_json(text)["b"] == "{" * 5_000


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 50_000,
        "a = " + "{a=" * 50_000,
        "[" + ".".join("a" * 50_000) + "]",
        ".".join("a" * 50_000) + " = 1",
        "a . " * 50_000 + "a = 1",
        '"a".' * 50_000 + "a = 1",
        'a = ["""x"""", ' + "[" * 50_000,
        "a = ['''x'''', " + "[" * 50_000,
        'a = "# " \nb = ' + "[" * 50_000,
    ],
)
def test_deep_toml_is_refused_before_it_is_parsed(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"more than {MAX_KEY_PARTS} (levels|parts)"):
        parse_toml(text)
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(ValueError, match=rf"more than {MAX_KEY_PARTS} (levels|parts)"):
        read_toml(tmp_path / "a.toml")


def test_a_byte_order_mark_before_toml_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbfa = 1\r\n")
    assert read_toml(tmp_path / "a.toml") == {"a": 1}


def test_toml_with_brackets_in_texts_and_comments_is_read() -> None:
    text = f"""
        # {"[" * 100} {".".join("a" * 100)}
        a = "{"[" * 100}" # {"{" * 100}
        b = '{"[" * 100}'
        c = \"\"\"{"[" * 100}
        {".".join("a" * 100)}\"\"\"
        numbers = [{", ".join(["1.5"] * 200)}]
        [x.y.z]
        d = [[1], [2]]
    """
    read = parse_toml(text)
    assert (read["a"], read["b"], read["x"]["y"]["z"]["d"]) == ("[" * 100, "[" * 100, [[1], [2]])
    assert len(read["numbers"]) == 200


def test_a_file_beyond_the_limit_a_pipe_and_a_device_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("[1]")
    assert read_json(file) == [1]
    assert read_bytes(file, 3) == b"[1]"
    with pytest.raises(ValueError, match="more than 2 bytes"):
        read_bytes(file, 2)
    os.truncate(file, 1 << 40)
    with pytest.raises(ValueError, match="more than 4,000,000 bytes"):
        read_json(file)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ValueError, match="pipe, a socket or a device"):
            read_json(path)
    with pytest.raises(OSError, match="directory"):
        read_json(tmp_path)


def test_lines_have_a_bound_each_and_together() -> None:
    assert list(read_lines(io.BytesIO(b"ab\nc"), limit=3)) == [b"ab\n", b"c"]
    with pytest.raises(ValueError, match="line 2 has more than 3 bytes"):
        list(read_lines(io.BytesIO(b"ab\nabcd"), limit=3))
    with pytest.raises(ValueError, match="more than 4 bytes"):
        list(read_lines(io.BytesIO(b"ab\nab\n"), total=4))


def test_links_pipes_and_holes_are_refused(tmp_path: Path) -> None:
    full, sparse, link, pipe = (tmp_path / name for name in ("full", "sparse", "link", "pipe"))
    full.write_bytes(b"x" * 70_000_000)
    sparse.touch()
    os.truncate(sparse, 1 << 40)
    link.symlink_to(full)
    os.mkfifo(pipe)
    require_files([full, tmp_path, tmp_path / "missing"], links=False)
    require_files([link])
    assert is_hollow(sparse, sparse.stat())
    for path, reason in ((sparse, "almost none"), (link, "is a link"), (pipe, "is a pipe")):
        with pytest.raises(DataError, match=reason):
            require_files([path], links=False)


def test_questions_that_unpack_without_end_are_refused(tmp_path: Path) -> None:
    import gzip

    file = tmp_path / "questions.jsonl.gz"
    row = b'{"question": "Who?"}' + b" " * 1_000
    file.write_bytes(gzip.compress((row + b"\n") * 20_000))
    with pytest.raises(DataError, match="unpacks to more than"):
        load_questions(file)
    file.write_bytes(gzip.compress(b'{"question": "Who?"}\n' * 100))
    assert len(load_questions(file)) == 100


@pytest.mark.parametrize(
    "number",
    ["0x" + "f" * 5_000, "0o" + "7" * 5_000, "-9" + "0" * 5_000, "0b1" + "0" * 5_000, "1e999", "-1.5e400", str(2**63)],
)
@pytest.mark.parametrize("where", ["[outer]\nsize = {}", "[outer]\nsize = [1, {}]"])
def test_a_number_beyond_64_bits_is_told_with_its_key(number: str, where: str) -> None:
    with pytest.raises(ValueError, match=r"size is a number that does not fit into 64 bits"):
        parse_toml("first = 1\n" + where.format(number))


@pytest.mark.parametrize("key", ['"the size"', "'size'", "a.'b c'.size"])
def test_a_number_of_thousands_of_digits_is_told_with_its_quoted_key(key: str) -> None:
    text = f"""first = 1 # size = 2\nlines = {'"' * 3}\nother = 3\n{'"' * 3}\n"""
    with pytest.raises(ValueError, match=rf"^{re.escape(key)} is a number that does not fit into 64 bits"):
        parse_toml(f"{text}{key} = [1, {'9' * 5_000}]")


def test_numbers_within_64_bits_and_digits_in_texts_are_read() -> None:
    largest, digits = 2**63 - 1, "9" * 5_000
    text = f"a = {largest}\nb = {-largest - 1}\nc = inf\nd = '{digits}'\ne = 0.{digits}\n# f = {digits}\n"
    assert list(parse_toml(text).values()) == [largest, -largest - 1, math.inf, digits, 1.0]
