"""The parsers and templates that make question sets from technical manuals, on small pages of each kind."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parents[2] / "benchmarks"
if not (PROGRAMS / "technical_sets.py").is_file():
    pytest.skip("benchmarks live in the repository alone", allow_module_level=True)

sys.path.insert(0, str(PROGRAMS))
import multihop  # noqa: E402
import technical_documents as documents  # noqa: E402
import technical_questions as questions  # noqa: E402
import technical_sets as sets  # noqa: E402

sys.path.remove(str(PROGRAMS))

GETPRIORITY = r""".\" A comment
.TH getpriority 2 2022-12-04 "Linux man-pages 6.03"
.SH NAME
getpriority, setpriority \- get/set program scheduling priority
.SH DESCRIPTION
The attribute is dealt with by
.BR nice (2).
.PP
The value
.I which
is one of
.BR PRIO_PROCESS ,
or
.BR PRIO_PGRP .
.EX
    id = getpid();
.EE
.SH ERRORS
.TP
.B EACCES
The caller attempted to set a lower nice value.
.TS
l l.
Flag	Since
a\-b	2.6
.TE
.SH SEE ALSO
.BR fork (2)
"""
NICE = ".TH nice 2 2022\n.SH NAME\nnice \\- change process priority\n.SH NOTES\nSee\n.BR setpriority (2).\n"

SHELVE = """<html><head><title>shelve</title></head><body><section id="module-shelve"><h1>shelve — Persistence
<a class="headerlink" href="#module-shelve">¶</a></h1><p>A shelf is a dictionary. See
<a href="dbm.html#dbm.open"><code>dbm.open()</code></a> for flags. {filler}</p>
<dl class="py function"><dt class="sig py" id="shelve.open">shelve.<b>open</b>(filename)</dt><dd><p>Open a persistent
dictionary. {filler}</p></dd></dl>
<dl class="py function"><dt id="shelve.sync">shelve.sync()</dt><dd><p>Too short.</p></dd></dl>
<section id="restrictions"><h2>Restrictions</h2><p>Not for concurrent use, see
<a href="../using/os.html">there</a>, <a href="#shelve.sync">sync</a>, or <a href="https://x.org/">a site</a>.
{filler}</p></section></section></body></html>"""

RFC = """\ufeff
Network Working Group                                        A. Author
Request for Comments: 9999                               November 1998

Table of Contents

   1. Introduction ............ 1
   2. Format .................. 2

1. Introduction

   This protocol transfers messages over a link, as in [HTTP], and its
   encoding is that of Section 2 in every case that anybody has met. A

Author                      Standards Track                     [Page 1]
\f
RFC 9999                        Example                    November 1998


   single sentence may go across a page break in the text of a standard.

   1.  This item of a list is no heading, although it has a number.

2. Format

   The format has three fields. Each of them is explained by
   Section 4.2 of [HTTP]. {filler}

2.1.  Fields

   Short.

4. Not the next section

References

   [HTTP]  Fielding, R., "HTTP Semantics", STD 97, RFC 9110, June 2022.
   {filler}
