"""Prints the result of a search: the ranked documents, each with its best passage."""

from __future__ import annotations

import re
import textwrap

from rich.console import Console
from rich.text import Text

from context_agent.agent import SearchResult
from context_agent.cli.console import printable
from context_agent.types import RankedDocument

PASSAGE = 320
"""Characters shown of a passage."""
MAX_WIDTH = 110
"""Columns that a passage takes at most."""


def show(console: Console, result: SearchResult, seconds: float | None = None) -> None:
    """Prints the ranking, and a line on how the search ended and what it took."""
    if not result.documents:
        console.print(Text("No documents found.", style="yellow"))
    for rank, document in enumerate(result.documents, start=1):
        _show_document(console, rank, document, result.question)
    console.print(Text(summary(result, seconds), style="dim"))
    if result.trajectory is not None:
        paths = ", ".join(str(path) for path in result.paths)
        console.print(Text(printable(f"trajectory: {paths}"), style="dim"), soft_wrap=True)
    if result.error:
        console.print(Text(f"error: {printable(result.error)}", style="red"), soft_wrap=True)


def summary(result: SearchResult, seconds: float | None = None) -> str:
    """One line: why the search ended, and after how many turns and tokens; for a swarm also its critical steps."""
    turns = f"{result.turns} turn{'' if result.turns == 1 else 's'}"
    if result.searchers:
        turns += f" ({len(result.searchers)} searchers, {result.critical_steps} critical steps)"
    took = "" if seconds is None else f", {seconds:.2f} s"
    return f"{result.stop_reason.replace('_', ' ')} after {turns}, {result.tokens:,} tokens{took}"


def _show_document(console: Console, rank: int, document: RankedDocument, question: str) -> None:
    line = Text.assemble((f"{rank:>2}. {_one_line(document.title or document.id)}", "bold"))
    if document.title and document.title != document.id:
        line.append(f"  {_one_line(document.id)}", style="dim")
    line.append(f"  {document.score:.3f}", style="dim")
    console.print(line)
    if document.chunks:
        passage = excerpt(document.chunks[0].text, question)
        console.print(Text(textwrap.indent(textwrap.fill(passage, min(console.width, MAX_WIDTH) - 6), "    ")))


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def excerpt(text: str, question: str) -> str:
    """The part of a passage with most words of the question, from the start of a sentence; the first of equal ones."""
    text = _one_line(text)
    if len(text) <= PASSAGE:
        return text
    words = set(re.findall(r"\w{3,}", question.casefold()))
    starts = [0, *(match.end() for match in re.finditer(r"[.!?] ", text[: len(text) - PASSAGE // 2]))]
    best = max(starts, key=lambda start: _shared(words, text[start : start + PASSAGE]))
    cut = text[best : best + PASSAGE]
    if best + PASSAGE < len(text):
        cut = cut.rsplit(" ", 1)[0] + " …"
    return f"… {cut}" if best else cut


def _shared(words: set[str], text: str) -> int:
    return len(words.intersection(re.findall(r"\w{3,}", text.casefold())))
