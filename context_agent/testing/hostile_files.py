"""Hostile files of every kind that the loaders read, made by a program.

    for file in hostile_files(2**20):
        (folder / file.name).write_bytes(file.data)

Each file tries to cost far more memory or time than its size justifies. `size` is the number of bytes of the hostile
part before compression, so a test can measure several sizes. The same size and seed give the same files. If pyarrow is
not installed, Parquet files are left out.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

_WORD_NAMES = b'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_SHEET_NAMES = (
    b'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" '
    b'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
)
_SLIDE_NAMES = (
    b'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    b'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships" '
    b'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
)
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_WORD_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml"
_SHEET_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_SLIDE_TYPE = "application/vnd.openxmlformats-officedocument.presentationml"


@dataclass(frozen=True, slots=True)
class HostileFile:
    """A hostile file.

    Attributes:
        name: The file name. Its extension chooses the reader.
        data: The content.
        attack: A description of the attack.
    """

    name: str
    data: bytes
    attack: str

    @property
    def kind(self) -> str:
        """The extension without its dot."""
        return self.name.partition(".")[2]


def hostile_files(size: int, seed: int = 0, kind: str = "") -> Iterator[HostileFile]:
    """Yield more than 200 hostile files, one at a time.

    Args:
        size: Bytes of the hostile part of each file before compression. At least 1,000.
        seed: Seed of the random parts.
        kind: The extension of the files to yield, without its dot. Defaults to all kinds.
    """
    for kinds, make in _MAKERS:
        if not kind or kind in kinds.split():
            files = make(size, random.Random(seed)) if make is _texts else make(size)
            yield from (file for file in files if kind in {"", file.kind})


def repeated(unit: bytes, size: int) -> bytes:
    """Return the unit repeated to about `size` bytes, and at least once."""
    return unit * max(1, size // len(unit))


def archive(members: Mapping[str, bytes], *, compressed: bool = True) -> bytes:
    """Return a ZIP archive of the members.

    Args:
        members: The content of each member by its name.
        compressed: Whether the members are compressed.
    """
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as opened:
        for name, data in members.items():
            opened.writestr(zipfile.ZipInfo(name), data, opened.compression)
    return target.getvalue()


def word_file(body: bytes, *, styles: bytes = b"", more: Mapping[str, bytes] | None = None) -> bytes:
    """Return a Word file.

    Args:
        body: XML of the body, with the namespace prefix `w`.
        styles: XML of the styles, with the namespace prefix `w`.
        more: Further members of the archive by name.
    """
    links = {"styles": "styles.xml"} if styles else {}
    return archive({
        **_root("word/document.xml", {"word/document.xml": f"{_WORD_TYPE}.document.main+xml",
                                      "word/styles.xml": f"{_WORD_TYPE}.styles+xml"}),
        "word/document.xml": b"<w:document %b><w:body>%b</w:body></w:document>" % (_WORD_NAMES, body),
        "word/styles.xml": b"<w:styles %b>%b</w:styles>" % (_WORD_NAMES, styles),
        "word/_rels/document.xml.rels": _relationships(links.items()),
        **(more or {}),
    })  # fmt: skip


def presentation(slide: bytes, *, references: int = 1, notes: bytes = b"") -> bytes:
    """Return a presentation with one slide.

    Args:
        slide: XML of the slide's shape tree.
        references: How often the presentation lists the slide.
        notes: XML of the shape tree of the slide's notes.
    """
    ids = b"".join(b'<p:sldId id="%d" r:id="rId1"/>' % (256 + n) for n in range(references))
    note = b"<p:notes %b><p:cSld><p:spTree>%b</p:spTree></p:cSld></p:notes>" % (_SLIDE_NAMES, notes)
    return archive({
        **_root("ppt/presentation.xml", {"ppt/presentation.xml": f"{_SLIDE_TYPE}.presentation.main+xml",
                                         "ppt/slides/slide1.xml": f"{_SLIDE_TYPE}.slide+xml",
                                         "ppt/notesSlides/n.xml": f"{_SLIDE_TYPE}.notesSlide+xml"}),
        "ppt/presentation.xml": b"<p:presentation %b><p:sldIdLst>%b</p:sldIdLst></p:presentation>"
        % (_SLIDE_NAMES, ids),
        "ppt/_rels/presentation.xml.rels": _relationships([("slide", "slides/slide1.xml")]),
        "ppt/slides/slide1.xml": b"<p:sld %b><p:cSld><p:spTree>%b</p:spTree></p:cSld></p:sld>" % (_SLIDE_NAMES, slide),
        "ppt/slides/_rels/slide1.xml.rels": _relationships([("notesSlide", "../notesSlides/n.xml")] if notes else []),
        "ppt/notesSlides/n.xml": note,
    })  # fmt: skip


def workbook(
    rows: bytes, *, strings: bytes = b"", styles: bytes = b"", sheets: bytes = b"", names: bytes = b""
) -> bytes:
    """Return a workbook with one sheet.

    Args:
        rows: XML of the sheet's rows.
        strings: XML of the shared strings.
        styles: XML of the styles.
        sheets: XML of further sheet references.
        names: XML of the defined names.
    """
    sheets = b'<sheet name="S" sheetId="1" r:id="rId1"/>' + sheets
    return archive({
        **_root("xl/workbook.xml", {"xl/workbook.xml": f"{_SHEET_TYPE}.sheet.main+xml",
                                    "xl/worksheets/sheet1.xml": f"{_SHEET_TYPE}.worksheet+xml",
                                    "xl/sharedStrings.xml": f"{_SHEET_TYPE}.sharedStrings+xml",
                                    "xl/styles.xml": f"{_SHEET_TYPE}.styles+xml"}),
        "xl/workbook.xml": b"<workbook %b><sheets>%b</sheets><definedNames>%b</definedNames></workbook>"
        % (_SHEET_NAMES, sheets, names),
        "xl/_rels/workbook.xml.rels": _relationships(
            [("worksheet", "worksheets/sheet1.xml"), ("sharedStrings", "sharedStrings.xml"), ("styles", "styles.xml")]
        ),
        "xl/worksheets/sheet1.xml": b"<worksheet %b><sheetData>%b</sheetData></worksheet>" % (_SHEET_NAMES, rows),
        "xl/sharedStrings.xml": b"<sst %b>%b</sst>" % (_SHEET_NAMES, strings),
        "xl/styles.xml": b"<styleSheet %b>%b</styleSheet>" % (_SHEET_NAMES, styles),
    })  # fmt: skip


def book(package: bytes, pages: Mapping[str, bytes] | None = None, container: bytes = b"") -> bytes:
    """Return an EPUB.

    Args:
        package: The package document.
        pages: The pages by file name.
        container: The container document. Defaults to one that names the package document.
    """
    named = b'<container><rootfiles><rootfile full-path="p.opf"/></rootfiles></container>'
    return archive({"META-INF/container.xml": container or named, "p.opf": package, **(pages or {})})


def pdf(objects: Iterable[bytes], *, trailer: bytes = b"") -> bytes:
    """Return a PDF of the objects.

    Args:
        objects: The objects, which are numbered from 1. The first one is the catalog.
        trailer: Further entries of the trailer.
    """
    data, offsets = bytearray(b"%PDF-1.7\n"), []
    for number, content in enumerate(objects, 1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    start = len(data)
    data += b"xref\n0 %d\n0000000000 65535 f \n" % (len(offsets) + 1)
    data += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    data += b"trailer\n<</Size %d/Root 1 0 R%b>>\nstartxref\n%d\n%%%%EOF\n" % (len(offsets) + 1, trailer, start)
    return bytes(data)


def pdf_page(content: bytes, *, resources: bytes = b"", filters: bytes = b"", more: Iterable[bytes] = ()) -> bytes:
    """Return a PDF with one page.

    Args:
        content: The page's content stream.
        resources: Entries of the page's resource dictionary.
        filters: Entries of the stream's dictionary that name its filters. Defaults to compressing the content.
        more: Further objects, which are numbered from 5.
    """
    return pdf([
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources<<%b>>>>" % resources,
        stream(content, filters),
        *more,
    ])  # fmt: skip


def stream(content: bytes, fields: bytes = b"") -> bytes:
    """Return a stream object of a PDF. If no fields are given, the content is compressed."""
    content, fields = (content, fields) if fields else (zlib.compress(content, 9), b"/Filter/FlateDecode")
    return b"<</Length %d%b>>\nstream\n%b\nendstream" % (len(content), fields, content)


def _root(main: str, types: Mapping[str, str]) -> dict[str, bytes]:
    """Return the content types of an Office file, and the relationship that names its main part."""
    overrides = "".join(f'<Override PartName="/{part}" ContentType="{kind}"/>' for part, kind in types.items())
    default = '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    content = f'<Types xmlns="{_PACKAGE}/content-types">{default}{overrides}</Types>'
    return {"[Content_Types].xml": content.encode(), "_rels/.rels": _relationships([("officeDocument", main)])}


def _relationships(links: Iterable[tuple[str, str]]) -> bytes:
    """Return the relationships of an Office file.

    Each link is a kind and a target, and gets the id rId1, rId2 and so on.
    """
    entries = (
        f'<Relationship Id="rId{number}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(links, 1)
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{"".join(entries)}</Relationships>'.encode()


def _paragraph(text: bytes, properties: bytes = b"") -> bytes:
    return b"<w:p>%b<w:r><w:t>%b</w:t></w:r></w:p>" % (properties, text)


def _archives(size: int) -> Iterator[HostileFile]:
    """Yield attacks on the ZIP archive itself, for each format that is an archive."""
    for kind in ("docx", "pptx", "xlsx", "epub"):
        many = archive({str(number): b"" for number in range(size // 100)}, compressed=False)
        yield HostileFile(f"members.{kind}", many, "an archive of a great many empty members")
        yield HostileFile(
            f"torn.{kind}", word_file(repeated(_paragraph(b"a"), size))[:-40], "an archive without its end"
        )
        yield HostileFile(f"not-zip.{kind}", b"PK\3\4" + repeated(b"PK\5\6", size), "many ends of an archive")
    data = bytearray(word_file(repeated(_paragraph(b"a" * 100), size)))
    at = data.index(b"word/document.xml", data.index(b"PK\1\2")) - 46  # in the directory at the end
    data[at + 24 : at + 28] = struct.pack("<I", 10)
    yield HostileFile("forged-size.docx", bytes(data), "a member that states to unpack to ten bytes")
    data[at + 24 : at + 28] = struct.pack("<I", 0xFFFFFFF0)
    yield HostileFile("forged-size-large.docx", bytes(data), "a member that states to unpack to four gigabytes")


def _word_files(size: int) -> Iterator[HostileFile]:
    span = b'<w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val="2000000000"/></w:tcPr>%b</w:tc></w:tr></w:tbl>'
    yield HostileFile("grid-span.docx", word_file(span % _paragraph(b"a")), "a cell that spans two billion columns")
    spans = repeated(span.replace(b"2000000000", b"63") % _paragraph(b"a" * 1_000), size)
    yield HostileFile("grid-spans.docx", word_file(spans), "cells of long texts that span many columns")
    before = b'<w:tbl><w:tr><w:trPr><w:gridBefore w:val="2000000000"/></w:trPr><w:tc>%b</w:tc></w:tr></w:tbl>'
    yield HostileFile("grid-before.docx", word_file(before % _paragraph(b"a")), "a row that begins far to the right")
    count = max(1, size // 300)
    styles = b"".join(
        b'<w:style w:type="paragraph" w:styleId="s%d"><w:name w:val="Style %d"/></w:style>' % (n, n)
        for n in range(count)
    )
    used = b"".join(
        _paragraph(b"a", b'<w:pPr><w:pStyle w:val="s%d"/></w:pPr>' % (count - 1)) for _ in range(count)
    )  # fmt: skip
    yield HostileFile(
        "styles.docx", word_file(used, styles=styles), "many paragraphs that name the last of many styles"
    )
    cells = b"<w:tr><w:tc>%b</w:tc></w:tr>" % _paragraph(b"a" * 1_000)
    merged = b"<w:tr><w:tc><w:tcPr><w:vMerge/></w:tcPr><w:p/></w:tc></w:tr>"
    rows = cells + repeated(merged, size)
    yield HostileFile("merged.docx", word_file(b"<w:tbl>%b</w:tbl>" % rows), "many rows that continue the cell above")
    nested = size // 60
    table = b"<w:tbl><w:tr><w:tc>" * nested + _paragraph(b"a") + b"</w:tc></w:tr></w:tbl>" * nested
    yield HostileFile("nested.docx", word_file(table), "tables inside each other")
    deep = b"<w:p>" * (size // 11) + b"</w:p>" * (size // 11)
    yield HostileFile("deep.docx", word_file(deep), "elements inside each other")
    yield HostileFile("open.docx", word_file(repeated(b"<w:p>", size)), "elements that are never closed")
    yield HostileFile("paragraphs.docx", word_file(repeated(b"<w:p/>", size)), "a great many empty paragraphs")
    yield HostileFile(
        "runs.docx", word_file(b"<w:p>%b</w:p>" % repeated(b"<w:r><w:t>a</w:t></w:r>", size)), "tiny runs"
    )
    yield HostileFile(
        "text.docx", word_file(_paragraph(b"a" * size)), "a paragraph that unpacks to far more than its size"
    )
    references = _paragraph(repeated(b"&#120;", size))
    yield HostileFile("references.docx", word_file(references), "a text of character references")
    attributes = b"<w:p %b/>" % b" ".join(b'a%d=""' % number for number in range(size // 10))
    yield HostileFile("attributes.docx", word_file(attributes), "an element with a great many attributes")
    yield HostileFile("attribute.docx", word_file(b'<w:p a="%b"/>' % (b"a" * size)), "an attribute of great length")
    names = b"".join(b"<a%d/>" % number for number in range(size // 11))
    yield HostileFile("names.docx", word_file(names), "elements that all have different names")
    yield HostileFile("name.docx", word_file(b"<%b/>" % (b"a" * size)), "an element with a name of great length")
    space = b'<x xmlns="%b">%b</x>' % (b"u" * (size // 2), repeated(b"<p/>", size // 2))
    yield HostileFile("namespace.docx", word_file(space), "a long namespace that many elements inherit")
    spaces = b"".join(b'<x xmlns:n%d="u"/>' % number for number in range(size // 20))
    yield HostileFile("namespaces.docx", word_file(spaces), "a great many namespaces")
    yield HostileFile("comment.docx", word_file(b"<!--%b-->" % (b"a" * size)), "a comment of great length")
    laughs = b'<!DOCTYPE x [<!ENTITY a "%b">%b]><x>&z;</x>' % (
        b"ha" * 100,
        b"".join(b'<!ENTITY %c "%b">' % (letter + 1, b"&%c;" % letter * 100) for letter in range(ord("a"), ord("z"))),
    )
    yield HostileFile("laughs.docx", word_file(b"", more={"word/document.xml": laughs}), "entities of entities")
    quadratic = b'<!DOCTYPE x [<!ENTITY a "%b">]><x>%b</x>' % (b"a" * (size // 2), repeated(b"&a;", size // 2))
    yield HostileFile(
        "entity.docx", word_file(b"", more={"word/document.xml": quadratic}), "a long entity, named often"
    )
    core = b"<coreProperties><title>%b</title></coreProperties>" % (b"a" * size)
    core_link = {"docProps/core.xml": core, "_rels/.rels": _root("word/document.xml", {})["_rels/.rels"].replace(
        b"</Relationships>",
        f'<Relationship Id="c" Type="{_PACKAGE}/relationships/metadata/core-properties" Target="docProps/core.xml"/>'
        "</Relationships>".encode(),
    )}  # fmt: skip
    yield HostileFile("title.docx", word_file(_paragraph(b"a"), more=core_link), "a title of great length")
    links = _relationships(("x", f"t{number}") for number in range(size // 130))
    yield HostileFile(
        "relationships.docx", word_file(_paragraph(b"a"), more={"word/_rels/document.xml.rels": links}), "relationships"
    )
    wide = word_file(b"", more={"word/document.xml": b"\xff\xfe" + ("<a/>" * (size // 8)).encode("utf-16-le")})
    yield HostileFile("utf-16.docx", wide, "many root elements in UTF-16")


def _presentations(size: int) -> Iterator[HostileFile]:
    text = b"<p:txBody><a:p><a:r><a:t>%b</a:t></a:r></a:p></p:txBody>"
    shape = b'<p:sp><p:nvSpPr><p:cNvPr id="2" name="a"/><p:nvPr/></p:nvSpPr>%b</p:sp>' % (text % b"a")
    title = shape.replace(b"<p:nvPr/>", b'<p:nvPr><p:ph type="title"/></p:nvPr>')
    yield HostileFile(
        "slides.pptx", presentation(repeated(shape, size // 2), references=size // 80), "a slide named often"
    )
    shared = presentation(shape, references=size // 80, notes=repeated(title, size))
    yield HostileFile("notes.pptx", shared, "long notes that many slides share")
    yield HostileFile("titles.pptx", presentation(repeated(title, size)), "a slide with a great many titles")
    nested = size // 25
    groups = b"<p:grpSp>" * nested + shape + b"</p:grpSp>" * nested
    yield HostileFile("groups.pptx", presentation(groups), "groups inside each other")
    yield HostileFile("open-groups.pptx", presentation(repeated(b"<p:grpSp>", size)), "groups that are never closed")
    cell = b'<a:tc gridSpan="2000000000">%b</a:tc>' % (text % b"a").replace(b"p:txBody", b"a:txBody")
    frame = b"<p:graphicFrame><a:graphic><a:graphicData>%b</a:graphicData></a:graphic></p:graphicFrame>"
    row = frame % b"<a:tbl><a:tr>%b</a:tr></a:tbl>"
    yield HostileFile("table.pptx", presentation(row % repeated(cell, size)), "a table with a very wide row")
    breaks = shape.replace(b"<a:r>", repeated(b"<a:br/>", size) + b"<a:r>")
    yield HostileFile("breaks.pptx", presentation(breaks), "a paragraph of line breaks")


def _workbooks(size: int) -> Iterator[HostileFile]:
    shared = b"<si><t>%b</t></si>"
    cells = b"<row>%b</row>" % repeated(b'<c t="s"><v>0</v></c>', size // 2)
    one = workbook(cells, strings=shared % (b"a" * (size // 2)))
    yield HostileFile("string.xlsx", one, "one long shared string in a great many cells")
    rows = workbook(repeated(b'<row><c t="s"><v>0</v></c></row>', size // 2), strings=shared % (b"a" * (size // 2)))
    yield HostileFile("string-rows.xlsx", rows, "one long shared string in a great many rows")
    yield HostileFile("strings.xlsx", workbook(b"", strings=repeated(b"<si/>", size)), "a great many shared strings")
    runs = b"<si>%b</si>" % repeated(b"<r><t>a</t></r>", size)
    yield HostileFile("runs.xlsx", workbook(b'<row><c t="s"><v>0</v></c></row>', strings=runs), "a string of many runs")
    far = repeated(b'<row><c r="XFD1"><v>1</v></c></row>', size)
    yield HostileFile("columns.xlsx", workbook(far), "rows with one cell far to the right")
    deep = b'<row r="1048576"><c><v>1</v></c></row>'
    yield HostileFile("rows.xlsx", workbook(repeated(deep, size)), "rows far below")
    row = b'<row r="999999999999"><c r="ZZZZZZZZZZ999999999999"><v>1</v></c></row>'
    yield HostileFile("beyond.xlsx", workbook(row), "a cell beyond any sheet")
    letters = b'<row><c r="%b1"><v>1</v></c></row>' % (b"A" * size)
    yield HostileFile("reference.xlsx", workbook(letters), "a cell reference of great length")
    sheets = b"".join(b'<sheet name="S%d" sheetId="%d" r:id="rId1"/>' % (n, n) for n in range(2, max(3, size // 80)))
    few = repeated(b"<row><c><v>1</v></c></row>", size // 2)
    yield HostileFile("sheets.xlsx", workbook(few, sheets=sheets), "a sheet named often")
    dated = b'<row><c s="1"><v>1</v></c></row>'
    formats = b'<cellXfs><xf numFmtId="0"/>%b</cellXfs>' % repeated(b'<xf numFmtId="14"/>', size)
    yield HostileFile("styles.xlsx", workbook(dated, styles=formats), "a great many cell styles")
    custom = b"<numFmts>%b</numFmts>" % b"".join(
        b'<numFmt numFmtId="%d" formatCode="yyyy"/>' % number for number in range(164, 164 + size // 50)
    )
    yield HostileFile("formats.xlsx", workbook(dated, styles=custom), "a great many number formats")
    code = b'<numFmts><numFmt numFmtId="164" formatCode="%b"/></numFmts><cellXfs><xf/><xf numFmtId="164"/></cellXfs>'
    yield HostileFile("format.xlsx", workbook(dated, styles=code % repeated(b"[&quot;", size)), "a long number format")
    names = repeated(b'<definedName name="a">S!$A$1</definedName>', size)
    yield HostileFile("names.xlsx", workbook(dated, names=names), "a great many defined names")
    yield HostileFile(
        "number.xlsx", workbook(b"<row><c><v>%b</v></c></row>" % (b"9" * size)), "a number of many digits"
    )
    two_styles = b'<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs>'
    dates = repeated(b'<row><c s="1"><v>-1e308</v></c></row>', size)
    yield HostileFile("dates.xlsx", workbook(dates, styles=two_styles), "dates outside of any calendar")
    inline = b'<row><c t="inlineStr"><is><t>%b</t></is></c></row>' % (b"a" * size)
    yield HostileFile("inline.xlsx", workbook(inline), "a cell that unpacks to far more than its size")
    yield HostileFile("cells.xlsx", workbook(b"<row>%b</row>" % repeated(b"<c/>", size)), "a row of empty cells")


def _books(size: int) -> Iterator[HostileFile]:
    package = b"<package><metadata>%b</metadata><manifest>%b</manifest><spine>%b</spine></package>"
    item = b'<item id="a" href="%b" media-type="text/html"/>'
    page = {"a.html": b"<p>Text.</p>"}
    reference = b'<itemref idref="a"/>'
    often = package % (b"", item % b"a.html", repeated(reference, size))
    yield HostileFile("spine.epub", book(often, page), "a spine that names one page again and again")
    aliases = b"".join(
        b'<item id="i%d" href="%ba.html" media-type="text/html"/>' % (n, b"./" * (n % 50)) for n in range(size // 150)
    )
    every = b"".join(b'<itemref idref="i%d"/>' % n for n in range(size // 150))
    yield HostileFile("aliases.epub", book(package % (b"", aliases, every), page), "one page under many names")
    path = package % (b"", item % repeated(b"../", size), reference)
    yield HostileFile("path.epub", book(path, page), "a path of great length")
    named = package % (b"", item % b"a.html", reference)
    yield HostileFile("tags.epub", book(named, {"a.html": repeated(b"<p>a", size)}), "a page of tags")
    yield HostileFile(
        "text.epub", book(named, {"a.html": b"a" * size}), "a page that unpacks to far more than its size"
    )
    title = package % (b"<dc:title>%b</dc:title>" % (b"a" * size), item % b"a.html", reference)
    yield HostileFile("title.epub", book(title.replace(b"dc:", b""), page), "a title of great length")
    titles = package % (repeated(b"<title/>", size), item % b"a.html", reference)
    yield HostileFile("titles.epub", book(titles, page), "a great many titles")
    yield HostileFile(
        "container.epub", book(named, page, repeated(b"<container>", size)), "a container that never ends"
    )
    itself = named.replace(b"a.html", b"p.opf")
    yield HostileFile("itself.epub", book(itself, page), "a book whose only page is its own package")


def _messages(size: int) -> Iterator[HostileFile]:
    def message(fields: bytes, body: bytes = b"Text.\n") -> bytes:
        return b"From: a@example.org\nSubject: s\n%b\n\n%b" % (fields, body)

    content_type = b"Content-Type: text/plain; "
    for name, value, attack in (
        ("quoted", b'name="%b"' % repeated(b'\\";', size), "quoted parameters"),
        ("quotes", repeated(b'";', size), "quotes that open and close around separators"),
        ("parameters", repeated(b"a=b; ", size), "a great many parameters"),
        ("continued", b"".join(b"name*%d=a; " % n for n in range(size // 14)), "a name in a great many pieces"),
        ("charset", b"charset=%b" % (b"a" * size), "a character set with a name of great length"),
        ("comments", b"(" * size, "comments inside each other"),
    ):
        yield HostileFile(f"type-{name}.eml", message(content_type + value), attack)
    disposition = b'Content-Disposition: attachment; filename="%b"' % repeated(b"=?utf-8?q?a?= ", size)
    yield HostileFile("file-name.eml", message(disposition), "the name of an attachment in encoded words")
    for name, unit, attack in (
        ("words", b"=?utf-8?q?a?= ", "encoded words"),
        ("words-joined", b"=?utf-8?q?a?=", "encoded words without white space"),
        ("words-broken", b"=?utf-8?q?", "encoded words that do not end"),
        ("folds", b"a\n ", "a field in a great many lines"),
    ):
        yield HostileFile(f"subject-{name}.eml", message(b"Subject: " + repeated(unit, size)), f"a subject of {attack}")
        wrong = b"Subject: %b\nFrom: a@example.org\n\nText." % repeated(unit, size)
        yield HostileFile(f"first-{name}.eml", wrong, f"a first field of {attack}")
    for name, value, attack in (
        ("comments", b"(" * size, "comments inside each other"),
        ("angles", b"<" * size, "brackets that are never closed"),
        ("quotes", repeated(b'"\\', size), "quoted pairs"),
        ("many", repeated(b"a@b,", size), "a great many addresses"),
        ("groups", repeated(b"a:", size), "groups inside each other"),
        ("words", repeated(b"=?utf-8?q?a?= <a@b>,", size), "encoded names"),
    ):
        yield HostileFile(f"to-{name}.eml", message(b"To: " + value), f"a recipient of {attack}")
    yield HostileFile("date.eml", message(b"Date: " + repeated(b"1 Jan ", size)), "a date of great length")
    yield HostileFile("date-digits.eml", message(b"Date: 1 Jan %b 00:00:00" % (b"9" * size)), "a year of many digits")
    yield HostileFile("references.eml", message(b"References: " + repeated(b"<a@b> ", size)), "references")
    yield HostileFile("identifiers.eml", message(b"Message-ID: " + repeated(b"<", size)), "brackets in an identifier")
    yield HostileFile("fields.eml", message(repeated(b"X-Field: a\n", size)), "a great many fields")
    depth = 80
    head = b"".join(b'Content-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n' % (n, n) for n in range(depth))
    lines = repeated(b"--\n", size)
    yield HostileFile(
        "depth.eml", message(b"MIME-Version: 1.0\n" + head.partition(b"\n\n")[0], head + lines), "depth 80"
    )
    very = size // 60
    head = b"".join(b'Content-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n' % (n, n) for n in range(very))
    yield HostileFile("very-deep.eml", message(head, b"a"), "a great many levels of MIME")
    contained = repeated(b"Content-Type: message/rfc822\n\n", size)
    yield HostileFile("messages.eml", message(contained[:-1], b"a"), "messages inside each other")
    mixed = b"Content-Type: multipart/mixed; boundary=b"
    yield HostileFile("parts.eml", message(mixed, repeated(b"--b\n\na\n", size)), "a great many parts")
    named = b'--b\nContent-Disposition: attachment; filename="a.bin"\n\na\n'
    yield HostileFile("attachments.eml", message(mixed, repeated(named, size)), "a great many attachments")
    alternatives = mixed.replace(b"mixed", b"alternative")
    plain = b"--b\nContent-Type: text/plain\n\n\n"
    yield HostileFile("alternatives.eml", message(alternatives, repeated(plain, size)), "a great many alternatives")
    boundary = b"Content-Type: multipart/mixed; boundary=%b" % (b"a" * (size // 2))
    near = message(boundary, repeated(b"--" + b"a" * 500 + b"\n", size // 2))
    yield HostileFile("boundary.eml", near, "a boundary of great length, and lines that begin like it")
    yield HostileFile("quoted-text.eml", message(b"X: y", repeated(b"On it\n", size)), "lines that begin like a quote")
    yield HostileFile(
        "wrote.eml", message(b"X: y", repeated(b"On it he wrote:\n", size)), "lines that announce a quote"
    )
    yield HostileFile(
        "from-lines.eml", message(b"X: y", repeated(b"From: a\nSent: b\n", size)), "half of a forwarded header"
    )
    yield HostileFile("spaces.eml", message(b"X: y", repeated(b" \t", size)), "one line of white space")
    html = b"Content-Type: text/html"
    yield HostileFile("blockquotes.eml", message(html, repeated(b"<blockquote>a", size)), "quotes inside each other")
    for charset in (b"punycode", b"idna", b"unicode_escape", b"utf-7", b"zlib_codec", b"undefined"):
        body = b"a" * (size // 2) + b"-" + b"b" * (size // 2)
        data = message(content_type + b"charset=" + charset, body)
        yield HostileFile(f"charset-{charset.decode()}.eml", data, f"the character set {charset.decode()}")
    coded = message(b"Content-Transfer-Encoding: base64", base64.encodebytes(b"a" * size))
    yield HostileFile("base64.eml", coded, "a long text in base64")
    broken = message(b"Content-Transfer-Encoding: quoted-printable", repeated(b"=", size))
    yield HostileFile("quoted-printable.eml", broken, "a text of equals signs")
    uu = message(b"Content-Transfer-Encoding: uuencode", b"begin 644 a\n" + repeated(b"!\n", size))
    yield HostileFile("uuencode.eml", uu, "a text in uuencode")


def _rows(size: int) -> Iterator[HostileFile]:
    row = b'{"text": "a", "m": %b}\n'
    yield HostileFile("deep.jsonl", row % (b"[" * (size // 2) + b"]" * (size // 2)), "lists inside each other")
    yield HostileFile("open.jsonl", row % (b'{"a":' * (size // 5)), "objects that are never closed")
    yield HostileFile("number.jsonl", row % (b"9" * size), "a number of many digits")
    yield HostileFile("fraction.jsonl", row % (b"0." + b"9" * size + b"e-9"), "a fraction of many digits")
    yield HostileFile("values.jsonl", row % (b"[" + repeated(b"0,", size) + b"0]"), "a row of many values")
    keys = b"{" + b"".join(b'"k%d":0,' % number for number in range(size // 12)) + b'"text":"a"}'
    yield HostileFile("keys.jsonl", keys, "a row of many fields")
    yield HostileFile("escapes.jsonl", b'{"text": "%b"}' % repeated(b"\\ud800", size), "a text of lone surrogates")
    yield HostileFile("lines.jsonl", repeated(b"x\n", size), "a great many lines that are not rows")
    yield HostileFile(
        "copies.jsonl", repeated(b'{"id":"a","text":"%d"}\n', size).replace(b"%d", b"a"), "one row, often"
    )
    same = b"".join(b'{"id":"a","text":"%d"}\n' % number for number in range(size // 30))
    yield HostileFile("same-id.jsonl", same, "different rows with one id")
    yield HostileFile("bytes.jsonl", repeated(b'{"text": "\xff"}\n', size), "rows that are not UTF-8")
    yield HostileFile("cells.csv", b"text\n" + repeated(b",", size), "a row of empty cells")
    wide = b"text," + b"".join(b"c%d," % number for number in range(9_990)) + b"\n" + repeated(b"a,b\n", size)
    yield HostileFile("wide.csv", wide, "short rows below a header of thousands of columns")
    yield HostileFile("header.csv", repeated(b"text,", size), "a header of great length")
    yield HostileFile("quotes.csv", b"text\n" + repeated(b'"', size), "quotes")
    yield HostileFile("open-quote.csv", b'text\n"' + repeated(b"a\n", size), "a quote that is never closed")
    yield HostileFile("returns.csv", b"text\n" + repeated(b"a\r", size), "lines that end in carriage returns")
    yield HostileFile("empty-lines.csv", b"text\n" + repeated(b"\n", size), "a great many empty lines")
    yield HostileFile("nul.tsv", b"text\tb\n" + repeated(b"a\t\0\n", size), "NUL bytes in a table")
    yield HostileFile("damaged.tsv", b"text\n" + repeated(b"\xe9\n", size), "a table that is not UTF-8")


def _zipped_rows(size: int) -> Iterator[HostileFile]:
    for name, data, attack in (
        ("line", b'{"text": "%b"}' % (b"a" * size), "a row that unpacks to far more than its size"),
        ("rows", repeated(b'{"text": "%b"}\n' % (b"a" * 1_000), size), "rows that unpack to far more than their size"),
        ("empty", b"\n" * size, "empty lines that unpack to far more than their size"),
        ("fields", repeated(b'{"text":"a","b":"%b"}\n' % (b"c" * 9_000), size), "rows of long fields"),
    ):
        yield HostileFile(f"{name}.jsonl.gz", gzip.compress(data, 9, mtime=0), attack)
    member = gzip.compress(b"", mtime=0)
    yield HostileFile("members.jsonl.gz", repeated(member, size), "a great many empty members")
    yield HostileFile("zeros.jsonl.gz", gzip.compress(b"{}\n", mtime=0) + bytes(size), "padding after the end")
    unnamed = b"\x1f\x8b\x08\x08" + bytes(6) + b"a" * size
    yield HostileFile("name.jsonl.gz", unnamed, "a stored name that never ends")
    torn = gzip.compress(repeated(b'{"text": "a"}\n', size), mtime=0)[:-9]
    yield HostileFile("torn.jsonl.gz", torn, "rows without their end")


def _parquet_files(size: int) -> Iterator[HostileFile]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        return

    def written(columns: Mapping[str, pa.Array], **options: object) -> bytes:
        target = io.BytesIO()
        parquet.write_table(pa.table(dict(columns)), target, compression="zstd", **options)
        return target.getvalue()

    def dictionary(values: pa.Array, rows: int) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), values)

    rows = 3_000
    long = pa.array(["a" * size])
    limits = {"dictionary_pagesize_limit": 2 * size, "write_statistics": False}
    yield HostileFile("text.parquet", written({"text": dictionary(long, rows)}, **limits), "one long text in all rows")
    metadata = {"text": dictionary(pa.array(["a"]), rows), "m": dictionary(long, rows)}
    yield HostileFile("metadata.parquet", written(metadata, **limits), "one long value in all rows")
    binary = {"text": dictionary(pa.array(["a"]), rows), "m": dictionary(pa.array([b"a" * size]), rows)}
    yield HostileFile("bytes.parquet", written(binary, **limits), "long bytes in all rows")
    one_row = pa.ListArray.from_arrays(pa.array([0, 100], pa.int32()), pa.array(["a" * size] * 100))
    lists = {"text": pa.array(["a"]), "m": one_row}
    yield HostileFile("list.parquet", written(lists, **limits), "a list of one long text")
    none = pa.ListArray.from_arrays(pa.array([0, size * 8], pa.int32()), pa.nulls(size * 8, pa.int8()))
    nulls = {"text": pa.array(["a"]), "m": none}
    yield HostileFile("nulls.parquet", written(nulls), "a list of a great many nulls")
    same = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), size * 4), pa.array(["a"]))
    yield HostileFile("rows.parquet", written({"text": same}, row_group_size=size * 4), "a great many equal rows")
    columns = {"text": pa.array(["a"]), **{f"c{n}": pa.array([0], pa.int8()) for n in range(min(20_000, size // 600))}}
    yield HostileFile("columns.parquet", written(columns), "a great many columns")
    groups = {"text": pa.array(["a"] * max(1, min(5_000, size // 200)))}
    yield HostileFile("groups.parquet", written(groups, row_group_size=1), "a great many groups of rows")
    nested = pa.array([0], pa.int8())
    for _ in range(min(100, size // 100)):
        nested = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), nested)
    yield HostileFile("nested.parquet", written({"text": pa.array(["a"]), "m": nested}), "lists inside each other")
    good = written({"text": pa.array(["a"] * 100)})
    for name, length in (("footer-huge", 0x7FFFFFFF), ("footer-negative", 0xFFFFFFFF), ("footer-empty", 0)):
        forged = good[:-8] + struct.pack("<I", length) + b"PAR1"
        yield HostileFile(f"{name}.parquet", forged, f"a footer that states {length:,} bytes")
    thrift = b"\x15\x04\x19" + b"\xfc\xff\xff\xff\xff\x07" + repeated(b"\0", size)
    counted = b"PAR1" + thrift + struct.pack("<I", len(thrift)) + b"PAR1"
    yield HostileFile("footer-list.parquet", counted, "a footer that states two billion columns")
    deep = b"\x1c" * size
    yield HostileFile(
        "footer-deep.parquet", b"PAR1" + deep + struct.pack("<I", size) + b"PAR1", "a footer of structures"
    )


def _pdf_files(size: int) -> Iterator[HostileFile]:
    yield HostileFile("operations.pdf", pdf_page(repeated(b"q Q ", size)), "a page of many drawing operations")
    yield HostileFile("texts.pdf", pdf_page(b"BT " + repeated(b"(a)Tj ", size) + b"ET"), "a page of tiny texts")
    yield HostileFile("arrays.pdf", pdf_page(b"[" * size), "arrays inside each other on a page")
    yield HostileFile("strings.pdf", pdf_page(b"(" * size), "strings inside each other on a page")
    yield HostileFile("dictionaries.pdf", pdf_page(repeated(b"<<", size)), "dictionaries inside each other on a page")
    yield HostileFile("inline-image.pdf", pdf_page(repeated(b"BI ID ", size)), "inline images that never end")
    twice = zlib.compress(zlib.compress(b"q " * (size * 50), 9), 9)
    filters = b"/Filter[/FlateDecode/FlateDecode]"
    yield HostileFile("filters.pdf", pdf_page(twice, filters=filters), "a page that was compressed twice")
    lengths = b"/Filter[/RunLengthDecode]"
    yield HostileFile("run-length.pdf", pdf_page(repeated(b"\x81 ", size), filters=lengths), "a page of run lengths")
    hexadecimal = b"/Filter[%b]" % (b"/ASCIIHexDecode" * 1_000)
    yield HostileFile("filter-chain.pdf", pdf_page(repeated(b"20", size), filters=hexadecimal), "a thousand filters")
    forms = [
        stream(b"/F Do /F Do", b"/Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</F %d 0 R>>>>" % (n + 1))
        for n in range(5, 45)
    ]
    nested = pdf_page(b"/F Do", resources=b"/XObject<</F 5 0 R>>", more=[*forms, stream(b"BT (a) Tj ET")])
    yield HostileFile("forms.pdf", nested, "forms that draw each other twice")
    font = b"/Font<</F 5 0 R>>"
    fields = b"<</Type/Font/Subtype/Type0/BaseFont/A/Encoding/Identity-H/ToUnicode 6 0 R/DescendantFonts[%b]>>"
    text = b"BT /F 9 Tf <0001> Tj ET"
    ranges = stream(b"1 beginbfrange <00000000> <FFFFFFFF> <0000> endbfrange")
    yield HostileFile(
        "range.pdf", pdf_page(text, resources=font, more=[fields % b"", ranges]), "four billion characters of a font"
    )
    many = stream(b"100 beginbfrange " + repeated(b"<0000> <FFFF> <0000> ", size) + b"endbfrange")
    yield HostileFile("ranges.pdf", pdf_page(text, resources=font, more=[fields % b"", many]), "many ranges of a font")
    widths = b"<</Type/Font/Subtype/CIDFontType2/W[0 2000000000 500]>>"
    yield HostileFile(
        "widths.pdf", pdf_page(text, resources=font, more=[fields % widths, ranges]), "widths of two billion characters"
    )


def _pdf_structures(size: int) -> Iterator[HostileFile]:
    kids = repeated(b"3 0 R ", size)
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R>>"
    tree = b"<</Type/Pages/Kids[%b]/Count 1>>"
    catalogue, content = b"<</Type/Catalog/Pages 2 0 R>>", stream(b"BT (a) Tj ET")
    yield HostileFile("kids.pdf", pdf([catalogue, tree % kids, page, content]), "one page, named again and again")
    costly = stream(repeated(b"q Q ", size))
    same = pdf([catalogue, tree % (b"3 0 R " * min(1_000, size // 10)), page, costly])
    yield HostileFile("costly-kids.pdf", same, "one costly page, named again and again")
    levels = [b"<</Type/Pages/Kids[%d 0 R %d 0 R]/Count 2>>" % (n, n) for n in range(3, 43)]
    yield HostileFile("tree.pdf", pdf([catalogue, *levels, page]), "a tree of pages whose branches are shared")
    yield HostileFile("loop.pdf", pdf([catalogue, tree % b"2 0 R"]), "a tree of pages that contains itself")
    chain_of = [b"<</Type/Pages/Kids[%d 0 R]/Count 1>>" % n for n in range(3, 3 + size // 80)]
    yield HostileFile("chain.pdf", pdf([catalogue, *chain_of, page]), "a tree of pages of great depth")
    objects = b"<</Type/ObjStm/N 2000000000/First 10/Length %d>>\nstream\n%b\nendstream"
    filled = repeated(b"1 0 ", size)
    yield HostileFile(
        "objects.pdf", pdf([catalogue, tree % b"3 0 R", page, objects % (size, filled)]), "object streams"
    )
    huge = pdf([catalogue, tree % b"3 0 R", page, content]).replace(b"xref\n0 5", b"xref\n0 2000000000")
    yield HostileFile("table.pdf", huge, "a table of two billion objects")
    previous = pdf([catalogue, tree % b"3 0 R", page, content], trailer=b"/Prev 0")
    at = previous.index(b"xref")
    yield HostileFile("previous.pdf", previous.replace(b"/Prev 0", b"/Prev %d" % at), "tables that follow each other")
    title = pdf([catalogue, tree % b"3 0 R", page, content, b"<</Title(%b)>>" % (b"a" * size)], trailer=b"/Info 5 0 R")
    yield HostileFile("title.pdf", title, "a title of great length")
    yield HostileFile("no-table.pdf", b"%PDF-1.7\n" + repeated(b"1 0 obj\nendobj\n", size), "objects without a table")
    yield HostileFile("start.pdf", b"%PDF-1.7\n" + repeated(b"startxref\n", size), "starts without a table")
    yield HostileFile("object-arrays.pdf", pdf([catalogue, b"[" * size]), "an object of arrays inside each other")


def _pages(size: int) -> Iterator[HostileFile]:
    for name, unit, attack in (
        ("less", b"<", "signs that begin a tag"),
        ("open-tags", b"<a", "tags that are never closed"),
        ("comments", b"<!--", "comments that are never closed"),
        ("quotes", b"<a b='", "attributes that are never closed"),
        ("equals", b"<a =", "attributes without a name"),
        ("titles", b"<title>", "titles that are never closed"),
        ("scripts", b"<script>", "scripts that are never closed"),
        ("almost-closed", b"<style></styl>", "styles that are almost closed"),
        ("headings", b"<h1>a", "headings inside each other"),
        ("verbatim", b"<pre>", "verbatim blocks inside each other"),
        ("cells", b"<td>a", "cells"),
        ("references", b"&#x110000;", "character references beyond Unicode"),
        ("ampersands", b"&", "signs that begin a reference"),
        ("entities", b"&CounterClockwiseContourIntegral", "long references without an end"),
        ("digits", b"&#1", "numbers of characters"),
        ("processing", b"<?", "instructions that are never closed"),
    ):
        yield HostileFile(f"{name}.html", repeated(unit, size), f"a page of {attack}")
    yield HostileFile("number.html", b"&#" + b"9" * size + b";", "a character reference of many digits")
    for charset in (b"punycode", b"idna", b"utf-7"):
        body = b"<meta charset=%b>" % charset + b"a" * (size // 2) + b"\xff-" + b"b" * (size // 2)
        yield HostileFile(f"charset-{charset.decode()}.html", body, f"the character set {charset.decode()}")


def _texts(size: int, randomness: random.Random) -> Iterator[HostileFile]:
    front = b"---\n%b\n---\nText.\n"
    for name, data, attack in (
        ("front-deep", front % (b"[" * size), "lists inside each other in front matter"),
        ("front-aliases", front % (b"a: &a [x]\nb: [" + repeated(b"*a,", size) + b"]"), "aliases in front matter"),
        ("front-keys", front % b"".join(b"k%d: a\n" % n for n in range(size // 10)), "many fields of front matter"),
        ("front-complex", front % repeated(b"? ", size), "keys of keys in front matter"),
        ("front-number", front % (b"a: 1" + b":59" * (size // 3)), "a number of base 60 in front matter"),
        ("fences", repeated(b"```\n", size), "fences"),
        ("fences-mixed", repeated(b"```\n~~~\n", size), "fences of two kinds"),
        ("headings", repeated(b"# a\n", size), "headings"),
        ("sharps", b"# " + b"#" * size, "a heading of sharps"),
        ("lines", repeated(b"---\n", size), "lines of dashes"),
    ):
        yield HostileFile(f"{name}.md", data, f"a text of {attack}")
    yield HostileFile("lines.rst", repeated(b"====\n", size), "lines that mark a heading")
    yield HostileFile("line.rst", b"=" * size, "one line that marks a heading")
    yield HostileFile("spaces.rst", b"===\n" + b" " * size, "white space below a mark of a heading")
    cell = {"cell_type": "code", "source": []}
    notebook = json.dumps({"cells": [], "metadata": {}}).encode()
    for name, inside, attack in (
        ("cells", repeated(json.dumps(cell).encode() + b",", size)[:-1], "empty cells"),
        ("lines", b'{"source": [' + repeated(b'"a",', size)[:-1] + b"]}", "tiny lines"),
        ("deep", b'{"source": ' + b"[" * (size // 2) + b"]" * (size // 2) + b"}", "lists inside each other"),
        ("objects", b'{"source": [' + repeated(b"[[]],", size)[:-1] + b"]}", "sources that are not text"),
    ):
        data = notebook.replace(b'"cells": []', b'"cells": [%b]' % inside)
        yield HostileFile(f"{name}.ipynb", data, f"a notebook of {attack}")
    for name, data, attack in (
        ("line", b"a" * size, "one line"),
        ("newlines", b"\n" * size, "empty lines"),
        ("nul", b"a" + bytes(size), "NUL bytes"),
        ("control", b"\x01" * size, "control characters"),
        ("random", randomness.randbytes(size), "random bytes"),
        ("western", b"\xe9 " * (size // 2), "letters of Windows-1252"),
        ("damaged", ("ж" * (size // 2)).encode() + b"\xff", "a broken end"),
        ("half", b"\xff\xfe" + b"\x00\xd8" * (size // 2), "halves of characters in UTF-16"),
        ("wide", b"\xff\xfe\0\0" + b"\xff\xff\x10\0" * (size // 4), "UTF-32"),
        ("marks", ("a" + "\u0301" * (size // 2)).encode(), "accents on one letter"),
        ("joined", ("\U0001f468\u200d" * (size // 7)).encode(), "emoji that are joined"),
        ("returns", b"\r" * size, "carriage returns"),
    ):
        yield HostileFile(f"{name}.txt", data, f"a text of {attack}")


def _rich_texts(size: int) -> Iterator[HostileFile]:
    for name, body, attack in (
        ("groups", b"{" * size, "groups inside each other"),
        ("closed", repeated(b"{}", size), "empty groups"),
        ("ends", b"}" * size, "ends of groups that never began"),
        ("words", repeated(b"\\a", size), "control words"),
        ("long-word", b"\\" + b"a" * size, "a long control word"),
        ("number", b"\\u" + b"9" * size, "a number of many digits"),
        ("binary", repeated(b"\\bin999999999 ", size), "binary data that never comes"),
        ("pictures", repeated(b"{\\pict\\bin1 ", size), "pictures that never end"),
        ("links", repeated(b"{\\field{\\*\\fldinst{", size), "links that never end"),
        ("fonts", b"{\\fonttbl" + repeated(b"{\\f1\\fcharset2", size), "a table of fonts"),
        ("hexadecimal", repeated(b"\\'ff", size), "escaped bytes"),
        ("characters", repeated(b"\\u-1?", size), "escaped characters"),
        ("skips", b"\\uc999999999" + repeated(b"\\u1", size), "characters that replace characters"),
        ("paragraphs", repeated(b"\\par", size), "empty paragraphs"),
        ("page", b"\\ansicpg" + b"9" * size, "a code page that does not exist"),
    ):
        yield HostileFile(f"{name}.rtf", b"{\\rtf1 Text. " + body, f"rich text of {attack}")


def _entries(size: int) -> Iterator[HostileFile]:
    event, card = b"BEGIN:VEVENT\nSUMMARY:a\nEND:VEVENT\n", b"BEGIN:VCARD\nFN:a\nEND:VCARD\n"
    for name, body, attack in (
        ("events.ics", repeated(event, size), "a calendar of many events"),
        ("open.ics", repeated(b"BEGIN:VEVENT\n", size), "a calendar of events inside each other"),
        ("people.ics", event[:24] + repeated(b"ATTENDEE:a\n", size), "an event of many people"),
        ("folds.ics", event[:24] + repeated(b"\n ", size), "an event of folded lines"),
        ("quotes.ics", event[:24] + b'ATTENDEE;CN="' + b'"' * size, "a line of quotation marks"),
        ("parameters.ics", event[:24] + b"ATTENDEE" + repeated(b";A=B", size) + b":a", "a line of parameters"),
        ("escapes.ics", event[:24] + b"\\" * size, "a line of escapes"),
        ("colons.ics", repeated(b":\n", size), "a calendar of lines without names"),
        ("cards.vcf", repeated(card, size), "an address book of many people"),
        ("open.vcf", repeated(b"BEGIN:VCARD\n", size), "people inside each other"),
        ("soft.vcf", card[:12] + repeated(b"NOTE;QUOTED-PRINTABLE:=\n", size), "lines that never end"),
        ("printable.vcf", card[:12] + b"NOTE;QUOTED-PRINTABLE:" + b"=" * size, "an encoded line"),
        ("parts.vcf", card[:12] + b"ADR:" + b";" * size, "an address of many parts"),
    ):
        yield HostileFile(name, b"BEGIN:VCALENDAR\n" + body, attack)


_MAKERS: tuple[tuple[str, Callable[..., Iterator[HostileFile]]], ...] = (
    ("docx pptx xlsx epub", _archives),
    ("docx", _word_files),
    ("pptx", _presentations),
    ("xlsx", _workbooks),
    ("epub", _books),
    ("eml", _messages),
    ("jsonl csv tsv", _rows),
    ("jsonl.gz", _zipped_rows),
    ("parquet", _parquet_files),
    ("pdf", _pdf_files),
    ("pdf", _pdf_structures),
    ("html", _pages),
    ("md rst ipynb txt", _texts),
    ("rtf", _rich_texts),
    ("ics vcf", _entries),
)
"""The functions that make files, each with the kinds that it makes."""
