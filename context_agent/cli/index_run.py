"""An update of an index by a command, with its progress and its result as text."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from context_agent.cli import output
from context_agent.cli.index_options import DEFAULT_EMBEDDER, EMBEDDERS, IndexOptions
from context_agent.cli.parameters import COUNT, COUNT_OR_ZERO, options_in
from context_agent.errors import CorpusEmptyError
from context_agent.retrieval.chroma import DEFAULT_COLLECTION
from context_agent.retrieval.language_fit import LARGER_EMBEDDER
from context_agent.text.counts import counted

if TYPE_CHECKING:
    from context_agent.retrieval.chroma.indexing_report import IndexReport
    from context_agent.retrieval.loaders import LoadOptions, LoadReport
    from context_agent.synth_data.domains import Loader
    from context_agent.types import Document

NEARLY_ALL, MOST_NAMED = 0.95, 4
"""Share of the chunks from which a language is named alone, and the number of languages that are named otherwise."""


@options_in("Chunks")
@dataclass(frozen=True, slots=True)
class ChunkOptions:
    """The options for cutting and embedding documents. Their names are those of `index_documents`."""

    embedder: Annotated[
        str | None,
        Parameter(
            help=f"Embedder of the chunks: {EMBEDDERS} multilingual supports 16 languages, {LARGER_EMBEDDER} 50.",
            metavar="SPEC",
            show_default=f"that of the index; for a new one, {DEFAULT_EMBEDDER}",
        ),
    ] = None
    chunk_size: Annotated[int | None, COUNT, Parameter(show_default="512")] = None
    """Maximum number of tokens in a chunk."""
    overlap: Annotated[int, COUNT_OR_ZERO] = 0
    """Number of tokens that neighboring chunks share."""
    language: Annotated[str | None, Parameter(metavar="CODE", show_default="identified for each passage")] = None
    """Language of all documents, such as de, or none for no stemming."""


@dataclass(slots=True)
class IndexRun:
    """The work of `ctx1 index`, which it does once, or repeatedly with --watch.

    `read` is the report of the last update. `ids` are the documents that updates have seen since the last complete
    update. If the next update lacks one of them, that document is removed from the index.
    """

    sources: Sequence[str]
    load: Loader
    reading: LoadOptions
    chunks: ChunkOptions
    index: IndexOptions
    remove_missing: bool
    read: LoadReport = field(init=False)
    ids: set[str] = field(default_factory=set)

    def update(self) -> IndexReport:
        """Bring the index up to date.

        Raises:
            CorpusEmptyError: If there are no documents, and no documents of an index to remove.
        """
        from context_agent.retrieval.loaders import LoadReport

        self.read = LoadReport()
        earlier, self.ids = self.ids, set()
        try:
            documents = self._documents()
            first = list(islice(documents, 1))
            removed = self.remove_missing or earlier
            if not first and not (removed and self._may_exist()):
                names = ", ".join(self.sources)
                raise CorpusEmptyError(
                    f"there is nothing to index in {names}. Pass files or folders with text. To empty an index whose "
                    "sources are deleted, add --remove-missing."
                )
            settings = {"remove_missing": removed, "keep": self.read.may_hold, **asdict(self.chunks)}
            indexed = add_documents(self.index, chain(first, documents), **settings)
            # Those that this update lacked are removed, except those whose files could not be read.
            earlier = set(filter(self.read.may_hold, earlier))
            return indexed
        finally:
            self.ids |= earlier

    def _may_exist(self) -> bool:
        """Return False if the folder of the index has no index yet."""
        from context_agent.retrieval.chroma.database import DATABASE_FILE

        return self.index.path is None or (self.index.path / DATABASE_FILE).exists()

    def _documents(self) -> Iterator[Document]:
        for document in self.load(self.sources, options=self.reading, report=self.read):
            self.ids.add(document.id)
            yield document


def loader_of(domain: str | None) -> Loader:
    """Return the function that reads documents from the sources. If there is a domain, it is the domain's loader."""
    if domain is None:
        from context_agent.retrieval.loaders import load

        return load
    from context_agent.synth_data import domains

    return domains.load_domain(domain).load


def add_documents(
    index: IndexOptions, documents: Iterable[Document], *, embedder: str | None = None, **settings: Any
) -> IndexReport:
    """Index documents, and show the progress. `settings` are those of `index_documents`."""
    from context_agent.retrieval.chroma.indexing import index_documents
    from context_agent.retrieval.chroma.indexing_report import IndexProgress
    from context_agent.retrieval.embedders import load_embedder

    kept = graph = 0
    with output.progress("Indexing", "documents") as advance, interrupted_by_sigterm():

        def show(progress: IndexProgress) -> None:
            nonlocal kept, graph
            if progress.graph and not graph:
                output.note(
                    "making a graph of the vectors for quick searches, which takes about ten minutes for each million"
                )
            kept, graph = progress.kept, progress.graph
            passages = f", {progress.embedded:,} of {counted(progress.chunks, 'new passage')} embedded"
            vectors = f", {counted(graph, 'vector')} in the graph" if graph else ""
            advance(progress.documents, None, (passages if progress.chunks else "") + vectors)

        try:
            return index_documents(
                documents,
                index.path,
                url=index.url,
                collection=index.collection or DEFAULT_COLLECTION,
                tenant=index.tenant,
                database=index.database,
                embedder=None if embedder is None else load_embedder(embedder),
                progress=show,
                **settings,
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"{counted(kept, 'new or changed document')} stored. To continue, run the same command again."
            ) from None


def summary(read: LoadReport, indexed: IndexReport, index: IndexOptions) -> str:
    """Return one or two lines that say what was read and what changed."""
    numbers = {
        "added": indexed.added,
        "replaced": indexed.replaced,
        "unchanged": indexed.unchanged,
        "removed": indexed.removed,
        "missing": indexed.missing,
        "without text": indexed.empty,
        "rows or folders left out": read.skipped - sum(read.files_left_out.values()),
        "duplicates": read.duplicates,
    }
    changes = output.counts({name: number for name, number in numbers.items() if number})
    location = index.url or index.path
    resumed = f" ({indexed.resumed:,} of them from an interrupted run)" if indexed.resumed else ""
    return (
        f"{counted(read.documents, 'document')} read: {changes}. "
        f"{counted(indexed.chunks, 'chunk')}{resumed} in {location} ({_languages(indexed.languages)}), "
        f"{indexed.seconds:.1f} s."
    )


def _languages(chunks: Mapping[str, int]) -> str:
    """Return the language of nearly all chunks, in words.

    If there is none, return the most frequent languages with their shares.
    """
    from context_agent.text.languages import LANGUAGES

    shares = {LANGUAGES[code]: count / max(1, sum(chunks.values())) for code, count in chunks.items()}
    first = next(iter(shares), "")
    if shares and shares[first] >= NEARLY_ALL:
        return f"language: {first}"
    named = [f"{name} {share:.0%}" for name, share in list(shares.items())[:MOST_NAMED]]
    others = [counted(len(shares) - MOST_NAMED, "other")] if len(shares) > MOST_NAMED else []
    return f"languages: {', '.join([*named, *others])}"


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Raise `KeyboardInterrupt` in the block when SIGTERM arrives, as Python does for SIGINT.

    Outside the main thread, do nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
