"""The reader of OpenDocument texts (`.odt`): headings and paragraphs in order, including those of tables and lists."""

from __future__ import annotations

from collections.abc import Iterator

from context_agent.retrieval.loaders.packages import Package, first_heading, opened_package
from context_agent.retrieval.loaders.reading import Reading, document
from context_agent.retrieval.loaders.xml_events import Kind, attribute
from context_agent.types import Document

_CHARACTERS = {"s": " ", "tab": "\t", "line-break": "\n"}
_DELETED = "tracked-changes"


def read_odt(reading: Reading) -> Iterator[Document]:
    """Yield the text of an OpenDocument file. Headings begin with `#`."""
    with opened_package(reading) as package:
        text = package.joined(_paragraphs(package))
    yield document(reading, text, first_heading(text))


def _paragraphs(package: Package) -> Iterator[str]:
    text: list[str] = []
    mark, inside, deleted = "", 0, 0
    for event in package.events("content.xml", None):
        is_paragraph = event.name in {"p", "h"}
        if event.kind is Kind.TEXT:
            if inside and not deleted:
                text.append(event.text)
        elif event.kind is Kind.START:
            inside += is_paragraph
            deleted += event.name == _DELETED
            if event.name == "h":
                level = attribute(event.attributes, "outline-level")
                mark = "#" * (min(int(level), 6) if len(level) == 1 and level in "123456789" else 1) + " "
            elif inside:
                text.append(_CHARACTERS.get(event.name, ""))
        else:
            inside -= is_paragraph
            deleted -= event.name == _DELETED
            if is_paragraph and not inside:
                words = "".join(text).strip()
                yield mark + words if words else ""
                text, mark = [], ""
