"""Answers as chat completions in OpenAI's format, whole or in chunks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from context_agent.agent import Progress
from context_agent.integrations.server.answers import ServedAnswer
from context_agent.integrations.server.errors import Problem
from context_agent.integrations.server.json_encoding import encode
from context_agent.integrations.server.schema import MAX_QUESTION_CHARACTERS, ChatRequest

STREAM_END = b"data: [DONE]\n\n"


def question_of(request: ChatRequest) -> str:
    """Return the last user message.

    Raises:
        Problem: If there is no user message, or if the last one is empty or too long.
    """
    question = next((message.text for message in reversed(request.messages) if message.role == "user"), None)
    if question is None or not question.strip():
        reason = "there is no user message" if question is None else "the last user message is empty"
        raise Problem(400, "no_question", f"{reason}. Send the question as the last user message.", "messages")
    if len(question) > MAX_QUESTION_CHARACTERS:
        message = (
            f"the last user message must have at most {MAX_QUESTION_CHARACTERS:,} characters; got {len(question):,}"
        )
        raise Problem(400, "question_too_long", message, "messages")
    return question


@dataclass(frozen=True, slots=True)
class Completion:
    """A chat completion in OpenAI's format, in one piece or in chunks.

    The content lists the best passage of each document with a number and the id. The field `documents` has the
    documents as data. OpenAI's clients keep fields that they do not know.
    """

    id: str
    model: str
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, answer: ServedAnswer) -> dict[str, Any]:
        """Return the whole completion as JSON values."""
        message = {"role": "assistant", "content": answer.text(), "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(answer)}
        return {**self._head("chat.completion"), "choices": [choice], "usage": _usage(answer), **_search_fields(answer)}

    def opening(self) -> bytes:
        """Return the first chunk, which names the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def chunks(self, answer: Progress | ServedAnswer, *, with_usage: bool) -> Iterator[bytes]:
        """Yield the chunks after the first one.

        Each passage is a chunk. The next chunk has the documents. With `with_usage`, one more chunk has the tokens.
        Progress has no chunk.
        """
        if isinstance(answer, Progress):
            return
        for number, paragraph in enumerate(answer.paragraphs()):
            yield self._chunk({"content": f"\n\n{paragraph}" if number else paragraph})
        yield self._chunk({}, _finish_reason(answer), _search_fields(answer))
        if with_usage:
            yield _data({**self._head("chat.completion.chunk"), "choices": [], "usage": _usage(answer)})
        yield STREAM_END

    def failure(self, problem: Problem) -> bytes:
        """Return the chunk that ends a failed stream."""
        return _data(problem.to_json())

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _chunk(self, delta: dict[str, Any], reason: str | None = None, fields: dict[str, Any] | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _data({**self._head("chat.completion.chunk"), "choices": [choice], **(fields or {})})


def _finish_reason(answer: ServedAnswer) -> str:
    return "stop" if answer.complete else "length"


def _usage(answer: ServedAnswer) -> dict[str, int]:
    """Return the tokens of the search.

    The completion tokens are those that the policy wrote. All others are prompt tokens.
    """
    total, written = answer.result.tokens, answer.output_tokens
    return {"prompt_tokens": total - written, "completion_tokens": written, "total_tokens": total}


def _search_fields(answer: ServedAnswer) -> dict[str, Any]:
    return {
        "documents": answer.documents(),
        "sufficient": answer.result.sufficient,
        "confidence": answer.result.confidence,
        "request_id": answer.request_id,
        "trajectory": answer.trajectory,
        "stop_reason": answer.result.stop_reason,
        "error_detail": answer.error,
    }


def _data(value: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % encode(value)
