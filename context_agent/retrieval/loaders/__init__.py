"""Documents from files, folders and streams, one at a time, with a report of what could not be read.

    report = LoadReport()
    for document in load(["notes/", "rows.jsonl.gz", "-"], report=report):
        ...
    for notice in report.notices:
        print(notice)

`load` reads the formats of `READERS`, any other file that holds text, each of them compressed by gzip, bzip2 or xz, and
folders of them. Binary, generated and minified files are left out with a notice, as `sniffing` says. PDF and parquet
need the extra `docs`. At most one file's text, or a few rows, are in memory. Of earlier documents only ids and digests
are kept, to recognize duplicates. In a folder, what `.gitignore` excludes and the folders of tools are passed over
(`LoadOptions.no_ignore`).

Sources may come from strangers. A line, a row or a file that is one document has at most `LoadOptions.max_mb`
megabytes. If a packed file unpacks to far more than its size, it is not read further. Links in a folder are not
followed, so nothing outside the folder is read. Metadata that an index cannot hold is left out. Each of these is
reported as a notice, and the rest is read.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath

from context_agent._support.arguments import require_type
from context_agent.errors import DataError, MissingExtraError, reason_of
from context_agent.retrieval.document_checks import with_storable_metadata
from context_agent.retrieval.loaders.metadata import with_day
from context_agent.retrieval.loaders.options import LoadOptions
from context_agent.retrieval.loaders.reader_choice import READERS, Reader, read_any
from context_agent.retrieval.loaders.reading import LeftOutError, Reading, identifier
from context_agent.retrieval.loaders.report import LoadReport, Notice, kind_of
from context_agent.retrieval.loaders.sources import Readable, SourceFile, check_sources, expand, opened
from context_agent.retrieval.loaders.unique_ids import UniqueIds
from context_agent.types import Document

__all__ = ["READERS", "LoadOptions", "LoadReport", "Notice", "Readable", "Reader", "check_sources", "load"]

_ROW_FILES = frozenset([".csv", ".json", ".jsonl", ".mbox", ".ndjson", ".parquet", ".tsv", ".warc"])
"""The extensions of files whose documents may have ids of their own."""


def load(
    sources: Readable | Iterable[Readable],
    *,
    options: LoadOptions | None = None,
    report: LoadReport | None = None,
    readers: Mapping[str, Reader] = READERS,
) -> Iterator[Document]:
    """Yield the documents of all sources in order. Folders are sorted.

    What cannot be read becomes a `Notice`, and the rest is read. If no source exists, that is an error.

    If the name of a source has no known extension, its content shows the format (see `reader_choice.read_any`). Hidden
    files are ignored.

    A file's id is its path below the source folder. A row's id is its own. If it has none, its id is the path of its
    file and a digest of its content, as in `works.csv#9202bbecc85c`. A document with the id and content of an earlier
    one is dropped and counted, and so is a row without an id that repeats an earlier one. A document with the id of a
    different one gets the id `<id>~2`, `<id>~3` and so on, with a notice for each source.

    Args:
        sources: A path of a file or folder, an open stream, `-` for standard input, or several of them.
        options: How rows and bytes are read.
        report: Filled while the documents are read.
        readers: The reader of each extension, and under "" the reader of all other sources.

    Yields:
        The documents.

    Raises:
        ConfigError: If an option is invalid.
        DataError: If the sources are paths of which none exists, when the first document is requested.
    """
    require_type(options, "options", (LoadOptions, type(None)), "LoadOptions, such as LoadOptions(max_mb=4)")
    require_type(report, "report", (LoadReport, type(None)), "a LoadReport")
    options = options or LoadOptions()
    report = report if report is not None else LoadReport()
    ids = UniqueIds(report)
    users: dict[str, dict[str, str]] = {}
    for source in expand(sources, report, readers, ignore=not options.no_ignore):
        for document in _read(source, options, report, readers, users):
            if admitted := ids.admit(document, source):
                report.documents += 1
                yield admitted


def _read(
    source: SourceFile,
    options: LoadOptions,
    report: LoadReport,
    readers: Mapping[str, Reader],
    users: dict[str, dict[str, str]],
) -> Iterator[Document]:
    """Yield one source's documents. A failure becomes a notice, after the documents that were read before it."""
    before, count = len(report.notices) + report.unlisted, 0
    try:
        with opened(source) as stream:
            found = source.folder is not None
            reading = Reading(source.name, source.path, stream, options, report, found=found, users=users)
            for document in readers.get(source.extension, read_any)(reading):
                count += 1
                metadata = with_day(document.metadata)
                dated = document if metadata is document.metadata else replace(document, metadata=metadata)
                yield with_storable_metadata(dated, reading.note_once)
    except MissingExtraError as error:
        problem, kind = str(error), kind_of(source.path)
        report.miss(_beginning_of_ids(source), error)
    except LeftOutError as error:
        problem, kind = str(error), kind_of(source.path) if source.folder else ""
    except DataError as error:
        problem, kind = str(error), ""
    except (OSError, EOFError, zlib.error) as error:
        problem = f"the file cannot be read ({reason_of(error)})" + (
            f". Its first {count} documents were read." if count else ""
        )
        kind = ""
        if isinstance(error, OSError):
            report.miss(_beginning_of_ids(source), error)
    else:
        report.count_read(source.path)
        if not count and before == len(report.notices) + report.unlisted:
            report.skip(source.name, "the file contains no rows")
        return
    if count:
        report.count_read(source.path)
        report.skip(source.name, problem, kind=kind)
    else:
        report.leave_out(source.name, source.path, problem, kind=kind)


def _beginning_of_ids(source: SourceFile) -> str:
    """Return the text with which the ids of the source's documents begin. Rows may have any id."""
    has_rows = not _ROW_FILES.isdisjoint(map(str.lower, PurePath(source.path).suffixes))
    return "" if has_rows else identifier(source.path)
