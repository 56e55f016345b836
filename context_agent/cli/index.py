"""The command `ctx1 index`, which updates an index from files, folders and streams."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from context_agent.cli import output
from context_agent.cli.index_options import DEFAULT_EMBEDDER, EMBEDDERS, IndexOptions
from context_agent.cli.parameters import COUNT, COUNT_OR_ZERO, DASH, REQUIRED, CommonOptions, essential, options_in
from context_agent.errors import ConfigError, ContextAgentError, CorpusEmptyError, DataError
from context_agent.retrieval.chroma import DEFAULT_COLLECTION

if TYPE_CHECKING:
    from context_agent.retrieval.chroma.indexing import IndexReport
    from context_agent.retrieval.loaders import LoadOptions, LoadReport, Notice
    from context_agent.synth_data.domains import Loader
    from context_agent.types import Document


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


@options_in("Chunks")
@dataclass(frozen=True, slots=True)
class ChunkOptions:
    """The options for cutting and embedding documents. Their names are those of `index_documents`."""

    embedder: Annotated[
        str | None,
        Parameter(
            help=f"Embedder of the chunks: {EMBEDDERS}",
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
    other text file. With --domain, it reads web pages, filings, patents and email threads in their own formats. ctx1
    sources shows what the command would read. Unchanged documents are skipped. The command reports files that it cannot
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
        output.note_load_report(run.read, verbose=verbose)
    _show(run, indexed, as_json=common.json)
    return 1 if strict and run.read.skipped else 0


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
            CorpusEmptyError: If there are no documents.
        """
        from context_agent.retrieval.loaders import LoadReport

        self.read = LoadReport()
        earlier, self.ids = self.ids, set()
        try:
            documents = self._documents()
            first = next(documents, None)
            if first is None:
                names = ", ".join(self.sources)
                raise CorpusEmptyError(f"there is nothing to index in {names}. Pass files or folders with text.")
            settings = {"remove_missing": self.remove_missing or earlier, **asdict(self.chunks)}
            indexed = add_documents(self.index, chain([first], documents), **settings)
            earlier = set()  # those that this update lacked are removed
            return indexed
        finally:
            self.ids |= earlier

    def _documents(self) -> Iterator[Document]:
        for document in self.load(self.sources, options=self.reading, report=self.read):
            self.ids.add(document.id)
            yield document


def _watch(run: IndexRun, *, as_json: bool, verbose: bool) -> int:
    """Update the index now and after each change, until the user presses Ctrl-C.

    If the first update fails, the command ends with its error. A later failure is reported, and the next change is
    tried. Ctrl-C during an update is reported as it is without --watch.
    """
    batches = changes(run.sources, run.index.path, no_ignore=run.reading.no_ignore)
    with output.interrupted_by_sigterm():
        next(batches)
        try:
            indexed = run.update()
        finally:
            output.note_load_report(run.read, verbose=verbose)
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
        output.note(output.one_line(_missing(indexed)))
    if not as_json:
        output.echo(output.files_line(run.read))


def _chosen_embedder(indexed: IndexReport) -> str:
    """Return a line that names the embedder of a new index, the reason for it, and how to choose another one."""
    from context_agent.retrieval.embedders import MINILM, STATIC

    small = indexed.embedder.startswith(f"{MINILM}-")
    spec, reason = (MINILM, "small and in English") if small else (STATIC, "large or not in English")
    return (
        f"embedder: {spec}, because the texts are {reason}. To choose another one, index into a new --path with "
        "--embedder SPEC"
    )


