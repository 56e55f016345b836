"""Patents: grants and applications as XML of the US patent office, and plain text of patents and office actions.

A bulk file is a series of XML documents. Each is parsed by itself, so a broken one does not affect the others. A patent
is one document with headings for abstract, claims and description. Its metadata has `number`, `date`, `application`,
`inventors`, `assignee` and `citations` (a JSON list of cited patents). Tags are those of the grant DTDs since 2005:
`us-references-cited/us-citation`, and before 2012 `references-cited/citation`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import partial
from html import escape, unescape
from xml.etree import ElementTree as ET

from context_agent.errors import DataError
from context_agent.retrieval.loaders import load
from context_agent.retrieval.loaders.decoding import unix_lines
from context_agent.retrieval.loaders.reader_choice import READERS
from context_agent.retrieval.loaders.reading import Reading, content, decoded, document, storable
from context_agent.synth_data.domains import Domain, TruthType
from context_agent.types import Document, MetadataValue

BLOCK_BYTES = 2**20
"""The number of bytes of a file that are read at a time."""
CITATIONS = 200
"""The largest number of cited patents in the metadata, which are stored with every chunk."""
_DECLARATION = re.compile(r"(?=<\?xml\b)")
_DOCTYPE = re.compile(r"<!DOCTYPE[^<>\[]*+(?:\[[^\]]*+\]?+)?+[^<>]*+>?+", re.I)
_ENTITY = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)[A-Za-z]\w*;")
_ROOTS = ("us-patent-grant", "us-patent-application")
_BLOCKS = frozenset("p heading claim claim-text li row".split())
_NUMBER = r"(?:RE|PP|D|H)?\d{1,2}(?:,\d{3}){2}|(?:RE|PP|D)\d{2,3},?\d{3}|\d{7,8}"
_CITED = re.compile(
    rf"\b(?:U\.?S\.?\s*+(?:Pat(?:ent)?\.?\s*+)?(?:(?:No\.?|Number)\s*+)?|Pat(?:ent)?\.?\s*+No\.?\s*+)({_NUMBER})(?:\s*+(B[12]|A1?)\b)?",
    re.I,
)
_PUBLICATION = re.compile(r"\bUS\s*(?:20\d{2}/?\d{7})\s*A1\b")
_OWN_NUMBER = re.compile(
    r"^[^\S\n]*+(?:United States\s++)?(?:Patent\s++(?:No\.?|Number)|Document\s++Identifier)\s*+"
    rf"(?::\s*+)?(?:US\s*+)?({_NUMBER})",
    re.I | re.M,
)
_APPLICATION = re.compile(
    r"Application\s*+(?:/Control\s*+)?(?:No|Number|Serial No)\.?\s*+(?::\s*+)?(\d{2}/\d{3},?\d{3})", re.I
)
_REJECTED = re.compile(r"reject(?:ed|ion)[^.]{0,80}?35\s+U\.?\s?S\.?\s?C\.?", re.I | re.S)
_STATUTE = re.compile(r"35\s+U\.?\s?S\.?\s?C\.?\s*(?:§\s*)?(10[1-3]|112)", re.I)


def read_xml(reading: Reading) -> Iterator[Document]:
    """Yield the patents of an XML file, which may contain one or many. Only one of them is in memory."""
    patents = number = 0
    for data in _xml_parts(reading):
        try:
            # Bytes of an encoding without ASCII, such as UTF-16, were not divided.
            texts = [xml for xml in _DECLARATION.split(decoded(reading, data).text) if xml.strip()]
        except DataError as error:
            number += 1
            reading.skip(f"patent {number}: {error}")
            continue
        for text in texts:
            number += 1
            try:
                root = ET.fromstring(_DOCTYPE.sub("", _undeclared(text)).encode())  # noqa: S314 (no DTD to expand)
            except ET.ParseError as error:
                reading.skip(f"patent {number}: the XML is not well-formed ({error})")
                continue
            if root.tag not in _ROOTS:
                reading.note_once(f"<{root.tag}> is not a patent, so it is skipped")
                continue
            patents += 1
            yield _patent(root, f"{reading.path}-{number}")
    if not patents:
        roots = " or ".join(f"<{root}>" for root in _ROOTS)
        raise DataError(f"the file has no patent, which is an element {roots}. Read it without --domain patents.")


def _xml_parts(reading: Reading) -> Iterator[bytes]:
    """Yield the bytes of each XML document of a file.

    Raises:
        DataError: If a document is larger than the options allow.
    """
    rest = b""
    while block := reading.stream.read(BLOCK_BYTES):
        *parts, rest = re.split(rb"(?=<\?xml\b)", rest + block)
        yield from parts
        if len(rest) > reading.options.max_size:
            raise DataError(reading.options.too_large("a patent"))
    yield rest


def read_patent_text(reading: Reading) -> Iterator[Document]:
    """Yield a patent or office action from plain text. Its metadata has the number, the kind and the cited patents."""
    text = unix_lines(decoded(reading, content(reading)).text)
    action = bool(_REJECTED.search(text))
    own_number = None if action else _OWN_NUMBER.search(text[:4000])
    application = _APPLICATION.search(text[:8000])
    cited = [number for number in _citations(text) if not own_number or number != f"US{_bare_number(own_number[1])}"]
    statutes = sorted({match[1] for match in _STATUTE.finditer(text)})
    metadata: dict[str, MetadataValue] = {
        "kind": "office action" if action else "patent",
        "number": f"US{_bare_number(own_number[1])}" if own_number else "",
        "application": _bare_number(application[1]) if application else "",
        "statutes": ", ".join(statutes) if action else "",
        "citations": json.dumps(cited[:CITATIONS]) if cited else "",
    }
    yield document(reading, text, _text_title(text), {key: value for key, value in metadata.items() if value})


def _undeclared(part: str) -> str:
    """Return the XML without its declaration, and with characters in place of entities from a DTD."""
    return _ENTITY.sub(_character, re.sub(r"^\s*<\?xml[^>]*\?>", "", part))


def _character(entity: re.Match[str]) -> str:
    """Return the entity's character. If HTML does not define the entity, return its name."""
    character = unescape(entity[0])
    return entity[0][1:-1] if character == entity[0] else escape(character)


