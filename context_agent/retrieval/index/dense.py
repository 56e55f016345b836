"""Dense search: the vectors in the parts of an index, and the retriever that ranks chunks by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from context_agent.retrieval.filters import Where
from context_agent.retrieval.retriever import DENSE, QueryVectors, knows_every_language

_UNIT_SAMPLE = 3
"""The number of vectors that are checked to decide whether all vectors have length 1."""


class NearestRows(Protocol):
    """An approximate search in one part of an index."""

    def nearest(self, query: NDArray[np.float32], k: int) -> NDArray[np.intp] | None:
        """Return about `k` rows with the highest cosine to a query.

        Args:
            query: The query's vector, shape (d,).
            k: The number of rows to return.

        Returns:
            Row numbers, not sorted. None means that this search cannot be used.
        """


class VectorPart(NamedTuple):
    """The vectors of one part of an index, as stored. They are usually memory-mapped.

    Attributes:
        matrix: The vectors, shape (n, d).
        lengths: Their Euclidean norms, shape (n,).
        removed: The numbers of the removed rows, ascending. A search ignores these rows.
        approximate: An approximate search, which does not read all rows.
    """

    matrix: NDArray[np.float32]
    lengths: NDArray[np.float32]
    removed: NDArray[np.int32]
    approximate: NearestRows | None = None

    def nearest(self, query: NDArray[np.float32], k: int) -> NDArray[np.intp] | None:
        """Return about `k` of the best rows, ascending, without the removed ones.

        None means that an exact search is needed.
        """
        if self.approximate is None or 16 * k >= len(self.lengths):
            return None
        for request in (k, 4 * k, 16 * k):
            rows = self.approximate.nearest(query, request)
            if rows is None:
                return None
            rows = np.setdiff1d(rows[rows < len(self.lengths)], self.removed)
            if len(rows) >= k:
                return rows
        return None


@dataclass(frozen=True)
class VectorTable:
    """The vectors of an index in corpus order, in one or more parts.

    `space` is Chroma's name for the distance: `cosine`, `l2` or `ip`.
    """

    parts: Sequence[VectorPart]
    space: str

    @classmethod
    def of(cls, matrix: NDArray[np.float32], lengths: NDArray[np.float32], space: str) -> VectorTable:
        """Return a table in one part."""
        return cls([VectorPart(matrix, lengths, np.zeros(0, dtype=np.int32))], space)

    def scores(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the score of each row for a query.

        If the space is `cosine`, or if the stored vectors have length 1, scores are cosines. Otherwise they are
        negative distances.

        Args:
            query: The query's vector, shape (d,).

        Returns:
            The scores, shape (n,). Higher is better.
        """
        return np.concatenate([np.zeros(0, np.float32), *(self._scores(part, query) for part in self.parts)])

    def best(self, query: NDArray[np.float32], k: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Return the `k` best rows with their scores. Rows that tie with the last of them are included.

        A part with an approximate search contributes the rows that this search returns.
        """
        rows, scores, first = [np.zeros(0, np.intp)], [np.zeros(0, np.float32)], 0
        for part in self.parts:
            nearest = part.nearest(query, k)
            if nearest is None:
                part_rows, part_scores = _highest(self._scores(part, query), k)
            else:
                part_rows = nearest - np.searchsorted(part.removed, nearest)
                selected = VectorPart(part.matrix[nearest], part.lengths[nearest], part.removed[:0])
                part_scores = self._scores(selected, query)
            rows.append(first + part_rows)
            scores.append(part_scores)
            first += len(part.lengths) - len(part.removed)
        all_rows, all_scores = np.concatenate(rows), np.concatenate(scores)
        highest, highest_scores = _highest(all_scores, k)
        return all_rows[highest], highest_scores

    def _scores(self, part: VectorPart, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the scores of one part's rows, leaving out the removed rows."""
        # Not `@`: BLAS would use all cores for one product, and concurrent episodes would compete for the cores.
        products: NDArray[np.float32] = np.einsum("ij,j->i", part.matrix, query)
        if self.space == "cosine":
            scale = part.lengths * np.float32(np.linalg.norm(query))
            scores = np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)
        elif self.space == "ip":
            scores = products if self._unit else products - 1
        else:
            distances = np.square(part.lengths) + np.float32(np.dot(query, query)) - 2 * products
            scores = 1 - distances / 2 if self._unit else -distances
        return np.delete(scores, part.removed) if len(part.removed) else np.asarray(scores)

    @cached_property
    def _unit(self) -> bool:
        sample = np.concatenate([part.lengths[:_UNIT_SAMPLE] for part in self.parts])[:_UNIT_SAMPLE]
        return bool(np.allclose(sample, 1.0, atol=1e-3))


class DenseRetriever:
    """Dense search over a `VectorTable`. Equal scores are ordered by id.

    If a part has no approximate search, or if there is a metadata filter, the search is exact. An exact search is one
    pass over the matrix on one core. It takes 11 ms for 100,000 vectors of 384 numbers and .5 ms for 10,000 vectors of
    256.
    """

    name = DENSE

    def __init__(
        self,
        table: VectorTable,
        embed_query: QueryVectors,
        id_of: Callable[[int], str],
        mask: Callable[[Where], NDArray[np.bool_]],
        *,
        knows_language: Callable[[str], bool] = knows_every_language,
    ) -> None:
        """Wrap a table.

        Args:
            table: The vectors.
            embed_query: A function that returns the vector of a query.
            id_of: A function that returns the chunk id of a row.
            mask: A function that returns the rows which a metadata filter admits, shape (rows,).
            knows_language: See `KnowsLanguage`.
        """
        self.knows_language = knows_language
        self._table, self._embed_query, self._id_of, self._mask = table, embed_query, id_of, mask

    def search(self, query: str, k: int, where: Where | None = None) -> list[tuple[str, float]]:
        """See `Retriever`. If the query's vector is zero because no word is known, return nothing."""
        vector = self._embed_query(query)
        if k <= 0 or not vector.any():
            return []
        if where is None:
            rows, scores = self._table.best(vector, k)
        else:
            allowed = np.flatnonzero(self._mask(where))
            highest, scores = _highest(self._table.scores(vector)[allowed], k)
            rows = allowed[highest]
        hits = ((self._id_of(row), score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True))
        return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:k]


def _highest(scores: NDArray[np.float32], k: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Return the positions of the `k` highest scores, ascending, and these scores.

    Positions that tie with the last of them are included.
    """
    if len(scores) <= k:
        return np.arange(len(scores)), scores
    places = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
    return places, scores[places]
