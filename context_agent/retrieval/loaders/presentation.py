"""The reader of presentations. The slides are in order, each under its title, with its tables and notes."""

from __future__ import annotations

from collections.abc import Iterator

from context_agent.retrieval.loaders.reading import Reading
from context_agent.retrieval.loaders.xml_events import Kind, grammar, reference
from context_agent.retrieval.loaders.zipped_xml import Package, first_heading, opened_package, package_document, table
from context_agent.types import Document

_SLIDES = grammar(root="presentation", presentation="sldIdLst", sldIdLst="sldId")
_SHAPES = "sp grpSp graphicFrame AlternateContent"
_TEXT = grammar(
    root="sld notes",
    sld="cSld",
    notes="cSld",
    cSld="spTree",
    spTree=_SHAPES,
    grpSp=_SHAPES,
    AlternateContent="Choice",
    Choice=_SHAPES,
    sp="nvSpPr txBody",
    nvSpPr="nvPr",
    nvPr="ph",
    txBody="p",
    p="r br fld",
    r="t",
    fld="t",
    graphicFrame="graphic",
    graphic="graphicData",
    graphicData="tbl",
    tbl="tr",
    tr="tc",
    tc="txBody",
)
_DIAGRAM = grammar(root="dataModel", dataModel="ptLst", ptLst="pt", pt="t", t="p", p="r br fld", r="t", fld="t")


def read_pptx(reading: Reading) -> Iterator[Document]:
    """Yield the text of a presentation. A slide that is named twice is written once."""
    with opened_package(reading) as package:
        main = package.main_part()
        text = package.joined(_slides(package, main))
        properties = package.properties()
    title = str(properties.pop("title", "")) or first_heading(text)
    yield package_document(reading, text, title, properties)


def _slides(package: Package, main: str) -> Iterator[str]:
    """Yield the texts of all slides."""
    links = package.relationships(main)
    names = (
        links[identifier].target
        for event in package.events(main, _SLIDES)
        if event.kind is Kind.START
        and event.name == "sldId"
        and (identifier := reference(event.attributes, "id")) in links
    )
    read: set[str] = set()

    def slide(name: str) -> Iterator[str]:
        title, texts = _shapes(package, name)
        yield f"## {' '.join(title.split())}" if title.strip() else ""
        yield from texts
        linked = package.relationships(name)
        for diagram in (link.target for link in linked.values() if link.kind == "diagramData"):
            if diagram in package and diagram not in read:
                read.add(diagram)
                yield _diagram(package, diagram)
        notes = package.linked(linked, "notesSlide")
        if notes and notes not in read:
            read.add(notes)
            yield _notes(package, notes)

    yield from package.each(dict.fromkeys(names), "slide", slide)


def _diagram(package: Package, part: str) -> str:
    """Return the texts of a diagram (SmartArt), a line for each."""
    words: list[str] = []
    for event in package.events(part, _DIAGRAM):
        if event.kind is Kind.TEXT and event.name == "t":
            words.append(event.text)
        elif event.kind is Kind.END and event.name == "p":
            words.append("\n")
    return "\n".join(line.strip() for line in "".join(words).splitlines() if line.strip())


def _notes(package: Package, part: str) -> str:
    """Return the speaker's notes."""
    return next((text for placeholder, text in _texts(package, part) if placeholder == "body"), "")


def _shapes(package: Package, part: str) -> tuple[str, list[str]]:
    """Return the title of a slide and the texts of its other shapes."""
    title, texts = None, []
    for placeholder, text in _texts(package, part):
        if title is None and placeholder == "title":
            title = text
        elif text.strip():
            texts.append(text)
    return title or "", texts


def _texts(package: Package, part: str) -> Iterator[tuple[str, str]]:
    """Yield the text of each shape with the kind of its placeholder: `title`, `body`, or "" if it has none."""
    text: list[str] = []
    paragraphs: list[str] = []
    row: list[str] = []
    rows: list[str] = []
    placeholder = ""
    for event in package.events(part, _TEXT):
        if event.kind is Kind.TEXT:
            if event.name == "t":
                text.append(event.text)
        elif event.kind is Kind.START:
            if event.name == "br":
                text.append("\v")
            elif event.name == "ph":
                placeholder = _placeholder(event.attributes.get("type", ""), event.attributes.get("idx", "0"))
        elif event.name == "p":
            paragraphs.append("".join(text))
            text = []
        elif event.name == "tc":
            row.append("\n".join(paragraphs))
            paragraphs = []
        elif event.name == "tr":
            rows.append(table([row]))
            row = []
        elif event.name == "tbl":
            yield "", "\n".join(line for line in rows if line)
            rows = []
        elif event.name == "sp":
            yield placeholder, "\n".join(paragraphs)
            paragraphs, placeholder = [], ""


def _placeholder(kind: str, index: str) -> str:
    """Return the kind of a placeholder. The placeholder of a slide's title has no index, and its kind is `title`."""
    return "body" if kind == "body" else "title" if index == "0" else ""
