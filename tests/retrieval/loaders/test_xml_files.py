"""XML by element, OpenDocument texts, and mailboxes."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from context_agent.retrieval.loaders import LoadReport, load
from context_agent.types import Document


def read(path: Path, data: str | bytes) -> tuple[list[Document], list[str]]:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    report = LoadReport()
    documents = list(load(path, report=report))
    return documents, [notice.reason for notice in report.notices]


def test_each_element_with_text_or_attributes_has_a_line(tmp_path: Path) -> None:
    (document,), reasons = read(
        tmp_path / "a.xml",
        '<f:feed xmlns:f="urn:f"><title>Storms</title>\n <item id="1"><p>A <b>big</b> storm.</p><body><![CDATA[<p>One'
        "</p><p>Two</p>]]></body></item><empty/></f:feed>",
    )
    assert (document.title, reasons) == ("Storms", [])
    assert document.text == "title: Storms\nitem (id=1)\nA big storm.\nbody: One\n\nTwo"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<p><i>abc1</i> is a <b>gene</b>.</p><p id='2'><b>A</b> <i>B</i> c</p>", "abc1 is a gene.\nA B c"),
        ("<q n='1'><i>One</i> two</q><q><i>Three</i></q>", "q (n=1): One two\ni: Three"),
        ("<q><title>One</title>two</q><q><v><w>Three</w></v>four</q>", "title: One\ntwo\nw: Three\nfour"),
        ("<tr id='x'><th>Site</th><th>Eels</th></tr><tr><td><p>A</p><p>b</p></td><td/></tr><tr><td/><td>31</td></tr>",
         "Site | Eels\nA b | \n | 31"),
        ("<row><entry>Site</entry><entry><para>31</para></entry></row><strow><stentry>a</stentry></strow>",
         "Site | 31\na"),
        ("<row><field name='id'>1</field><field name='n'>Ann</field></row>",
         "field (name=id): 1\nfield (name=n): Ann"),
        ("<tr><td>a<table><tr><td>b</td><td>c</td></tr></table></td><td>d</td></tr>", "abc | d"),
        ("<tr><td>a</td><note>b</note></tr>", "a | b"),
    ],
)  # fmt: skip
def test_a_sentence_and_a_row_of_a_table_are_lines(tmp_path: Path, body: str, text: str) -> None:
    (document,), _ = read(tmp_path / "a.xml", f"<all>{body}</all>")
    assert document.text == text


def test_an_article_and_the_entries_of_a_bibliography_have_their_titles(tmp_path: Path) -> None:
    aims = "<sec><title>Aims</title></sec>"
    article = f"<article><front><article-title>Eel <i>genes</i></article-title></front>{aims}</article>"
    (document,), _ = read(tmp_path / "a.xml", article)
    assert document.title == "Eel genes"
    records = "".join(
        f"<record><titles><title><style face='x'>{name}</style></title></titles></record>" for name in ("Eels", "Pike")
    )
    (document,), _ = read(tmp_path / "b.xml", f"<xml><records>{records}</records></xml>")
    assert (document.title, [part.title for part in document.sections]) == ("b.xml", ["Eels", "Pike"])
    assert document.text == "title: Eels\ntitle: Pike"


def test_line_ends_in_attributes_do_not_shift_the_notes_after_them(tmp_path: Path) -> None:
    notes = '<note a="x&#13;&#10;y"><title>One</title></note><note><title>Two</title>&lt;p>a&#13;&lt;/p></note>'
    (document,), _ = read(tmp_path / "a.enex", f"<en-export>{notes}</en-export>")
    parts = [document.text[section.start : section.end] for section in document.sections]
    assert parts == ["note (a=x y)\ntitle: One", "title: Two\na"]


FEED = """\
<rss><channel><title>Weir news</title>
<item><title>Gate</title><d>&lt;p>Old.&lt;/p></d></item>
<item><title>Mill</title></item></channel></rss>
"""


@pytest.mark.parametrize(
    ("name", "xml", "title", "sections"),
    [
        (
            "news.rss",
            FEED,
            "Weir news",
            {"Gate": "title: Gate\nd: Old.", "Mill": "title: Mill"},
        ),
        (
            "news.atom",
            "<feed><title>Weir news</title><entry><author><name>Ann</name></author><title>Gate</title></entry></feed>",
            "Weir news",
            {"Gate": "name: Ann\ntitle: Gate"},
        ),
        (
            "news.atom",
            '<feed><entry><title type="html">Ann&amp;#8217;s ice &amp;amp; snow</title></entry></feed>',
            "news.atom",
            {"Ann\u2019s ice & snow": "title (type=html): Ann\u2019s ice & snow"},
        ),
        (
            "weirs.kml",
            "<kml><Document><name>Weirs</name><Placemark><name>Brasko</name><title>x</title></Placemark></Document></kml>",
            "Weirs",
            {"Brasko": "name: Brasko\ntitle: x"},
        ),
        (
            "a.fb2",
            "<FictionBook><a><book-title>The Weir</book-title></a><title>One</title></FictionBook>",
            "The Weir",
            {},
        ),
        ("walk.gpx", "<gpx><trk><name>To Brasko</name></trk></gpx>", "To Brasko", {}),
        (
            "a.xml",
            "<a><item>One</item><item><item><title>Two</title></item></item></a>",
            "a.xml",
            {"Two": "title: Two"},
        ),
        ("app.xliff", "<xliff><trans-unit><source>Gate</source></trans-unit></xliff>", "app.xliff", {}),
    ],
)
def test_entries_of_a_file_are_sections_with_their_own_titles(
    tmp_path: Path, name: str, xml: str, title: str, sections: dict[str, str]
) -> None:
    (document,), reasons = read(tmp_path / name, xml)
    assert (document.title, reasons) == (title, [])
    assert {part.title: document.text[part.start : part.end] for part in document.sections} == sections


def test_the_title_of_an_entry_is_no_caption_in_it(tmp_path: Path) -> None:
    (document,), _ = read(tmp_path / "news.rss", FEED)
    assert [caption.text for caption in document.captions] == ["channel Weir news"]


@pytest.mark.parametrize(
    "text",
    [
        "<a>not closed",
        '<!DOCTYPE a [<!ENTITY e "x">]><a>&e;</a>',
        "<a>" * 2_000 + "x" + "</a>" * 2_000,
    ],
)
def test_xml_that_is_broken_or_hostile_is_read_as_the_text_that_it_is(tmp_path: Path, text: str) -> None:
    (document,), reasons = read(tmp_path / "a.xml", text)
    assert document.text == text
    assert [reason.partition(" (")[0] for reason in reasons] == ["the file was read as plain text"]


def test_a_page_of_docbook_is_titled_by_its_name_and_keeps_the_lines_of_code(tmp_path: Path) -> None:
    page = (
        "<refentry><refmeta><refentrytitle>weir</refentrytitle></refmeta><refsect1><title>Examples</title>"
        "<screen>\nweir --open\n  --gate 2</screen></refsect1></refentry>"
    )
    (document,), _ = read(tmp_path / "weir.dbk", page)
    assert (document.title, document.text.split("\n")[-2:]) == ("weir", ["screen: weir --open", "  --gate 2"])


def test_xml_without_text_is_reported(tmp_path: Path) -> None:
    assert read(tmp_path / "a.xml", "<a><b/></a>") == ([], ["the file's XML contains no text"])


def odt(content: str, meta: str = "") -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("content.xml", content)
        if meta:
            archive.writestr("meta.xml", meta)
    return stream.getvalue()


def test_an_opendocument_text_has_headings_and_paragraphs(tmp_path: Path) -> None:
    content = (
        '<o:c xmlns:o="urn:o" xmlns:t="urn:t"><t:tracked-changes><t:p>deleted</t:p></t:tracked-changes>'
        '<t:h t:outline-level="2">Storms</t:h><t:p>One<t:s/>two<t:line-break/>three</t:p></o:c>'
    )
    (document,), reasons = read(tmp_path / "a.odt", odt(content))
    assert (document.title, document.text, reasons) == ("Storms", "## Storms\n\nOne two\nthree", [])


META = (
    '<o:document-meta xmlns:o="urn:o" xmlns:d="urn:d"><o:meta><d:title>The Weir</d:title><o:initial-creator>Ada'
    "</o:initial-creator><d:creator>Bo</d:creator><o:creation-date>2026-01-02T03:04:05.123456789</o:creation-date>"
    "<d:date>soon</d:date></o:meta></o:document-meta>"
)


def test_an_opendocument_file_has_the_properties_that_it_states(tmp_path: Path) -> None:
    content = '<o:c xmlns:o="urn:o" xmlns:t="urn:t"><t:h>Storms</t:h><t:p>One.</t:p></o:c>'
    (document,), reasons = read(tmp_path / "a.odt", odt(content, META))
    stated = {"author": "Ada", "created": "2026-01-02T03:04:05.123456", "path": "a.odt"}
    assert (document.title, document.metadata, reasons) == ("The Weir", stated, [])
    (document,), _ = read(tmp_path / "a.odt", odt(content, META.replace("</o:meta>", "")))
    assert (document.title, document.metadata) == ("Storms", {"path": "a.odt"})


def test_the_title_of_an_opendocument_text_is_its_paragraph_in_the_style_of_titles(tmp_path: Path) -> None:
    content = (
        '<o:c xmlns:o="urn:o" xmlns:t="urn:t"><t:p t:style-name="Title">The Weir</t:p>'
        "<t:table-of-content><t:p>Storms 1</t:p></t:table-of-content><t:h>Storms</t:h></o:c>"
    )
    (document,), _ = read(tmp_path / "a.odt", odt(content))
    assert (document.title, document.text) == ("The Weir", "# The Weir\n\n# Storms")


def test_a_table_of_an_opendocument_text_has_a_line_for_each_row(tmp_path: Path) -> None:
    def cells(*texts: str) -> str:
        return "".join(f"<t:table-cell>{text}</t:table-cell>" for text in texts)

    inner = f"<t:table><t:table-row>{cells('<t:p>4</t:p>', '<t:p>m</t:p>')}</t:table-row></t:table>"
    rows = [
        cells("<t:h>Gate</t:h>", "<t:p>Height</t:p><t:p>of it</t:p>", "<t:p>Note</t:p>"),
        cells("<t:p>North<t:note><t:p>Built in 1901.</t:p></t:note></t:p>", inner, "") + "<t:covered-table-cell/>",
        cells("", "", ""),
    ]
    lines = "".join(f"<t:table-row>{row}</t:table-row>" for row in rows)
    box = f"<t:frame><t:text-box>{inner}</t:text-box></t:frame>"
    content = (
        f'<o:c xmlns:o="urn:o" xmlns:t="urn:t"><t:p>Before.</t:p><t:table>{lines}</t:table><t:p>After{box}.</t:p></o:c>'
    )
    (document,), _ = read(tmp_path / "a.odt", odt(content))
    table = "Gate | Height of it | Note\nNorth Built in 1901. | 4 m"
    assert document.text.split("\n\n") == ["Before.", table, "After.", "4", "m"]


@pytest.mark.parametrize(("count", "spaces"), [("3", 3), ("999999999", 100), ("x", 1), ("0", 0)])
def test_an_element_of_an_opendocument_text_may_stand_for_several_spaces(
    tmp_path: Path, count: str, spaces: int
) -> None:
    content = f'<o:c xmlns:o="urn:o" xmlns:t="urn:t"><t:p>One<t:s t:c="{count}"/>two</t:p></o:c>'
    (document,), _ = read(tmp_path / "a.odt", odt(content))
    assert document.text == f"One{' ' * spaces}two"


def test_notes_comments_and_boxes_inside_a_paragraph_follow_it(tmp_path: Path) -> None:
    note = "<t:note><t:note-citation>1</t:note-citation><t:note-body><t:p>Built in 1901.</t:p></t:note-body></t:note>"
    comment = "<o:annotation><t:creator>Ann</t:creator><t:date>2026-01-02</t:date><t:p>Sure?</t:p></o:annotation>"
    box = "<t:frame><t:text-box><t:h>Height</t:h><t:p>4 m</t:p></t:text-box></t:frame>"
    content = (
        f'<o:c xmlns:o="urn:o" xmlns:t="urn:t"><t:p>The mill{note} stood{comment} on '
        f"<t:date>Monday</t:date>{box}.</t:p>"
        f"{comment}<t:p>The end.</t:p></o:c>"
    )
    (document,), reasons = read(tmp_path / "a.odt", odt(content))
    texts = ["The mill stood on Monday.", "Built in 1901.", "Sure?", "# Height", "4 m", "Sure?", "The end."]
    assert (document.text.split("\n\n"), reasons) == (texts, [])


@pytest.mark.parametrize("data", [b"PK\3\4x", odt("<a>"), odt("<a>" * 2_000)])
def test_a_broken_opendocument_text_is_reported(tmp_path: Path, data: bytes) -> None:
    documents, (reason,) = read(tmp_path / "a.odt", data)
    assert documents == []
    assert "the odt file cannot be read" in reason or "the XML is nested more than 1,000 levels" in reason


def test_a_mailbox_is_a_document_for_each_message(tmp_path: Path) -> None:
    message = "From ann@example.com Fri Jan  2 03:04:05 2026\nFrom: ann@example.com\nSubject: {0}\n\nText {0}\n\n"
    documents, reasons = read(tmp_path / "a.mbox", "".join(map(message.format, ("one", "two"))))
    assert ([document.title for document in documents], reasons) == (["one", "two"], [])


def test_each_note_of_an_evernote_export_is_a_section_with_its_title(tmp_path: Path) -> None:
    notes = "".join(
        f"<note><title>{title}</title><content><![CDATA[<en-note><div>{text}</div></en-note>]]></content>"
        f"<created>20260102T030405Z</created></note>"
        for title, text in (("Weir", "Raised in 1994."), ("Lock", "Closed in 1987."))
    )
    (tmp_path / "work.enex").write_text(f"<en-export>{notes}</en-export>", encoding="utf-8")
    (document,) = load(tmp_path)
    assert document.title == "work"
    assert [(section.title, document.text[section.start : section.end]) for section in document.sections] == [
        ("Weir", "title: Weir\ncontent: Raised in 1994.\ncreated: 20260102T030405Z"),
        ("Lock", "title: Lock\ncontent: Closed in 1987.\ncreated: 20260102T030405Z"),
    ]


@pytest.mark.parametrize(
    ("declared", "encoding", "words"),
    [
        ("Shift_JIS", "shift_jis", "灯台守は波止場を歩いた。"),
        ("GB2312", "gb18030", "山上的磨坊。"),
        ("windows-1251", "cp1251", "Мельница на холме"),
        ("UTF-16", "utf-16", "Мельница на холме"),
        ("bogus", "utf-8", "Мельница на холме"),
        ("", "utf-8-sig", "Мельница на холме"),
    ],
)
def test_xml_in_any_encoding_is_read_as_xml(tmp_path: Path, declared: str, encoding: str, words: str) -> None:
    head = f'<?xml version="1.0" encoding="{declared}"?>' if declared else ""
    (tmp_path / "a.xml").write_bytes(f"{head}<feed><title>{words}</title></feed>".encode(encoding))
    report = LoadReport()
    (document,) = load(tmp_path / "a.xml", report=report)
    assert (document.title, document.text) == (words, f"title: {words}")
    assert not report.notices


def test_a_part_of_a_package_in_an_unknown_encoding_is_reported(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.odt", "w") as file:
        file.writestr("mimetype", "application/vnd.oasis.opendocument.text")
        file.writestr("content.xml", '<?xml version="1.0" encoding="bogus"?><a>The mill.</a>')
    report = LoadReport()
    assert not list(load(tmp_path / "a.odt", report=report))
    assert "an encoding that the parser does not know" in report.notices[0].reason


def test_the_names_of_html_for_characters_are_read_in_xml(tmp_path: Path) -> None:
    text = "<rss><title>Caf&eacute;&nbsp;&amp; m&uuml;ller</title><note><![CDATA[&bogus; &lt;]]></note></rss>"
    (document,), reasons = read(tmp_path / "a.rss", text)
    assert (document.title, reasons) == ("Caf\u00e9 & m\u00fcller", [])
    assert "&bogus;" in document.text


def test_a_message_whose_encoding_is_unknown_is_read_with_a_notice(tmp_path: Path) -> None:
    (document,), reasons = read(tmp_path / "a.eml", b"From: a@b\n\n" + "Мельница на холме".encode("koi8-r"))
    assert document.text.startswith("From: a@b")
    assert reasons == ["characters of a message were replaced, because it does not declare the encoding that it has"]


def test_the_words_of_a_drawing_are_read(tmp_path: Path) -> None:
    text = """<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><title>The mill</title>
        <style>.a { fill: red }</style><path d="M 0 0 L 10 10"/>
        <g><text x="1">Gates <tspan>open</tspan> &amp; close</text><text>Weir</text></g>
        <foreignObject><div><p>A pond</p><p>A dam</p></div></foreignObject></svg>"""
    (document,), reasons = read(tmp_path / "a.svg", text)
    assert (document.title, reasons) == ("The mill", [])
    assert document.text == "The mill\nGates open & close\nWeir\nA pond\nA dam"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('<svg><path d="M 0 0"/></svg>', "a drawing without words"),
        ("<svg><text>Weir</text>", "the file was read as plain text (no element found: line 1, column 22)"),
    ],
)
def test_a_drawing_without_words_or_damaged_is_reported(tmp_path: Path, text: str, reason: str) -> None:
    assert read(tmp_path / "a.svg", text)[1] == [reason]
