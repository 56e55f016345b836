"""A ranking as text: its documents, each with the sentence that matters most, and how the search ended."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from context_agent.cli.output import one_line, printable
from context_agent.text.counts import counted
from context_agent.text.sentences import sentence_spans, terminated

if TYPE_CHECKING:
    from rich.console import Console

    from context_agent.agent import SearchResult
    from context_agent.text.highlights import BestSentence
    from context_agent.types import RankedDocument


PASSAGE = 320
"""Maximum length of a sentence in the ranking, in characters."""
MAX_WIDTH = 110
"""Maximum width of a passage, in columns."""
SHOWN_ROWS = 2
"""Maximum number of rows of the best sentence and those after it."""
NOTHING_RELEVANT = "Nothing relevant found."
"""The line above the nearest documents if the evidence does not suffice."""
NOTHING_SEARCHED = (
    "The time limit ended the search before its first turn. Raise --time-limit, and if a language model searches, "
    "check its server."
)
"""The line below a search that found nothing because it had no time."""
NO_RANKING_HINT = (
    "The model gave no valid ranking. Pass --save and read its replies with ctx1 view, or use a larger model. "
    "If the model knows no tool calls, pass --tools text."
)
"""The line below a search that a model ended without a ranking."""


def search_error(result: SearchResult) -> str | None:
    """Return why a search failed. If it did not fail, return None. A search without a turn has failed."""
    return result.error or (None if result.searched else NOTHING_SEARCHED)


def show_ranking(console: Console, result: SearchResult, seconds: float | None = None) -> None:
    """Print the ranked documents, each with its best sentence, and a line that says how the search ended."""
    from rich.text import Text

    from context_agent.harness.episode import StopReason
    from context_agent.text.highlights import best_sentences

    if result.sufficient is False:
        console.print(Text(NOTHING_RELEVANT + (" The nearest:" if result.documents else ""), style="yellow"))
    sentences = best_sentences(result.question, result.documents)
    for rank, (document, sentence) in enumerate(zip(result.documents, sentences, strict=True), start=1):
        width = min(console.width, MAX_WIDTH) - 6
        _show_document(console, rank, document)
        for row in shown_rows(sentence, result.question, width) if sentence else ():
            console.print(Text(f"    {row}"))
    console.print(Text(summary(result, seconds), style="dim"))
    if result.stop_reason == StopReason.NO_RANKING and not result.error:
        console.print(Text(NO_RANKING_HINT, style="yellow"), soft_wrap=True)
    if not result.searched:
        console.print(Text(NOTHING_SEARCHED, style="yellow"), soft_wrap=True)
    if result.trajectory is not None:
        paths = ", ".join(str(path) for path in result.paths)
        console.print(Text(printable(f"trajectory: {paths}"), style="dim"), soft_wrap=True)
    if result.error:
        console.print(Text(f"error: {printable(result.error)}", style="red"), soft_wrap=True)


def summary(result: SearchResult, seconds: float | None = None) -> str:
    """Return one line with the reason for the end of the search, the turns, the tokens and any confidence.

    For a swarm, the line also gives the number of critical steps.
    """
    turns = counted(result.turns, "turn")
    if result.searchers:
        turns += f" ({len(result.searchers)} sub-agents, {result.critical_steps} critical steps)"
    duration = "" if seconds is None else f", {seconds:.2f} s"
    confidence = "" if result.confidence is None else f", confidence {result.confidence:.2f}"
    return f"{result.stop_reason.replace('_', ' ')} after {turns}, {result.tokens:,} tokens{duration}{confidence}"


def _show_document(console: Console, rank: int, document: RankedDocument) -> None:
    from rich.text import Text

    line = Text.assemble((f"{rank:>2}. {one_line(document.title or document.id)}", "bold"))
    # The title of a definition in code begins with the file, as in `src/gate.py: SluiceGate.open`.
    if document.title and document.title != document.id and not document.title.startswith(f"{document.id}: "):
        line.append(f"  {one_line(document.id)}", style="dim")
    line.append(f"  {document.score:.3f}", style="dim")
    console.print(line)


def wrapped(text: str, width: int) -> list[str]:
    """Return the text in rows of at most `width` columns, but at least two.

    A wide character (Chinese, Japanese, Korean) takes two columns.
    """
    from rich.console import Console
    from rich.text import Text

    width = max(2, width)
    return [row.plain.rstrip() for row in Text(text).wrap(Console(width=width), width)]


def shown_rows(sentence: BestSentence, question: str, width: int) -> list[str]:
    """Return the rows of the best sentence of a document and of those after it, as far as they fit into `SHOWN_ROWS`.

    Dots separate lines that are not sentences, such as the fields of a record.
    """
    from context_agent.text.highlights import with_following

    first, *others = with_following(sentence, SHOWN_ROWS * width)
    text = excerpt(first, question)
    rows = wrapped(text, width)
    for other in others:
        text += f"{' ' if terminated(text, 0, len(text)) else ' · '}{one_line(other)}"
        if len(longer := wrapped(text, width)) > SHOWN_ROWS:
            break
        rows = longer
    return rows


def excerpt(text: str, question: str) -> str:
    """Return the part of a long text that contains most words of the question. It begins at the start of a sentence.

    If several parts have equally many words, return the first of them.
    """
    text = one_line(text)
    if len(text) <= PASSAGE:
        return text
    words = set(re.findall(r"\w{3,}", question.casefold()))
    starts = [0, *(start for start, _ in sentence_spans(text[: len(text) - PASSAGE // 2]))]
    best = max(starts, key=lambda start: _shared(words, text[start : start + PASSAGE]))
    cut = text[best : best + PASSAGE]
    if best + PASSAGE < len(text):
        cut = cut.rsplit(" ", 1)[0] + " …"
    return f"… {cut}" if best else cut


def _shared(words: set[str], text: str) -> int:
    return len(words.intersection(re.findall(r"\w{3,}", text.casefold())))
