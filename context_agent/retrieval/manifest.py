"""What an index says about itself, and how a chunk is written into a Chroma record.

The manifest is one entry of the collection's metadata, so that it travels with the collection, on a server too, and is
replaced in one transaction. It is written last: its `revision` names the last complete state, and records of a higher
revision are the unfinished work of a run that was interrupted. Of a document with records of several complete
revisions the newest counts; the older ones are removed right after the manifest is written.

A record's id is `<chunk id>~<digest of the document>`: a changed document gets new records beside the old ones, and a
run that is repeated finds its own. Metadata: the document's own entries, and `ctx1`, a JSON list of document id, title,
index, start, end, tokens, revision, and place of the document in its run. One packed entry, because each entry is a
row in Chroma's database: with three, adding takes 15 % longer, with eight a third. Filters go by the document's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Interval, Len

from context_agent.errors import CorpusCorruptError
from context_agent.retrieval.calibration import Calibration
from context_agent.types import Chunk, Document

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection
    from pydantic import TypeAdapter

KEY = "ctx1"
"""The manifest in a collection's metadata, and the packed entry in a record's."""
SCHEMA = 1
LONGEST_ENTRY = 100_000
"""Characters of a manifest that are read."""
_STRICT: dict[str, Any] = {"extra": "forbid", "allow_inf_nan": False}
_Name = Annotated[str, Len(1, 4_096)]
_Count = Annotated[int, Interval(ge=0, le=2**53)]
_Scores = Annotated[Mapping[Annotated[str, Len(1, 100)], Annotated[float, Interval(ge=0, le=1e6)]], Len(0, 100)]


@dataclass(frozen=True, slots=True)
class Chunking:
    """How documents were cut: tokens a chunk, tokens of overlap, and what counted them."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    size: _Count
    overlap: _Count
    counter: _Name


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state of an index. Revision 0: no run has been completed yet.

    `embedder` is the embedder's name, `spec` what `load_embedder` makes it from, empty where that is not known.
    `snapshot` names the folder that holds this state, where the index is a local one.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    embedder: _Name
    dimension: Annotated[int, Interval(ge=1, le=100_000)]
    chunking: Chunking
    spec: Annotated[str, Len(0, 4_096)] = ""
    revision: _Count = 0
    chunks: _Count = 0
    mrr: _Scores = field(default_factory=dict)
    weights: _Scores = field(default_factory=dict)
    snapshot: Annotated[str, Len(0, 100)] = ""

    def next(self, chunking: Chunking, chunks: int, found: Calibration, snapshot: str) -> Manifest:
        """The manifest of the next complete state."""
        return replace(
            self,
            revision=self.revision + 1,
            chunking=chunking,
            chunks=chunks,
            mrr=dict(found.mrr),
            weights=dict(found.weights),
            snapshot=snapshot,
        )


def read_manifest(collection: Collection) -> Manifest | None:
    """The manifest; None for a collection that this package did not make. Raises `CorpusCorruptError`."""
    return parse_manifest(collection.name, (collection.metadata or {}).get(KEY))


def parse_manifest(collection: str, entry: object) -> Manifest | None:
    """The manifest in the metadata entry `KEY` of a collection; None for None.

    Every field is checked, because the entry may come from someone else. Raises `CorpusCorruptError`.
    """
    from pydantic import ValidationError
    from pydantic_core import from_json

    if entry is None:
        return None
    if not isinstance(entry, str) or len(entry) > LONGEST_ENTRY:
        raise _damaged(collection, f"it is not a text of at most {LONGEST_ENTRY:,} characters")
    try:
        fields = from_json(entry)
        schema = fields.pop("schema")
        if schema == SCHEMA:
            return _validator().validate_json(json.dumps(fields), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise _damaged(collection, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise _damaged(collection, str(error)) from error
    raise CorpusCorruptError(
        f"collection {collection!a} was indexed by another version (schema {ascii(schema)[:50]}). Index it again"
    )


@cache
def _validator() -> TypeAdapter[Manifest]:
    from pydantic import TypeAdapter

    return TypeAdapter(Manifest)


def _damaged(collection: str, reason: str) -> CorpusCorruptError:
    return CorpusCorruptError(
        f"the manifest of collection {collection!a} is damaged ({ascii(reason[:200])[1:-1]}). Delete the "
        "index and index the documents again"
    )


def write_manifest(collection: Collection, manifest: Manifest) -> None:
    """Replaces the manifest in one transaction; other entries of the collection's metadata stay."""
    entry = json.dumps({"schema": SCHEMA, **asdict(manifest)}, sort_keys=True)
    collection.modify(metadata={**(collection.metadata or {}), KEY: entry})


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored chunk: its record's id, the chunk, and when and where in the run it was written."""

    record: str
    chunk: Chunk
    revision: int = 0
    place: int = 0


def digest_of(document: Document, chunking: Chunking) -> str:
    """Twelve hexadecimal digits over everything that decides what is stored of a document."""
    content = [document.title, document.text, sorted(document.metadata.items()), sorted(asdict(chunking).items())]
    return blake2b(json.dumps(content, ensure_ascii=True).encode(), digest_size=6).hexdigest()


def record_id(chunk_id: str, digest: str) -> str:
    """The id of the record that stores a chunk."""
    return f"{chunk_id}~{digest}"


def digest_in(record: str) -> str:
    """The document's digest in a record's id."""
    return record.rpartition("~")[2]


def metadata_of(entry: Entry) -> dict[str, Any]:
    """The record's metadata. An entry of the document's own under our name is lost to ours."""
    chunk = entry.chunk
    place = (chunk.index, chunk.start, chunk.end, chunk.tokens, entry.revision, entry.place)
    return {**chunk.metadata, KEY: json.dumps([chunk.document_id, chunk.title, *place], ensure_ascii=False)}


def entry_of(record: str, text: str | None, metadata: Mapping[str, Any] | None) -> Entry | None:
    """What `metadata_of` wrote, read back; None for a record that `metadata_of` did not write."""
    own = dict(metadata or {})
    try:
        document_id, title, *numbers = json.loads(own.pop(KEY))
        index, start, end, tokens, revision, place = numbers
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    if not (isinstance(document_id, str) and isinstance(title, str) and all(type(n) is int for n in numbers)):
        return None
    chunk = Chunk(f"{document_id}_{index}", document_id, index, text or "", start, end, tokens, title, own)
    return Entry(record, chunk, revision, place)


def live(entries: Iterable[Entry], revision: int) -> list[Entry]:
    """The entries of the complete state `revision`, in corpus order: of each document its newest records."""
    complete = [entry for entry in entries if entry.revision <= revision]
    newest: dict[str, int] = {}
    for entry in complete:
        newest[entry.chunk.document_id] = max(entry.revision, newest.get(entry.chunk.document_id, 0))
    kept = [entry for entry in complete if entry.revision == newest[entry.chunk.document_id]]
    return sorted(kept, key=lambda entry: (entry.revision, entry.place, entry.chunk.index))
