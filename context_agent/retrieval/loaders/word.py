"""The reader of Word files: paragraphs, tables and text boxes in order, and then the notes and comments.

Tracked changes are read as if they were accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from context_agent.retrieval.loaders.reading import Reading
from context_agent.retrieval.loaders.xml_events import Event, Grammar, Kind, attribute, grammar
from context_agent.retrieval.loaders.zipped_xml import Package, first_heading, opened_package, package_document, table
from context_agent.types import Document

_BLOCKS = "p tbl sdt customXml"
_RUNS = "r hyperlink ins moveTo sdt fldSimple smartTag customXml dir bdo oMathPara oMath"
"""The elements with runs. `ins` and `moveTo` are tracked changes. Deleted text is in elements that are passed over."""
_FORMULA = (
    "oMath f num den sSup sSub sSubSup sPre e sup sub rad deg nary func fName limLow limUpp lim m mr d acc bar box"
    " borderBox eqArr groupChr phant"
)
"""The elements of a formula in which other ones may be."""
_SHAPES = "group shape rect roundrect oval"
_TEXT = grammar(
    root="document",
    document="body",
    body=_BLOCKS,
    **dict.fromkeys(("sdtContent", "customXml"), f"{_BLOCKS} tr tc {_RUNS}"),
    sdt="sdtPr sdtContent",
    sdtPr="showingPlcHdr docPartObj",
    docPartObj="docPartGallery",
    tbl="tr sdt customXml",
    tr="tc sdt customXml",
    tc=f"tcPr {_BLOCKS}",
    tcPr="gridSpan",
    p=f"pPr {_RUNS}",
    pPr="pStyle",
    **dict.fromkeys(("hyperlink", "ins", "moveTo", "fldSimple", "smartTag", "dir", "bdo"), _RUNS),
    r="t tab br cr noBreakHyphen ptab ruby AlternateContent drawing pict",
    ruby="rubyBase",
    rubyBase=_RUNS,
    AlternateContent="Choice",
    Choice="drawing pict symEx",
    drawing="inline anchor",
    **dict.fromkeys(("inline", "anchor"), "graphic"),
    graphic="graphicData",
    **dict.fromkeys(("graphicData", "wgp", "wpc", "grpSp"), "wsp wgp wpc grpSp"),
    wsp="txbx",
    pict=_SHAPES,
    **dict.fromkeys(_SHAPES.split(), f"textbox {_SHAPES}"),
    **dict.fromkeys(("txbx", "textbox"), "txbxContent"),
    txbxContent=_BLOCKS,
    **dict.fromkeys(("oMathPara", *_FORMULA.split()), f"r {_FORMULA}"),
    **dict.fromkeys(("footnotes", "endnotes", "comments"), "footnote endnote comment"),
    **dict.fromkeys(("footnote", "endnote", "comment"), _BLOCKS),
)
"""The elements of the text. Of the two forms of a text box, the first is read."""
_STYLES = grammar(root="styles", styles="style", style="name")
_CHARACTERS = {"tab": "\t", "ptab": "\t", "cr": "\n", "noBreakHyphen": "-", "den": "/", "sup": "^", "sub": "_"}


def read_docx(reading: Reading) -> Iterator[Document]:
    """Yield the text of a Word file. Headings begin with `#`, and a merged cell is written once."""
    with opened_package(reading) as package:
        text = package.joined(_all_blocks(package, package.main_part()))
        properties = package.properties()
    title = str(properties.pop("title", "")) or first_heading(text)
    yield package_document(reading, text, title, properties)


def _heading_marks(package: Package, main: str) -> dict[str, str]:
    """Return the mark of each style that is a heading, by the style's id."""
    part = package.linked(package.relationships(main), "styles")
    marks, style = {}, ""
    for event in package.events(part, _STYLES) if part else ():
        if event.kind is Kind.START and event.name == "style":
            style = attribute(event.attributes, "styleId")
        elif event.kind is Kind.START and event.name == "name" and (mark := _mark(attribute(event.attributes, "val"))):
            marks[style] = mark
    return marks


def _mark(style: str) -> str:
    """Return the mark of a heading's style: `# ` for `Title` and `Heading 1`."""
    name, _, level = style.rpartition(" ")
    if style == "Title":
        return "# "
    is_heading = name in {"Heading", "heading"} and len(level) == 1 and "1" <= level <= "9"
    return "#" * min(int(level), 6) + " " if is_heading else ""


