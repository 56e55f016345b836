"""What the server sends: JSON, errors, answers, chat completions and server-sent events.

Errors have the shape of OpenAI's on every path. They never hold a path, a key or a stack trace: details of a failure
inside the server go to the log, and the client learns the kind of failure only.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import ValidationError

from context_agent._support.extras import extra
from context_agent.agent import Progress, SearchResult
from context_agent.errors import BudgetError, ConfigError, CorpusError, EmbedderError, PolicyError, RerankerError
from context_agent.harness.episode import StopReason
from context_agent.integrations.functions import shown
from context_agent.integrations.passages import Passage
from context_agent.integrations.server.schema import LONGEST_QUESTION, ChatRequest
from context_agent.pruning.view import ActionTaken, Block, EditApplied, ToolResult
from context_agent.retrieval.corpus import Where
from context_agent.types import RankedDocument

with extra("serve"):
    from starlette.requests import Request
    from starlette.responses import JSONResponse, StreamingResponse
    from starlette.types import Send

INDEX = "the index could not be searched"
POLICY = "the policy could not go on"
FAILURES = {StopReason.POLICY_ERROR: POLICY, StopReason.CORPUS_ERROR: INDEX}
"""What is said of a result whose search failed in the middle."""
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
COMPLETE = (StopReason.FINISHED, StopReason.NO_RANKING)
"""Stop reasons of searches that were not cut short."""
NOTHING = "Nothing was found."
DONE = b"data: [DONE]\n\n"
T = TypeVar("T")
HEARTBEAT = b": alive\n\n"
BUFFERED = 64
"""Events of a search that wait for a slow reader."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Proxies shall neither keep a stream nor hold it back."""


def encode(value: Any) -> bytes:
    """The value as JSON in UTF-8. A number that is not finite becomes null, half a surrogate pair `?`.

    Both occur: in metadata of foreign collections, in a model's output, in texts that were cut.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


class Json(JSONResponse):
    """A response of such JSON."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return encode(content)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(eq=False)
class Problem(Exception):
    """An answer that is an error. `param` names the field that is wrong."""

    status: int
    code: str
    message: str
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The answer's body."""
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def problem_of(error: Exception, where: Where | None = None) -> Problem | None:
    """What a search that raised this is answered; None for what nobody foresaw.

    A `ConfigError` of a search with a filter is the filter's: the rest of the search was set up at the start.
    """
    match error:
        case Problem():
            return error
        case BudgetError():
            return Problem(400, "question_too_long", str(error), "question")
        case ConfigError() if where is not None:
            return Problem(400, "invalid_filter", str(error), "where")
        case PolicyError():
            return Problem(502, "policy_error", POLICY)
        case CorpusError() | EmbedderError() | RerankerError():
            return Problem(503, "index_error", INDEX, headers={"Retry-After": "5"})
    return None


