"""The records of a Chroma collection and its manifest, read through Chroma's client."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from context_agent.retrieval.chroma.location import is_on_server
from context_agent.retrieval.filters import Where
from context_agent.retrieval.index.layouts import lost_vectors
from context_agent.retrieval.index.manifest import MANIFEST_KEY, MANIFEST_SCHEMA, Manifest, parse_manifest

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

PAGE_RECORDS = 2_000
"""The number of records that one request fetches from a local folder."""
SERVER_RECORDS = 300
"""The number of records that one request fetches from a server. Chroma Cloud returns no more."""


@dataclass(frozen=True, slots=True)
class CollectionRecords:
    """The `StoredRecords` of a collection. Every call sends a request to Chroma."""

    collection: Collection

    @property
    def name(self) -> str:
        """The collection's name."""
        return self.collection.name

    def count(self) -> int:
        """Return the number of records."""
        return self.collection.count()

    def pages(
        self,
        include: Sequence[Any],
        ids: Sequence[str] | None = None,
        *,
        where: Where | None = None,
        size: int = PAGE_RECORDS,
    ) -> Iterator[dict[str, Any]]:
        """Yield the records with these ids, in pages as Chroma's `get` returns them.

        By default, yield all records, or those that a metadata filter admits.
        """
        if is_on_server(self.collection):
            size = SERVER_RECORDS
        if ids is not None:
            for start in range(0, len(ids), size):
                yield dict(self.collection.get(ids=list(ids[start : start + size]), include=list(include)))
            return
        offset = 0
        while True:
            page: dict[str, Any] = dict(
                self.collection.get(where=where, limit=size, offset=offset, include=list(include))
            )
            if not page["ids"]:
                return
            yield page
            offset += len(page["ids"])

    def contents(self, ids: Sequence[str] | None = None) -> Iterator[tuple[str, str | None, Mapping[str, Any] | None]]:
        """Yield the id, text and metadata of each record with one of these ids. By default, yield all records."""
        for page in self.pages(["documents", "metadatas"], ids):
            yield from zip(page["ids"], page["documents"], page["metadatas"], strict=True)

    def ids(self) -> list[str]:
        """Return the ids of all records, in the order of the store."""
        return [record for page in self.pages([], size=10 * PAGE_RECORDS) for record in page["ids"]]

    def ids_from(self, offset: int, limit: int) -> list[str]:
        """Return the ids of at most `limit` records, after the first `offset` ones."""
        return self.collection.get(limit=limit, offset=offset, include=[])["ids"]

    def vectors(self, ids: Sequence[str]) -> Iterator[tuple[Sequence[str], NDArray[np.float32]]]:
        """Yield record ids with their vectors, shape (n, d). If Chroma lost a vector, raise `CorpusCorruptError`."""
        from chromadb.errors import InternalError

        try:
            for page in self.pages(["embeddings"], ids):
                yield page["ids"], np.asarray(page["embeddings"], dtype=np.float32)
        except InternalError as error:
            raise lost_vectors(self.name, str(error)) from error

    def first_vectors(self, count: int) -> NDArray[np.float32]:
        """Return the first vectors, shape (at most `count`, d)."""
        vectors = self.collection.get(limit=count, include=["embeddings"])["embeddings"]
        return np.asarray(vectors if vectors is not None else [], dtype=np.float32)

    def dimension(self) -> int:
        """Return the length of the vectors. If the collection is empty, return 0."""
        vectors = self.first_vectors(1)
        return vectors.shape[1] if len(vectors) else 0

    def space(self) -> str:
        """Return Chroma's name for the collection's distance metric: `cosine`, `l2` or `ip`."""
        configuration = self.collection.configuration_json
        index = configuration.get("hnsw") or configuration.get("spann") or {}
        return str(index.get("space") or "l2")


def read_manifest(collection: Collection) -> Manifest | None:
    """Return the manifest. If this package did not make the collection, return None.

    If the manifest is damaged, raise `CorpusCorruptError`.
    """
    return parse_manifest(collection.name, (collection.metadata or {}).get(MANIFEST_KEY))


def write_manifest(collection: Collection, manifest: Manifest) -> None:
    """Replace the manifest in one transaction. Other entries of the collection's metadata stay."""
    entry = json.dumps({"schema": MANIFEST_SCHEMA, **asdict(manifest)}, sort_keys=True)
    collection.modify(metadata={**(collection.metadata or {}), MANIFEST_KEY: entry})
