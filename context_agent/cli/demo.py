"""The command `ctx1 demo`, which answers multi-hop questions on a small corpus in the package.

The corpus has about sixty passages about an invented coast, so no model can know the answers. Each question needs three
or four passages. Its own words lead to only one of them.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from context_agent.cli import output
from context_agent.cli.index_options import CorpusOptions
from context_agent.cli.parameters import FOLDER, CommonOptions
from context_agent.cli.ranking import summary

if TYPE_CHECKING:
    from rich.console import Console

    from context_agent.agent import SearchAgent, SearchResult
    from context_agent.retrieval.corpus import Corpus
    from context_agent.types import Document

K = 5
"""Number of ranked documents that count."""
WINDOW = 1_536
"""Tokens of the context. The corpus takes more than twice as many, so the policy must prune."""


@dataclass(frozen=True, slots=True)
class DemoQuestion:
    """A question and the documents that hold its evidence."""

    id: str
    question: str
    answer: str
    gold: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results for one question: the agent's, and the first `K` documents of a single hybrid search."""

    question: DemoQuestion
    result: SearchResult
    one_shot: tuple[str, ...]
    seconds: float

    @property
    def agent(self) -> tuple[str, ...]:
        """The agent's first `K` documents."""
        return tuple(document.id for document in self.result.documents[:K])

    def recalled(self, ids: tuple[str, ...]) -> int:
        """Return how many of the needed documents are among these ids."""
        return len(set(self.question.gold) & set(ids))


def demo(
    *,
    path: Annotated[Path | None, FOLDER, Parameter(show_default="a temporary folder")] = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Answer multi-hop questions about a small bundled corpus.

    The command indexes the corpus with static vectors, answers three questions, and compares the answers with a single
    hybrid search.

    Args:
        path: Keep the index in this folder, to search it later.
    """
    if path is not None:
        return _demo(path, common.json)
    with tempfile.TemporaryDirectory(prefix="ctx1-demo-") as folder:
        return _demo(Path(folder), common.json)


def documents() -> list[Document]:
    """Return the bundled corpus."""
    from context_agent.types import Document

    return [Document(**row) for row in _rows("corpus.jsonl")]


def questions() -> list[DemoQuestion]:
    """Return the bundled questions."""
    return [DemoQuestion(**{**row, "gold": tuple(row["gold"])}) for row in _rows("questions.jsonl")]


def _rows(name: str) -> list[dict[str, Any]]:
    text = (files("context_agent.cli") / "demo_data" / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _demo(folder: Path, as_json: bool) -> int:
    from context_agent.agent import SearchAgent
    from context_agent.cli.index_run import add_documents
    from context_agent.retrieval.embedders import STATIC

    chosen = CorpusOptions(folder, None, "demo")
    out = output.stderr() if as_json else output.stdout()
    started = time.perf_counter()
    add_documents(chosen, documents(), embedder=STATIC)
    seconds = time.perf_counter() - started
    out.print(f"Indexed {len(documents())} passages in {seconds:.1f} s. The context holds {WINDOW:,} tokens.")
    with chosen.open() as corpus, SearchAgent(corpus, budget=WINDOW) as agent:
        outcomes = [_compare(agent, corpus, question, out) for question in questions()]
    if as_json:
        output.print_json({"k": K, "window": WINDOW, "questions": [_to_json(outcome) for outcome in outcomes]})
    else:
        _show_table(out, outcomes)
    return 0


def _compare(agent: SearchAgent, corpus: Corpus, question: DemoQuestion, out: Console) -> Comparison:
    from context_agent.cli.search_run import ResultLimits, run_with_steps

    out.print()
    out.print(question.question, style="bold")
    started = time.perf_counter()
    result = run_with_steps(agent, question.question, ResultLimits(K), out)
    seconds = time.perf_counter() - started
    hits = corpus.search(question.question)
    one_shot = tuple(dict.fromkeys(hit.chunk.document_id for hit in hits))[:K]
    outcome = Comparison(question, result, one_shot, seconds)
    _show_ranking(out, outcome)
    return outcome


def _show_ranking(out: Console, outcome: Comparison) -> None:
    from rich.text import Text

    for rank, document in enumerate(outcome.result.documents, start=1):
        needed = document.id in outcome.question.gold
        line = Text.assemble((f"{rank:>2}. {document.title}", "bold" if needed else "dim"))
        out.print(line.append("  needed", style="green") if needed else line)
    ending = summary(outcome.result, outcome.seconds)
    out.print(Text(f"{ending}; expected answer: {outcome.question.answer}", style="dim"))


def _show_table(out: Console, outcomes: list[Comparison]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("question")
    table.add_column("one-shot hybrid search", justify="right")
    table.add_column("agent", justify="right")
    for outcome in outcomes:
        needed = len(outcome.question.gold)
        cells = (f"{outcome.recalled(ids)} of {needed}" for ids in (outcome.one_shot, outcome.agent))
        table.add_row(outcome.question.id, *cells)
    out.print(f"\nNeeded passages among the first {K}:")
    out.print(table)


def _to_json(outcome: Comparison) -> dict[str, Any]:
    return {
        **outcome.result.to_json(),
        "id": outcome.question.id,
        "answer": outcome.question.answer,
        "needed": list(outcome.question.gold),
        "one_shot": list(outcome.one_shot),
        "found_by_one_shot": outcome.recalled(outcome.one_shot),
        "found_by_agent": outcome.recalled(outcome.agent),
        "seconds": round(outcome.seconds, 3),
    }
