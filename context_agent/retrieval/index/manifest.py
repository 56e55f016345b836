"""The manifest: the state of an index, as one entry of the collection's metadata.

The manifest is stored in the collection, also on a server, and is replaced in one transaction. It is written last. Its
`revision` is the number of the last complete state. Records of a higher revision are the unfinished work of an
interrupted run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Interval, Len, Predicate

from context_agent._support.validation import explain
from context_agent.errors import CorpusCorruptError
from context_agent.retrieval.retriever_weights import CALIBRATION_VERSION, Calibration
from context_agent.text.languages import LANGUAGES

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MANIFEST_KEY = "ctx1"
"""The key of the manifest in a collection's metadata, and of the packed entry in a record's metadata."""
MANIFEST_SCHEMA = 1
"""The version of the manifest's format."""
LONGEST_ENTRY = 100_000
"""The maximum number of characters in a manifest."""
_STRICT_CONFIG: dict[str, Any] = {"extra": "forbid", "allow_inf_nan": False}
_NameText = Annotated[str, Len(1, 4_096)]
_Language = Annotated[str, Predicate(lambda code: not code or code in LANGUAGES)]
_Count = Annotated[int, Interval(ge=0, le=2**53)]
_Scores = Annotated[Mapping[Annotated[str, Len(1, 100)], Annotated[float, Interval(ge=0, le=1e6)]], Len(0, 100)]


@dataclass(frozen=True, slots=True)
class Chunking:
    """The settings of chunking: the tokens in a chunk, the tokens of overlap, and the name of the token counter."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT_CONFIG
    size: _Count
    overlap: _Count
    counter: _NameText


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state of an index.

    Attributes:
        embedder: The name of the embedder.
        dimension: The length of the vectors.
        chunking: The settings of chunking.
        spec: The embedder's spec for `load_embedder`. It is empty if it is unknown.
        revision: The number of the state. It is 0 if no run has been completed yet.
        chunks: The number of chunks.
        mrr: The mean reciprocal rank of each retriever.
        weights: The weight of each retriever.
        snapshot: The folder that holds this state of a local index.
        calibration: The version of the measurement of `mrr` and `weights`. It is 0 if there was no measurement.
        language: The language of BM25 (see `text.languages`). It is empty until a run has been completed.
        mixed: Whether each text is analyzed in its own language. If so, `language` is that of most texts. Otherwise,
            the caller chose `language`.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT_CONFIG
    embedder: _NameText
    dimension: Annotated[int, Interval(ge=1, le=100_000)]
    chunking: Chunking
    spec: Annotated[str, Len(0, 4_096)] = ""
    revision: _Count = 0
    chunks: _Count = 0
    mrr: _Scores = field(default_factory=dict)
    weights: _Scores = field(default_factory=dict)
    snapshot: Annotated[str, Len(0, 100)] = ""
    calibration: _Count = 0
    language: _Language = ""
    mixed: bool = True

    def next(
        self, chunking: Chunking, chunks: int, calibration: Calibration, snapshot: str, language: str, *, mixed: bool
    ) -> Manifest:
        """Return the manifest of the next complete state."""
        return replace(
            self,
            revision=self.revision + 1,
            chunking=chunking,
            chunks=chunks,
            mrr=dict(calibration.mrr),
            weights=dict(calibration.weights),
            snapshot=snapshot,
            calibration=CALIBRATION_VERSION if calibration.weights else 0,
            language=language,
            mixed=mixed,
        )

    def stored_calibration(self) -> Calibration | None:
        """Return the stored calibration.

        If there is none, or if it comes from another version of the measurement, return None.
        """
        return Calibration(self.mrr, self.weights) if self.calibration == CALIBRATION_VERSION else None


def parse_manifest(collection: str, entry: object) -> Manifest | None:
    """Return the manifest in the metadata entry `MANIFEST_KEY` of a collection.

    Every field is checked, because the entry may come from someone else.

    Args:
        collection: The name of the collection, for error messages.
        entry: The entry. It is None for a collection that this package did not make.

    Returns:
        The manifest. It is None if `entry` is None.

    Raises:
        CorpusCorruptError: If the entry is damaged, or another version of this package wrote it.
    """
    from pydantic import ValidationError
    from pydantic_core import from_json

    if entry is None:
        return None
    if not isinstance(entry, str) or len(entry) > LONGEST_ENTRY:
        raise _damaged_manifest(collection, f"the manifest must be a string of at most {LONGEST_ENTRY:,} characters")
    try:
        fields = from_json(entry)
        schema = fields.pop("schema")
        if schema == MANIFEST_SCHEMA:
            manifest = _validator().validate_json(json.dumps(fields), strict=True)
            if manifest.language or not manifest.revision:
                return manifest
            schema = "1, without a language"
    except ValidationError as error:
        raise _damaged_manifest(collection, explain(error)) from error
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise _damaged_manifest(collection, str(error)) from error
    raise CorpusCorruptError(
        f"collection {collection!a} was indexed by another version of context-agent (schema {ascii(schema)[:50]}; "
        f"this version reads {MANIFEST_SCHEMA}). Delete the index, or name another one with --path or --collection. "
        "Then run `ctx1 index DOCUMENTS`."
    )


@cache
def _validator() -> TypeAdapter[Manifest]:
    from pydantic import TypeAdapter

    return TypeAdapter(Manifest)


def _damaged_manifest(collection: str, reason: str) -> CorpusCorruptError:
    return CorpusCorruptError(
        f"the manifest of collection {collection!a} is damaged ({ascii(reason[:200])[1:-1]}). Delete the index, and "
        "index the documents again."
    )
