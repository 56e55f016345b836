"""Code is read by definition: every language with a real sample, titles, exact chunks, and what cannot be parsed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_agent.retrieval.chunker import chunk_document
from context_agent.retrieval.loaders import LoadReport, load
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.tokens import HarmonyCounter
from context_agent.types import Chunk, Document, Section

pytest.importorskip("tree_sitter")

SAMPLES = {
    "a.py": (
        (
            '"""Module."""\nimport os\n\n\n# Adds.\n@cache\ndef add(a, b):\n    """Sum."""\n    return a + b\n\n\n'
            "class Stack:\n    def push(self, x):\n        self.items.append(x)\n"
        ),
        ["add", "Stack", "Stack.push"],
    ),
    "a.js": (
        (
            'import x from "x";\n/** Doubles. */\nexport function double(n) { return 2 * n; }\n'
            "export const half = (n) => n / 2;\nconst limit = 3;\nclass Queue { take() { return 1; } }\n"
        ),
        ["double", "half", "Queue", "Queue.take"],
    ),
    "a.ts": (
        (
            "export interface Shape { area(): number }\nexport type Id = string;\n"
            "enum Color { Red }\nnamespace Geo { export function side(): number { return 1; } }\n"
            "abstract class Base<T> { run(): T { return x; } }\n"
        ),
        ["Shape", "Id", "Color", "Geo", "Geo.side", "Base", "Base.run"],
    ),
    "a.tsx": ("export function App(): JSX.Element { return <b>hi</b>; }\n", ["App"]),
    "a.go": (
        (
            "package main\n\n// A point.\ntype Point struct { X int }\n\nfunc (p *Point) Move(d int) { p.X += d }\n"
            "func Zero() Point { return Point{} }\n"
        ),
        ["Point", "Point.Move", "Zero"],
    ),
    "a.rs": (
        (
            "/// A point.\n#[derive(Debug)]\npub struct Point { x: i32 }\nimpl Point {\n    fn shift(&mut self) {}\n}\n"
            "trait Area { fn area(&self) -> f64; }\nmod inner { pub fn deep() {} }\n"
        ),
        ["Point", "Point", "Point.shift", "Area", "inner", "inner.deep"],
    ),
    "A.java": (
        (
            "package a;\n/** Counts. */\npublic class Counter {\n  private int n;\n  Counter() { n = 0; }\n"
            "  @Override public int next() { return ++n; }\n}\ninterface Source { int next(); }\n"
        ),
        ["Counter", "Counter.Counter", "Counter.next", "Source", "Source.next"],
    ),
    "a.c": (
        (
            "#include <stdio.h>\n/* Adds. */\nstatic int *add(int a, int b) { return 0; }\nstruct point { int x; };\n"
            "typedef struct { int y; } size;\nstruct point origin;\n"
        ),
        ["add", "point", "size"],
    ),
    "a.cpp": (
        (
            "namespace geo {\ntemplate <class T> class Box { public: int area() { return 1; } ~Box() {} };\n"
            "int Ring::size() const { return 2; }\n}\n"
        ),
        ["geo", "geo.Box", "geo.Box.area", "geo.Box.~Box", "geo.Ring::size"],
    ),
}


def read(path: Path) -> tuple[Document, LoadReport]:
    report = LoadReport()
    (document,) = load(path, report=report)
    return document, report


def chunks_of(document: Document, size: int = 512) -> list[Chunk]:
    chunks = chunk_document(document, size=size, counter=HarmonyCounter())
    assert all(document.text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
    covered = {at for chunk in chunks for at in range(chunk.start, chunk.end)}
    assert all(at in covered or char.isspace() for at, char in enumerate(document.text))
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    return chunks


@pytest.mark.parametrize("name", SAMPLES)
def test_the_definitions_of_each_language_are_sections(tmp_path: Path, name: str) -> None:
    text, names = SAMPLES[name]
    (tmp_path / name).write_text(text)
    document, report = read(tmp_path / name)
    assert [section.title for section in document.sections] == [f"{name}: {title}" for title in names]
    assert (document.title, document.text, report.notices) == (name, text, [])
    assert document.metadata["language"]
    chunks_of(document)


def test_functions_and_classes_are_chunks_with_what_belongs_to_them(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.py").write_text(SAMPLES["a.py"][0])
    document, _ = read(tmp_path)
    assert [(chunk.title, chunk.text) for chunk in chunks_of(document)] == [
        ("src/a.py", '"""Module."""\nimport os'),
        ("src/a.py: add", '# Adds.\n@cache\ndef add(a, b):\n    """Sum."""\n    return a + b'),
        ("src/a.py: Stack", "class Stack:\n    def push(self, x):\n        self.items.append(x)"),
    ]


def test_a_class_that_is_too_long_is_cut_at_its_methods(tmp_path: Path) -> None:
    methods = "".join(f"    int m{n}() {{ return {' + '.join(['1'] * 8)}; }}\n\n" for n in range(4))
    (tmp_path / "A.java").write_text(f"class A {{\n    int field = 1;\n\n{methods}}}\n")
    chunks = chunks_of(read(tmp_path / "A.java")[0], size=64)
    assert [chunk.title for chunk in chunks] == ["A.java: A", *(f"A.java: A.m{n}" for n in range(4))]
    assert chunks[-1].text.endswith("}\n\n}"), "the closing brace is no chunk of its own"


def test_letters_beyond_ascii_shift_no_border(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('x = "Größe → 𝄞"\n\n\ndef ä():\n    return "ü"\n', "utf-8")
    assert [chunk.text for chunk in chunks_of(read(tmp_path / "a.py")[0])][1] == 'def ä():\n    return "ü"'


@pytest.mark.parametrize("text", ["((((\n}}} def class\n" * 30, "just words, no code", "x = 1\n" * 500])
def test_code_without_definitions_is_cut_like_text(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.py").write_text(text)
    document, report = read(tmp_path / "a.py")
    assert (document.sections, report.notices) == ((), [])
    assert {chunk.title for chunk in chunks_of(document)} == {"a.py"}


def test_without_the_extra_code_is_cut_by_lines_and_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tree_sitter", None)
    for name, (text, _) in SAMPLES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "run.sh").write_text("echo hello\n")
    report = LoadReport()
    documents = list(load(tmp_path, report=report))
    assert [document.sections for document in documents] == [()] * (len(SAMPLES) + 1)
    reason = 'the file is cut by lines. To cut code by functions and classes, run `pip install "context-agent[code]"`.'
    assert (report.kinds, report.skipped) == ({"code": {reason: len(SAMPLES)}}, 0)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_nested_sections_give_exact_chunks(data: st.DataObject) -> None:
    text = data.draw(st.text("ab\n} ", min_size=1, max_size=300))
    bounds = data.draw(st.lists(st.integers(0, len(text)), max_size=12))
    sections: list[Section] = []
    for start, end in zip(sorted(bounds)[::2], sorted(bounds)[1::2], strict=False):
        inner = (start + 1, max(start + 1, end - 1))
        sections += [Section(start, end, "outer"), *([Section(*inner, "inner")] if end - start > 2 else [])]
    chunks_of(Document("d", text, "d", sections=tuple(sections)), size=16)


def test_a_corpus_finds_a_definition_by_its_qualified_name(tmp_path: Path) -> None:
    for name, (text, _) in SAMPLES.items():
        (tmp_path / name).write_text(text)
    corpus = MemoryCorpus(load(tmp_path), embedder=None)
    assert corpus.grep("def push", limit=1)[0].chunk.title == "a.py: Stack"


def test_a_notebook_gives_its_cells_without_outputs(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Tides\n", "Levels by hour."]},
        {"cell_type": "code", "source": "print(1)\n", "outputs": [{"text": "secret"}], "execution_count": 1},
        {"cell_type": "code", "source": []},
    ]
    notebook = {"cells": cells, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "a.ipynb").write_text(json.dumps(notebook))
    assert read(tmp_path / "a.ipynb")[0] == Document(
        "a.ipynb",
        "# Tides\nLevels by hour.\n\n```python\nprint(1)\n```",
        "Tides",
        {"language": "python", "path": "a.ipynb"},
    )


def test_backticks_in_the_code_of_a_notebook_do_not_end_it(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "code", "source": "text = '''\n```sh\nmake\n```\n````\n'''\n# comment\nrun()"},
        {"cell_type": "markdown", "source": "# Tides"},
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}))
    document = read(tmp_path / "a.ipynb")[0]
    assert (document.title, document.captions) == ("Tides", ())
    assert document.text.startswith("`````\ntext")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "the notebook cannot be read (JSONDecodeError"),
        ("[" * 50_000, "the notebook cannot be read (RecursionError"),
        ('{"worksheets": []}', "the file is not a notebook of format 4"),
        ('{"cells": [1, {}, {"source": {}}]}', None),
        ('{"cells": []}', "the file is empty: it contains no text"),
    ],
)
def test_a_broken_notebook_is_reported(tmp_path: Path, text: str, reason: str | None) -> None:
    (tmp_path / "a.ipynb").write_text(text)
    report = LoadReport()
    documents = list(load(tmp_path, report=report))
    if reason:
        assert documents == []
        assert report.notices[0].reason.startswith(reason)
