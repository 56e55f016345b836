"""Indexing documents into a Chroma collection: idempotent, resumable, one writer at a time.

Until a run writes the manifest, readers see the previous state. The run adds new chunks without removing the old ones,
under a revision that no manifest names yet. At the end, it makes a new snapshot, writes the manifest, publishes the
snapshot, and deletes the replaced chunks, in this order. In a local folder, only the indexing process opens Chroma's
files with Chroma's client. If this process is killed, the index opens in its last complete state. The next run skips
the chunks that are already stored.

The memory holds at most the ids of all chunks, and a few batches of texts and vectors. Until the end of the run, the
disk holds both versions of a replaced document.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from context_agent._support.arguments import items_of, require_callable, require_members, require_type, whole_number
from context_agent._support.cache_folder import cache_folder
from context_agent._support.locks import file_lock
from context_agent.errors import ConfigError, CorpusError, CorpusLockedError, CorpusNotFoundError, DimensionError
from context_agent.retrieval.chroma import DEFAULT_COLLECTION
from context_agent.retrieval.chroma.client import (
    NOT_ALLOWED_ERRORS,
    chroma_errors,
    connect,
    disk_full,
    find,
    invalid_name,
    not_allowed,
    writing,
)
from context_agent.retrieval.chroma.collection import read_manifest, write_manifest
from context_agent.retrieval.chroma.database import DATABASE_FILE, read_collection
from context_agent.retrieval.chroma.indexing_report import IndexProgress, IndexReport
from context_agent.retrieval.chroma.indexing_run import IndexingRun
from context_agent.retrieval.chroma.location import (
    OWN_FOLDER,
    WRITER_LOCK,
    Location,
    make_folder,
    own_folder,
    remove_deleted,
    require_own_files,
    snapshot_folders,
    without_links,
)
from context_agent.retrieval.chroma.repair import UNFINISHED_MARK, remember_vectors, repair_vectors, undo_unfinished
from context_agent.retrieval.chroma.stored_embedder import check_writable, stored_embedder
from context_agent.retrieval.chunker import DEFAULT_CHUNK_TOKENS
from context_agent.retrieval.document_checks import check_document
from context_agent.retrieval.embedders import as_embedder
from context_agent.retrieval.embedders.default import default_embedder
from context_agent.retrieval.index.manifest import MANIFEST_KEY, Chunking, Manifest, parse_manifest
from context_agent.text.languages import require_language
from context_agent.tokens import HarmonyCounter, TokenCounter
from context_agent.types import Document

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection as ChromaCollection

    from context_agent.retrieval.embedders import Embedder, EmbeddingFunction

P = ParamSpec("P")
T = TypeVar("T")


def index_documents(
    documents: Iterable[Document],
    path: str | Path | None = None,
    *,
    url: str | None = None,
    collection: str = DEFAULT_COLLECTION,
    embedder: Embedder | EmbeddingFunction | str | None = None,
    chunk_size: int | None = None,
    overlap: int = 0,
    counter: TokenCounter | None = None,
    remove_missing: bool | Collection[str] = False,
    keep: Callable[[str], bool] | None = None,
    calibration: bool = True,
    language: str | None = None,
    progress: Callable[[IndexProgress], None] | None = None,
    batch_size: int | None = None,
    headers: dict[str, str] | None = None,
    tenant: str | None = None,
    database: str | None = None,
    cache: str | Path | None = None,
) -> IndexReport:
    """Bring a collection up to date with `documents`. Make it if it does not exist.

    Unchanged documents (same id, title, text, metadata and chunking) are skipped, and changed ones are replaced.

    Args:
        documents: The documents. Each id occurs once. An error that they raise reaches the caller unchanged.
        path: The folder of the index.
        url: The address of a Chroma server. The lock then excludes only other processes on this machine.
        collection: The name of the collection.
        embedder: An embedder, a spec for `load_embedder`, or a function from texts to vectors. It cannot change between
            runs. By default, an existing index keeps its embedder. For a new one, `default_embedder` chooses by the
            size and the language of the documents.
        chunk_size: The maximum number of tokens in a chunk. Defaults to 512.
        overlap: The number of tokens that a chunk repeats from the chunk before it.
        counter: The token counter. Defaults to `HarmonyCounter`.
        remove_missing: Whether to remove documents that are not among `documents`. If there are none, this empties the
            index. A collection of ids limits the removal to these ids.
        keep: A function that receives the id of a document and returns True if `remove_missing` must not remove it. It
            is called after all documents have been read. For example, `LoadReport.may_hold` keeps the documents of
            files that could not be read.
        calibration: Whether to measure the weights of the retrievers.
        language: The language of all texts, a code of `text.languages.LANGUAGES`. If it is None, an existing index
            keeps its language, and a new index analyzes each text in its own language.
        progress: A function that receives the progress after every 256 documents, after each batch that is embedded,
            and at the end of the run, even if the run is interrupted.
        batch_size: The number of chunks that are embedded and added at once. Defaults to 500 with the static embedding,
            and to 64 with any other, because it may take seconds for them.
        headers: HTTP headers for the server, for example with a token.
        tenant: Chroma's tenant on the server.
        database: Chroma's database on the server.
        cache: The folder for the local files of an index on a server. Defaults to the user's cache folder.

    Returns:
        The report of the run.

    Raises:
        CorpusLockedError: If another process is writing.
        CorpusEmptyError: If there is nothing to index, and no document of the index to remove.
        CorpusError: If a document id occurs twice with different content, an index cannot hold a document, or another
            program made the collection.
        DimensionError: If the embedder's vectors have a different length from the stored ones.
        ConfigError: If the embedder is not the one of the index, or if the index cannot select its embedder by itself.

    Example:
        from context_agent import Document, index_documents

        report = index_documents([Document("rope", "Rope was directed by Alfred Hitchcock.")], "films/")
        print(report.added, report.chunks)
    """
    location = Location.of(path, url, headers=headers, tenant=tenant, database=database)
    if language is not None:
        require_language(language)
    counter = counter if counter is not None else HarmonyCounter()
    require_members(counter, "counter", ("name", "count"), "a token counter, such as HarmonyCounter()")
    size = DEFAULT_CHUNK_TOKENS if chunk_size is None else whole_number(chunk_size, "chunk_size")
    # Before anything is written: a manifest with such numbers could not be read again.
    chunking = Chunking(size, whole_number(overlap, "overlap", least=0), counter.name)
    if keep is not None:
        require_callable(keep, "keep")
    if progress is not None:
        require_callable(progress, "progress")
    require_type(collection, "collection", str, "the name of a collection")
    items_of(documents, "documents", "documents, such as those that load(...) yields")
    if not isinstance(remove_missing, bool):
        items_of(remove_missing, "remove_missing", "True, False or a list of ids")
    batch_size = None if batch_size is None else whole_number(batch_size, "batch_size")
    if location.path is not None:
        make_folder(location.path)
    caller = _CallersCode()
    documents = caller.items(documents)
    keep, progress = caller.function(keep), caller.function(progress)
    with (
        caller.errors_unchanged(),
        _disk_explained(location),
        _one_writer(location, collection, cache),
        writing(location),
        chroma_errors(location),
    ):
        if location.path is not None:
            require_own_files(location.path)
            undo_unfinished(location.path)
        stored = _stored_embedder(location, collection) if embedder is None else None
        if embedder is None:
            embedder, documents = (stored, documents) if stored else _chosen_embedder(documents)
        spec = embedder if isinstance(embedder, str) else ""
        embedder = as_embedder(embedder)
        repair_vectors(location, collection, cache, embedder)
        first = Manifest(embedder.name, embedder.dimension, chunking, spec)
        with closing(cast("Any", connect(location))) as client:
            replaced = _replaced_default(client, location, collection)
            target = _collection(client, location, collection, first)
            root = own_folder(location, str(target.id), cache)
            run = IndexingRun(
                target,
                root,
                local=location.path is not None,
                embedder=embedder,
                stored=stored is not None,
                chunking=chunking,
                counter=counter,
                language=language,
                progress=progress,
                batch_size=batch_size,
            )
            report = run.index(documents, remove_missing=remove_missing, keep=keep, calibration=calibration)
            report = replace(report, warning="; ".join(filter(None, (report.warning, replaced))))
        if location.path is not None:
            remember_vectors(location.path, collection, root)
            remove_deleted(snapshot_folders(location.path), location.path)
        (root / UNFINISHED_MARK).unlink(missing_ok=True)
        return report


class _CallersCode:
    """The documents and functions that the caller passes.

    Their errors say nothing about the index. A missing file of the caller must not look like a damaged index.
    """

    def __init__(self) -> None:
        self._error: Exception | None = None

    def items(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items."""
        with self._noted():
            yield from items

    def function(self, function: Callable[P, T] | None) -> Callable[P, T] | None:
        """Return a function that calls this one."""
        if function is None:
            return None

        def call(*arguments: P.args, **options: P.kwargs) -> T:
            with self._noted():
                return function(*arguments, **options)

        return call

    @contextmanager
    def errors_unchanged(self) -> Iterator[None]:
        """Raise the first error of the caller's code as it was, whatever the block made of it."""
        try:
            yield
        except Exception:
            if self._error is None:
                raise
            raise self._error from self._error.__cause__

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._error = self._error or error
            raise


