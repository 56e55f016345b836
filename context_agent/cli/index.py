"""`ctx1 index`: brings an index up to date with files, folders and streams."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from context_agent.cli import options, output
from context_agent.cli.command import COUNT, COUNT_OR_ZERO, Argument, Json, Option, command, essential
from context_agent.errors import CorpusEmptyError

if TYPE_CHECKING:
    from context_agent.retrieval.chroma.indexing import IndexReport
    from context_agent.retrieval.loaders import LoadReport
    from context_agent.synth_data.domains import Loader
    from context_agent.types import Document


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How sources are read; the names are those of `LoadOptions`."""

    SECTION: ClassVar[str] = "Sources"

    id_key: Annotated[str | None, Option("Field of a row with its id.", metavar="KEY", default="id, _id or doc_id")] = (
        None
    )
    title_key: Annotated[str | None, Option("Field of a row with its title.", metavar="KEY", default="title")] = None
    text_key: Annotated[
        str | None,
        Option("Field of a row with its text.", metavar="KEY", default="text, content, body or contents"),
    ] = None
    encoding: Annotated[str | None, Option("Encoding of text sources.", metavar="NAME", default="detected")] = None
    delimiter: Annotated[str | None, Option("Delimiter of CSV sources.", metavar="CHAR", default="detected")] = None
    max_mb: Annotated[
        int, Option("Maximum size of a line, a row, or a file that is one document, in megabytes.", COUNT)
    ] = 16


@dataclass(frozen=True, slots=True)
class ChunkOptions:
    """How documents are cut and embedded; the names are those of `index_documents`."""

    SECTION: ClassVar[str] = "Chunks"

    embedder: Annotated[
        str | None, Option(f"Embedder of the chunks: {options.EMBEDDERS}", metavar="SPEC", default="static")
    ] = None
    chunk_size: Annotated[int | None, Option("Maximum number of tokens in a chunk.", COUNT, default="512")] = None
    overlap: Annotated[int, Option("Number of tokens that neighbouring chunks share.", COUNT_OR_ZERO)] = 0
    language: Annotated[
        str | None,
        Option("Language of the documents, such as de, or none for no stemming.", metavar="CODE", default="identified"),
    ] = None


@essential("domain remove_missing strict embedder chunk_size language path url collection")
@command
def index(
    sources: Annotated[tuple[str, ...], Argument("SOURCE...")],
    *,
    domain: Annotated[
        str | None,
        Option(
            "Read the sources as web, filings, patents, email, email-messages, or a domain of yours.", metavar="NAME"
        ),
    ] = None,
    remove_missing: Annotated[bool, Option("Remove documents from the index that the sources no longer contain.")],
    strict: Annotated[bool, Option("Exit with 1 if anything could not be read.")],
    reading: ReadOptions,
    chunks: ChunkOptions,
    index: options.IndexOptions,
    as_json: Json,
) -> int:
    """Index files and folders, or update an index.

    SOURCE is a file, a folder, or - for standard input. Reads .txt .md .html .pdf .jsonl .jsonl.gz .csv .tsv .parquet,
    and the formats of --domain. Unchanged documents are skipped. What cannot be read is reported (all of it with
    --json), and the rest is indexed. To resume an interrupted run, run the same command again.
    """
    from context_agent.retrieval.loaders import LoadOptions, LoadReport

    read = LoadReport()
    documents = _loader(domain)(sources, options=LoadOptions(**asdict(reading)), report=read)
    first = next(documents, None)
    try:
        if first is None:
            raise CorpusEmptyError(f"nothing to index in {', '.join(sources)}: name a file or folder with text")
        indexed = add_documents(index, chain([first], documents), remove_missing=remove_missing, **asdict(chunks))
    finally:
        output.note_problems(read.notices, read.unlisted)
    if indexed.warning:
        output.note(indexed.warning)
    output.result(_to_json(read, indexed), _summary(read, indexed, index), as_json=as_json)
    return 1 if strict and read.skipped else 0


def _loader(domain: str | None) -> Loader:
    """What reads documents from the sources: the loader of the domain, if there is one."""
    if domain is None:
        from context_agent.retrieval.loaders import load

        return load
    from context_agent.synth_data import domains

    return domains.load_domain(domain).load


def add_documents(
    index: options.IndexOptions, documents: Iterable[Document], *, embedder: str | None = None, **settings: Any
) -> IndexReport:
    """Indexes documents, with a progress bar on a terminal. `settings` are those of `index_documents`."""
    from context_agent.retrieval.chroma.indexing import IndexProgress, index_documents
    from context_agent.retrieval.embedders import load_embedder

    kept = 0
    with output.progress("Indexing", "documents") as advance, output.interrupted_by_sigterm():

        def show(progress: IndexProgress) -> None:
            nonlocal kept
            kept = progress.kept
            advance(progress.documents, None)

        try:
            return index_documents(
                documents,
                index.path,
                url=index.url,
                collection=index.collection,
                embedder=None if embedder is None else load_embedder(embedder),
                progress=show,
                **settings,
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"{output.count(kept, 'new or changed document')} stored. To continue, run the same command again"
            ) from None


def _to_json(read: LoadReport, indexed: IndexReport) -> dict[str, Any]:
    return {**asdict(read), **asdict(indexed)}


def _summary(read: LoadReport, indexed: IndexReport, index: options.IndexOptions) -> str:
    from context_agent.retrieval.languages import LANGUAGES

    numbers = {
        "added": indexed.added,
        "replaced": indexed.replaced,
        "unchanged": indexed.unchanged,
        "removed": indexed.removed,
        "without text": indexed.empty,
        "not readable": read.skipped,
        "duplicates": read.duplicates,
    }
    changes = output.counts({name: number for name, number in numbers.items() if number})
    location = index.url or index.path
    language = f" (language: {LANGUAGES[indexed.language]})" if indexed.language else ""
    resumed = f" ({indexed.resumed:,} of them from an interrupted run)" if indexed.resumed else ""
    return (
        f"{output.count(read.documents, 'document')} read: {changes}. "
        f"{output.count(indexed.chunks, 'chunk')}{resumed} in {location}{language}, {indexed.seconds:.1f} s."
    )
