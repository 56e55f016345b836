"""`ChromaCorpus`: search over a Chroma collection, in a local folder, on a server, or in Chroma Cloud.

A local folder is read from a published snapshot, without Chroma. Opening and searching never change Chroma's files. So
any number of processes may read while one process indexes. `local_source` reads folders, and `client_source` reads
everything else.

A search gets ids from dense search and BM25, fuses them, and fetches the texts of the best chunks by id. Excluded
chunks are dropped after the search. A filter that excludes them would make Chroma's query linear in the collection.

An open corpus shows the state that was complete when it was opened. `stale()` returns True after a new indexing run.
`refresh()` then opens the new state.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from context_agent._support.arguments import items_of, require_members, whole_number
from context_agent._support.thread_pool import ThreadPool
from context_agent.errors import ConfigError, CorpusEmptyError, DimensionError
from context_agent.retrieval.chroma import DEFAULT_COLLECTION
from context_agent.retrieval.chroma.client_source import ClientSource
from context_agent.retrieval.chroma.collection import PAGE_RECORDS
from context_agent.retrieval.chroma.database import EmptyCollectionError, MissingCollectionError
from context_agent.retrieval.chroma.local_source import LocalSource
from context_agent.retrieval.chroma.location import Location
from context_agent.retrieval.chroma.recent_values import RecentValues
from context_agent.retrieval.corpus import CANDIDATES, GREP_LIMIT, check_question
from context_agent.retrieval.embedders import WORDS_ALONE, Embedder, EmbeddingFunction, as_embedder
from context_agent.retrieval.embedders.query_vectors import query_vectors
from context_agent.retrieval.embedders.static import StaticEmbedder
from context_agent.retrieval.embedders.words_alone import NoEmbedder
from context_agent.retrieval.filters import Where, plain_where
from context_agent.retrieval.fusion import gather, hits_of, reranked
from context_agent.retrieval.index.bm25 import Bm25Retriever
from context_agent.retrieval.index.grep import Pattern
from context_agent.retrieval.index.layouts import ForeignLayout, Layout, OwnLayout
from context_agent.retrieval.index.manifest import MANIFEST_KEY, Manifest, parse_manifest
from context_agent.retrieval.index.metadata_keys import Keys, keys_notice
from context_agent.retrieval.index.publication import StoredCollection
from context_agent.retrieval.language_fit import knows_language
from context_agent.retrieval.retriever import Retriever
from context_agent.retrieval.retriever_weights import Calibration, Probes, calibrate, probes_of, sample_rows
from context_agent.types import Chunk, Hit

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

    from context_agent.retrieval.rerankers import Reranker
    from context_agent.tokens import TokenCounter

_LOG = logging.getLogger(__name__)
CACHED_VALUES = 20_000
"""The maximum number of chunks, and of vectors, in the cache. With passages of 500 characters, it takes 60 MB."""
QUICK_CHUNKS, QUICK_BYTES = 20_000, 40_000_000
"""The size of a small corpus, in chunks and in bytes of text.

