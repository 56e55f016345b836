"""The manifest: the state of an index, as one JSON entry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Interval, Len, Predicate

from context_agent._support.validation import explain
from context_agent.errors import CorpusCorruptError
from context_agent.retrieval.calibration import CALIBRATION_VERSION, Calibration
from context_agent.text.languages import LANGUAGES

if TYPE_CHECKING:
    from pydantic import TypeAdapter

KEY = "ctx1"
"""The manifest in a collection's metadata, and the packed entry in a record's."""
SCHEMA = 1
LONGEST_ENTRY = 100_000
"""Characters of a manifest that are read."""
_STRICT: dict[str, Any] = {"extra": "forbid", "allow_inf_nan": False}
_Name = Annotated[str, Len(1, 4_096)]
_Language = Annotated[str, Predicate(lambda code: not code or code in LANGUAGES)]
_Count = Annotated[int, Interval(ge=0, le=2**53)]
_Scores = Annotated[Mapping[Annotated[str, Len(1, 100)], Annotated[float, Interval(ge=0, le=1e6)]], Len(0, 100)]


@dataclass(frozen=True, slots=True)
class Chunking:
    """How documents were chunked: tokens per chunk, tokens of overlap, and the name of the token counter."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT
    size: _Count
    overlap: _Count
    counter: _Name


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state of an index. Revision 0: no run has been completed yet.

    `embedder` is the embedder's name, `spec` its spec for `load_embedder`, empty if unknown. `snapshot` names the
    folder that holds this state of a local index. `calibration` is the version of the measurement of `mrr` and
    `weights`; 0 without one. `language` is that of BM25, see `languages.LANGUAGES`; it is empty until a run has completed. In a `mixed` index it is the language of most texts, and each text is
    in its own; otherwise someone named it.
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
        """Return the calibration; None without one, and if another version of this package measured it in another
        way.
        """
        return Calibration(self.mrr, self.weights) if self.calibration == CALIBRATION_VERSION else None


def parse_manifest(collection: str, entry: object) -> Manifest | None:
    """Return the manifest in the metadata entry `KEY` of a collection; None for None.

    Every field is checked, because the entry may come from someone else. Raises `CorpusCorruptError`.
    """
    from pydantic import ValidationError
    from pydantic_core import from_json

    if entry is None:
        return None
    if not isinstance(entry, str) or len(entry) > LONGEST_ENTRY:
        raise _damaged(collection, f"it is not a string of at most {LONGEST_ENTRY:,} characters")
    try:
        fields = from_json(entry)
        schema = fields.pop("schema")
        if schema == SCHEMA:
            manifest = _validator().validate_json(json.dumps(fields), strict=True)
            if manifest.language or not manifest.revision:
                return manifest
            schema = "1, without a language"
    except ValidationError as error:
        raise _damaged(collection, explain(error)) from error
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise _damaged(collection, str(error)) from error
    raise CorpusCorruptError(
        f"collection {collection!a} was indexed by another version of context-agent (schema {ascii(schema)[:50]}; this "
        f"version reads {SCHEMA}). Delete the index, or name another one with --path or --collection, and run ctx1 "
        "index DOCUMENTS again"
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
