"""The passages in an engine's response. Each becomes a `Document`.

Scores are ignored. They differ between engines in direction and scale, so only the order of the hits counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import islice
from reprlib import repr as brief
from typing import Any
from uuid import UUID

from context_agent._support.suggest import listed
from context_agent.errors import CorpusError
from context_agent.retrieval.document_checks import LONGEST_ID
from context_agent.retrieval.filters import MAX_TEXT
from context_agent.text.normalization import well_formed
from context_agent.types import Document

MOST_HITS = 1_000
"""The maximum number of hits that are read from one response."""
LONGEST_TITLE = 1_000
"""The maximum number of characters that are read from a title."""
MOST_METADATA = 256
"""The maximum number of metadata entries that are read from a hit."""
HIT_LIST_NAMES = (
    "hits", "results", "result", "documents", "docs", "points", "matches", "passages", "items", "rows", "data",
    "value", "response", "body", "objects", "root", "children",
)  # fmt: skip
"""The usual names of the field that holds the hits of a response."""
NESTED_FIELD_NAMES = ("_source", "payload", "entity", "fields", "properties", "metadata", "document", "chunk")
"""The usual names of a field of a hit that holds further fields."""
TEXT_NAMES = ("text", "content", "page_content", "body", "passage", "chunk", "document", "snippet")
TITLE_NAMES = ("title", "name", "heading")
ID_NAMES = ("id", "_id", "id_", "chunk_id", "uuid", "pk")
DOCUMENT_ID_NAMES = ("document_id", "doc_id", "ref_doc_id")


@dataclass(frozen=True, slots=True)
class FieldNames:
    """The names of the fields of a hit that hold its text, title, id and document. None means the usual name."""

    text: str | None = None
    title: str | None = None
    id: str | None = None
    document: str | None = None


def passages_of(response: object, names: FieldNames) -> list[Document]:
    """Return the passages of a response, best first. Hits with an empty text are left out.

    A passage has the id of its document, so several passages may have the same id. If the engine gives no document,
    use the hit's own id. If the engine gives neither, the id is empty.

    Raises:
        CorpusError: If the response has no list of hits, if a hit has no field for its text, or if either is nested too
            deeply.
    """
    try:
        passages = [_passage(hit, names) for hit in _hits(response)]
    except RecursionError:
        raise CorpusError(
            "the response of the engine is nested too deeply. An engine must return a list of texts, or of "
            'mappings like {"id": ..., "title": ..., "text": ...}.'
        ) from None
    return [passage for passage in passages if passage.text.strip()]


def _hits(response: Any) -> Sequence[object]:
    """Return at most `MOST_HITS` hits, from the field of the response that holds them."""
    if hasattr(response, "to_pylist"):  # a table of Arrow
        response = response.to_pylist()
    elif hasattr(response, "to_dict") and hasattr(response, "columns"):  # one of pandas
        response = response.to_dict("records")
    elif isinstance(body := getattr(response, "body", None), Mapping | list):  # a response of Elasticsearch's client
        response = body
    if isinstance(response, Iterable) and not isinstance(response, str | bytes | Mapping) and not _is_record(response):
        hits = list(islice(response, MOST_HITS))
        # Milvus answers a list of queries with a list of lists.
        return _hits(hits[0]) if len(hits) == 1 and isinstance(hits[0], list) else hits
    if isinstance(response, Mapping) and isinstance(ids := response.get("ids"), list):
        return _columns(response, ids)
    read = response.get if isinstance(response, Mapping) else lambda name: getattr(response, name, None)
    for value in map(read, HIT_LIST_NAMES):
        if isinstance(value, Mapping | list | tuple):
            return _hits(value)
    raise CorpusError(
        'an engine must return a list of texts, or of mappings like {"id": ..., "title": ..., "text": ...}; got '
        f"{type(response).__name__} ({brief(response)})"
    )


def _columns(response: Mapping[str, Any], ids: list[Any]) -> list[object]:
    """Return the hits of Chroma's response.

    The response has a list for each field of a hit, inside a list for each query.
    """

    def column(values: object) -> list[Any]:
        first = values[0] if isinstance(values, list) and len(values) == 1 else None
        column = first if isinstance(first, list) else values
        return column[:MOST_HITS] if isinstance(column, list) else []

    known = column(ids)
    texts, metadatas = (column(response.get(name)) or [None] * len(known) for name in ("documents", "metadatas"))
    rows = zip(known, texts, metadatas, strict=False)
    return [{"id": hit_id, "text": text, "metadata": metadata or {}} for hit_id, text, metadata in rows]


def _passage(hit: object, names: FieldNames) -> Document:
    entries = _entries(hit)
    text_name, text = _entry(entries, names.text, TEXT_NAMES)
    if text_name is None or not isinstance(text, str | None):
        wrong = "no field for its text" if text_name is None else f"{type(text).__name__} in {text_name!r}, not text"
        raise CorpusError(
            f"a hit from the engine has {wrong}. Its fields are {listed(entries) or 'empty'}. Pass the name of "
            "the field that holds the text as text_key=."
        )
    title_name, title = _entry(entries, names.title, TITLE_NAMES)
    id_name, hit_id = _entry(entries, names.id, ID_NAMES)
    document_name, document_id = _entry(entries, names.document, DOCUMENT_ID_NAMES)
    used = {text_name, title_name, id_name, document_name}
    metadata = {str(name): value for name, value in entries.items() if name not in used and _is_metadata(value)}
    return Document(
        _identifier(document_id) or _identifier(hit_id),
        well_formed(text or ""),
        well_formed(title[:LONGEST_TITLE]) if isinstance(title, str) else "",
        dict(islice(metadata.items(), MOST_METADATA)),
    )


def _entries(hit: Any) -> dict[str, Any]:
    """Return the fields of a hit and its nested fields.

    If both have a field of the same name, the hit's own field counts.
    """
    if isinstance(hit, str):
        return {"text": hit}
    if isinstance(hit, tuple) and len(hit) == 2 and isinstance(hit[1], int | float):
        return _entries(hit[0])
    if isinstance(hit, Mapping):
        own = dict(hit)
    elif _is_record(hit):
        own = {entry.name: getattr(hit, entry.name) for entry in fields(hit)} if is_dataclass(hit) else dict(vars(hit))
    elif getattr(hit, "__dict__", None) and not callable(hit):
        own = dict(vars(hit))
    else:
        raise CorpusError(
            f"a hit of the engine must be a text, a mapping or an object with fields; got {type(hit).__name__} "
            f"({brief(hit)})"
        )
    nested: dict[str, Any] = {}
    for name in NESTED_FIELD_NAMES:
        if isinstance(own.get(name), Mapping) or _is_record(own.get(name)):
            nested |= _entries(own.pop(name))
    return nested | own


def _is_record(value: object) -> bool:
    """Return True if a value is an object with fields: a dataclass, or an object of pydantic.

    An object of pydantic can also be iterated over.
    """
    return (is_dataclass(value) and not isinstance(value, type)) or hasattr(value, "model_fields_set")


def _entry(entries: Mapping[str, Any], name: str | None, usual: Sequence[str]) -> tuple[str | None, Any]:
    """Return the name and the value of the named entry. If no name is given, return the first usual entry with a value.

    If there is none, return (None, None).
    """
    candidates = [name] if name is not None else [usual_name for usual_name in usual if usual_name in entries]
    filled = (candidate for candidate in candidates if entries.get(candidate) is not None)
    key = next(filled, candidates[0] if candidates and candidates[0] in entries else None)
    value = entries.get(key) if key is not None else None
    # OpenSearch returns requested fields as lists.
    return key, value[0] if isinstance(value, list) and len(value) == 1 else value


def _identifier(value: object) -> str:
    """Return an id as text. If there is none, or one that is too long for an index, return an empty string.

    LlamaIndex writes the text "None" for a missing document.
    """
    usable = isinstance(value, str | int | UUID) and not isinstance(value, bool)
    text = well_formed(str(value)) if usable else ""
    return "" if text == "None" or len(text) > LONGEST_ID else text


def _is_metadata(value: object) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and len(value) <= MAX_TEXT)
