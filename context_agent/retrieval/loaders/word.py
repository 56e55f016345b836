"""The reader of Word files: the paragraphs and tables of the main text, in order."""

from __future__ import annotations

from collections.abc import Iterator

from context_agent.retrieval.loaders.packages import Package, first_heading, opened_package, table
from context_agent.retrieval.loaders.reading import Reading, document
from context_agent.retrieval.loaders.xml_events import Event, Kind, attribute, grammar
from context_agent.types import Document

_TEXT = grammar(
    root="document",
    document="body",
    body="p tbl",
    tbl="tr",
    tr="tc",
    tc="p",
    p="pPr r hyperlink",
    pPr="pStyle",
    hyperlink="r",
    r="t tab br cr noBreakHyphen ptab",
)
"""The elements of a paragraph's text. Deleted text, footnotes, and tables inside of a cell are not among them."""
_STYLES = grammar(root="styles", styles="style", style="name")
_CHARACTERS = {"tab": "\t", "ptab": "\t", "cr": "\n", "noBreakHyphen": "-"}


def read_docx(reading: Reading) -> Iterator[Document]:
    """Yield the text of a Word file. Headings begin with `#`, and a merged cell is written once."""
    with opened_package(reading) as package:
        main = package.main_part()
        text = package.joined(_blocks(package, main, _heading_marks(package, main)))
        properties = package.properties()
    yield document(reading, text, str(properties.pop("title", "")) or first_heading(text), properties)


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


def _blocks(package: Package, main: str, marks: dict[str, str]) -> Iterator[str]:
    """Yield the paragraphs and tables."""
    text: list[str] = []
    cell: list[str] = []
    row: list[str] = []
    rows: list[str] = []
    mark, in_table = "", False
    for event in package.events(main, _TEXT):
        if event.kind is Kind.TEXT:
            if event.name == "t":
                text.append(event.text)
        elif event.kind is Kind.START:
            in_table = in_table or event.name == "tbl"
            if event.name == "pStyle":
                mark = marks.get(attribute(event.attributes, "val"), "")
            else:
                text.append(_character(event))
        elif event.name == "p":
            paragraph, text = "".join(text), []
            if in_table:
                cell.append(paragraph)
            else:
                yield mark + paragraph if paragraph.strip() else ""
            mark = ""
        elif event.name == "tc":
            row.append("\n".join(cell))
            cell = []
        elif event.name == "tr":
            rows.append(table([row]))
            row = []
        elif event.name == "tbl":
            yield "\n".join(line for line in rows if line)
            rows, in_table = [], False


def _character(event: Event) -> str:
    """Return the character for an empty element, such as a tab. For any other element, return an empty string."""
    if event.name == "br":
        return "\n" if attribute(event.attributes, "type") in {"", "textWrapping"} else ""
    return _CHARACTERS.get(event.name, "")
