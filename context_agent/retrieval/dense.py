"""Dense search in a Chroma collection, and the embedder that fits it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import DimensionError
from context_agent.retrieval.embedders.stored import stored_embedder
from context_agent.retrieval.hybrid import DENSE, QueryVectors
from context_agent.retrieval.manifest import Manifest
from context_agent.retrieval.protocol import Where
from context_agent.retrieval.store import PAGE

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

    from context_agent.retrieval.embedders import Embedder


_TIE_MARGIN = 8
"""Asked for in addition, so that equal scores at the cut are mostly told apart by id and not by Chroma's order."""


class ChromaDense:
    """Approximate nearest neighbours by Chroma's index, ids only.

    Scores are cosines where they follow from the collection's distance: for `cosine`, and for `l2` and `ip` when the
    vectors have length 1 (three are looked at); elsewhere the negative distance, which orders alike.
    """

    name = DENSE

    def __init__(self, collection: Collection, embed_query: QueryVectors, chunk_of: Mapping[str, str]) -> None:
        """`chunk_of` maps the records that belong to the state being read to their chunk ids; others are dropped."""
        self._collection, self._embed_query, self._chunk_of = collection, embed_query, chunk_of
        self._offset, self._factor = _cosine_of_distance(collection)

    def search(self, query: str, k: int, where: Where | None = None) -> list[tuple[str, float]]:
        """See `Retriever`; a query whose vector is zero (no known word) finds nothing."""
        vector = self._embed_query(query)
        if k <= 0 or not vector.any():
            return []
        ask = k + _TIE_MARGIN
        while True:
            found = self._nearest(vector, ask, where)
            kept = [(self._chunk_of[record], score) for record, score in found if record in self._chunk_of]
            if len(kept) >= k or len(found) < ask:
                return sorted(kept, key=lambda hit: (-hit[1], hit[0]))[:k]
            # Records of an unfinished run are in the way.
            ask *= 4

    def _nearest(self, vector: NDArray[np.float32], k: int, where: Where | None) -> list[tuple[str, float]]:
        answer: dict[str, Any] = dict(
            self._collection.query(
                query_embeddings=cast("Any", [vector]), n_results=k, where=where, include=["distances"]
            )
        )
        distances = answer["distances"][0]
        return [
            (record, self._offset - self._factor * d) for record, d in zip(answer["ids"][0], distances, strict=True)
        ]


def embedder_of(collection: Collection, manifest: Manifest | None) -> Embedder:
    """The embedder of an open collection: the function its caller passed, else what `stored_embedder` allows.

    A manifest decides first where there is one. Raises `ConfigError`.
    """
    from context_agent.retrieval.embedders.chroma import ChromaEmbedder

    if manifest is None and (held := ChromaEmbedder.of_collection(collection)) is not None:
        return held
    return stored_embedder(
        collection.name,
        manifest,
        collection.configuration_json,
        collection.get_model().serialized_schema,
        dimension=dimension_of(collection),
    )


def dimension_of(collection: Collection) -> int:
    """The length of a collection's vectors; 0 when it is empty."""
    vectors = _first_vectors(collection, 1)
    return vectors.shape[1] if len(vectors) else 0


def check_dimension(collection: str, stored: int, embedder: Embedder) -> None:
    """Raises `DimensionError` when a collection holds vectors of another length than the embedder makes; 0 is none."""
    if stored and stored != embedder.dimension:
        raise DimensionError(
            f"collection {collection!r} holds vectors of {stored} numbers, but {embedder.name} makes "
            f"{embedder.dimension}. Open it with the embedder that made them: pass --embedder SPEC (in Python: "
            "embedder=)"
        )


def stored_vectors(collection: Collection, records: Mapping[str, str]) -> dict[str, NDArray[np.float32]]:
    """Chunk id to vector, for a mapping of record ids to chunk ids."""
    vectors: dict[str, NDArray[np.float32]] = {}
    ids = list(records)
    for start in range(0, len(ids), PAGE):
        page: dict[str, Any] = dict(collection.get(ids=ids[start : start + PAGE], include=["embeddings"]))
        for record, vector in zip(page["ids"], page["embeddings"], strict=True):
            vectors[records[record]] = np.asarray(vector, dtype=np.float32)
    return vectors


def _first_vectors(collection: Collection, count: int) -> NDArray[np.float32]:
    found = collection.get(limit=count, include=["embeddings"])["embeddings"]
    return np.asarray(found if found is not None else [], dtype=np.float32)


def space_of(collection: Collection) -> str:
    """Chroma's name of the collection's distance: `cosine`, `l2` or `ip`."""
    configuration = collection.configuration_json
    index = configuration.get("hnsw") or configuration.get("spann") or {}
    return str(index.get("space") or "l2")


def _cosine_of_distance(collection: Collection) -> tuple[float, float]:
    """(a, b) such that a - b * distance is the cosine; (0, 1) where it is not to be had."""
    space = space_of(collection)
    if space == "cosine":
        return 1.0, 1.0
    if not np.allclose(np.linalg.norm(_first_vectors(collection, 3), axis=-1), 1.0, atol=1e-3):
        return 0.0, 1.0
    return 1.0, 0.5 if space == "l2" else 1.0