def invalid(error: ValidationError) -> Problem:
    """What is wrong with a body: no JSON at all (400), or fields that don't fit (422). It is not repeated."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    if found[0]["type"] == "json_invalid":
        return Problem(400, "invalid_json", f"the body is not valid JSON: {found[0]['msg'].partition(': ')[2]}")
    told = "; ".join(f"{_place(one['loc']) or 'the body'}: {one['msg']}" for one in found[:5])
    return Problem(422, "invalid_request", told, _place(found[0]["loc"]) or None)


def _place(loc: tuple[int | str, ...]) -> str:
    return ".".join(str(part)[:80] for part in loc)


@dataclass(frozen=True, slots=True)
class Answer:
    """A result, with what the server knows beside it."""

    request_id: str
    result: SearchResult
    seconds: float
    queued: float

    @property
    def output_tokens(self) -> int:
        """Tokens that the policy wrote."""
        events = (event for one in self.result.trajectories for event in one.events)
        return sum(event.tokens for event in events if isinstance(event, ActionTaken))

    @property
    def trajectory(self) -> str | None:
        """The (first) trajectory's id, where it was written: the name of its file without the ending."""
        return self.result.trajectory.stem if self.result.trajectory else None

    @property
    def complete(self) -> bool:
        """Whether no limit cut the search short."""
        return self.result.stop_reason in COMPLETE

    def documents(self) -> list[dict[str, Any]]:
        """The ranked documents as data."""
        plain = self.result.to_json()["documents"]
        return [
            {**one, "justification": document.justification, "metadata": dict(document.metadata)}
            for one, document in zip(plain, self.result.documents, strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """`SearchResult.to_json`, but that the trajectory is named by its id, and a failure by its kind."""
        return {
            "request_id": self.request_id,
            **self.result.to_json(),
            "documents": self.documents(),
            "trajectory": self.trajectory,
            "error": self.error,
            "usage": self.usage(),
        }

    @property
    def error(self) -> str | None:
        """What kind of failure cut the search short, if one did."""
        if self.result.error is None:
            return None
        return next((told for reason, told in FAILURES.items() if reason == self.result.stop_reason), INDEX)

    def usage(self) -> dict[str, Any]:
        """What it took."""
        return {
            "turns": self.result.turns,
            "tokens": self.result.tokens,
            "output_tokens": self.output_tokens,
            "seconds": round(self.seconds, 4),
            "queued_seconds": round(self.queued, 4),
        }

    def passages(self) -> list[str]:
        """The best passage of each document, numbered from 1, with its id."""
        return [shown(rank, _best(rank, one)) for rank, one in enumerate(self.result.documents, start=1)]


def _best(rank: int, document: RankedDocument) -> Passage:
    best = document.chunks[0]
    return Passage(best.id, document.id, document.title, best.text, document.score, rank)


def question_of(request: ChatRequest) -> str:
    """The last user message. Raises `Problem` where there is none, or nothing is said in it."""
    said = next((one.text for one in reversed(request.messages) if one.role == "user"), None)
    if said is None or not said.strip():
        wrong = "there is no user message" if said is None else "the last user message is empty"
        raise Problem(400, "no_question", f"{wrong}: it is the question that is searched for", "messages")
    if len(said) > LONGEST_QUESTION:
        message = f"the last user message has {len(said):,} characters; at most {LONGEST_QUESTION:,} are read"
        raise Problem(400, "question_too_long", message, "messages")
    return said


@dataclass(frozen=True, slots=True)
class Completion:
    """One completion, known to its client by an id."""

    id: str
    model: str
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, answer: Answer) -> dict[str, Any]:
        """The completion in one piece."""
        message = {"role": "assistant", "content": content(answer), "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(answer)}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage(answer), **_beside(answer)}

    def opening(self) -> bytes:
        """The first chunk, which says who speaks."""
        return self._chunk({"role": "assistant", "content": ""})

    def chunks(self, answer: Answer, *, with_usage: bool) -> Iterator[bytes]:
        """The chunks after the first: a passage each, then the end with the documents, then the usage if wanted."""
        for number, passage in enumerate(answer.passages() or [NOTHING]):
            yield self._chunk({"content": f"\n\n{passage}" if number else passage})
        yield self._chunk({}, finish_reason(answer), _beside(answer))
        if with_usage:
            yield _data({**self._head("chat.completion.chunk"), "choices": [], "usage": usage(answer)})
        yield DONE

    def failure(self, problem: Problem) -> bytes:
        """A chunk in whose place an error stands."""
        return _data(problem.to_json())

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _chunk(self, delta: dict[str, Any], reason: str | None = None, beside: dict[str, Any] | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _data({**self._head("chat.completion.chunk"), "choices": [choice], **(beside or {})})


def content(answer: Answer) -> str:
    """The numbered passages."""
    return "\n\n".join(answer.passages()) or NOTHING


def finish_reason(answer: Answer) -> str:
    """`length` for a search that a limit or a failure cut short."""
    return "stop" if answer.complete else "length"


def usage(answer: Answer) -> dict[str, int]:
    """The whole search's tokens: those that the policy wrote as completion, all others as prompt."""
    total, written = answer.result.tokens, answer.output_tokens
    return {"prompt_tokens": total - written, "completion_tokens": written, "total_tokens": total}


def _beside(answer: Answer) -> dict[str, Any]:
    own = {"request_id": answer.request_id, "trajectory": answer.trajectory, "stop_reason": answer.result.stop_reason}
    return {"documents": answer.documents(), **own, "error_detail": answer.error}


def _data(value: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % encode(value)


class Gone(Exception):
    """The client hung up."""


class Events(StreamingResponse):
    """A response of events. When it is over `leave` is told whether all were sent, also where none was."""

    def __init__(self, events: AsyncGenerator[bytes], leave: Callable[[bool], None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers=HEADERS)
        self._events, self._leave = events, leave

    async def stream_response(self, send: Send) -> None:
        """Sends the events."""
        whole = False
        try:
            async with aclosing(self._events):
                await super().stream_response(send)
            whole = True
        finally:
            self._leave(whole)


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The outcome of the work. Where the client hangs up first the work is cancelled and `Gone` raised."""
    working, watching = asyncio.create_task(work), asyncio.create_task(_gone(request.receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Gone
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _gone(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def beating(source: AsyncIterator[T], every: float) -> AsyncGenerator[T | None]:
    """The items of the source, and None whenever it was silent for `every` seconds. Leaving it ends the source.

    At most `BUFFERED` items wait for a reader; then the source waits, too.
    """
    queue: asyncio.Queue[tuple[T] | tuple[()]] = asyncio.Queue()
    room = asyncio.Semaphore(BUFFERED)

    async def pump() -> None:
        async for item in source:
            await room.acquire()
            queue.put_nowait((item,))

    pumping = asyncio.create_task(pump())
    pumping.add_done_callback(lambda _: queue.put_nowait(()))
    try:
        while True:
            try:
                async with asyncio.timeout(every):
                    given = await queue.get()
            except TimeoutError:
                yield None
                continue
            if not given:
                break
            room.release()
            yield given[0]
        pumping.result()
    finally:
        pumping.cancel()
        await asyncio.gather(pumping, return_exceptions=True)


def sent(event: str, data: Any) -> bytes:
    """One event as bytes."""
    return b"event: %b\ndata: %b\n\n" % (event.encode(), encode(data))


def told(progress: Progress) -> bytes | None:
    """What an episode's event is to a client; None for those that it has no use for."""
    event = progress.event
    match event:
        case ActionTaken():
            calls = [{"name": call.name, "arguments": call.arguments} for call in event.action.calls]
            data = {"calls": calls, "tokens": event.tokens, "context_tokens": progress.view.tokens}
            return _event("turn", progress, event.turn, event.seconds, data)
        case EditApplied(edit=edit, cost=cost):
            names = {key: one.id for key, one in progress.view.by_key().items()}
            pruned, restored = ([names[key] for key in keys] for keys in (edit.pruned, edit.restored))
            data = {"pruned": pruned, "restored": restored, "freed": cost.freed, "recomputed": cost.recomputed}
            if edit.summaries:
                data["summaries"] = [{"id": one.id, "of": [names[key] for key in one.of]} for one in edit.summaries]
            return _event("edit", progress, event.turn, None, data)
        case ToolResult():
            chunks = [_chunk(one) for one in event.segments if isinstance(one, Block)]
            data = {"call": event.call, "name": event.name, "mistake": event.mistake, "chunks": chunks}
            return _event("result", progress, event.turn, event.seconds, data)
    return None


def ended(answer: Answer) -> bytes:
    """The last event: what a request without a stream is answered."""
    return sent("end", answer.to_json())


def _event(name: str, progress: Progress, turn: int, seconds: float | None, data: dict[str, Any]) -> bytes:
    timed = {} if seconds is None else {"seconds": round(seconds, 4)}
    return sent(name, {"rollout": progress.rollout, "turn": turn, **data, **timed})


def _chunk(block: Block) -> dict[str, Any]:
    return {
        "id": block.id,
        "document_id": block.document_id,
        "title": block.hit.chunk.title,
        "tokens": block.tokens,
        "rank": block.hit.rank,
    }
