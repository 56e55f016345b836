"""The reader of EPUB books. The chapters are in reading order."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from functools import partial

from context_agent.errors import DataError
from context_agent.retrieval.loaders.decoding import declared_encoding, decode, unix_lines
from context_agent.retrieval.loaders.html_text import declared_charset, page_text
from context_agent.retrieval.loaders.reading import Reading
from context_agent.retrieval.loaders.xml_events import Kind, grammar
from context_agent.retrieval.loaders.zipped_xml import Package, first_texts, opened_package, package_document, resolved
from context_agent.types import Document, MetadataValue

_CONTAINER = grammar(root="container", container="rootfiles", rootfiles="rootfile")
_SPINE = grammar(root="package", package="manifest spine", manifest="item", spine="itemref")
_FIELDS = "title creator language date"
_METADATA = grammar(root="package", package="metadata", metadata=f"dc-metadata {_FIELDS}", **{"dc-metadata": _FIELDS})
_ENCRYPTION = "META-INF/encryption.xml"
"""The list of the encrypted parts of a book. It may also list only fonts."""
_ENCRYPTED = grammar(
    root="encryption", encryption="EncryptedData", EncryptedData="CipherData", CipherData="CipherReference"
)
_PAGES = frozenset({"application/xhtml+xml", "text/html"})


def read_epub(reading: Reading) -> Iterator[Document]:
    """Yield the chapters of a book. A page that the book names several times is read once."""
    with opened_package(reading) as package:
        main = _package_document(package)
        text = package.joined(package.each(_pages(package, main), "page", partial(_page, package)))
        fields = first_texts(package.events(main, _METADATA))
    metadata: dict[str, MetadataValue] = {name: value for name, value in fields.items() if name != "title"}
    yield package_document(reading, text, fields.get("title", ""), metadata)


def _package_document(package: Package) -> str:
    """Return the name of the part that describes the book. Raise `ValueError` if none is named."""
    for event in package.events("META-INF/container.xml", _CONTAINER):
        if event.name == "rootfile" and event.kind is Kind.START and (path := event.attributes.get("full-path")):
            return path
    raise ValueError("the container names no package")


def _pages(package: Package, main: str) -> dict[str, None]:
    """Return the names of the pages in reading order. If the book states no order, return them as they are listed."""
    folder, targets, spine = posixpath.dirname(main), dict[str, str](), dict[str, None]()
    for event in package.events(main, _SPINE):
        if event.kind is not Kind.START:
            continue
        if event.name == "item" and event.attributes.get("media-type") in _PAGES:
            targets[event.attributes.get("id", "")] = resolved(folder, event.attributes.get("href", ""))
        elif event.name == "itemref":
            spine[event.attributes.get("idref", "")] = None
    return dict.fromkeys(targets[name] for name in spine if name in targets) or dict.fromkeys(targets.values())


def _page(package: Package, name: str) -> Iterator[str]:
    data = package.data(name)
    try:
        text = decode(data, None, declared_charset(data) or declared_encoding(data)).text
    except DataError as error:
        if name in _encrypted(package):
            raise DataError("the book is protected against copying. Pass a copy without protection.") from error
        raise ValueError(str(error)) from error
    yield page_text(unix_lines(text))[1]


def _encrypted(package: Package) -> set[str]:
    """Return the names of the encrypted parts of a book."""
    events = package.events(_ENCRYPTION, _ENCRYPTED) if _ENCRYPTION in package else ()
    addresses = (event.attributes.get("URI", "") for event in events if event.name == "CipherReference")
    return {resolved("", address) for address in addresses}
