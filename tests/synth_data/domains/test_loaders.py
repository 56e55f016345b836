"""Every domain reads its samples, and no broken file stops it."""

import io
import json
from pathlib import Path

import pytest

from context_agent.retrieval.loaders import LoadOptions, LoadReport
from context_agent.retrieval.loaders.quoted_replies import without_quoted_replies
from context_agent.synth_data.domains import domain_names, filings, load_domain, patents
from context_agent.synth_data.domains.filings import split_items
from tests.support.growth import MOST_GROWTH, growth

SAMPLES = Path(__file__).parent / "samples"
FOLDERS = {"web": "web", "filings": "filings", "patents": "patents", "email": "mail", "email-messages": "mail"}
FILES = {"web": "p.html", "filings": "s.txt", "patents": "p.xml", "email": "m.mbox", "email-messages": "m.eml"}


def read(name, *sources):
    report = LoadReport()
    documents = {document.id: document for document in load_domain(name).load(list(sources), report=report)}
    assert report.documents == len(documents)
    return documents, report


def load_bytes(name, path, data):
    """Write these bytes to a file and load it; return its documents and its notices as text."""
    path.write_bytes(data)
    documents, report = read(name, path)
    return list(documents.values()), [str(notice) for notice in report.notices]


def test_a_page_is_its_main_text():
    documents, report = read("web", SAMPLES / "web")
    (page,) = documents.values()
    assert page.title == "Almar Bridge"
    assert page.metadata["url"] == "https://example.org/bridges/almar"
    assert page.metadata["date"] == "2019-04-03"
    assert json.loads(page.metadata["links"]) == [
        "https://example.org/rivers/oste",
        "https://example.org/people/verdun",
        "https://archive.example.net/verdun/plans",
    ]
    assert "Café owners paid for the lamps." in page.text
    for phrase in ("cookies", "Share this", "Ten more", "Imprint", "About us", "track("):
        assert phrase not in page.text
    assert report.notices == []


@pytest.mark.parametrize(
    ("html", "kept", "dropped"),
    [
        ("<body><nav>Menu never closed<p>The text of the page stands here.</p>", "text of the page", "nothing"),
        ("<body><p>Words</p><nav>One</nav><p>and more</p>", "Words\n\nand more", "One"),
        ("<p>A <b class='share'>shared</b> word</p>", "A", "shared"),
        (
            "<ul><li><a href='/a'>One</a><li><a href='/b'>Two</a><li><a href='/c'>Three</a></ul><p>Text</p>",
            "Text",
            "Two",
        ),
        ("<ul><li><a href='/a'>One</a> is a long story of its own</ul><p>Text</p>", "a long story", "nothing"),
        ("<nav><p>Nothing but a menu</p></nav>", "Nothing but a menu", "nothing"),
        ("<article><p>x</p></article><p>" + "The page is here. " * 9 + "</p>", "The page is here.", "nothing"),
        ("<div class='content'><p>A</p></div><div id='footer'>Imprint</div>", "A", "Imprint"),
        ("<body class='has-sidebar'><p>All of it</p></body>", "All of it", "nothing"),
    ],
)
def test_what_of_a_page_stays(tmp_path, html, kept, dropped):
    (page,), _ = load_bytes("web", tmp_path / "p.html", html.encode())
    assert kept in page.text
    assert dropped not in page.text


def test_where_a_page_was_saved_from(tmp_path):
    html = b"<!-- saved from url=(0022)https://example.org/a --><p>x <a href='b'>y</a><a href='http://[bad'>z</a></p>"
    (page,), _ = load_bytes("web", tmp_path / "p.html", html)
    assert page.metadata["url"] == "https://example.org/a"
    assert json.loads(page.metadata["links"]) == ["https://example.org/b"]


def test_a_submission_is_its_items_and_exhibits():
    documents, report = read("filings", SAMPLES / "filings" / "0000999001-24-000007.txt")
    stem = "0000999001-24-000007"
    assert list(documents) == [stem, f"{stem}/item-1", f"{stem}/item-1a", f"{stem}/item-7", f"{stem}/ex-21"]
    risks = documents[f"{stem}/item-1a"]
    assert risks.title == "OSTE FERRY & CRANE CORP 10-K 2023-12-31, Item 1A: Risk Factors"
    assert risks.metadata["cik"] == "0000999001"
    assert risks.metadata["filed"] == "2024-02-28"
    assert "a strike cost us" in risks.text, "a reference to another item is no heading"
    assert "Revenue rose" not in risks.text
    all_text = "".join(document.text for document in documents.values())
    for absent in ("hidden facts", "M_]C", "<xbrl>", "<PAGE>"):
        assert absent not in all_text
    assert report.notices == []