def _missing(indexed: IndexReport) -> str:
    unnamed = indexed.missing - len(indexed.missing_examples)
    more = f" and {unnamed:,} more" if unnamed else ""
    return (
        f"{output.count(indexed.missing, 'document')} of the index, not among these sources: "
        f"{', '.join(indexed.missing_examples)}{more}. If the files are deleted, --remove-missing removes the documents"
    )


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
    """Index documents, with a progress bar on a terminal. `settings` are those of `index_documents`."""
    from context_agent.retrieval.chroma.indexing import IndexProgress, index_documents
    from context_agent.retrieval.embedders import load_embedder

    kept = graph = 0
    with output.progress("Indexing", "documents") as advance, output.interrupted_by_sigterm():

        def show(progress: IndexProgress) -> None:
            nonlocal kept, graph
            if progress.graph and not graph:
                output.note(
                    "making a graph of the vectors for quick searches, which takes about ten minutes for each million"
                )
            kept, graph = progress.kept, progress.graph
            passages = f", {progress.embedded:,} of {output.count(progress.chunks, 'new passage')} embedded"
            advance(progress.documents, None, passages if progress.chunks else "")

        try:
            return index_documents(
                documents,
                index.path,
                url=index.url,
                collection=index.collection or DEFAULT_COLLECTION,
                embedder=None if embedder is None else load_embedder(embedder),
                progress=show,
                **settings,
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"{output.count(kept, 'new or changed document')} stored. To continue, run the same command again."
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
        "left out": read.skipped,
        "duplicates": read.duplicates,
    }
    changes = output.counts({name: number for name, number in numbers.items() if number})
    location = index.url or index.path
    resumed = f" ({indexed.resumed:,} of them from an interrupted run)" if indexed.resumed else ""
    return (
        f"{output.count(read.documents, 'document')} read: {changes}. "
        f"{output.count(indexed.chunks, 'chunk')}{resumed} in {location} ({_languages(indexed.languages)}), "
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
    others = [output.count(len(shares) - MOST_NAMED, "other")] if len(shares) > MOST_NAMED else []
    return f"languages: {', '.join([*named, *others])}"


NEARLY_ALL, MOST_NAMED = 0.95, 4
"""Share of the chunks from which a language is named alone, and the number of languages that are named otherwise."""
DEBOUNCE, STEP = 2_000, 200
"""Maximum time to collect changes, and the time without a change that ends it, in milliseconds."""


def changes(sources: Sequence[str], index: Path | None, *, no_ignore: bool) -> Iterator[None]:
    """Yield once as soon as the sources are watched, and then after each batch of changes. End at Ctrl-C.

    Hidden entries and the index folder are ignored, and so are the folders of tools unless `no_ignore` is set. Links
    are not followed. Each folder is watched by itself, and is watched again with its subfolders when one appears or
    disappears.
    """
    if "-" in sources:
        raise ConfigError(
            "--watch needs files or folders, and standard input (-) cannot be watched. Name a file or a folder."
        )
    paths = [Path(source).resolve() for source in sources]
    skipped = None if index is None else index.resolve()
    with suppress(KeyboardInterrupt):
        while True:
            watched = _watched(paths, skipped, no_ignore=no_ignore)
            for number, batch in enumerate(_batches(watched, paths, skipped, no_ignore=no_ignore)):
                if batch and watched != _watched(paths, skipped, no_ignore=no_ignore):
                    break  # the new watch yields as soon as it is set up, so nothing is missed
                if batch or not number:
                    yield


def _watched(paths: Sequence[Path], skipped: Path | None, *, no_ignore: bool) -> dict[Path, int]:
    """Return the folders to watch with their inodes.

    The inode distinguishes a folder from an earlier one with the same name.
    """
    from context_agent.retrieval.loaders.folders import subfolders

    watched: dict[Path, int] = {}
    for path in paths:
        folders = subfolders(path, no_ignore=no_ignore) if path.is_dir() else _nearest_folder(path)
        for folder in folders:
            if not (skipped and folder.is_relative_to(skipped)):
                with suppress(OSError):
                    watched[folder] = folder.stat().st_ino
    return watched


def _nearest_folder(path: Path) -> list[Path]:
    """Return the folder of a file. If the path is missing, return the nearest existing folder above it."""
    return [next(above for above in path.parents if above.is_dir())]


def _batches(
    watched: Collection[Path], paths: Sequence[Path], skipped: Path | None, *, no_ignore: bool
) -> Iterator[object]:
    """Yield the changes in the folders, and an empty set while there are none. If a folder has disappeared, end.

    Raises:
        DataError: If the folders cannot be watched.
    """
    from watchfiles import Change, watch

    from context_agent.retrieval.loaders.folders import RULES_FILE, is_passed_over

    def counts(_: Change, name: str) -> bool:
        path = Path(name)
        if path.name == RULES_FILE or any(source.is_relative_to(path) for source in paths):
            return True
        below = [path.relative_to(source).parts for source in paths if path.is_relative_to(source)]
        shown = any(not any(is_passed_over(part, no_ignore=no_ignore) for part in parts) for parts in below)
        return shown and not (skipped and path.is_relative_to(skipped))

    try:
        yield from watch(
            *watched,
            watch_filter=counts,
            debounce=DEBOUNCE,
            step=STEP,
            rust_timeout=STEP,
            yield_on_timeout=True,
            recursive=False,
            ignore_permission_denied=True,
        )
    except FileNotFoundError:
        return  # a folder disappeared before it was watched
    except OSError as error:
        raise DataError(
            f"{len(watched):,} folders cannot be watched ({error}). Name fewer folders, raise "
            "fs.inotify.max_user_watches, or index without --watch."
        ) from error
