"""The judge behind LiteLLM's `typesafe` guardrail: how much of each tool exchange should stay in an agent's context.

The guardrail sends the task and the results of completed tool exchanges, and one question for each. It empties the
results whose answer, a number from 0 to 1, is below its `relevance_threshold`; the others stay as they are. So the
results are ranked by their best passage and fill a budget in this order: an answer is the share of it that fits.

The format is that of LiteLLM's `guardrail_hooks/typesafe/typesafe.py`: a part of TypeSafe's System One API.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from context_agent.pruning.messages import Transcript
from context_agent.pruning.passages import Passage, cut
from context_agent.pruning.pruner import BUDGET
from context_agent.pruning.relevance import Goal, by_reading
from context_agent.tokens import HarmonyCounter

MAX_EXCHANGES = 1_000
Id = Annotated[str, Field(min_length=1, max_length=256)]


class ToolExchange(BaseModel):
    """The texts of the results of one message's calls together. The calls are not read."""

    result: str


class ExchangeState(BaseModel):
    """What is judged: the last user message, and the exchanges in their order, by id. The system text is not read."""

    task: str
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


class ExchangeRelevance(BaseModel):
    """The answer to a question: the share of the exchange's result that fits."""

    type: Literal["noul"] = "noul"
    noul: float = Field(ge=0, le=1)


class RelevanceUsage(BaseModel):
    """Tokens of the results that were judged."""

    input_tokens: int
    output_tokens: int = 0


class RelevanceResponse(BaseModel):
    """The answers by the ids of the questions."""

    model: str
    answers: dict[str, ExchangeRelevance]
    usage: RelevanceUsage


def judge(request: RelevanceRequest, model: str, *, budget: int = BUDGET) -> RelevanceResponse:
    """Answers the questions, as if `budget` tokens of results fit. `model` is the name that is reported."""
    exchanges = request.state.tool_exchanges
    count = HarmonyCounter().count
    tokens = {name: count(exchange.result) for name, exchange in exchanges.items()}
    shares, room = dict.fromkeys(exchanges, 1.0), budget
    for name in _ranked(request.state, budget) if sum(tokens.values()) > budget else ():
        shares[name] = min(1.0, room / max(1, tokens[name]))
        room = max(0, room - tokens[name])
    answers = {name: ExchangeRelevance(noul=round(shares[name], 4)) for name in request.questions}
    return RelevanceResponse(model=model, answers=answers, usage=RelevanceUsage(input_tokens=sum(tokens.values())))


def _ranked(state: ExchangeState, budget: int) -> list[str]:
    """The ids of the exchanges, errors first, then by the best passage of the result."""
    count = HarmonyCounter().count
    names: list[str] = []
    passages: list[Passage] = []
    for name, exchange in state.tool_exchanges.items():
        cut_passages = cut(exchange.result)
        names += [name] * len(cut_passages)
        passages += [replace(passage, tokens=count(passage.text)) for passage in cut_passages]
    best = {result.call_id: math.inf for result in Transcript([*_messages(state)]).results if result.is_error}
    for name, score in zip(names, by_reading(passages, Goal(state.task, room=budget)).tolist(), strict=True):
        best[name] = max(best.get(name, -math.inf), score)
    return sorted(state.tool_exchanges, key=lambda name: -best.get(name, -math.inf))


def _messages(state: ExchangeState) -> Iterator[Mapping[str, Any]]:
    """The results of the exchanges as chat messages."""
    for name, exchange in state.tool_exchanges.items():
        yield {"role": "tool", "tool_call_id": name, "content": exchange.result}
