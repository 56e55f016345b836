"""The command `ctx1 ask`: a language model answers from the ranked passages. Without one, the passages are printed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from context_agent.cli import output
from context_agent.cli.agent_options import EffortOption, ServerOptions
from context_agent.cli.index_options import CorpusOptions, WhereOption
from context_agent.cli.parameters import COUNT, DASH, SECONDS, CommonOptions, essential, options_in
from context_agent.cli.ranking import NOTHING_RELEVANT, show_ranking
from context_agent.cli.search_run import KOption, ResultLimits, question_of, run
from context_agent.text.counts import counted

if TYPE_CHECKING:
    from context_agent.agent import SearchResult
    from context_agent.answers import AnswerModel, CheckedAnswer


NO_MODEL = (
    "no language model is named, so these are the passages. To get an answer, pass --model NAME and --base-url URL, or "
    "set CTX1_MODEL and CTX1_BASE_URL"
)


@options_in("Language model")
@dataclass(frozen=True, slots=True)
class AnswerOptions(ServerOptions):
    """The language model that answers, and the options for its answer."""

    api: Annotated[
        Literal["openai", "anthropic"] | None,
        Parameter(show_default="anthropic for https://api.anthropic.com, else openai"),
    ] = None
    """API of the server."""
    max_tokens: Annotated[int, COUNT] = 2_000
    """Maximum number of tokens in the answer."""
    timeout: Annotated[float, SECONDS] = 120.0
    """Timeout for the answer to begin, and for each pause in it."""

    def load(self) -> AnswerModel | None:
        """Return the model. If neither the options nor the environment name one, return None."""
        from context_agent.answers import AnswerModel
        from context_agent.policies import from_environment

        named = from_environment({name: value for name, value in asdict(self).items() if value is not None})
        return AnswerModel(**named) if named.get("model") else None


@essential("k effort base_url model api_key_env api path url collection embedder")
def ask(
    question: Annotated[str, DASH],
    /,
    *,
    k: KOption = 5,
    where: WhereOption = None,
    effort: EffortOption = None,
    server: AnswerOptions = AnswerOptions(),
    index: CorpusOptions = CorpusOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Answer a question with a language model, and check its citations.

    The model gets the passages that ctx1 search would rank. The command marks citations that name no passage, and
    quotations that are in no passage. Without a model, it prints the passages.

    Args:
        question: The question in quotes, or - to read it from standard input.
    """
    from context_agent.agent import SearchAgent

    model = server.load()
    text = question_of(question)
    started = time.perf_counter()
    with index.open() as corpus, SearchAgent(corpus, effort=effort) as agent:
        result = run(agent, text, ResultLimits(k, where))
    answer = None if model is None or not result.documents else _answer(model, result, as_json=common.json)
    if common.json:
        output.print_json(_to_json(result, model, answer))
    elif answer is None:
        show_ranking(output.stdout(), result, time.perf_counter() - started)
    if model is None:
        output.note(NO_MODEL)
    return 1 if result.error else 0


def _answer(model: AnswerModel, result: SearchResult, *, as_json: bool) -> CheckedAnswer:
    """Return the answer. Print it as it arrives, unless it becomes JSON, and then print its sources."""
    from context_agent.answers import passages_of

    if result.sufficient is False:
        output.note(f"{NOTHING_RELEVANT} The model gets the nearest passages.")

    def show(piece: str) -> None:
        if not as_json:
            output.echo(piece, end="")

    answer = asyncio.run(model.answer(result.question, passages_of(result.documents), show))
    if not as_json:
        output.echo("\n")
        for passage in answer.cited:
            output.echo(
                output.one_line(f"[{passage.number}] {passage.title or passage.document_id}  {passage.document_id}")
            )
    if answer.truncated:
        output.note(f"the answer was cut off after {counted(model.max_tokens, 'token')}. Raise --max-tokens.")
    if not answer.cited:
        output.note("the answer cites no passage. Check it against `ctx1 search`.")
    if answer.problems:
        output.note(
            f"the answer has {counted(len(answer.problems), 'unconfirmed citation')}. See the marks in the answer."
        )
    return answer


def _to_json(result: SearchResult, model: AnswerModel | None, answer: CheckedAnswer | None) -> dict[str, Any]:
    """Return the object that is printed with --json. Without a model, its `answer` is null."""
    return {
        **result.to_json(),
        "model": None if model is None else model.model,
        "answer": None if answer is None else answer.text,
        "cited": [] if answer is None else [asdict(passage) for passage in answer.cited],
        "problems": [] if answer is None else [asdict(problem) for problem in answer.problems],
        "truncated": False if answer is None else answer.truncated,
    }
