"""Code from a stranger costs time in proportion to its size and bounded memory. It is cut by lines if it is too odd."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from itertools import chain

import pytest

from context_agent.retrieval.chunker import chunk_document
from context_agent.retrieval.loaders import LoadReport, load
from context_agent.retrieval.loaders.definitions import TOO_COMPLEX
from context_agent.testing.hostile_code import hostile_code
from context_agent.tokens import CharCounter
from context_agent.types import Document

pytest.importorskip("tree_sitter")
MOST_MEMORY = 400
"""Megabytes above the process at rest."""


def read(name: str, data: bytes) -> tuple[Document, LoadReport]:
    stream, report = io.BytesIO(data), LoadReport()
    stream.name = name
    (document,) = load(stream, report=report)
    return document, report


def content(name: str, size: int) -> bytes:
    return next(data for file, data, _ in hostile_code(size) if file == name)


def test_every_hostile_file_is_read_in_full_and_cut() -> None:
    for name, data, _ in hostile_code(2_000):
        document, report = read(name, data)
        chunks = chunk_document(document, size=64, counter=CharCounter())
        covered = set(chain.from_iterable(range(chunk.start, chunk.end) for chunk in chunks))
        assert all(at in covered or letter.isspace() for at, letter in enumerate(document.text)), name
        assert {notice.reason for notice in report.notices} <= {TOO_COMPLEX}, name


@pytest.mark.parametrize(
    "name", ["remarks.py", "braces.c", "braces.ts", "nested.py", "comments.rs", "functions.js", "classes.java"]
)
def test_time_is_in_proportion_to_size(name: str) -> None:
    def seconds(size: int) -> float:
        data, start = content(name, size), time.process_time()
        read(name, data)
        return time.process_time() - start

    read(name, content(name, 1_000))
    bound = 8 * min(seconds(16_000) for _ in range(3)) + 0.05
    assert any(seconds(64_000) < bound for _ in range(3))


@pytest.mark.parametrize("name", ["comparisons.ts", "macros.rs", "quotes.ts"])
def test_a_parser_that_takes_too_many_steps_is_stopped(name: str) -> None:
    document, report = read(name, content(name, 200_000))
    assert document.sections == ()
    assert [(notice.reason, notice.lost) for notice in report.notices] == [(TOO_COMPLEX, False)]


MEASURE_MEMORY = """
import io, resource, sys
from context_agent.retrieval.loaders import load
from context_agent.testing.hostile_code import hostile_code
data = next(data for name, data, _ in hostile_code(int(sys.argv[2])) if name == sys.argv[1])
for content in (b"class A {}", data):
    stream = io.BytesIO(content)
    stream.name = sys.argv[1]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    list(load(stream))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def megabytes(name: str, size: int) -> int:
    command = [sys.executable, "-c", MEASURE_MEMORY, name, str(size)]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    return int(output)


@pytest.mark.parametrize("name", ["comparisons.ts", "scopes.cpp", "braces.c", "expressions.js", "openings.js"])
def test_a_megabyte_of_hostile_code_takes_bounded_memory(name: str) -> None:
    assert megabytes(name, 2**20) <= MOST_MEMORY


def test_a_small_file_whose_brackets_are_never_closed_takes_bounded_memory() -> None:
    assert megabytes("openings.js", 40_000) <= MOST_MEMORY


def test_functions_in_one_declaration_are_not_inside_each_other() -> None:
    document, _ = read("a.js", b"const first = () => 1, second = () => 2;\n")
    assert [section.title for section in document.sections] == ["a.js: first", "a.js: second"]


def test_definitions_are_found_to_a_depth_of_ten() -> None:
    text = "".join(f"{' ' * depth}def f{depth}():\n" for depth in range(40)) + " " * 40 + "pass\n"
    document, _ = read("a.py", text.encode())
    assert document.sections[-1].title == "a.py: " + ".".join(f"f{depth}" for depth in range(10))