def _chosen_embedder(documents: Iterable[Document]) -> tuple[Embedder, Iterator[Document]]:
    """Return the default embedder of a new index, and all documents. Of a large stream, only the beginning is read."""
    rest, read = iter(documents), list[Document]()

    def texts() -> Iterator[str]:
        for document in rest:
            check_document(document)
            read.append(document)
            yield f"{document.title}\n{document.text}"

    return default_embedder(texts()), chain(read, rest)


def _stored_embedder(location: Location, name: str) -> Embedder | None:
    """Return the embedder that made an existing index. If no run has made a complete state or records, return None."""
    if location.path is not None:
        if not (location.path / DATABASE_FILE).exists():
            return None
        try:
            stored = read_collection(location.path, name)
        except CorpusNotFoundError:
            return None
        manifest, is_empty = parse_manifest(name, stored.metadata.get(MANIFEST_KEY)), stored.empty
    else:
        with closing(cast("Any", connect(location))) as client:
            try:
                collection = find(client, location, name)
            except CorpusNotFoundError:
                return None
            manifest, is_empty = read_manifest(collection), not collection.count()
    if manifest is None or (is_empty and not manifest.revision):
        return None
    return stored_embedder(name, manifest)


def _replaced_default(client: ClientAPI, location: Location, name: str) -> str:
    """Return a warning if making the collection changes what a search without a name reads. Otherwise, return "".

    Without a name, a search reads the default collection. If there is none, it reads the only collection that exists.
    """
    if name != DEFAULT_COLLECTION:
        return ""
    names = [collection.name for collection in client.list_collections()]
    if len(names) != 1 or names == [name]:
        return ""
    return (
        f"{location} also holds the collection {names[0]!r}, which stays as it is. From now on, a search that names "
        f"no collection reads {name!r}. To search the other one, pass --collection {names[0]} (in Python: "
        "collection=)."
    )


