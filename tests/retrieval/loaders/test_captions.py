"""The names around a chunk: headings, parents of indented lines, headers of tables, records and the path of a page.

Each file is longer than a chunk, and the wanted line is in another chunk than the names of the part that it is in.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from context_agent.retrieval.chunker import Span, chunk_document
from context_agent.retrieval.index.manifest import Chunking
from context_agent.retrieval.index.records import chunks_to_store, digest_of
from context_agent.retrieval.loaders import load
from context_agent.tokens import CharCounter
from context_agent.types import Caption, Document

LINES = [f"The level of gate {number} is low today." for number in range(30)]
PROSE = "\n\n".join(LINES)
SETTINGS = "\n".join(f"level_{number} = {number}" for number in range(30))
WANTED = "gate 25"


def titles(tmp_path: Path, path: str, text: str, wanted: str = WANTED) -> list[str]:
    """Return the titles of the chunks with the wanted words."""
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    chunks = [
        chunk for document in load(tmp_path) for chunk in chunk_document(document, size=75, counter=CharCounter())
    ]
    assert all(len(chunk.title) < 600 for chunk in chunks)
    return [chunk.title for chunk in chunks if wanted in chunk.text]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.md", f"# Weir\n\n## Port\n\n{PROSE}\n\n## North\n\n### Upper\n\n{PROSE}"),
        ("a.md", f"Weir\n====\n\nPort\n----\n\nNone.\n\nNorth\n-----\n\n### Upper #\n\n{PROSE}"),
        ("a.md", f"# Weir\n\n## North\n\n```sh\n# Port\n```\n\n### [Upper](upper.md)\n\n{PROSE}"),
        ("a.rst", f"Weir\n****\n\nNorth\n=====\n\nUpper\n-----\n\n{PROSE}"),
        ("a.adoc", f"= Weir\n\n== North\n\n----\n== Port\n----\n\n=== Upper\n\n{PROSE}"),
        ("a.org", f"#+TITLE: Weir\n\n* North\n\n** Upper\n\n{PROSE}"),
        ("a.wiki", f"= Weir =\n\n== North ==\n\n=== Upper ===\n\n{PROSE}"),
        ("a.textile", f"h1. Weir\n\nh2. North\n\nh3. Upper\n\n{PROSE}"),
        ("a.typ", f"= Weir\n\n== North\n\n=== Upper\n\n{PROSE}"),
        ("a.tex", f"\\title{{Weir}}\n\n\\section{{North}}\n\n\\subsection{{Upper}}\n\n{PROSE}"),
        ("a.txt", f"Weir\n====\n\nNorth\n=====\n\nUpper\n-----\n\n{PROSE}"),
        ("weir.1", f".TH WEIR 1\n.SH NAME\nWeir\n.SH North\n.SS Upper\n{PROSE}\n"),
        ("a.html", f"<title>Weir</title><h2>North</h2><pre>\n# Port\n</pre><h3>Upper</h3><p>{'<p>'.join(LINES)}"),
        ("a.ipynb", json.dumps({"nbformat": 4, "metadata": {}, "cells": [
            {"cell_type": "markdown", "source": "# Weir"}, {"cell_type": "markdown", "source": "## North\n\n### Upper"},
            *({"cell_type": "code", "source": f"# {line}"} for line in LINES)]})),
    ],
)  # fmt: skip
def test_a_chunk_has_the_headings_above_it(tmp_path: Path, path: str, text: str) -> None:
    found = titles(tmp_path, path, text)
    assert found[-1].replace("Weir - ", "") == "Weir: North > Upper"


@pytest.mark.parametrize(
    ("path", "text", "names"),
    [
        ("a.md", "- North\n  - Upper\n" + "\n".join(f"    - {line}" for line in LINES), "North > Upper"),
        ("a.txt", f"1. North\n\n1.2. Upper\n\n{PROSE}", "1. North > 1.2. Upper"),
        ("a.txt", "NORTH\n\n   Upper\n\n" + "\n\n".join(f"      {line}" for line in LINES), "NORTH > Upper"),
        ("a.kt", "object North {\n  fun upper() {\n" + "\n".join(f"    {line}" for line in LINES) + "\n  }\n}\n",
         "object North > fun upper()"),
        ("a.toml", "[north.upper]\n" + "\n".join(f'a{at} = "{line}"' for at, line in enumerate(LINES)), "north.upper"),
        ("a.tf", 'module "north" {  # one\n' + "\n".join(f'  a{at} = "{it}"' for at, it in enumerate(LINES)) + "\n}",
         'module "north'),
        ("a.yaml", "---\nkind: Weir\nmetadata:\n  name: south\n---\nkind: Weir\nmetadata:\n  name: north\ndata:\n"
         + "\n".join(f"  a{at}: {line}" for at, line in enumerate(LINES)), "Weir north"),
        ("a.json", json.dumps({"weirs": {"list": [{"name": "north", "lines": LINES}]}, "about": "None"}, indent=1),
         "weirs.list.lines > north"),
        ("a.xml", '<all><weir place="north"><name>Upper</name>' + "".join(f"<a>{line}</a>" for line in LINES)
         + "</weir></all>", "weir (place=north) Upper"),
        ("a.md", "| gate | north |\n|---|---|\n" + "\n".join(f"| {at} | {line} |" for at, line in enumerate(LINES)),
         "gate, north"),
        ("a.log", "Place: north\nJob: upper\n\n" + "\n".join(f"INFO {line}" for line in LINES),
         "Place: north, Job: upper"),
        ("dump", "Name: south\nLevel: 1\nName: north\n" + "\n".join(f"a{at}: {line}" for at, line in enumerate(LINES)),
         "north"),
    ],
)  # fmt: skip
def test_a_chunk_has_the_names_of_the_parts_that_it_begins_in(tmp_path: Path, path: str, text: str, names: str) -> None:
    found = titles(tmp_path, path, text)
    assert found
    assert found[-1].rpartition(": " if ": " not in names else f"{path}: ")[2].endswith(names)


def test_records_inside_a_json_file_name_the_lists_inside_them(tmp_path: Path) -> None:
    text = json.dumps([{"name": "north", "gates": [{"id": "upper", "lines": LINES}]}, {"name": "south"}])
    assert titles(tmp_path, "a.json", text)[-1] == "north: gates > upper > lines"


def test_the_text_of_a_row_may_have_headings(tmp_path: Path) -> None:
    row = {"id": "1", "title": "Weir", "text": f"# Weir\n\n## North\n\n{PROSE}\n\n{PROSE}"}
    assert set(titles(tmp_path, "a.jsonl", json.dumps(row))) == {"Weir: North"}


def test_prose_with_indented_paragraphs_has_no_parents(tmp_path: Path) -> None:
    text = "\n".join(f"    It was a long day.\nNothing moved at {line}" for line in LINES)
    assert titles(tmp_path, "a.txt", text) == ["a"]


@pytest.mark.parametrize(
    ("path", "text", "title"),
    [
        ("north/upper/README.md", f"# Settings\n\n{PROSE}", "Settings (north/upper)"),
        ("north/upper.md", "# Settings\n\ngate 25 ", "Settings (north/upper)"),
        ("north/settings.md", "# Settings\n\ngate 25 ", "Settings"),
        ("north/upper.txt", "gate 25 ", "upper (north)"),
        ("upper.md", "# Settings\n\ngate 25 ", "Settings"),
    ],
)
def test_a_title_that_does_not_say_the_name_of_its_file_has_the_path(
    tmp_path: Path, path: str, text: str, title: str
) -> None:
    assert set(titles(tmp_path, path, text)) == {title}


def test_a_chunk_has_captions_only_if_its_own_text_may_lack_them() -> None:
    north, upper = "North\n\none two three four five six", "Upper\n\nseven eight nine ten eleven twelve"
    text = f"{north}\n\n{upper}\n\nthirteen fourteen fifteen sixteen seventeen eighteen"
    captions = (Caption(0, len(text), "North"), Caption(text.index(upper), len(text), "Upper"))
    document = Document("d", text, "Weir", captions=captions)
    (whole,) = chunk_document(document, size=100, counter=CharCounter())
    assert whole.title == "Weir"
    chunks = chunk_document(document, size=16, counter=CharCounter())
    assert [(chunk.text.partition(" ")[0], chunk.title) for chunk in chunks] == [
        ("North\n\none", "Weir: North"),
        ("Upper\n\nseven", "Weir: North > Upper"),
        ("thirteen", "Weir: North > Upper"),
    ]


def test_a_wrapped_item_of_a_list_names_nothing(tmp_path: Path) -> None:
    wrapped = "".join(f"- **Gate {number}.** It opens\n  on Monday.\n" for number in range(9))
    (tmp_path / "a.md").write_text(f"# Weir\n\n{wrapped}")
    (document,) = load(tmp_path)
    assert document.captions == ()
    (tmp_path / "a.md").write_text(f"# Weir\n\n{wrapped}\n  - **North.** Upper.\n")
    (document,) = load(tmp_path)
    assert [caption.text for caption in document.captions] == ["Gate 8. It opens"]


@pytest.mark.parametrize("path", ["a.txt", "a.rst"])
def test_a_wrapped_item_of_prose_names_nothing_unless_it_is_a_title(tmp_path: Path, path: str) -> None:
    wrapped = "- Gate 3 opens\n  on Monday.\n- The gate in the north of the upper weir was opened by\n  Ketil Varga.\n"
    titled = "- Gate 4\n  It opens at noon.\n- The gates that are opened on every Monday of the year:\n  3 and 4.\n"
    (tmp_path / path).write_text(f"None.\n\n{wrapped}\n{titled}")
    (document,) = load(tmp_path)
    assert [caption.text for caption in document.captions] == [
        "Gate 4", "The gates that are opened on every Monday of the year",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [".. code-block:: python", ".. image:: https://example.com/a.svg", ".. |build| image:: https://example.com/b.svg",
     "if gate.is_open:", "try:", "answer = gate.open(", "gate.open(level=3)", "$ gate --level 3 \\"],
)  # fmt: skip
def test_a_sample_of_code_in_prose_names_nothing(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.rst").write_text(f"An example of use is here.\n\n{line}\n\n    print(gate)\n\nThe end.\n")
    (document,) = load(tmp_path)
    assert document.captions == ()


FIELDS = "".join(f"Field-{number}: {number}\n" for number in range(30))


@pytest.mark.parametrize(
    ("kind", "body", "names"),
    [
        ("text/markdown", f"## North\n\n### Upper\n\n{PROSE}", "North > Upper"),
        ("text/x-rst", f"North\n=====\n\nUpper\n-----\n\n- Today:\n\n{PROSE}", "North > Upper"),
        ("text/plain", f"North\n=====\n\nUpper\n-----\n\n{PROSE}", "North > Upper"),
    ],
)
def test_fields_at_the_beginning_do_not_make_a_page_a_file_of_settings(
    tmp_path: Path, kind: str, body: str, names: str
) -> None:
    wrapped = "- The gate in the north of the upper weir was opened by\n  Ketil Varga.\n\n"
    text = f"{FIELDS}License: Free\n        \n        of fees\nContent-Type: {kind}\n\n{wrapped}{body}"
    found = titles(tmp_path, "METADATA", text)
    assert found
    assert found[-1].endswith(names)
    (document,) = load(tmp_path)
    assert "The gate in the north of the upper weir was opened by" not in [
        caption.text for caption in document.captions
    ]


def test_the_part_that_most_of_a_chunk_is_in_is_named() -> None:
    names = ("upper", "lower")
    text = "".join(f"{name}. " + f"{name[0]} is. " * 30 for name in names)
    ends = (text.index("lower"), len(text))
    captions = (Caption(0, len(text), "gates"), Caption(0, ends[0], "upper"), Caption(ends[0], ends[1], "lower"))
    chunks = chunk_document(Document("d", text, captions=captions), size=50, counter=CharCounter())
    (crossing,) = (chunk for chunk in chunks if chunk.start < ends[0] < chunk.end)
    assert ends[0] - crossing.start < crossing.end - ends[0]
    assert crossing.title == "gates > upper; lower"
    late = (Caption(3, len(text), "gates"), Caption(5, ends[0], "upper"))
    first, *_ = chunk_document(Document("d", text, "Weir", captions=late), size=50, counter=CharCounter())
    assert first.title == "Weir: gates > upper"


def test_a_caption_that_the_title_or_another_caption_says_is_not_repeated() -> None:
    text = "word " * 100
    names = ("weir", "Weir", "upper gate", "gate", "eir")
    captions = tuple(Caption(0, len(text), name) for name in names)
    *_, last = chunk_document(Document("d", text, "weir", captions=captions), size=16, counter=CharCounter())
    assert last.title == "weir: Weir > upper gate > eir"


def test_of_long_captions_the_outermost_and_the_innermost_stay() -> None:
    text = "word " * 100
    captions = tuple(Caption(0, len(text), f"{number} " + "x" * 100) for number in range(9))
    *_, last = chunk_document(Document("d", text, captions=captions), size=50, counter=CharCounter())
    assert [name.partition(" ")[0] for name in last.title.split(" > ")] == ["0", "8"]


TEXT = "North\n\n" + "word " * 40


@pytest.mark.parametrize(
    ("named", "title"),
    [
        (Document("d", TEXT, "Weir", captions=(Caption(0, len(TEXT), "North"),)), "Weir: North"),
        (Document("d", TEXT, "Weir", pages=(0, len(TEXT) - 90)), "Weir (p. 2)"),
    ],
)
def test_new_captions_and_pages_replace_what_an_index_has_of_a_document(named: Document, title: str) -> None:
    chunking = Chunking(size=16, overlap=0, counter="chars")
    plain = Document("d", TEXT, "Weir")
    assert digest_of(plain, chunking) != digest_of(named, chunking)
    stored = chunks_to_store(
        named,
        digest_of(named, chunking),
        chunking=chunking,
        counter=CharCounter(),
        revision=1,
        position=0,
        resumable={},
    )
    spans = {item.record: Span(item.chunk.start, item.chunk.end, item.chunk.tokens) for item in stored}
    again = chunks_to_store(
        named, digest_of(named, chunking), chunking=chunking, counter=CharCounter(), revision=1, position=0,
        resumable=spans,
    )  # fmt: skip
    assert [item.chunk.title for item in again] == [item.chunk.title for item in stored]
    assert stored[-1].chunk.title == title


def test_line_ends_in_the_fields_of_a_record_do_not_move_its_names(tmp_path: Path) -> None:
    record = {f"field {number}": "level\r" for number in range(40)} | {"gate": {"host": "h" * 90, "levels": ["y" * 90]}}
    (tmp_path / "a.json").write_text(json.dumps([record, record]))
    document = next(iter(load(tmp_path)))
    named = {caption.text: document.text[caption.start : caption.end] for caption in document.captions}
    assert named["gate"].startswith("gate: {")
    assert named["levels"].startswith('"levels": [') or named["levels"].startswith("[")
