"""`ctx1 ask`: a language model answers from the ranked passages; without a model, the passages are printed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from context_agent.cli import options, output
from context_agent.cli.command import COUNT, SECONDS, Argument, Json, Option, command, essential
from context_agent.cli.search import KOption, question_of, run

if TYPE_CHECKING:
    from context_agent.agent import SearchResult
    from context_agent.answers import AnswerModel, CheckedAnswer

NO_MODEL = (
    "no language model is named, so these are the passages. To get an answer, pass --model NAME and --base-url URL, or "
    "set CTX1_MODEL and CTX1_BASE_URL"
)


@dataclass(frozen=True, slots=True)
class AnswerOptions(options.ServerOptions):
    """The language model that answers, and its answer."""

    api: Annotated[
        Literal["openai", "anthropic"] | None,
        Option("API of the server.", default="anthropic for https://api.anthropic.com, else openai"),
    ] = None
    max_tokens: Annotated[int, Option("Maximum number of tokens in the answer.", COUNT)] = 2_000
    timeout: Annotated[float, Option("Timeout for the answer to begin, and for each pause in it.", SECONDS)] = 120.0

    def load(self) -> AnswerModel | None:
        """The model; None if none is named, neither here nor in the environment."""
        from context_agent.answers import AnswerModel
        from context_agent.policies import from_environment

        named = from_environment({name: value for name, value in asdict(self).items() if value is not None})
        return AnswerModel(**named) if named.get("model") else None


@essential("k effort base_url model api_key_env api path url collection embedder")
@command
def ask(
    question: Annotated[str, Argument("QUESTION")],
    *,
    k: KOption = 5,
    effort: options.EffortOption = None,
    server: AnswerOptions,
    index: options.CorpusOptions,
    as_json: Json,
) -> int:
    """Answer a question with a language model, and check its citations.

    QUESTION is the question in quotes, or - to read it from standard input. The model gets the passages that ctx1
    search would rank. Citations of no passage, and quotations that the passages do not have, are marked in the answer.
    Without a model, the passages are printed.
    """
    from context_agent.agent import SearchAgent

    model = server.load()
    text = question_of(question)
    started = time.perf_counter()
    with index.open() as corpus, SearchAgent(corpus, effort=effort) as agent:
        result = run(agent, text, k=k)
    answer = None if model is None or not result.documents else _answer(model, result, as_json=as_json)
    if as_json:
        output.print_json(_to_json(result, model, answer))
    elif answer is None:
        output.show_ranking(output.stdout(), result, time.perf_counter() - started)
    if model is None:
        output.note(NO_MODEL)
    return 1 if result.error else 0


def _answer(model: AnswerModel, result: SearchResult, *, as_json: bool) -> CheckedAnswer:
    """The answer, printed as it arrives unless it becomes JSON, and then its sources."""
    from context_agent.answers import passages_of

    if result.sufficient is False:
        output.note(f"{output.NOTHING_RELEVANT} The model gets the nearest passages.")

    def show(piece: str) -> None:
        if not as_json:
            click.echo(output.printable(piece), nl=False)

    answer = asyncio.run(model.answer(result.question, passages_of(result.documents), show))
    if not as_json:
        output.echo("\n")
        for passage in answer.cited:
            output.echo(
                output.one_line(f"[{passage.number}] {passage.title or passage.document_id}  {passage.document_id}")
            )
    if not answer.cited:
        output.note("the answer cites no passage: check it against ctx1 search")
    if answer.problems:
        output.note(f"{output.count(len(answer.problems), 'citation')} of the answer not confirmed: see the marks")
    return answer


def _to_json(result: SearchResult, model: AnswerModel | None, answer: CheckedAnswer | None) -> dict[str, Any]:
    """The object printed with --json; `answer` is null without a model."""
    return {
        **result.to_json(),
        "model": None if model is None else model.model,
        "answer": None if answer is None else answer.text,
        "cited": [] if answer is None else [asdict(passage) for passage in answer.cited],
        "problems": [] if answer is None else [asdict(problem) for problem in answer.problems],
    }
