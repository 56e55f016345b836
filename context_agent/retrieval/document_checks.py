"""Checks whether an index can store a document: its id, title, text and metadata.

If one entry is wrong, Chroma refuses a whole batch, and it drops other entries silently. A record with thousands of
entries makes a local collection unreadable. So documents are checked before they are stored. Documents from sources
lose their wrong entries, with a notice (`with_storable_metadata`). A caller's documents raise an error
(`check_document`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from reprlib import repr as brief

from context_agent.errors import CorpusError
from context_agent.types import Document

MOST_ENTRIES = 256
"""The maximum number of metadata entries of a document.

Each entry is a row in Chroma's database for each of its chunks.
"""
LONGEST_KEY = 256
"""The maximum length of a metadata key, in characters."""
LONGEST_ID = 16_384
"""The maximum length of a document id, in bytes of UTF-8. A path with every byte percent-encoded is shorter.

tantivy does not index ids of more than 65,530 bytes, so it could not delete them.
"""
RESERVED = ("chroma:", "#", "$")
"""The prefixes of keys that Chroma reserves."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def with_storable_metadata(document: Document, note: Callable[[str], None]) -> Document:
    """Return the document without the metadata that cannot be stored. `note` receives what is left out, and why."""
    entries = dict(islice(document.metadata.items(), MOST_ENTRIES))
    if len(document.metadata) > MOST_ENTRIES:
        note(
            f"some documents have more than {MOST_ENTRIES} metadata fields, of which only the first {MOST_ENTRIES} "
            "are indexed"
        )
    refused = {key: reason for key, value in entries.items() if (reason := _refusal(key, value))}
    for key, reason in refused.items():
        note(f"metadata field {repr(key)[:80]} is left out: {reason}. Rename or convert it.")
    if not refused and len(entries) == len(document.metadata):
        return document
    return replace(document, metadata={key: value for key, value in entries.items() if key not in refused})


def check_texts(document: object) -> None:
    """If the value is not a document, or if its id, title or text is not a string, raise `CorpusError`."""
    if not isinstance(document, Document):
        raise CorpusError(
            f"a document must be a Document, such as Document(id, text, title); got {brief(document)} "
            f"({type(document).__name__})"
        )
    if any(not isinstance(part, str) for part in (document.id, document.title, document.text)):
        raise CorpusError(f"the id, title and text of document {document.id!r} must be strings. Convert them.")
    metadata: object = document.metadata
    if not isinstance(metadata, Mapping):
        kind = type(metadata).__name__
        raise CorpusError(f"the metadata of document {document.id!r} must be a dictionary; got {kind}")


def check_document(document: Document) -> None:
    """If an index cannot store the id, title, text or metadata, raise `CorpusError`."""
    check_texts(document)
    if not document.id.strip():
        raise CorpusError(f"a document has the empty id {document.id!r}. Give every document an id.")
    name = repr(document.id[:80])
    if (size := len(document.id.encode(errors="surrogatepass"))) > LONGEST_ID:
        raise CorpusError(
            f"a document id must have at most {LONGEST_ID:,} bytes; {name}... has {size:,}. Give it a shorter id."
        )
    if _SURROGATE.search(document.id):
        raise CorpusError(f"document id {name} contains a lone surrogate, which is not Unicode text. Remove it.")
    if len(document.metadata) > MOST_ENTRIES:
        count = len(document.metadata)
        raise CorpusError(f"a document must have at most {MOST_ENTRIES} metadata entries; {name} has {count:,}")
    for key, value in document.metadata.items():
        if reason := _refusal(key, value):
            raise CorpusError(
                f"metadata field {repr(key)[:80]} of document {name} cannot be stored: {reason}. Rename, convert or "
                "remove it."
            )


def _refusal(key: object, value: object) -> str:
    """Return the reason why an entry cannot be stored. If it can be stored, return an empty string."""
    return _key_refusal(key) or _value_refusal(value)


def _key_refusal(key: object) -> str:
    if not isinstance(key, str):
        return f"the name must be a string; got {type(key).__name__}"
    if not key:
        return "the name is empty"
    if len(key) > LONGEST_KEY:
        return f"the name has more than {LONGEST_KEY} characters"
    if key.startswith(RESERVED):
        return "Chroma reserves names that begin with 'chroma:', '#' or '$'"
    return "the name contains a lone surrogate, which is not Unicode text" if _SURROGATE.search(key) else ""


def _value_refusal(value: object) -> str:
    match value:
        case bool():
            return ""
        case str():
            return "the text contains a lone surrogate, which is not Unicode text" if _SURROGATE.search(value) else ""
        case int():
            return "" if -(2**63) <= value < 2**63 else "the integer needs more than 64 bits"
        case float():
            return "" if math.isfinite(value) else f"the value must be a finite number; got {value}"
    return f"the value must be a string, number or boolean; got {type(value).__name__}"
