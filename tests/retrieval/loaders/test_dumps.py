"""Dumps of whole sites: each page of a MediaWiki and each post of Stack Exchange is a document."""

from __future__ import annotations

import bz2
from pathlib import Path

import pytest

from context_agent.retrieval.loaders import LoadOptions, LoadReport, load
from context_agent.types import Document

WIKI = """\
<mediawiki xmlns="urn:x" version="0.11"><siteinfo><sitename>Weirs</sitename></siteinfo>
<page><title>Brasko</title><ns>0</ns><revision><timestamp>2020-01-01T00:00:00Z</timestamp><text>Old.</text></revision>
<revision><timestamp>2026-01-02T00:00:00Z</timestamp><contributor><username>Ann</username></contributor>
<text bytes="9" xml:space="preserve">New &amp;amp; old.

* One
</text></revision></page>
<page><title>Bresko</title><ns>0</ns><redirect title="Brasko" />
<revision><text>#REDIRECT [[Brasko]]</text></revision></page>
<page><title>Talk:Brasko</title><ns>1</ns><revision><text>Is it old?</text></revision></page>
<page><title>Empty</title><ns>0</ns><revision><text /></revision></page>
</mediawiki>
"""
POSTS = """\
<?xml version="1.0" encoding="utf-8"?>
<posts>
  <row Id="1" PostTypeId="1" Title="Gate leaks" Body="&lt;p&gt;Why does the &lt;b&gt;gate&lt;/b&gt; leak?&lt;/p&gt;" />
  <row Id="2" ParentId="1" Body="&lt;p&gt;The hinge.&lt;/p&gt;" />
  <row Id="3" />
</posts>
"""


def read(file: Path, **options: int) -> tuple[list[Document], list[str]]:
    report = LoadReport()
    documents = list(load(file, options=LoadOptions(**options), report=report))
    return documents, [notice.reason for notice in report.notices]


@pytest.mark.parametrize("name", ["wiki.xml", "wiki.xml.bz2"])
def test_each_page_of_a_wiki_is_a_document_with_its_last_revision(tmp_path: Path, name: str) -> None:
    data = WIKI.encode()
    (tmp_path / name).write_bytes(bz2.compress(data) if name.endswith(".bz2") else data)
    (page, talk), reasons = read(tmp_path / name)
    assert (page.id, page.title, page.text.strip()) == (f"{name}#Brasko", "Brasko", "New &amp; old.\n\n* One")
    assert page.metadata == {"path": name, "date": "2026-01-02T00:00:00Z", "day": 20260102}
    assert (talk.title, talk.metadata, reasons) == ("Talk:Brasko", {"path": name, "namespace": "1"}, [])


def test_each_post_of_stack_exchange_is_a_document(tmp_path: Path) -> None:
    (tmp_path / "Posts.xml").write_text(POSTS)
    (question, answer), reasons = read(tmp_path / "Posts.xml")
    assert (question.id, question.title, question.text) == ("1", "Gate leaks", "Why does the gate leak?")
    assert (answer.text, answer.metadata["ParentId"]) == ("The hinge.", "1")
    assert [reason.partition(".")[0] for reason in reasons] == ["the row has no field text, content, body or contents"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_dump_may_be_larger_than_a_document_but_a_page_may_not(tmp_path: Path, packed: bool) -> None:
    words = "The mill stood by the weir. "
    pages = [
        f"<page><title>P{number}</title><revision><text>{words * size}</text></revision></page>"
        for number, size in enumerate([30_000, 50_000, 30_000])
    ]
    data = f"<mediawiki>{''.join(pages)}</mediawiki>".encode()
    file = tmp_path / f"w.xml{'.bz2' * packed}"
    file.write_bytes(bz2.compress(data) + bytes(20_000 * packed) if packed else data)
    documents, reasons = read(file, max_mb=1)
    assert [document.title for document in documents] == ["P0", "P2"]
    assert len(reasons) == 1
    assert reasons[0].startswith("page 'P1': the page")


def test_posts_without_text_are_reported_with_their_places(tmp_path: Path) -> None:
    rows = [f'<row Id="{number}" Body="{"A gate." if number in (1, 4) else ""}" />' for number in range(1, 6)]
    (tmp_path / "Posts.xml").write_text(f"<posts>{''.join(rows)}</posts>")
    report = LoadReport()
    assert [document.id for document in load(tmp_path / "Posts.xml", report=report)] == ["1", "4"]
    assert [notice.line for notice in report.notices] == [2, 3, 5]


@pytest.mark.parametrize("text", ["word " * 300_000, "a<b/>" * 100_000], ids=["long", "in tiny pieces"])
def test_a_page_that_takes_too_much_memory_is_left_out_wherever_its_date_is(tmp_path: Path, text: str) -> None:
    page = f"<page><title>P</title><revision><text>{text}</text><timestamp>2026-01-02</timestamp></revision></page>"
    (tmp_path / "w.xml").write_text(f"<mediawiki>{page}{page.replace(text, 'Short.').replace('P<', 'Q<')}</mediawiki>")
    documents, (reason,) = read(tmp_path / "w.xml", max_mb=1)
    assert [document.title for document in documents] == ["Q"]
    assert reason.startswith("page 'P': the page")


def test_of_a_damaged_dump_the_pages_before_the_damage_are_read(tmp_path: Path) -> None:
    (tmp_path / "w.xml").write_text(WIKI.partition("<page><title>Empty")[0])
    documents, (reason,) = read(tmp_path / "w.xml")
    assert [document.title for document in documents] == ["Brasko", "Talk:Brasko"]
    assert reason.startswith("the XML is damaged")
    assert reason.endswith("Its first 2 pages were read.")


def test_a_dump_without_any_page_that_can_be_read_is_text_or_empty(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text("<mediawiki><page>")
    (tmp_path / "b.xml").write_text("<mediawiki></mediawiki>")
    (document,), reasons = read(tmp_path)
    assert document.text == "<mediawiki><page>"
    assert [reason.partition(" (")[0] for reason in reasons] == [
        "the file was read as plain text",
        "the file is empty: it contains no text",
    ]