def _patent(root: ET.Element, fallback: str) -> Document:
    tags = ("us-bibliographic-data-grant", "us-bibliographic-data-application")
    head = next((root.find(name) for name in tags if root.find(name) is not None), None)
    head = root if head is None else head
    number = _document_number(head.find("publication-reference/document-id"))
    title = _line(head.find("invention-title"))
    sections = (
        ("Abstract", _text(root.find("abstract"))),
        ("Claims", _text(root.find("claims"))),
        ("Description", _text(root.find("description"))),
    )
    text = "\n\n".join(f"# {name}\n\n{body}" for name, body in sections if body)
    cited = list(dict.fromkeys(_cited_numbers(head)))
    metadata: dict[str, MetadataValue] = {
        "kind": "application" if root.tag.endswith("application") else "grant",
        "number": number,
        "date": _day(_line(head.find("publication-reference/document-id/date"))),
        "application": _line(head.find("application-reference/document-id/doc-number")),
        "inventors": "; ".join(_party_names(head, ("inventor", "applicant"))),
        "assignee": "; ".join(_party_names(head, ("assignee",))),
        "citations": json.dumps(cited[:CITATIONS]) if cited else "",
    }
    return Document(
        number or fallback,
        storable(text or title),
        storable(title or number),
        {key: storable(value) if isinstance(value, str) else value for key, value in metadata.items() if value},
    )


def _document_number(element: ET.Element | None) -> str:
    """Return the country, the number without leading zeros, and the kind, as in `US10123456B2`."""
    if element is None:
        return ""
    number = _bare_number(_line(element.find("doc-number")))
    return f"{_line(element.find('country'))}{number}{_line(element.find('kind'))}" if number else ""