def test_a_form_alone_tells_its_company_by_inline_tags():
    documents, _ = read("filings", SAMPLES / "filings" / "quarter.htm")
    ids = list(documents)
    assert ids == ["quarter.htm", "quarter.htm/part-i-item-1", "quarter.htm/item-2", "quarter.htm/part-ii-item-1"]
    assert documents[ids[-1]].title == "Verdun Works Inc. 10-Q 2024-03-31, Part II, Item 1: Legal Proceedings"
    assert "suit over a bearing" in documents[ids[-1]].text


def test_no_text_is_lost_between_sections():
    text = (
        "Cover\nItem 1. Business 3\nItem 2. Property 4\nItem 1. Business\nWe make cranes.\nItem 2. Property\nA yard.\n"
    )
    sections = split_items(text)
    assert [section.item for section in sections] == ["", "1", "2"]
    assert "".join("".join(section.text.split()) for section in sections) == "".join(text.split())
    assert [section.item for section in split_items("No items at all")] == [""]


def test_patents_have_numbers_claims_and_citations():
    documents, report = read("patents", SAMPLES / "patents")
    crane = documents["US99000001B2"]
    assert crane.title == "Floating crane with a tilting deck"
    assert crane.text.startswith(
        "# Abstract\n\nA crane floats on a deck that tilts by up to 7° under load.\n\n# Claims"
    )
    assert "## BACKGROUND\n\nCranes on barges heel. See FIG. 1." in crane.text
    assert crane.metadata["inventors"] == "Ilka Verdun"
    assert crane.metadata["assignee"] == "Almar Cranes GmbH"
    assert crane.metadata["date"] == "2019-05-14"
    assert json.loads(crane.metadata["citations"]) == ["US9800002B1"]
    tank = documents["US9800002B1"]
    assert json.loads(tank.metadata["citations"]) == ["US5300003A"]
    assert "Dgr shape" in tank.text
    action = documents["action.txt"]
    assert action.metadata["kind"] == "office action"
    assert action.metadata["application"] == "15999001"
    assert action.metadata["statutes"] == "103, 112"
    assert json.loads(action.metadata["citations"]) == ["US9800002B1", "US5300003", "US20080123456A1"]
    assert "number" not in action.metadata
    assert [str(notice).split(": ")[1] for notice in report.notices] == ["patent 2"], "the broken one alone is lost"


def test_entities_are_not_expanded(tmp_path):
    bomb = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "x" * 10}">' for n in range(9))
    data = (
        f"<?xml version='1.0'?><!DOCTYPE us-patent-grant [{bomb}]><us-patent-grant><abstract><p>&e8; a</p></abstract>"
    )
    documents, _ = load_bytes("patents", tmp_path / "p.xml", f"{data}</us-patent-grant>".encode())
    assert all(len(document.text) < 1000 for document in documents)


def test_mail_by_thread():
    documents, report = read("email", SAMPLES / "mail")
    lamps = next(document for document in documents.values() if "Lamps" in document.title)
    assert lamps.title == "Lamps for the bridge"
    assert lamps.metadata["messages"] == 3
    assert lamps.metadata["date"] < lamps.metadata["until"]
    assert str(lamps.metadata["day"]) == lamps.metadata["date"][:10].replace("-", "")
    assert lamps.text.index("4,000 crowns") < lamps.text.index("in May") < lamps.text.index("Prell Light")
    assert lamps.text.count("4,000 crowns") == 1, "a quoted line is not said again"
    assert "\nFrom my side that is enough." in lamps.text, "the mark that an mbox puts before From is gone"
    assert "Who is the supplier" not in lamps.text
    assert lamps.metadata["participants"].startswith("Ilka Verdun <ilka@example.org>; Tom Reed")
    cranes = next(document for document in documents.values() if document is not lamps)
    assert cranes.title == "Kräne"
    assert "grüße" in cranes.text
    assert "Attachments: plan.pdf" in cranes.text
    assert cranes.metadata["attachments"] == "plan.pdf"
    assert report.notices == []


def test_mail_by_message():
    documents, _ = read("email-messages", SAMPLES / "mail")
    assert len(documents) == 4
    reply = next(document for document in documents.values() if document.metadata["message_id"] == "a2@example.org")
    assert reply.metadata["references"] == "a1@example.org"
    assert reply.text.startswith(f"From: {reply.metadata['from']}\n")
    assert reply.text.endswith("Agreed. We order them in May.")


