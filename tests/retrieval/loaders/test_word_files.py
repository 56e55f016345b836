"""Word files: the text that a reader of the document sees is read, wherever it is, and nothing else."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from context_agent.retrieval.loaders import LoadReport, load

NAMESPACES = 'xmlns:w="w" xmlns:m="m" xmlns:v="v" xmlns:a="a" xmlns:x="x"'
LINK = '<Relationship Id="r{number}" Type="http://example.org/{kind}" Target="{target}"/>'


def run(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


def paragraph(*runs: str) -> str:
    return f"<w:p>{''.join(runs)}</w:p>"


def relationships(**targets: str) -> str:
    links = (
        LINK.format(number=number, kind=kind, target=target) for number, (kind, target) in enumerate(targets.items())
    )
    return f"<Relationships>{''.join(links)}</Relationships>"


def read(folder: Path, body: str, **notes: str) -> str:
    with zipfile.ZipFile(folder / "a.docx", "w") as archive:
        archive.writestr("_rels/.rels", relationships(officeDocument="word/document.xml"))
        archive.writestr("word/document.xml", f"<w:document {NAMESPACES}><w:body>{body}</w:body></w:document>")
        archive.writestr("word/_rels/document.xml.rels", relationships(**{kind: f"{kind}.xml" for kind in notes}))
        for kind, text in notes.items():
            archive.writestr(f"word/{kind}.xml", f"<w:{kind} {NAMESPACES}>{text}</w:{kind}>")
    report = LoadReport()
    (document,) = load(folder / "a.docx", report=report)
    assert report.notices == []
    return document.text


def test_a_line_that_begins_with_a_number_sign_is_no_title(tmp_path: Path) -> None:
    body = paragraph(run("#1 priority")) + paragraph("<w:pPr><w:pStyle w:val='h'/></w:pPr>", run("The C# &lt;T&gt;"))
    styles = "<w:style w:styleId='h'><w:name w:val='heading 1'/></w:style>"
    assert "#1 priority" in read(tmp_path, body, styles=styles)
    (document,) = load(tmp_path / "a.docx")
    assert document.title == "The C# <T>"


def control(*content: str, properties: str = "") -> str:
    return f"<w:sdt><w:sdtPr>{properties}</w:sdtPr><w:sdtContent>{''.join(content)}</w:sdtContent></w:sdt>"


def table(*rows: str) -> str:
    return f"<w:tbl>{''.join(rows)}</w:tbl>"


def row(*cells: str) -> str:
    return f"<w:tr>{''.join(f'<w:tc>{cell}</w:tc>' for cell in cells)}</w:tr>"


def text_box(*outer: str) -> str:
    """Return a text box inside elements of these names."""
    opened = "".join(f"<{name}>" for name in outer)
    closed = "".join(f"</{name}>" for name in reversed(outer))
    return f"{opened}<w:txbxContent>{paragraph(run('In the box.'))}</w:txbxContent>{closed}"


DRAWING = text_box("m:Choice", "w:drawing", "w:anchor", "a:graphic", "a:graphicData", "w:wgp", "w:wsp", "w:txbx")
FALLBACK = text_box("m:Fallback", "w:pict", "v:shape", "v:textbox")
BODIES = {
    "tracked changes": (
        paragraph(
            run("The lamp is "),
            f"<w:ins>{run('green')}</w:ins>",
            "<w:del><w:r><w:delText>red</w:delText></w:r></w:del>",
        )
        + paragraph(f"<w:moveTo>{run('Moved here.')}</w:moveTo><w:moveFrom>{run('Moved away.')}</w:moveFrom>"),
        "The lamp is green\n\nMoved here.",
    ),
    "content controls": (control(paragraph(run("Keeper: "), control(run("Ada")))), "Keeper: Ada"),
    "fields and tags": (
        paragraph(
            run("See "),
            f"<w:fldSimple>{run('section 4')}</w:fldSimple>",
            f"<w:smartTag>{run(' in ')}<w:smartTag>{run('Brasko')}</w:smartTag></w:smartTag>",
        ),
        "See section 4 in Brasko",
    ),
    "a table in a cell": (
        table(
            control(
                row(
                    paragraph(run("Gate")),
                    table(row(paragraph(run("2 m")), paragraph(run("3 m")))) + paragraph(),
                )
            ),
            row(paragraph(run("Lock"))),
        ),
        "Gate | 2 m 3 m\nLock",
    ),
    "a text box in two forms": (
        paragraph(run("Around it."), f"<w:r><m:AlternateContent>{DRAWING}{FALLBACK}</m:AlternateContent></w:r>"),
        "In the box.\n\nAround it.",
    ),
    "an emoji in two forms": (
        paragraph(
            run("Well done "),
            '<w:r><m:AlternateContent><m:Choice><x:symEx x:font="Emoji" x:char="1F642"/></m:Choice>'
            "<m:Fallback><w:t>\U0001f642</w:t></m:Fallback></m:AlternateContent></w:r>",
            *(
                f'<w:r><m:AlternateContent><m:Choice><x:symEx x:char="{code}"/></m:Choice></m:AlternateContent></w:r>'
                for code in ("", "x", "D800", "FFFFFFFF", "F" * 30)
            ),
        ),
        "Well done \U0001f642",
    ),
    "text with its reading": (
        paragraph(
            f"<w:r><w:ruby><w:rt>{run('とうきょう')}</w:rt><w:rubyBase>{run('東京')}</w:rubyBase></w:ruby></w:r>"
        ),
        "東京",
    ),
    "an old text box": (
        paragraph(f"<w:r>{text_box('w:pict', 'v:group', 'v:rect', 'v:textbox')}</w:r>"),
        "In the box.",
    ),
}


@pytest.mark.parametrize("kind", BODIES)
def test_the_text_of_any_part_is_read_once(tmp_path: Path, kind: str) -> None:
    body, text = BODIES[kind]
    assert read(tmp_path, body) == text


def test_a_formula_is_read_in_its_sentence(tmp_path: Path) -> None:
    letter = "<m:r><m:t>{}</m:t></m:r>".format
    square = f"<m:sSup><m:e>{letter('c')}</m:e><m:sup>{letter('2')}</m:sup></m:sSup>"
    half = f"<m:f><m:num>{letter('1')}</m:num><m:den>{letter('2')}</m:den></m:f>"
    inline = f"<m:oMath>{letter('E=m')}{square}</m:oMath>"
    alone = paragraph(f"<m:oMathPara><m:oMath>{letter('x=')}{half}</m:oMath></m:oMathPara>")
    assert read(tmp_path, paragraph(run("So "), inline, run(" holds.")) + alone) == "So E=mc^2 holds.\n\nx=1/2"


def test_comments_follow_the_text(tmp_path: Path) -> None:
    body = paragraph('<w:commentRangeStart w:id="0"/>', run("It costs 4,000."), '<w:commentRangeEnd w:id="0"/>')
    comments = f"<w:comment>{paragraph(run('The lawyer wants 4,500.'))}</w:comment>"
    assert read(tmp_path, body, comments=comments) == "It costs 4,000.\n\nThe lawyer wants 4,500."


def test_notes_follow_the_text(tmp_path: Path) -> None:
    text = read(
        tmp_path,
        paragraph(run("The mill moved."), "<w:r><w:footnoteReference/></w:r>"),
        endnotes=f"<w:endnote>{paragraph(run('From the archive.'))}</w:endnote>",
        footnotes=f"<w:footnote>{paragraph('<w:r><w:separator/></w:r>')}</w:footnote>"
        f"<w:footnote>{paragraph(run('By forty metres.'))}</w:footnote>",
    )
    assert text == "The mill moved.\n\nBy forty metres.\n\nFrom the archive."


@pytest.mark.parametrize(
    "properties", ["<w:showingPlcHdr/>", '<w:docPartObj><w:docPartGallery w:val="Table of Contents"/></w:docPartObj>']
)
@pytest.mark.parametrize("off", ["0", "false", "off"])
def test_text_that_the_program_wrote_is_left_out(tmp_path: Path, properties: str, off: str) -> None:
    written = f'<w:showingPlcHdr w:val="{off}"/>'
    inner = control(run("And here."), properties=written)
    hidden = control(paragraph(run("Click here."), "<w:r><w:tab/></w:r>", inner), properties=properties)
    assert read(tmp_path, hidden + paragraph(control(run("Written."), properties=written))) == "Written."


def test_runs_outside_of_paragraphs_do_no_harm(tmp_path: Path) -> None:
    assert read(tmp_path, control(run("lost")) + paragraph(run("kept"))) == "kept"
