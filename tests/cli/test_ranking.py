"""How a ranking and its passages are shown."""

from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from context_agent import SearchResult
from context_agent.cli.ranking import PASSAGE, excerpt, show_ranking, wrapped
from context_agent.types import RankedChunk, RankedDocument


def test_a_short_passage_is_shown_whole_on_one_line():
    assert excerpt("One line.\nAnother.", "whatever") == "One line. Another."


def test_a_long_passage_is_shown_where_the_question_s_words_are():
    text = "Nothing of note here. " * 40 + "The Lume flows past Brasko. " + "Nor is there here. " * 40
    passage = excerpt(text, "Which river flows past Brasko?")
    assert "The Lume flows past Brasko." in passage
    assert passage.startswith("… ")
    assert passage.endswith(" …")
    assert len(passage) <= PASSAGE + 4


def test_a_passage_without_any_break_is_cut():
    assert len(excerpt("x" * 5_000, "x")) <= PASSAGE + 4


def test_a_passage_of_wide_characters_is_wrapped_by_its_columns():
    text = "東京は日本の首都です。人口は約千四百万人。" * 12
    rows = wrapped(text, 60)
    assert "".join(rows) == text
    assert max(map(cell_len, rows)) == 60
    assert wrapped("two short words", 9) == ["two short", "words"]


def ranking_text(confidence: float | None, *titles: str) -> str:
    documents = tuple(RankedDocument(title, title, 0.25, (RankedChunk(title, "Text.", 0.25),)) for title in titles)
    console = Console(file=StringIO(), width=100)
    show_ranking(console, SearchResult("Q?", documents, "finished", 1, 10, (), confidence=confidence))
    return console.file.getvalue()


def test_evidence_that_does_not_suffice_is_announced_as_the_nearest():
    text = ranking_text(0.2, "Alpha")
    assert text.startswith("Nothing relevant found. The nearest:\n 1. Alpha")
    assert "confidence 0.20" in text


def test_evidence_that_may_suffice_comes_first():
    assert ranking_text(0.8, "Alpha").startswith(" 1. Alpha")
    unknown = ranking_text(None, "Alpha")
    assert unknown.startswith(" 1. Alpha")
    assert "confidence" not in unknown


@pytest.mark.parametrize(
    ("title", "line"),
    [
        ("Sluice", " 1. Sluice  src/gate.py  0.250\n"),
        ("src/gate.py", " 1. src/gate.py  0.250\n"),
        ("src/gate.py: SluiceGate.open", " 1. src/gate.py: SluiceGate.open  0.250\n"),
        ("src/gate.pyx", " 1. src/gate.pyx  src/gate.py  0.250\n"),
    ],
)
def test_an_id_that_begins_the_title_is_printed_once(title, line):
    document = RankedDocument("src/gate.py", title, 0.25, (RankedChunk("src/gate.py_0", "Text.", 0.25),))
    console = Console(file=StringIO(), width=100)
    show_ranking(console, SearchResult("Q?", (document,), "finished", 1, 10, (), confidence=0.8))
    assert console.file.getvalue().startswith(line)


def test_no_documents_are_nothing_relevant():
    assert ranking_text(None).startswith("Nothing relevant found.\n")


def test_the_line_of_a_record_that_fits_is_shown_with_those_after_it():
    chunk = RankedChunk("c", "sku: B-221\nproduct: Plywood 12 mm\nprice: 47.00\nstock: 3", 0.5)
    console = Console(file=StringIO(), width=100)
    result = SearchResult("price of plywood 12mm", (RankedDocument("c", "", 0.5, (chunk,)),), "finished", 1, 10, ())
    show_ranking(console, result)
    assert "    product: Plywood 12 mm · price: 47.00 · stock: 3\n" in console.file.getvalue()


@pytest.mark.parametrize("text", ["The weir is old. " + "It is long. " * 20, "堰は古い。" + "それは長い。" * 30])
def test_the_sentences_after_the_best_one_fill_no_more_than_two_rows(text: str) -> None:
    console = Console(file=StringIO(), width=60)
    result = SearchResult(
        "weir 堰", (RankedDocument("c", "", 0.5, (RankedChunk("c", text, 0.5),)),), "finished", 1, 10, ()
    )
    show_ranking(console, result)
    rows = [line for line in console.file.getvalue().splitlines() if line.startswith("    ")]
    assert len(rows) == 2
    assert all(cell_len(row) <= 60 for row in rows)


@pytest.mark.parametrize("width", [-1, 0, 1, 2])
def test_a_very_narrow_terminal_loses_no_text(width):
    assert "".join(wrapped("water", width)) == "water"
    assert "".join(wrapped("水車", width)) == "水車"