def _collection(client: ClientAPI, location: Location, name: str, first: Manifest) -> ChromaCollection:
    """Return the collection. If it does not exist, make it.

    A new collection gets the manifest `first`. An existing one must have the same embedder and dimension.
    """
    from chromadb.errors import InvalidArgumentError

    try:
        collection = client.get_or_create_collection(
            name, embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )
    except (InvalidArgumentError, ValueError) as error:
        raise invalid_name(name, error) from error
    manifest, count = read_manifest(collection), collection.count()
    if manifest is None and count:
        raise CorpusError(
            f"collection {name!r} in {location} was made by another program, so this package searches it but does not "
            "write to it. To change it, use that program. To make an index beside it, pass another --collection NAME "
            "(in Python: collection=)."
        )
    check_writable(name, collection.configuration_json, collection.get_model().serialized_schema)
    # The collection keeps the length of its vectors even if another program empties it.
    former = manifest if manifest is not None and (count or manifest.revision) else first
    if (former.embedder, former.dimension) != (first.embedder, first.dimension):
        mismatch = DimensionError if former.dimension != first.dimension else ConfigError
        raise mismatch(
            f"collection {name!r} was indexed with {former.embedder} ({former.dimension} numbers), not with "
            f"{first.embedder} ({first.dimension}). Pass the same --embedder, or another --collection."
        )
    emptied_by_run = former.revision > 0 and not former.chunks
    if manifest is None or not (count or emptied_by_run):
        # A complete state has a language, and readers refuse a manifest without it.
        kept = replace(first, revision=former.revision, language=former.language, mixed=former.mixed)
        write_manifest(collection, kept)
    return collection


@contextmanager
def _disk_explained(location: Location) -> Iterator[None]:
    """Raise a `CorpusError` that names the cause if a write fails because the disk is full or read-only."""
    try:
        yield
    except Exception as error:
        if getattr(error, "errno", None) in NOT_ALLOWED_ERRORS:
            raise not_allowed(location, error) from error
        if not disk_full(location, error):
            raise
        raise CorpusError(
            f"the disk is full, or a file size limit is reached, so not all documents were indexed into {location}. "
            "The last complete state of the index is intact. Free some space, and run the same command again to "
            "resume."
        ) from error


@contextmanager
def _one_writer(location: Location, collection: str, cache: str | Path | None) -> Iterator[None]:
    """Hold the writer's lock of a folder, or of a server's collection on this machine. It ends with the process."""
    if location.path is not None:
        file = without_links(location.path, OWN_FOLDER) / WRITER_LOCK
    else:
        name = blake2b(f"{location}/{collection}".encode(), digest_size=8).hexdigest()
        file = cache_folder(cache) / f"{name}.lock"
    file.parent.mkdir(parents=True, exist_ok=True)
    busy = CorpusLockedError(f"another process is indexing into {location}. Wait until it has finished.")
    with file_lock(file, busy=busy):
        yield