def test_a_maildir_and_the_copy_in_another_folder(tmp_path):
    mail = b"From: Pat <pat@example.org>\nSubject: caf\xe9\nMessage-ID: <m1@x>\nDate: no date\n\nA m\xe9moire.\n"
    for folder in ("cur", "new", ".Sent/cur"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "cur" / "1709630000.M1P2.host:2,S").write_bytes(mail)
    (tmp_path / "new" / "1709630001.M1P3.host").write_bytes(mail)
    documents, report = read("email-messages", tmp_path)
    (document,) = documents.values()
    assert document.title == "café"
    assert document.text.endswith("A mémoire.")
    assert report.duplicates == 1


def test_one_thread_through_a_message_that_is_not_there(tmp_path):
    for name, references in (("a", "<x@y>"), ("b", "<x@y>"), ("c", "<z@y>")):
        message = f"From: {name}@y\nMessage-ID: <{name}@y>\nReferences: {references}\nSubject: s\n\n{name} says."
        (tmp_path / f"{name}.eml").write_text(message)
    documents, _ = read("email", tmp_path)
    assert sorted(document.metadata["messages"] for document in documents.values()) == [1, 2]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Yes.\n\nOn Monday Ada wrote:\n> Really?\n> Yes?\n", "Yes."),
        ("Yes.\n\nAm 4. März 2024 schrieb Ada:\n> Wirklich?\n", "Yes."),
        ("> Really?\nYes.\n> And you?\nNo.", "Yes.\nNo."),
        ("Sure.\n\n-----Original Message-----\nFrom: a\nOld.", "Sure."),
        ("Sure.\n\nFrom: Ada\nSent: Monday\nTo: Tom\nOld.", "Sure."),
        ("Sure.\n\nVon: Ada <a@x>\nGesendet: Montag\nAn: Tom\nBetreff: x\n\nOld.", "Sure."),
        ("Sure.\n\n*From:* Ada\n*Sent:* Monday\n*To:* Tom\nOld.", "Sure."),
        ("Sure.\n\nDe : Ada\nEnvoyé : lundi\nÀ : Tom\nOld.", "Sure."),
        ("Sure.\n\n________________\nVon: Ada\nGesendet: Montag\nAn: Tom\nOld.", "Sure."),
        ("Sure.\n________________\nBridges mailing list\nbridges@example.org\n", "Sure."),
        ("Agenda\n________________\n\n1. The bridge\n", "Agenda\n________________\n\n1. The bridge"),
        ("Agenda\n________________\nNote: bring a lamp.\n", "Agenda\n________________\nNote: bring a lamp."),
        ("> Only a quote\n", "> Only a quote"),
        ("On Monday she wrote: I come.", "On Monday she wrote: I come."),
        ("", ""),
    ],
)
def test_own_words(text, kept):
    assert without_quoted_replies(text) == kept


def test_an_mbox_line_that_only_looks_like_a_boundary(tmp_path):
    data = b"From a@b Mon Mar  4 09:00:00 2024\nFrom: a@b\nSubject: s\n\nHe came\n\nFrom there he went on.\n"
    (document,), _ = load_bytes("email", tmp_path / "m.mbox", data)
    assert "From there he went on." in document.text


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("data", [b"", b"\n \n", b"\x00\x01\x02" * 50, b"\x80\x81\x82" * 50, bytes(range(256)) * 4])
def test_what_is_no_such_file_is_a_notice(tmp_path, name, data):
    documents, notices = load_bytes(name, tmp_path / FILES[name], data)
    assert documents == []
    assert notices