def _cited_numbers(head: ET.Element) -> Iterator[str]:
    for path in ("us-references-cited/us-citation", "references-cited/citation"):
        for citation in head.iterfind(f"{path}/patcit/document-id"):
            if number := _document_number(citation):
                yield number


def _party_names(head: ET.Element, kinds: Iterable[str]) -> list[str]:
    """Return the names of the persons or organizations of the first kind that is present."""
    for kind in kinds:
        names = []
        for book in (book for party in head.iter(kind) for book in party.iter("addressbook")):
            person = " ".join(filter(None, (_line(book.find("first-name")), _line(book.find("last-name")))))
            names.append(_line(book.find("orgname")) or person)
        if distinct := [name for name in dict.fromkeys(names) if name]:
            return distinct
    return []


def _text(element: ET.Element | None) -> str:
    """Return the element's text, with blank lines between blocks and with marked headings."""
    if element is None:
        return ""
    parts: list[str] = []
    _gather(element, parts)
    blocks = (" ".join(block.split()) for block in "".join(parts).split("\0"))
    return "\n\n".join(block for block in blocks if block)


def _gather(element: ET.Element, parts: list[str]) -> None:
    # An explicit stack instead of recursion, so that a deeply nested file cannot exhaust the call stack.
    stack: list[tuple[ET.Element, bool]] = [(element, False)]
    while stack:
        node, done = stack.pop()
        if done:
            parts.append("\0" if node.tag in _BLOCKS else "")
            parts.append((node.tail or "") if node is not element else "")
            continue
        if node.tag in _BLOCKS:
            parts.append("\0" + ("## " if node.tag == "heading" else ""))
        parts.append(node.text or "")
        stack.append((node, True))
        stack += [(child, False) for child in reversed(node)]


def _line(element: ET.Element | None) -> str:
    return " ".join("".join(element.itertext()).split()) if element is not None else ""


def _day(date: str) -> str:
    return f"{date[:4]}-{date[4:6]}-{date[6:]}" if re.fullmatch(r"\d{8}", date) else date


def _bare_number(number: str) -> str:
    return number.replace(",", "").replace("/", "").lstrip("0")


def _citations(text: str) -> list[str]:
    grants = (f"US{_bare_number(match[1]).upper()}{(match[2] or '').upper()}" for match in _CITED.finditer(text))
    publications = (re.sub(r"[\s/]", "", match[0]).upper() for match in _PUBLICATION.finditer(text))
    return list(dict.fromkeys((*grants, *publications)))


def _text_title(text: str) -> str:
    """Return the text after `Title:`. If there is none, return the first line."""
    match = re.search(r"^[^\S\n]*+(?:Title(?: of Invention)?)\s*+:\s*+(.+)$", text[:4000], re.I | re.M)
    return match[1] if match else next((line for line in text.splitlines() if line.strip()), "")[:120]


PATENTS = Domain(
    name="patents",
    description="Patents and office actions.",
    load=partial(load, readers={**READERS, ".xml": read_xml, ".txt": read_patent_text, ".text": read_patent_text}),
    truth_types=(
        TruthType("component", "a part of the claimed device, with what it does"),
        TruthType("material", "a substance, compound or composition"),
        TruthType("parameter", "a measure, range or ratio with its unit"),
        TruthType("step", "a step of a method, and its place among the others"),
        TruthType("effect", "an advantage or effect that the text states"),
        TruthType("field", "the technical field or use"),
        TruthType("person", "an inventor or examiner"),
        TruthType("organization", "an assignee or applicant"),
        TruthType("number", "the number of a patent, application or claim"),
        TruthType("date", "a date of filing, priority or grant"),
    ),
    hints={
        "explore": "Start at a claim and look for the documents that disclose its parts; follow citations.",
        "write": "Describe the invention by what it does; give no number, title, assignee or inventor.",
        "verify": "A claim's words and a description's words differ for the same part: quote each as it stands.",
        "distract": "Documents of the same field that lack the decisive part are the hardest to tell apart.",
    },
    max_hops=3,
)
