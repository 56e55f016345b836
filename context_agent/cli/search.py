"""The command `ctx1 search`, which answers a question, or the questions of a file, with a ranking."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from context_agent._support.small_files import parse_json
from context_agent.cli import output
from context_agent.cli.agent_options import AgentOptions
from context_agent.cli.index_options import CorpusOptions, WhereOption
from context_agent.cli.invocation import given_flags
from context_agent.cli.parameters import DASH, OWN, CommonOptions, essential, options_in, section
from context_agent.cli.ranking import NOTHING_RELEVANT, NOTHING_SEARCHED, search_error, show_ranking
from context_agent.cli.search_batch import BatchOptions, SearchSource, failed_search, search_many
from context_agent.cli.search_run import KOption, ResultLimits, question_of, run, run_with_steps
from context_agent.errors import ConfigError, ContextAgentError

if TYPE_CHECKING:
    from context_agent.agent import SearchAgent
    from context_agent.retrieval.corpus import Corpus
    from context_agent.retrieval.filters import Where
    from context_agent.types import MetadataValue


FILTER_EXAMPLES = 20
"""Number of passages whose metadata is shown if a filter matches nothing."""
MAX_FILTER_VALUE = 60
"""Maximum number of characters of a metadata value that is shown."""


@options_in(OWN)
@dataclass(frozen=True, slots=True)
class ShowOptions:
    """The information to show in addition to the ranking."""

    steps: bool = False
    """Show every turn as it happens, with its searches, its prunes and the context."""
    quiet: Annotated[bool, Parameter(name=("--quiet", "-q"))] = False
    """Print only the ids of the documents, one per line."""


@essential("k where steps quiet questions path url collection embedder effort")
def search(
    question: Annotated[str | None, DASH] = None,
    /,
    *,
    k: KOption = 10,
    where: WhereOption = None,
    show: ShowOptions = ShowOptions(),
    engine: Annotated[str | None, Parameter(metavar="URL", group=section("Index"))] = None,
    batch: BatchOptions = BatchOptions(),
    agent: AgentOptions = AgentOptions(),
    index: CorpusOptions = CorpusOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Search an index in several steps and rank its documents.

    The command prints each document with its best sentence, and with as many of the next sentences as fit into two
    rows. If the evidence does not suffice, the command first prints "Nothing relevant found", and then the nearest
    documents. This is not a failure. The exit code is 1 if a question failed, or if --time-limit ended its search
    before the first turn.

    Args:
        question: The question in quotes, or - to read it from standard input.
        engine: HTTP endpoint to search through instead of an index. The query replaces {query} in its address.
    """
    if show.quiet and (common.json or show.steps):
        raise ConfigError(
            "--quiet prints only ids, so it cannot be combined with --json or --steps. Remove one of them."
        )
    if question is None and batch.questions is None:
        raise ConfigError("there is no question. Pass one QUESTION in quotes, or a file of questions with --questions.")
    if question is not None and batch.questions is not None:
        raise ConfigError("QUESTION and --questions both name what to search. Remove one of them.")
    if batch.questions is None and (given := given_flags("concurrency", "ordered", "processes", "ray")):
        raise ConfigError(f"{given[0]} is for many questions. Remove it, or pass a file with --questions.")
    if engine is not None and index.named:
        raise ConfigError("--engine replaces an index. Remove --engine, or remove --path and --url.")
    source = SearchSource(agent, index, engine, ResultLimits(k, where), as_json=common.json, quiet=show.quiet)
    if batch.questions is not None:
        return search_many(source, batch)
    with source.agent() as searcher:
        text = question_of(question or "")
        if common.json:
            return search_json(searcher, text, source.limits)
        return search_one(searcher, text, source.limits, show)


def search_one(agent: SearchAgent, question: str, limits: ResultLimits, show: ShowOptions) -> int:
    """Ask one question, print the ranking, and return the exit code."""
    started = time.perf_counter()
    result = run_with_steps(agent, question, limits, output.stderr()) if show.steps else run(agent, question, limits)
    if show.quiet:
        for document in result.documents:
            output.echo(output.one_field(document.id))
        if result.sufficient is False:
            output.note(NOTHING_RELEVANT)
        if not result.searched:
            output.note(NOTHING_SEARCHED)
    else:
        show_ranking(output.stdout(), result, time.perf_counter() - started)
    if limits.where is not None and not result.documents:
        _note_empty_filter(agent.corpus, limits.where)
    return 1 if search_error(result) else 0


def _note_empty_filter(corpus: Corpus, where: Where) -> None:
    """If no passage matches the filter, print the metadata of some passages, with a value of each entry."""
    if corpus.grep(".", limit=1, where=where):
        return
    passages = [hit.chunk for hit in corpus.grep(".", limit=FILTER_EXAMPLES)]
    entries = {key: value for passage in passages for key, value in passage.metadata.items()}
    examples = (_example_filter(key, value) for key, value in sorted(entries.items()))
    known = f"Passages have, for example: {', '.join(examples)}." if entries else "Passages have no metadata."
    output.note(output.one_line(f"no passage matches the filter of --where. {known}"))


def _example_filter(key: str, value: MetadataValue) -> str:
    """Return a filter that a value of metadata passes. A text that looks like a number is in quotes.

    Of a list, which is stored as JSON, the filter names an item.
    """
    if not isinstance(value, str):
        return f"{key}={json.dumps(value)}"
    try:
        items = parse_json(value) if value.startswith("[") else None
    except ValueError:
        items = None
    if isinstance(items, list) and items and isinstance(items[0], str | int | float):
        return json.dumps({key: {"$contains": items[0]}}, ensure_ascii=False)
    text = value[:MAX_FILTER_VALUE]
    return f"{key}={json.dumps(text) if text.replace('.', '', 1).isdecimal() else text}"


def search_json(agent: SearchAgent, question: str, limits: ResultLimits) -> int:
    """Ask one question, print its result as JSON, and return the exit code."""
    try:
        result = agent.search(question, k=limits.k, where=limits.where)
    except ContextAgentError as error:
        output.print_json(failed_search(question, str(error)))
        raise
    reason = search_error(result)
    output.print_json({**result.to_json(), "error": reason})
    return 1 if reason else 0
