"""The titles that files state, unless a program made them up."""

from __future__ import annotations

from pathlib import Path

import pytest

from context_agent.retrieval.loaders import load
from context_agent.retrieval.loaders.titles import meaningful_title


@pytest.mark.parametrize(
    "title",
    [
        "Untitled",
        "untitled-1",
        "Untitled Document",
        "Document",
        "Document1",
        "Slide 1",
        "PowerPoint Presentation",
        "PowerPoint-Präsentation",
        "Présentation PowerPoint",
        "Presentación de PowerPoint",
        "Apresentação do PowerPoint",
        " Title\n",
    ],
)
def test_a_title_that_a_program_made_up_is_no_title(title: str) -> None:
    assert meaningful_title(title) == ""


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Untitled works of Ada Weir", "Untitled works of Ada Weir"),
        ("Document the\n gate", "Document the gate"),
        ("PowerPoint basics", "PowerPoint basics"),
        ("Microsoft Word - Gate_v3.docx", "Gate_v3"),
        ("Microsoft PowerPoint - Gate 1.2 plan", "Gate 1.2 plan"),
        ("Microsoft Word - A guide.", "A guide."),
    ],
)
def test_another_title_stays(title: str, expected: str) -> None:
    assert meaningful_title(title) == expected


@pytest.mark.parametrize(
    ("heading", "title"),
    [
        ("Gates {#gates}", "Gates"),
        ("Gates { #gates .wide }", "Gates"),
        ("Gates {: #gates }", "Gates"),
        ("[Gates](gates.md) and **mills**", "Gates and mills"),
        ("`open_gate` of __init__", "open_gate of __init__"),
        ("Use {{ gate }} in C#", "Use {{ gate }} in C#"),
        ('<a name="x"></a>Gates', "Gates"),
    ],
)
def test_the_title_of_a_page_has_no_marks_of_markdown(tmp_path: Path, heading: str, title: str) -> None:
    (tmp_path / "a.md").write_text(f"# {heading}\n\nIt holds.\n")
    assert [document.title for document in load(tmp_path)] == [title]


def test_the_heading_of_a_page_replaces_a_title_that_an_editor_made_up(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<title>Untitled Document</title><h1>Brasko Weir</h1><p>It holds.</p>")
    (tmp_path / "b.html").write_text("<title>Document</title><p>It holds.</p>")
    assert [document.title for document in load(tmp_path)] == ["Brasko Weir", "b"]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Life\n\nDesigned [[Orm Skerry Light]].\n", "Ketil Varga: Life"),
        ("See [[Brasko#History|the town]].\n\n# Life\n", "Ketil Varga: Life"),
        ("# Ketil Varga, engineer\n\nDesigned [[Orm Skerry Light]].\n", "Ketil Varga, engineer"),
        ("---\ntitle: An engineer\n---\n# Life\n[[Brasko]]\n", "An engineer"),
        ("Designed [[Orm Skerry Light]].\n", "Ketil Varga"),
        ("# Life\n\nRun `[[x]]` and [[1]](https://example.org).\n\n```\n[[package]]\n```\n", "Life"),
    ],
)
def test_a_note_that_links_to_others_by_name_is_titled_by_its_name_and_heading(
    tmp_path: Path, text: str, title: str
) -> None:
    (tmp_path / "Ketil Varga.md").write_text(text)
    assert [document.title for document in load(tmp_path)] == [title]
