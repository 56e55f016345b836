"""The command `ctx1 sources`, which shows what `ctx1 index` would read and what it would leave out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from context_agent.cli import output
from context_agent.cli.index import DomainOption, ReadOptions
from context_agent.cli.index_run import loader_of
from context_agent.cli.load_report import files_line, report_lines
from context_agent.cli.parameters import DASH, REQUIRED, CommonOptions, essential
from context_agent.text.counts import counted

MOST_KINDS = 50
"""Maximum number of kinds of files that are listed."""


@essential("domain no_ignore verbose encoding max_mb")
def sources(
    *sources: Annotated[str, DASH, REQUIRED],
    domain: DomainOption = None,
    verbose: bool = False,
    reading: ReadOptions = ReadOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Show what would be read from files and folders.

    The command reads the sources as ctx1 index does, and stores nothing. It lists the kinds of files that are read, and
    what is left out, with the reasons. --json lists every file that is left out.

    Args:
        sources: Files and folders, or - for standard input.
        verbose: Name the first files of each kind that is not read.
    """
    from context_agent.retrieval.loaders import LoadOptions, LoadReport, check_sources

    check_sources(sources)
    report, documents, characters = LoadReport(), 0, 0
    for document in loader_of(domain)(sources, options=LoadOptions(**asdict(reading)), report=report):
        documents += 1
        characters += len(document.text)
    kinds = sorted(report.files_read.items(), key=lambda kind: (-kind[1], kind[0]))
    lines = [f"{number:>8,}  {kind}" for kind, number in kinds[:MOST_KINDS]]
    if rest := kinds[MOST_KINDS:]:
        lines.append(f"{sum(number for _, number in rest):>8,}  of {counted(len(rest), 'other kind')}")
    if problems := list(report_lines(report, verbose=verbose)):
        lines += ["", "Left out, or worth knowing:", *(f"  {line}" for line in problems)]
    total = f"{counted(documents, 'document')} with {counted(characters, 'character')}"
    text = "\n".join([*lines, "", f"{total}. {files_line(report)}"])
    output.result({**asdict(report), "characters": characters}, text, as_json=common.json)
    return 0