def _all_blocks(package: Package, main: str) -> Iterator[str]:
    """Yield the blocks of the main text, and then its footnotes, endnotes and comments."""
    yield from _blocks(package, main, _heading_marks(package, main), _TEXT)
    links = package.relationships(main)
    for kind in ("footnotes", "endnotes", "comments"):
        if part := package.linked(links, kind):
            yield from _blocks(package, part, {}, {**_TEXT, "": frozenset({kind})})


def _blocks(package: Package, part: str, marks: dict[str, str], elements: Grammar) -> Iterator[str]:
    """Yield the paragraphs and tables of a part."""
    blocks = _Blocks(marks)
    for event in package.events(part, elements):
        if event.kind is Kind.TEXT:
            blocks.add(event)
        elif event.kind is Kind.START:
            blocks.opened(event)
        elif (block := blocks.closed(event.name)) is not None:
            yield block


@dataclass(slots=True)
class _Paragraph:
    """A paragraph that is being read, with the mark of its heading."""

    text: list[str] = field(default_factory=list)
    mark: str = ""


@dataclass(slots=True)
class _Blocks:
    """The paragraphs, tables and content controls that are open.

    A paragraph of a text box precedes the paragraph that the box belongs to. The paragraphs of a table inside a cell
    become paragraphs of the cell.
    """

    marks: dict[str, str]
    _paragraphs: list[_Paragraph] = field(default_factory=lambda: [_Paragraph()])
    """The first one gets the text outside of all paragraphs, which is dropped."""
    _controls: list[bool] = field(default_factory=list)
    """Whether each open content control has text that no person wrote."""
    _hidden: int = 0
    _tables: int = 0
    _cell: list[str] = field(default_factory=list)
    _row: list[str] = field(default_factory=list)
    _rows: list[str] = field(default_factory=list)
    _passed: int = 0
    """The number of further columns that the open cell takes."""

    def add(self, event: Event) -> None:
        """Add text."""
        if event.name == "t" and not self._hidden:
            self._paragraphs[-1].text.append(event.text)

    def opened(self, event: Event) -> None:
        """Handle a start tag."""
        value = attribute(event.attributes, "val")
        match event.name:
            case "p":
                self._paragraphs.append(_Paragraph())
            case "pStyle":
                self._paragraphs[-1].mark = self.marks.get(value, "")
            case "tbl":
                self._tables += 1
            case "sdt":
                self._controls.append(False)
            case "showingPlcHdr" if value not in {"0", "false", "off"}:
                self._hide()
            case "gridSpan" if self._tables == 1 and value.isdecimal() and len(value) <= 2:
                self._passed = max(1, int(value)) - 1
            case "docPartGallery" if value == "Table of Contents":
                self._hide()
            case _ if not self._hidden:
                self._paragraphs[-1].text.append(_character(event))

    def _hide(self) -> None:
        self._hidden += not self._controls[-1]
        self._controls[-1] = True

    def closed(self, name: str) -> str | None:
        """Handle an end tag. Return the block that it ends, if any."""
        match name:
            case "sdt":
                self._hidden -= self._controls.pop()
            case "p":
                paragraph = self._paragraphs.pop()
                text = "".join(paragraph.text)
                if not self._tables:
                    return paragraph.mark + text if text.strip() else None
                self._cell.append(text)
            case "tc" if self._tables == 1:
                self._row += ["\n".join(self._cell), *[""] * self._passed]
                self._cell, self._passed = [], 0
            case "tr" if self._tables == 1:
                self._rows.append(table([self._row]))
                self._row = []
            case "tbl":
                self._tables -= 1
                if not self._tables:
                    rows, self._rows = self._rows, []
                    return "\n".join(line for line in rows if line)
        return None


def _character(event: Event) -> str:
    """Return the character for an empty element, such as a tab, and before a part of a formula, such as a denominator.

    For any other element, return an empty string.
    """
    if event.name == "br":
        return "\n" if attribute(event.attributes, "type") in {"", "textWrapping"} else ""
    if event.name == "symEx":
        try:
            character = chr(int(attribute(event.attributes, "char"), 16))
        except (ValueError, OverflowError):
            return ""
        return character if character.isprintable() else ""
    return _CHARACTERS.get(event.name, "")
