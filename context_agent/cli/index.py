"""The command `ctx1 index`, which updates an index from files, folders and streams."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from context_agent.cli import output
from context_agent.cli.index_options import IndexOptions
from context_agent.cli.index_run import ChunkOptions, IndexRun, interrupted_by_sigterm, loader_of, summary
from context_agent.cli.load_report import files_line, note_load_report
from context_agent.cli.parameters import COUNT, DASH, REQUIRED, CommonOptions, essential, options_in
from context_agent.cli.source_changes import changes
from context_agent.errors import ContextAgentError
from context_agent.text.counts import counted

if TYPE_CHECKING:
    from context_agent.retrieval.chroma.indexing_report import IndexReport
    from context_agent.retrieval.loaders import Notice


@options_in("Sources")
@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options for reading sources. Their names are those of `LoadOptions`."""

    id_key: Annotated[str | None, Parameter(metavar="KEY", show_default="id, _id or doc_id")] = None
    """Field of a row with its id."""
    title_key: Annotated[str | None, Parameter(metavar="KEY", show_default="title")] = None
    """Field of a row with its title."""
    text_key: Annotated[str | None, Parameter(metavar="KEY", show_default="text, content, body or contents")] = None
    """Field of a row with its text."""
    encoding: Annotated[str | None, Parameter(metavar="NAME", show_default="detected")] = None
    """Encoding of text sources."""
    delimiter: Annotated[str | None, Parameter(metavar="CHAR", show_default="detected")] = None
    """Delimiter of CSV sources."""
    max_mb: Annotated[int, COUNT] = 16
    """Maximum size of a line, a row, or a file that is one document, in megabytes."""
    no_ignore: bool = False
    """Also read what .gitignore excludes, and folders such as node_modules, venv and build."""


DomainOption = Annotated[
    str | None,
    Parameter(
        help="Read the sources as web, filings, patents, email, email-messages, or your own domain.", metavar="NAME"
    ),
]


@essential("domain remove_missing watch no_ignore path collection url embedder language strict")
def index(
    *sources: Annotated[str, DASH, REQUIRED],
    domain: DomainOption = None,
    remove_missing: bool = False,
    strict: bool = False,
    watch: bool = False,
    verbose: bool = False,
    reading: ReadOptions = ReadOptions(),
    chunks: ChunkOptions = ChunkOptions(),
    index: IndexOptions = IndexOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Index files and folders, or update an index.

    The command reads PDF, Office files, HTML, notebooks, email, EPUB, code, rows in JSONL, CSV or parquet, and any
    other text file. With --domain, it reads web pages, filings, patents and email threads in their own formats. `ctx1
    sources` shows what the command would read. The command skips unchanged documents. It reports files that it cannot
    read, and indexes the others. --json lists all such files. To resume an interrupted run, run the same command again.

    Args:
        sources: Files and folders, or - for standard input.
        remove_missing: Remove documents from the index that the sources no longer contain.
        strict: Exit with 1 if anything could not be read.
        watch: Keep running and update the index as files change. Ctrl-C ends it.
        verbose: Name the first files of each kind that is not read.
    """
    from context_agent.retrieval.loaders import LoadOptions, check_sources

    check_sources(sources)
    run = IndexRun(sources, loader_of(domain), LoadOptions(**asdict(reading)), chunks, index, remove_missing)
    if watch:
        return _watch(run, as_json=common.json, verbose=verbose)
    try:
        indexed = run.update()
    finally:
        note_load_report(run.read, verbose=verbose)
    _show(run, indexed, as_json=common.json)
    return 1 if strict and run.read.skipped else 0


def _watch(run: IndexRun, *, as_json: bool, verbose: bool) -> int:
    """Update the index now and after each change, until the user presses Ctrl-C.

    If the first update fails, the command ends with its error. A later failure is reported, and the next change is
    tried. Ctrl-C during an update is reported as it is without --watch.
    """
    batches = changes(run.sources, run.index.path, no_ignore=run.reading.no_ignore)
    with interrupted_by_sigterm():
        next(batches)
        try:
            indexed = run.update()
        finally:
            note_load_report(run.read, verbose=verbose)
        try:
            _show(run, indexed, as_json=as_json)
            output.note("watching for changes. To end, press Ctrl-C.")
            reported = set(run.read.notices)
            for _ in batches:
                _update_again(run, reported, as_json=as_json)
        except KeyboardInterrupt as error:
            if error.args:
                raise
    return 0


def _update_again(run: IndexRun, reported: set[Notice], *, as_json: bool) -> None:
    """Update the index after a change. `reported` are the notices that were already printed and still hold."""
    try:
        indexed = run.update()
    except ContextAgentError as error:
        output.note(str(error))
    else:
        if indexed.added + indexed.replaced + indexed.removed:
            _show(run, indexed, as_json=as_json)
        reported.intersection_update(run.read.notices)
    finally:
        output.note_problems([notice for notice in run.read.notices if notice not in reported])
        reported.update(run.read.notices)


def _show(run: IndexRun, indexed: IndexReport, *, as_json: bool) -> None:
    """Print the result of an update."""
    if run.chunks.embedder is None and indexed.revision == 1 and indexed.added:
        output.note(_chosen_embedder(indexed))
    if indexed.warning:
        output.note(indexed.warning)
    output.result({**asdict(run.read), **asdict(indexed)}, summary(run.read, indexed, run.index), as_json=as_json)
    if indexed.missing:
        output.note(output.one_line(_missing(indexed, is_kept=run.remove_missing)))
    if not as_json:
        output.echo(files_line(run.read))


def _chosen_embedder(indexed: IndexReport) -> str:
    """Return a line that names the embedder of a new index, the reason for it, and how to choose another one."""
    from context_agent.retrieval.embedders import MINILM, STATIC

    small = indexed.embedder.startswith(f"{MINILM}-")
    spec, reason = (MINILM, "few and in English") if small else (STATIC, "many or not in English")
    return (
        f"embedder: {spec}, because the texts are {reason}. To choose another one, index into a new --path with "
        "--embedder SPEC"
    )


def _missing(indexed: IndexReport, *, is_kept: bool) -> str:
    unnamed = indexed.missing - len(indexed.missing_examples)
    more = f" and {unnamed:,} more" if unnamed else ""
    names = f"{counted(indexed.missing, 'document')} of the index, {{}}: {', '.join(indexed.missing_examples)}{more}. "
    if is_kept:
        return names.format("kept because files or folders that may hold them cannot be read") + (
            "Make these files readable, or delete them, and run the command again"
        )
    return names.format("not among these sources") + (
        "If the files are deleted, --remove-missing removes the documents"
    )