@pytest.mark.parametrize("name", FOLDERS)
def test_a_file_cut_anywhere_stops_nothing(tmp_path, name):
    for sample in sorted(path for path in (SAMPLES / FOLDERS[name]).iterdir() if path.is_file()):
        data = sample.read_bytes()
        for share in range(1, 20):
            load_bytes(name, tmp_path / sample.name, data[: len(data) * share // 20])


def test_a_cut_submission_says_so(tmp_path):
    data = (SAMPLES / "filings" / "0000999001-24-000007.txt").read_bytes()
    documents, notices = load_bytes("filings", tmp_path / "s.txt", data[: data.index(b"PART II")])
    assert {"1", "1A"} <= {document.metadata.get("item") for document in documents}
    assert "cut" in notices[0]


@pytest.mark.parametrize(
    ("name", "file", "unit"),
    [
        ("web", "p.html", b"<div class=a><article><p>Word <a href=/x>link</a></p></article><ul><li>"),
        ("filings", "s.txt", b"ITEM 1. Business\nPART II\nWords of a filing.\n"),
        ("patents", "p.txt", b"Claim 1 over US 9,800,002 B1. Title: crane\n"),
        ("patents", "p.xml", b"<?xml version='1.0'?><us-patent-grant><abstract><p>x</p></abstract></us-patent-grant>"),
        ("email", "m.mbox", b"From a@b Mon Mar  4 09:00:00 2024\nFrom: a@b\nReferences: <r@b>\n\n> On\nwords\n\n"),
        ("email-messages", "m.eml", b"From: a@b\nOn x wrote\n\n> a\n"),
    ],
)
def test_a_large_file_is_read_in_linear_time(tmp_path, name, file, unit):
    assert load_bytes(name, tmp_path / file, unit * (500_000 // len(unit)))[0]

    def load(data: bytes) -> None:
        load_bytes(name, tmp_path / file, data)

    assert growth(load, lambda size: unit * (size // len(unit) + 1), 60_000) < MOST_GROWTH


@pytest.mark.parametrize("unit", ["<ul>{}</ul>", "<ul><li><a href=/x>{}</a></ul>"])
def test_nested_lists_are_examined_in_time(tmp_path, unit):
    before, after = unit.split("{}")

    def load(levels):
        return load_bytes("web", tmp_path / "p.html", f"<p>Words</p>{before * levels}x{after * levels}".encode())

    # Lists within lists are examined to a depth, so there is less to do for each level below it.
    assert growth(load, lambda levels: levels, 225) < MOST_GROWTH
    (page,), notices = load(900)
    assert page.text.startswith("Words")
    assert notices == []


def test_a_broken_address_of_a_page_is_left_out(tmp_path):
    html = b"<link rel=canonical href='http://[x'><meta property=og:url content='https://a.example/'><p>Words</p>"
    (page,), notices = load_bytes("web", tmp_path / "p.html", html)
    assert (page.metadata["url"], notices) == ("https://a.example/", [])


PATENT = (
    "<?xml version='1.0'?><us-patent-grant><us-bibliographic-data-grant><invention-title>{}</invention-title>"
    "</us-bibliographic-data-grant><abstract><p>{}</p></abstract></us-patent-grant>"
)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_bulk_file_is_read_patent_by_patent(tmp_path, monkeypatch, encoding):
    monkeypatch.setattr(patents, "BLOCK_BYTES", 100)
    bulk = "\n".join(PATENT.format(f"t{number}", "word " * 30) for number in range(5))
    documents, notices = load_bytes("patents", tmp_path / "p.xml", bulk.encode(encoding))
    assert [document.title for document in documents] == [f"t{number}" for number in range(5)]
    assert notices == []


def test_a_patent_that_is_not_text_costs_no_other_patent(tmp_path):
    bulk = "".join(PATENT.format(title, body) for title, body in (("a", "x"), ("b", "\0"), ("c", "y")))
    documents, notices = load_bytes("patents", tmp_path / "p.xml", bulk.encode())
    assert [document.title for document in documents] == ["a", "c"]
    assert "patent 2: the XML is not well-formed" in notices[0]


@pytest.mark.parametrize(("name", "file"), [("patents", "p.xml"), ("patents", "p.txt"), ("web", "p.html")])
def test_a_document_above_the_limit_is_refused(tmp_path, name, file):
    (tmp_path / file).write_bytes(b"<?xml version='1.0'?><us-patent-grant><p>" + b"word " * 300_000)
    report = LoadReport()
    assert list(load_domain(name).load(tmp_path / file, options=LoadOptions(max_mb=1), report=report)) == []
    assert "is larger than 1 MB" in str(report.notices[0])


def test_a_submission_above_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(filings, "LARGEST_FILE", 2**20)
    documents, notices = load_bytes("filings", tmp_path / "s.txt", b"ITEM 1. Business\nwords\n" * 50_000)
    assert documents == []
    assert "the file is larger than 1 MB. Split it." in notices[0]


@pytest.mark.parametrize("name", sorted(set(domain_names()) - {"patents"}))
def test_a_stream_is_read_too(name):
    stream = io.BytesIO(b"From: a@b\nSubject: s\n\n<p>Words</p>\n")
    assert len(list(load_domain(name).load(stream))) == 1


def test_the_encoding_that_is_asked_for_is_used(tmp_path):
    (tmp_path / "p.html").write_bytes("<p>грузовик</p>".encode("koi8-r"))
    (page,) = load_domain("web").load(tmp_path / "p.html", options=LoadOptions(encoding="koi8-r"))
    assert page.text == "грузовик"
