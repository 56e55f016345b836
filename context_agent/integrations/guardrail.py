"""The judge behind LiteLLM's `typesafe` guardrail: how much of each tool exchange an agent still needs.

The guardrail sends the task and the results of completed tool exchanges, and one question for each. It empties the
results whose answer, a number from 0 to 1, is below its `relevance_threshold`. Here the number is the share of the
result that `ContextPruner` keeps if all of them must fit into a budget. So while they fit, every answer is 1.

The format is that of LiteLLM's `guardrail_hooks/typesafe/typesafe.py`: a part of TypeSafe's System One API.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, JsonValue, model_validator

from context_agent.pruning.pruner import BUDGET, ContextPruner
from context_agent.pruning.selection import Prices
from context_agent.tokens import HarmonyCounter

MAX_EXCHANGES = 1_000
Id = Annotated[str, Field(min_length=1, max_length=256)]


class ExchangeCall(BaseModel):
    """A tool call of an exchange."""

    name: str | None = None
    arguments: JsonValue = None


class ToolExchange(BaseModel):
    """The calls of one message, and the texts of their results together."""

    tool_calls: list[ExchangeCall] = Field(default=[], max_length=MAX_EXCHANGES, fail_fast=True)
    result: str


class ExchangeState(BaseModel):
    """What is judged: the last user message, and the exchanges in their order, by id."""

    task: str
    system: str = ""
    tool_exchanges: dict[Id, ToolExchange] = Field(max_length=MAX_EXCHANGES)


class RelevanceQuestion(BaseModel):
    """Whether the exchange with the question's id is still needed. The instructions are not read."""

    type: Literal["noul"]


class RelevanceRequest(BaseModel):
    """The questions of the guardrail; the model's name is not read."""

    state: ExchangeState
    questions: dict[Id, RelevanceQuestion] = Field(min_length=1, max_length=MAX_EXCHANGES)

    @model_validator(mode="after")
    def _about_exchanges(self) -> RelevanceRequest:
        if not self.questions.keys() <= self.state.tool_exchanges.keys():
            raise ValueError("every question must have the id of one of the state's tool_exchanges")
        return self


class RelevanceJudgement(BaseModel):
    """The answer to a question: the share of the exchange's result that is still needed."""

    type: Literal["noul"] = "noul"
    noul: float = Field(ge=0, le=1)


class RelevanceUsage(BaseModel):
    """Tokens of the results that were judged."""

    input_tokens: int
    output_tokens: int = 0


class RelevanceResponse(BaseModel):
    """The answers by the ids of the questions."""

    model: str
    answers: dict[str, RelevanceJudgement]
    usage: RelevanceUsage


def judge(request: RelevanceRequest, model: str, *, budget: int = BUDGET) -> RelevanceResponse:
    """Answers the questions, as if `budget` tokens of results may stay. `model` is the name that is reported."""
    # The exchanges come without their conversation, so what a prefix cache would lose is unknown.
    pruner = ContextPruner(budget, prices=Prices(cached=1.0))
    report = pruner.prune([*_messages(request.state)]).report
    removed: Counter[str] = Counter()
    for passage in report.removed:
        removed[passage.call_id] += passage.tokens
    answers = {name: _judgement(request.state.tool_exchanges[name], removed[name]) for name in request.questions}
    return RelevanceResponse(model=model, answers=answers, usage=RelevanceUsage(input_tokens=report.tokens_before))


def _judgement(exchange: ToolExchange, removed: int) -> RelevanceJudgement:
    # The tokens of the passages may add up to a few more than those of the text.
    share = 1 - removed / HarmonyCounter().count(exchange.result) if removed else 1.0
    return RelevanceJudgement(noul=round(max(0.0, share), 4))


def _messages(state: ExchangeState) -> Iterator[Mapping[str, Any]]:
    """The exchanges as a conversation. Its end is empty: every exchange in the state is completed."""
    yield {"role": "system", "content": state.system}
    yield {"role": "user", "content": state.task}
    for name, exchange in state.tool_exchanges.items():
        calls = json.dumps([call.model_dump() for call in exchange.tool_calls], ensure_ascii=False)
        call = {"id": name, "type": "function", "function": {"name": "tools", "arguments": calls}}
        yield {"role": "assistant", "content": None, "tool_calls": [call]}
        yield {"role": "tool", "tool_call_id": name, "content": exchange.result}
    yield {"role": "assistant", "content": ""}