In a local folder of this size, a search takes a few milliseconds, and a regular expression at most 50.
"""


class UnusedKeysError(ConfigError):
    """Metadata keys were given for a collection of this package, which does not use them."""


class ChromaCorpus:
    """A `Corpus` over one collection.

    Create it with `open`. Reads are safe from any number of threads.

    Example:
        from context_agent import ChromaCorpus

        with ChromaCorpus.open("films/") as corpus:
            for hit in corpus.search("Who directed Rope?", k=5):
                print(hit.chunk.document_id, hit.score)
    """

    def __init__(
        self,
        location: Location,
        collection: str | None,
        *,
        embedder: Embedder | None,
        keys: Keys,
        counter: TokenCounter | None,
        reranker: Reranker | None,
        cache: str | Path | None,
        calibration: bool,
        wrap: Callable[[Retriever], Retriever] | None,
        rebuild: bool,
    ) -> None:
        self._location, self._keys, self._counter = location, keys, counter
        self._collection_name = DEFAULT_COLLECTION if collection is None else collection
        self._reranker, self._cache, self._calibrate, self._wrap = reranker, cache, calibration, wrap
        self._passed_embedder = embedder
        self._threads: ThreadPool | None = None
        self._closed = False
        self.notices: tuple[str, ...] = ()
        """Notices about defaults that were chosen because the caller named no collection or no metadata keys."""
        try:
            self._attach(rebuild)
        except MissingCollectionError as error:
            if collection is not None or len(error.names) != 1:
                raise
            (self._collection_name,) = error.names
            self._attach(rebuild)
            self.notices = (
                f"{location} holds only the collection {self._collection_name!r}, so the search reads this collection",
            )
        if notice := self._keys_notice():
            self.notices = (*self.notices, notice)
        for notice in self.notices:
            _LOG.warning("%s", notice)

    @classmethod
    def open(
        cls,
        path: str | Path | None = None,
        *,
        url: str | None = None,
        collection: str | Collection | None = None,
        embedder: Embedder | EmbeddingFunction | str | None = None,
        text_key: str | None = None,
        title_key: str | None = None,
        document_key: str | None = None,
        index_key: str | None = None,
        tokens_key: str | None = None,
        counter: TokenCounter | None = None,
        reranker: Reranker | None = None,
        headers: dict[str, str] | None = None,
        tenant: str | None = None,
        database: str | None = None,
        cache: str | Path | None = None,
        calibration: bool = True,
        wrap: Callable[[Retriever], Retriever] | None = None,
        rebuild: bool = False,
    ) -> Self:
        """Open a collection in a folder, on a server, or one that the caller holds open.

        The folder also holds a BM25 index and a copy of the texts. For a server, they are in `cache`. Opening a
        collection brings them up to date.

        Args:
            path: The folder.
            url: The address of a Chroma server.
            collection: The name of the collection. Defaults to `documents`, or to the only collection. Chroma's own
                collection object may be passed instead, without `path` and `url`. It is never closed.
            embedder: An embedder, a spec for `load_embedder`, or a function from texts to vectors, such as a Chroma
                `EmbeddingFunction`. With `"none"`, there is no dense search. Defaults to the function that the caller
                passed to Chroma with a live `collection`. Without such a function, the stored data selects an embedder
                that ships with this package or with Chroma (see `stored_embedder`). Any other embedder must be passed.
            text_key: The metadata key of the text, in a collection that another program made (see `Keys`).
            title_key: The metadata key of the title.
            document_key: The metadata key of the document's id. If it or `title_key` is None, the usual keys of
                LangChain, LlamaIndex and Haystack apply, and `notices` names them. If a key is empty, there is no such
                field.
            index_key: The metadata key that orders the chunks of a document.
            tokens_key: The metadata key of the number of tokens.
            counter: The counter for chunks that do not state their number of tokens.
            reranker: A reranker that orders the fused hits again.
            headers: HTTP headers for the server, for example with a token.
            tenant: Chroma's tenant on the server.
            database: Chroma's database on the server.
            cache: The folder for the BM25 index and the texts of a collection on a server. Defaults to the user's cache
                folder.
            calibration: Whether to weight the retrievers by their quality in this corpus. If false, both have the same
                weight.
            wrap: A function that replaces each retriever before calibration.
            rebuild: Whether to rebuild the BM25 index and the copy of the texts.

        Raises:
            CorpusNotFoundError: If the folder, the server or the collection does not exist.
            CorpusEmptyError: If the collection is empty or has no texts, or if its indexing was never completed.
            CorpusCorruptError: If files are damaged.
            DimensionError: If the embedder's vectors have a different length from the stored ones.
            ConfigError: If the embedder is not the one that made the index, if the stored data cannot select it, or if
                metadata keys are given for a collection that this package made.
        """
        if reranker is not None:
            require_members(reranker, "reranker", ("score",), "a reranker, such as that of load_reranker(spec)")
        if not isinstance(collection, str | None):
            require_members(collection, "collection", ("name", "get"), "a name, or a collection of Chroma")
            if inspect.iscoroutinefunction(collection.get):
                raise ConfigError(
                    f"`collection` must be of a client without async; got {type(collection).__name__}. Pass url= "
                    "instead, or a collection of chromadb.HttpClient."
                )
        live, name = (None, collection) if isinstance(collection, str | None) else (collection, collection.name)
        return cls(
            Location.of(path, url, live, headers=headers, tenant=tenant, database=database),
            name,
            embedder=_passed(embedder),
            keys=Keys(text_key, title_key, document_key, index_key, tokens_key),
            counter=counter,
            reranker=reranker,
            cache=cache,
            calibration=calibration,
            wrap=wrap,
            rebuild=rebuild,
        )

    def refresh(self, *, rebuild: bool = False) -> None:
        """Read the collection's present state. Do not call this while other threads search.

        If the collection is on a server or held open by the caller, this is the state that the client returns.

        Args:
            rebuild: Whether to rebuild the BM25 index and the copy of the texts.
        """
        self.close()
        self._attach(rebuild)

    def stale(self) -> bool:
        """Return True if the collection has changed since its state was read. Other threads may search during the call.

        Any completed indexing run counts as a change. `index.layouts` describes how changes of another program's
        collection are detected.

        Raises:
            CorpusNotFoundError: If the collection or its server is gone.
        """
        return self._source.changed(self._stored, self.snapshot)

    def close(self) -> None:
        """Close the client, if there is one, and end the search threads. A second call does nothing.

        A closed corpus cannot be searched until `refresh` is called.
        """
        self._closed = True
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown()
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """The name, `chroma:<collection>@<revision>`.

        For another program's collection, the revision is `s` and the number of the snapshot.
        """
        return f"chroma:{self._collection_name}@{self._layout.revision or f's{self.snapshot.number}'}"

    @property
    def blocking(self) -> bool:
        """Whether calls wait for disk or network (see `Corpus.blocking`).

        It is False for a small local folder (`QUICK_CHUNKS`) that uses no model and no code of the caller. There,
        searches only run Python, and Python runs one thread at a time. So without worker threads, 32 concurrent
        episodes over 10,000 chunks take .65 of the time.
        """
        is_small = self.count() <= QUICK_CHUNKS and self.snapshot.rows.text_bytes() <= QUICK_BYTES
        is_plain = isinstance(self.embedder, StaticEmbedder | NoEmbedder) and not (self._reranker or self._wrap)
        return not (isinstance(self._source, LocalSource) and is_small and is_plain)

    def count(self) -> int:
        """Return the number of chunks in the state that is read."""
        return len(self.snapshot.rows)

    def search(
        self,
        query: str,
        *,
        k: int = CANDIDATES,
        exclude: AbstractSet[str] = frozenset(),
        where: Where | None = None,
    ) -> list[Hit]:
        """See `Corpus.search`."""
        check_question(query, "query")
        k = whole_number(k, "k", least=1)
        depth = k if self._reranker is None else max(k, CANDIDATES)
        with self._reading():
            if where is not None:
                where = plain_where(where)
                self._reader.matching(where)  # Refuses a malformed filter before a retriever uses it.
            words_alone = self._words_alone
            hybrid = None if words_alone else self._reader.hybrid(query, self._embed_query, depth, exclude, where)
            if hybrid is not None:
                candidates, chunks = hybrid
            else:
                weights = self.calibration.weights
                candidates = gather(
                    self.retrievers, weights, query, exclude=exclude, where=where, limit=depth, executor=self._threads
                )
                chunks = self._by_id([candidate.id for candidate in candidates])
        return hits_of(query, candidates, chunks, self._reranker, k)

    def grep(
        self,
        pattern: str,
        *,
        limit: int = GREP_LIMIT,
        exclude: AbstractSet[str] = frozenset(),
        where: Where | None = None,
    ) -> list[Hit]:
        """See `Corpus.grep`. A hit's score is 1 / rank."""
        check_question(pattern, "pattern")
        limit = whole_number(limit, "limit")
        compiled, rows = Pattern(pattern), self.snapshot.rows
        with self._reading():
            allowed = None if where is None else self._reader.matching(plain_where(where))
            matching = (rows[position] for position in rows.matching(compiled))
            hits = (row for row in matching if allowed is None or row.record in allowed)
            chunk_ids = (row.chunk for row in hits if row.chunk not in exclude)
            chunks = self._by_id(list(islice(chunk_ids, max(0, limit))))
        return [Hit(chunk, 1.0 / rank, rank) for rank, chunk in enumerate(chunks.values(), start=1)]

    def walk(self) -> Iterator[Chunk]:
        """See `Corpus.walk`. It fetches several documents at a time, and caches none."""
        pending = list[str]()
        for document_rows in self.snapshot.documents():
            pending += [row.chunk for row in document_rows]
            if len(pending) >= PAGE_RECORDS:
                yield from self._in_order(pending)
                pending = []
        yield from self._in_order(pending)

    def _in_order(self, chunk_ids: Sequence[str]) -> Iterator[Chunk]:
        """Yield the chunks of whole documents, sorted by index. A foreign collection may have another order."""
        with self._reading():
            chunk_of = self._reader.chunks(chunk_ids)
        present = (chunk_of[chunk_id] for chunk_id in chunk_ids if chunk_id in chunk_of)
        for _, chunks in groupby(present, key=lambda chunk: chunk.document_id):
            yield from sorted(chunks, key=lambda chunk: chunk.index)

    def read(self, document_id: str) -> list[Chunk]:
        """See `Corpus.read`."""
        check_question(document_id, "document id")
        rows = self.snapshot.rows.find("document", document_id)
        return sorted(self.get([row.chunk for _, row in rows]), key=lambda chunk: chunk.index)

    def get(self, chunk_ids: Sequence[str]) -> list[Chunk]:
        """See `Corpus.get`."""
        items_of(chunk_ids, "chunk_ids", "a list of ids")
        with self._reading():
            return list(self._by_id(chunk_ids).values())

    def similarity(self, query: str, chunk_ids: Sequence[str]) -> NDArray[np.float32]:
        """See `Corpus.similarity`."""
        cosines = np.full(len(chunk_ids), np.nan, dtype=np.float32)
        if self._words_alone:
            return cosines
        vector = self._embed_query(query)
        with self._reading():
            vectors = self._vectors.get(chunk_ids, self._reader.vectors)
        positions = [position for position, chunk_id in enumerate(chunk_ids) if chunk_id in vectors]
        if positions:
            matrix = np.stack([vectors[chunk_ids[position]] for position in positions])
            norm = float(np.linalg.norm(vector))
            cosines[positions] = np.einsum("ij,j->i", matrix, vector) / (norm or 1.0)
        return cosines

    @property
    def reranker(self) -> Reranker | None:
        """See `RerankedCorpus`."""
        return self._reranker

    def rerank(self, query: str, chunks: Sequence[Chunk]) -> NDArray[np.float32]:
        """See `Corpus.rerank`."""
        if self._reranker is not None and chunks:
            return reranked(self._reranker, query, chunks)
        if self._words_alone:
            return self._by_words(query, chunks)
        return self.similarity(query, [chunk.id for chunk in chunks])

    def document_frequency(self, terms: Sequence[str]) -> NDArray[np.int64]:
        """See `Corpus.document_frequency`."""
        return self.snapshot.bm25.document_frequency(terms)

    @property
    def _words_alone(self) -> bool:
        return self.embedder.name == WORDS_ALONE

    def _by_words(self, query: str, chunks: Sequence[Chunk]) -> NDArray[np.float32]:
        """Return the BM25 score of each chunk, shape (n,). If a chunk is unknown, it is NaN, as its cosine would be."""
        rows, row_of = self.snapshot.rows, self.snapshot.row_of_chunk
        record_of = {chunk.id: rows[row_of[chunk.id]].record for chunk in chunks if chunk.id in row_of}
        scores = dict(self.snapshot.bm25.search(query, len(record_of), only=frozenset(record_of.values())))
        found = {chunk_id: scores.get(record, 0.0) for chunk_id, record in record_of.items()}
        return np.array([found.get(chunk.id, np.nan) for chunk in chunks], dtype=np.float32)

    def _attach(self, rebuild: bool) -> None:
        kind = LocalSource if self._location.path is not None and self._location.live is None else ClientSource
        self._source = kind(self._location, self._collection_name, self._cache, self._layout_of)
        try:
            manifest = self._attach_to(self._source, rebuild)
            # A writer may have completed a run while its predecessor's state was being read.
            if manifest and manifest != self._manifest(self._source.describe()):
                self._attach_to(self._source, rebuild)
        except BaseException:
            self.close()
            raise
        self._closed = False

    def _reading(self) -> AbstractContextManager[None]:
        """Return a context that turns Chroma's errors into errors of this package.

        Raises:
            ConfigError: If the corpus is closed.
        """
        if self._closed:
            raise ConfigError(
                f"the corpus in {self._location} is closed. Open it again with ChromaCorpus.open, or search before the "
                "`with` block ends."
            )
        return self._source.guarded()

    def _attach_to(self, source: LocalSource | ClientSource, rebuild: bool) -> Manifest | None:
        with source.guarded():
            stored = source.describe()
            manifest = self._manifest(stored)
            self._check_filled(stored, manifest)
            self.embedder = self._fitting_embedder(source, stored, manifest)
            """The embedder of queries."""
            self._embed_query = query_vectors(self.embedder)
            self._stored, self.snapshot = source.snapshot(rebuild=rebuild)
            manifest = self._manifest(self._stored)
            self._layout = self._layout_of(self._stored)
            self._check_texts(manifest)
            self._reader = source.reader(self.snapshot, self._layout)
            self._chunks = RecentValues[Chunk](CACHED_VALUES)
            self._vectors = RecentValues[NDArray[np.float32]](CACHED_VALUES)
            known = partial(knows_language, self.embedder.name, self.snapshot.bm25.language)
            shipped: list[Retriever] = [
                *([] if self._words_alone else [self._reader.dense(self._embed_query, knows_language=known)]),
                Bm25Retriever(self.snapshot.bm25, self._reader.matching, self.snapshot.chunk_of_record),
            ]
            self.retrievers = [self._wrap(retriever) for retriever in shipped] if self._wrap else shipped
            self.calibration = self._calibrated(manifest)
            # Both retrievers at once: .75 to .85 of the time in a million chunks. A caller's may not expect threads.
            overlap = self.blocking and self._wrap is None
            self._threads = ThreadPool(name="ctx1-search") if overlap else None
        return manifest

    def _manifest(self, stored: StoredCollection) -> Manifest | None:
        return parse_manifest(stored.name, stored.metadata.get(MANIFEST_KEY))

    def _layout_of(self, stored: StoredCollection) -> Layout:
        manifest = self._manifest(stored)
        if manifest is not None and (given := self._keys.given()):
            raise UnusedKeysError(
                f"collection {stored.name!r} was made by context-agent, so its texts, titles and ids need no metadata "
                f"keys. Remove {', '.join(f'--{name}-key' for name in given)} (in Python: "
                f"{', '.join(f'{name}_key=' for name in given)})."
            )
        if manifest is not None:
            return OwnLayout(manifest)
        return ForeignLayout(self._keys.with_usual(stored.usual_keys), stored.sequence, self._counter)

    def _keys_notice(self) -> str:
        if not isinstance(self._layout, ForeignLayout):
            return ""
        return keys_notice(self._collection_name, self._keys, self._layout.keys)

    def _calibrated(self, manifest: Manifest | None) -> Calibration:
        if not self._calibrate:
            return calibrate(self.retrievers, Probes())
        if manifest and self._wrap is None and not self._words_alone and (stored := manifest.stored_calibration()):
            return stored
        sample = [self.snapshot.rows[row].chunk for row in sample_rows(self.count())]
        snapshot = self.snapshot
        return calibrate(self.retrievers, probes_of(sample, snapshot.bm25, self._by_id, snapshot.chunk_of_record))

    def _check_filled(self, stored: StoredCollection, manifest: Manifest | None) -> None:
        collection = f"collection {self._collection_name!r} in {self._location}"
        if manifest is not None and manifest.revision == 0:
            raise CorpusEmptyError(
                f"the indexing of {collection} was never completed. To resume it, run the same `ctx1 index` command "
                "again."
            )
        if manifest is None and stored.empty:
            raise EmptyCollectionError(f"{collection} is empty. Index documents first.")

    def _check_texts(self, manifest: Manifest | None) -> None:
        rows = self.snapshot.rows
        if manifest is None and not any(rows.text(row).strip() for row in range(len(rows))):
            collection = f"collection {self._collection_name!r} in {self._location}"
            place = f"under the metadata key {self._keys.text!r}" if self._keys.text else "in Chroma's field for it"
            raise CorpusEmptyError(
                f"no record of {collection} has a text {place}. Name the metadata key that has the texts with "
                "--text-key (in Python text_key=)."
            )

    def _fitting_embedder(
        self, source: LocalSource | ClientSource, stored: StoredCollection, manifest: Manifest | None
    ) -> Embedder:
        embedder, name = self._passed_embedder or source.embedder(stored, manifest), self._collection_name
        if embedder.name == WORDS_ALONE:
            return embedder
        hint = "Pass the embedder that it was indexed with: --embedder SPEC (in Python: embedder=)."
        if manifest and self._passed_embedder:
            hint = "Remove --embedder, or pass the embedder that it was indexed with (in Python: embedder=)."
        for dimension in (manifest.dimension if manifest else 0, stored.dimension):
            if dimension and dimension != embedder.dimension:
                raise DimensionError(
                    f"collection {name!r} has vectors of {dimension} numbers, but {embedder.name} makes vectors of "
                    f"{embedder.dimension}. {hint}"
                )
        if manifest and embedder.name != manifest.embedder:
            raise ConfigError(
                f"collection {name!r} was indexed with {manifest.embedder}, not with {embedder.name}. {hint}"
            )
        return embedder

    def _by_id(self, chunk_ids: Sequence[str]) -> dict[str, Chunk]:
        """Return the chunks by id, in the order of the ids."""
        return self._chunks.get(chunk_ids, self._reader.chunks)


def _passed(embedder: Embedder | EmbeddingFunction | str | None) -> Embedder | None:
    """Return the embedder that the caller passed. If the caller passed none, return None.

    The vectors of a function are not normalized, because a collection's distances may depend on their lengths.
    """
    if embedder is None:
        return None
    return NoEmbedder() if embedder == WORDS_ALONE else as_embedder(embedder, normalize=False)