"""
FILLER = " ".join(f"word{number}" for number in range(60))
WORDING = questions.Wording("manual page", "the call to")


def manual_pages() -> list[Any]:
    return documents.resolve(
        documents.manual_page(GETPRIORITY, collection="linux", name="getpriority.2")
        + documents.manual_page(NICE, collection="linux", name="nice.2")
    )


def test_a_manual_page_is_read_as_text_without_macros() -> None:
    page, _ = manual_pages()
    assert (page.id, page.title) == ("linux:getpriority.2", "getpriority(2)")
    assert page.summary == "get/set program scheduling priority"
    assert (
        "The attribute is dealt with by nice(2).\n\nThe value which is one of PRIO_PROCESS, or PRIO_PGRP." in page.text
    )
    assert "\n    id = getpid();\n" in page.text
    assert "\n\nEACCES  The caller attempted to set a lower nice value." in page.text
    assert "Flag  Since\na-b  2.6" in page.text
    assert "\\" not in page.text
    assert "A comment" not in page.text


def test_references_between_manual_pages_follow_their_names_and_aliases() -> None:
    page, nice = manual_pages()
    assert [(item.words, item.target) for item in page.references] == [("nice(2)", "linux:nice.2")]
    assert [item.target for item in nice.references] == ["linux:getpriority.2"]


def test_a_page_that_includes_another_has_no_document() -> None:
    assert documents.manual_page(".so man2/getpriority.2\n", collection="linux", name="setpriority.2") == []
    assert documents.manual_page("not a manual page", collection="linux", name="x.2") == []


def test_a_long_manual_page_is_divided_at_its_headings() -> None:
    source = NICE + f".SH HISTORY\n{'old ' * 50}\n.SH BUGS\n{'bad ' * documents.LONG_PAGE}\n"
    pages = documents.manual_page(source, collection="linux", name="nice.2")
    assert [page.id for page in pages] == ["linux:nice.2#NAME", "linux:nice.2#HISTORY", "linux:nice.2#BUGS"]
    assert {page.title for page in pages} == {"nice(2)"}
    assert pages[0].anchors == ("nice(2)",)
    assert "See setpriority(2)." in pages[0].text


def test_a_manual_in_html_has_a_document_for_each_section_and_object() -> None:
    html = SHELVE.format(filler=FILLER)
    pages = {page.id: page for page in documents.manual_sections(html, collection="python", name="library/shelve")}
    section, entry, inner = (
        pages[f"python:library/shelve#{anchor}"] for anchor in ("module-shelve", "shelve.open", "restrictions")
    )
    assert len(pages) == 3
    assert (section.title, entry.title, inner.title) == ("shelve — Persistence", "shelve.open", "Restrictions")
    assert "Not for concurrent use" not in section.text
    assert "Too short." in section.text
    assert "¶" not in section.text
    assert {"library/shelve#", "library/shelve#shelve.sync"} <= set(section.anchors)
    assert [(item.words, item.target) for item in section.references] == [("dbm.open()", "library/dbm#dbm.open")]
    assert [item.target for item in inner.references] == ["using/os#", "library/shelve#shelve.sync"]
    (reference,) = documents.resolve(list(pages.values()))[1].references
    assert reference.target == section.id


def test_a_part_of_a_reference_page_has_the_pages_title() -> None:
    html = (
        '<html><head><title>VACUUM</title></head><body><div class="navheader"><div>Prev</div></div>'
        f'<div class="refentry" id="V"><h2>VACUUM</h2><p>{FILLER}</p><div class="refsect1" id="n"><h2>Notes</h2>'
        f"<p>{FILLER}</p></div></div></body></html>"
    )
    pages = documents.manual_sections(html, collection="postgresql", name="sql-vacuum")
    assert [page.title for page in pages] == ["VACUUM: Notes", "VACUUM"]
    assert all("Prev" not in page.text for page in pages)


def test_an_rfc_has_a_document_for_each_section() -> None:
    source = RFC.replace("{filler}", FILLER)
    pages = documents.resolve(
        [
            *documents.rfc_sections(source, collection="rfc", name="rfc9999.txt", subject="Example"),
            documents.Page("rfc:rfc9110#4.2", "rfc9110.txt", "", anchors=("rfc9110#4.2",)),
        ]
    )
    assert [page.id for page in pages[:-1]] == [
        "rfc:rfc9999#front",
        "rfc:rfc9999#1",
        "rfc:rfc9999#2",
        "rfc:rfc9999#References",
    ]
    assert {page.title for page in pages[:-1]} == {"rfc9999.txt"}
    introduction, layout = pages[1], pages[2]
    assert introduction.summary == "Introduction in Example"
    assert "anybody has met. A\n   single sentence may go" in introduction.text
    assert "no heading" in introduction.text
    assert "[Page 1]" not in introduction.text
    assert "Short." in layout.text
    assert [item.target for item in introduction.references] == ["rfc:rfc9999#2"]
    assert [(item.words, item.target) for item in layout.references] == [("Section 4.2 of [HTTP]", "rfc:rfc9110#4.2")]


def test_essays_are_divided_at_their_numbered_headings() -> None:
    filler = "word " * documents.LEAST_WORDS
    html = f"<h1>B.1 Why?</h1><p>{filler}first</p><h2>B.1.2 And <i>how</i>?</h2><p>{filler}second</p><h2>B.1.3 No</h2>x"
    pages = documents.essay_sections(html, collection="essays")
    assert [(page.id, page.title) for page in pages] == [("essays:B.1", "B.1 Why?"), ("essays:B.1.2", "B.1.2 And how?")]
    assert "first" in pages[0].text
    assert "second" not in pages[0].text


def test_a_help_page_is_divided_at_its_headings_and_short_parts_are_joined() -> None:
    filler = "word " * documents.LEAST_WORDS
    html = (
        f"<title>Help</title><h1>Crop</h1><p>{filler}one</p><h2>Note</h2><p>short</p>"
        f"<h2>Scale</h2><p>{filler}two</p><h2>Scale</h2><p>{filler}three</p><h2>List</h2>{filler * 100}"
    )
    pages = documents.help_sections(html, collection="gimp", name="tools/crop")
    assert [page.id for page in pages] == ["gimp:tools/crop", "gimp:tools/crop#Scale", "gimp:tools/crop#Scale-2"]
    assert [page.title for page in pages] == ["Crop", "Scale", "Scale"]
    assert "short" in pages[0].text
    assert "two" not in pages[0].text


def test_a_page_of_mallard_is_one_document() -> None:
    body = f"<title>Sticky <gui>keys</gui></title><info>left out</info><p>{'word ' * documents.LEAST_WORDS}</p>"
    source = f'<page xmlns="http://projectmallard.org/1.0/">{body}</page>'
    (page,) = documents.mallard_page(source, collection="desktop", name="help/keys")
    assert (page.id, page.title) == ("desktop:help/keys", "Sticky keys")
    assert "left out" not in page.text
    assert not list(documents.mallard_page("<page", collection="desktop", name="help/keys"))


def test_help_files_are_read_once_and_without_tables_of_contents(tmp_path: Path) -> None:
    (tmp_path / "help").mkdir()
    for name in ("a.html", "a_toc.html", "index.html"):
        (tmp_path / "help" / name).write_text(f"<h1>{name}</h1><p>{'word ' * documents.LEAST_WORDS}</p>")
    pages = list(sets.HelpPages("x", "help", ("*.html", "a*.html"))(tmp_path))
    assert [page.id for page in pages] == ["x:a"]


def test_an_entry_of_a_dictionary_is_a_headword_with_indented_lines() -> None:
    filler = "    filler\n" * documents.LEAST_WORDS
    source = f"00-database-info\n{filler}\nhack\n n.\n\n    See {'{ bagbiter }'}.\n{filler}\nshort\n    Too short.\n"
    (page,) = documents.dictionary_entries(source, collection="jargon")
    assert (page.id, page.title) == ("jargon:hack", "hack")
    assert page.text.startswith("hack n.\n\nSee bagbiter.\nfiller")


def test_a_template_describes_a_document_instead_of_naming_it() -> None:
    child = documents.Page(
        "linux:a.2",
        "a(2)",
        "",
        references=(
            documents.Reference(
                "A process that was started by fork(2) inherits the limits of its own parent.",
                "fork(2)",
                "linux:fork.2",
            ),
        ),
    )
    fork = documents.Page("linux:fork.2", "fork(2)", "", summary="create a child process")
    (item,) = questions.template_questions([child, fork], WORDING, limit=5, without=(), seed="x")
    assert item.question == (
        "Which manual page says that a process that was started by the call to create a child process inherits the"
        " limits of its own parent?"
    )
    assert (item.answer, item.gold, item.type) == ("a(2)", ("linux:a.2", "linux:fork.2"), "bridge")
    assert questions.template_questions([child, fork], WORDING, limit=5, without={"linux:fork.2"}, seed="x") == []


def test_a_summary_with_the_documents_name_is_no_description() -> None:
    assert questions.description(documents.Page("i", "nice(2)", "", summary="set the nice value"), WORDING) == ""
    assert questions.description(documents.Page("i", "x(7)", "", summary="an overview of things"), WORDING) == ""


def test_written_questions_whose_evidence_is_gone_are_left_out(tmp_path: Path) -> None:
    row = {"set": "linux", "split": "dev", "type": "single", "question": "Q?", "answer": "A"}
    file = tmp_path / "q.jsonl"
    rows = [{**row, "evidence": {"linux:a.2": "the  words"}}, {**row, "evidence": {"linux:b.2": "missing"}}]
    file.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    page = documents.Page("linux:a.2", "a(2)", "Here are the\nwords.")
    items, problems = questions.written_questions(file, "linux", "dev", {page.id: page})
    assert [item.gold for item in items] == [("linux:a.2",)]
    assert problems == ["linux:b.2: evidence changed: Q?"]
    assert questions.written_questions(file, "linux", "train", {page.id: page}) == ([], [])


def test_the_written_questions_are_well_formed_and_their_splits_share_no_document() -> None:
    rows = [json.loads(line) for line in sets.QUESTIONS.read_text(encoding="utf-8").splitlines()]
    gold = {
        split: {gold_id for row in rows if row["split"] == split for gold_id in row["evidence"]}
        for split in ("train", "dev")
    }
    assert not gold["train"] & gold["dev"]
    assert len({row["question"] for row in rows}) == len(rows)
    names = {technical.name for technical in sets.SETS}
    assert all(row["set"] in names and row["evidence"] and all(row["evidence"].values()) for row in rows)
    assert {row["type"] for row in rows} == {"bridge", "comparison", "keywords", "single"}


def test_a_set_is_written_in_the_format_of_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "QUESTIONS", tmp_path / "none.jsonl")
    sets.QUESTIONS.write_text("")
    folder = tmp_path / "root" / "usr/share/man/man2"
    folder.mkdir(parents=True)
    (folder / "getpriority.2.gz").write_bytes(gzip.compress(GETPRIORITY.encode()))
    (folder / "setpriority.2.gz").symlink_to("getpriority.2.gz")
    package = sets.Package("manpages-dev", "6.03-2", tmp_path / "root")
    for out in ("first", "second"):
        sets.make(sets.SETS[0], [package], tmp_path / out)
    folder = tmp_path / "first" / "linux"
    assert (folder / "corpus.jsonl.gz").read_bytes() == (tmp_path / "second/linux/corpus.jsonl.gz").read_bytes()
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        (row,) = map(json.loads, lines)
    assert row.keys() == {"id", "title", "text"}
    assert "manpages-dev 6.03-2" in (folder / "README.md").read_text(encoding="utf-8")
    assert (folder / "queries.dev.jsonl").read_text() == ""


def test_packages_without_documents_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="apt-get download"):
        sets.make(sets.SETS[3], [sets.Package("doc-rfc-std", "1", tmp_path)], tmp_path / "out")
    with pytest.raises(FileNotFoundError, match=r"holds no manpages_\*\.deb"):
        sets.find_package("manpages", tmp_path, tmp_path)


def test_copied_words_are_those_of_the_gold_documents(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "corpus.jsonl.gz", "wt", encoding="utf-8") as stream:
        stream.write(json.dumps({"id": "a", "title": "t", "text": "Locks belong to a process."}) + "\n")
    question = {"id": "1", "question": "Which process holds locks?", "gold": ["a"]}
    (tmp_path / "queries.dev.jsonl").write_text(json.dumps(question) + "\n")
    assert sets.copied_words(tmp_path) == 0.5


def test_the_benchmark_looks_for_a_set_in_every_data_folder(tmp_path: Path) -> None:
    for folder, name in (("first", "musique"), ("second", "musique"), ("second", "linux")):
        (tmp_path / folder / name).mkdir(parents=True)
        (tmp_path / folder / name / "corpus.jsonl.gz").touch()
    data = [tmp_path / "first", tmp_path / "second"]
    assert multihop.set_folder(data, "musique") == tmp_path / "first" / "musique"
    assert multihop.set_folder(data, "linux") == tmp_path / "second" / "linux"
    with pytest.raises(FileNotFoundError, match=r"no set rfc: .*first.*second.*--data"):
        multihop.set_folder(data, "rfc")
