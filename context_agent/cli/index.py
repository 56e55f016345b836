"""`ctx1 index`: brings an index up to date with files, folders and streams."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from context_agent.cli import console, options
from context_agent.errors import CorpusEmptyError

if TYPE_CHECKING:
    from context_agent.retrieval.chroma.indexing import IndexReport
    from context_agent.retrieval.loaders import LoadReport
    from context_agent.synth_data.domains import Loader
    from context_agent.types import Document

LISTED = 20
"""Notices about sources that are told one by one; with --json all are."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How sources are read; the names are those of `LoadOptions`."""

    id_key: str | None
    title_key: str | None
    text_key: str | None
    encoding: str | None
    delimiter: str | None
    max_mb: int


def reading(command: options.Command) -> options.Command:
    """The options for reading sources; the command gets them as `reading: ReadOptions`."""
    return options.together(
        options.gathered(command, "reading", ReadOptions),
        click.option("--id-key", metavar="KEY", help="Field of a row that holds its id.  [default: id, _id or doc_id]"),
        click.option("--title-key", metavar="KEY", help="Field of a row that holds its title.  [default: title]"),
        click.option(
            "--text-key", metavar="KEY", help="Field of a row that holds its text.  [default: text, content, …]"
        ),
        click.option("--encoding", help="Encoding of text sources.  [default: found out]"),
        click.option("--delimiter", metavar="CHAR", help="Delimiter of CSV sources.  [default: found out]"),
        click.option(
            "--max-mb",
            type=click.IntRange(1),
            default=16,
            show_default=True,
            help="Megabytes that a line, a row or a file that is one document may have.",
        ),
    )


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE…")
@click.option(
    "--domain", metavar="NAME", help="Read the sources as web, filings, patents, email, email-messages, or your own."
)
@click.option("--embedder", metavar="SPEC", help=f"What embeds the chunks: {options.EMBEDDERS}  [default: static]")
@click.option("--chunk-size", type=click.IntRange(1), help="Tokens a chunk has at most.  [default: 512]")
@click.option("--overlap", type=click.IntRange(0), default=0, show_default=True, help="Tokens that chunks share.")
@click.option("--remove-missing", is_flag=True, help="Remove indexed documents that the sources no longer hold.")
@click.option("--strict", is_flag=True, help="Exit with 1 when anything could not be read.")
@reading
@options.index
@options.common
def index(
    *,
    sources: tuple[str, ...],
    domain: str | None,
    embedder: str | None,
    chunk_size: int | None,
    overlap: int,
    remove_missing: bool,
    strict: bool,
    as_json: bool,
    reading: ReadOptions,
    index: options.IndexOptions,
) -> int:
    """Index files, folders or standard input (-), and bring an index up to date.

    Reads .txt .md .html .pdf .jsonl .jsonl.gz .csv .tsv .parquet, and with --domain what that reads. Unchanged
    documents are skipped; what cannot be read is reported, and the rest is indexed. A run that was interrupted is
    resumed by running it again.
    """
    from context_agent.retrieval.loaders import LoadOptions, LoadReport

    read = LoadReport()
    documents = _loader(domain)(sources, options=LoadOptions(**asdict(reading)), report=read)
    first = next(documents, None)
    try:
        if first is None:
            raise CorpusEmptyError(f"nothing to index in {', '.join(sources)}")
        done = add_documents(
            index,
            chain([first], documents),
            embedder=embedder,
            chunk_size=chunk_size,
            overlap=overlap,
            remove_missing=remove_missing,
        )
    finally:
        _tell(read)
    if as_json:
        console.print_json(_to_json(read, done))
    else:
        click.echo(console.printable(_summary(read, done, index)))
    return 1 if strict and read.skipped else 0


def _loader(domain: str | None) -> Loader:
    """What draws documents from the sources: the domain's own loader, where one is named."""
    if domain is None:
        from context_agent.retrieval.loaders import load

        return load
    from context_agent.synth_data import domains

    return domains.load_domain(domain).load


def add_documents(
    index: options.IndexOptions, documents: Iterable[Document], *, embedder: str | None = None, **settings: Any
) -> IndexReport:
    """Indexes documents, with a progress bar on a terminal."""
    from context_agent.retrieval.chroma.indexing import IndexProgress, index_documents
    from context_agent.retrieval.embedders import load_embedder

    with console.progress("Indexing", "documents") as advance:

        def show(progress: IndexProgress) -> None:
            advance(progress.documents, None)

        return index_documents(
            documents,
            index.path,
            url=index.url,
            collection=index.collection,
            embedder=None if embedder is None else load_embedder(embedder),
            progress=show,
            **settings,
        )


def _tell(read: LoadReport) -> None:
    for notice in read.notices[:LISTED]:
        console.note(f"ctx1 index: {notice}")
    more = len(read.notices) - LISTED + read.unlisted
    if more > 0:
        console.note(f"ctx1 index: and {more:,} more notices")


def _to_json(read: LoadReport, done: IndexReport) -> dict[str, Any]:
    counts = {field.name: getattr(read, field.name) for field in fields(read) if field.name != "notices"}
    notices = [{"source": one.source, "line": one.line, "reason": one.reason, "lost": one.lost} for one in read.notices]
    return {**counts, **asdict(done), "notices": notices}


def _summary(read: LoadReport, done: IndexReport, index: options.IndexOptions) -> str:
    changes = {
        "added": done.added,
        "replaced": done.replaced,
        "unchanged": done.unchanged,
        "removed": done.removed,
        "without text": done.empty,
        "not readable": read.skipped,
        "duplicates": read.duplicates,
    }
    told = ", ".join(f"{count:,} {what}" for what, count in changes.items() if count)
    where = index.url or index.path
    return f"{read.documents:,} documents read: {told}. {done.chunks:,} chunks in {where}, {done.seconds:.1f} s."
