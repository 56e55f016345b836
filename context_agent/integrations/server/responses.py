"""What the server sends: JSON, errors, answers, pruned conversations, chat completions, events, and the page at `/`.

Errors have the shape of OpenAI's on every path. They never contain a path, a key or a stack trace: the details of a
failure inside the server go to the log, and the client learns only what kind of failure it was.

The files of the page are public and hold nothing of the index: the page gets everything by the endpoints below `/v1`,
with the token if there is one. It uses the scripts and styles of the viewer, which `/episodes/ID` shows.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from context_agent._support.extras import extra
from context_agent.agent import Progress, SearchResult
from context_agent.errors import (
    BudgetError,
    ConfigError,
    CorpusError,
    DataError,
    EmbedderError,
    PolicyError,
    RerankerError,
    TrajectoryError,
)
from context_agent.harness.episode import StopReason
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import read_all
from context_agent.integrations.feedback import FeedbackLog
from context_agent.integrations.functions import NO_PASSAGES, ONLY_NEAREST, passage_text
from context_agent.integrations.pruning import ConversationPruners
from context_agent.integrations.server.schema import MAX_QUESTION, ChatRequest, PruneAnswer, PruneRequest
from context_agent.pruning.pruner import ContextPruner
from context_agent.pruning.selection import Prices
from context_agent.pruning.view import ActionTaken, Block, EditApplied, ToolResult
from context_agent.retrieval.corpus import Where
from context_agent.text.highlights import best_sentences
from context_agent.web import ui, viewer
from context_agent.web.viewer.model import view_data

with extra("serve"):
    from starlette.requests import Request
    from starlette.responses import JSONResponse, StreamingResponse
    from starlette.types import Send

INDEX_FAILURE = "the index could not be searched"
POLICY_FAILURE = "the policy failed"
COMPLETE = (StopReason.FINISHED, StopReason.NO_RANKING)
"""Stop reasons of searches that were not cut short."""
STREAM_END = b"data: [DONE]\n\n"
HEARTBEAT = b": alive\n\n"
BUFFERED = 64
"""Events of a search that wait for a slow reader."""
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Proxies must neither store a stream nor buffer it."""
_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
T = TypeVar("T")


def encode(value: Any) -> bytes:
    """Return the value as JSON in UTF-8. A number that is not finite becomes null, half a surrogate pair `?`.

    Both occur: in the metadata of foreign collections, in the output of a model, in texts that were cut.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Json(JSONResponse):
    """A JSON response, encoded by `encode`."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return encode(content)


@dataclass(eq=False)
class Problem(Exception):
    """An error for the client: a status, a code for programs, a sentence for people. `param` is the wrong field."""

    status: int
    code: str
    message: str
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the body of the response."""
        kind = _ERROR_TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


INTERNAL = Problem(500, "internal", "an internal error of the server; its log has the details")


def problem_of(error: Exception, where: Where | None = None) -> Problem | None:
    """Return the client's error for an exception of a search; None for an unexpected exception.

    A `ConfigError` of a search with a filter is due to the filter, because everything else was set up at the start.
    """
    match error:
        case Problem():
            return error
        case BudgetError():
            return Problem(400, "question_too_long", str(error), "question")
        case ConfigError() if where is not None:
            return Problem(400, "invalid_filter", str(error), "where")
        case PolicyError():
            return Problem(502, "policy_error", POLICY_FAILURE)
        case CorpusError() | EmbedderError() | RerankerError():
            return index_problem()
    return None


def index_problem() -> Problem:
    """Return the error for an index that cannot be searched now."""
    return Problem(503, "index_error", INDEX_FAILURE, headers={"Retry-After": "5"})


def invalid_body(error: ValidationError) -> Problem:
    """Return the error for a body that is not JSON (400) or has wrong fields (422). It does not repeat their values."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    if problems[0]["type"] == "json_invalid":
        return Problem(400, "invalid_json", f"the body is not valid JSON: {problems[0]['msg'].partition(': ')[2]}")
    fields = [".".join(str(part)[:80] for part in problem["loc"]) for problem in problems[:5]]
    pairs = zip(fields, problems, strict=False)
    message = "; ".join(f"{name or 'the body'}: {problem['msg']}" for name, problem in pairs)
    return Problem(422, "invalid_request", message, fields[0] or None)


@dataclass(frozen=True, slots=True)
class ServedAnswer:
    """The result of a search, its request, and the seconds that it took and waited."""

    request_id: str
    result: SearchResult
    seconds: float
    queued: float

    @property
    def output_tokens(self) -> int:
        """Tokens that the policy wrote."""
        events = (event for trajectory in self.result.trajectories for event in trajectory.events)
        return sum(event.tokens for event in events if isinstance(event, ActionTaken))

    @property
    def trajectory(self) -> str | None:
        """The id of the first trajectory, which is its file's name without the suffix; None if none was written."""
        return self.result.trajectory.stem if self.result.trajectory else None

    @property
    def complete(self) -> bool:
        """Whether no limit cut the search short."""
        return self.result.stop_reason in COMPLETE

    @property
    def error(self) -> str | None:
        """The kind of failure that cut the search short; None without a failure."""
        if self.result.error is None:
            return None
        return POLICY_FAILURE if self.result.stop_reason == StopReason.POLICY_ERROR else INDEX_FAILURE

    def documents(self) -> list[dict[str, Any]]:
        """Return the ranked documents as data."""
        ranked = self.result.documents
        sentences = best_sentences(self.result.question, ranked)
        return [
            {
                **plain,
                "best_sentence": best and {"passage": best.chunk.id, "start": best.start, "end": best.end},
                "justification": document.justification,
                "metadata": dict(document.metadata),
            }
            for plain, document, best in zip(self.result.to_json()["documents"], ranked, sentences, strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """As `SearchResult.to_json`, but with the trajectory's id instead of its path and the kind of a failure."""
        return {
            "request_id": self.request_id,
            **self.result.to_json(),
            "documents": self.documents(),
            "trajectory": self.trajectory,
            "error": self.error,
            "usage": self.usage(),
        }

    def usage(self) -> dict[str, Any]:
        """Turns, tokens and seconds."""
        return {
            "turns": self.result.turns,
            "tokens": self.result.tokens,
            "output_tokens": self.output_tokens,
            "seconds": round(self.seconds, 4),
            "queued_seconds": round(self.queued, 4),
        }

    def text(self) -> str:
        """Return the numbered best passage of each document with its id, as a model reads it."""
        return "\n\n".join(self.paragraphs())

    def paragraphs(self) -> list[str]:
        """Return the passages, after a sentence that says so if they are only the nearest; a sentence alone without
        them.
        """
        passages = self.passages()
        if not passages:
            return [NO_PASSAGES]
        return [ONLY_NEAREST, *passages] if self.result.sufficient is False else passages

    def passages(self) -> list[str]:
        """Return the best passage of each document, numbered from 1, with its id."""
        ranked = enumerate(self.result.documents, start=1)
        return [passage_text(rank, row.chunks[0].id, row.title, row.chunks[0].text) for rank, row in ranked]


def prune_conversation(pruners: ConversationPruners, request: PruneRequest) -> PruneAnswer:
    """Return the pruned or restored conversation of a request. Raises `ConfigError` for an unknown id."""
    options = request.model_dump(include={"budget", "strategy", "effort", "turns", "cached_price"})
    scope = encode(options)
    if request.restore:
        return PruneAnswer(messages=pruners.restore(request.messages, request.restore, scope=scope), report=None)
    prices = Prices(turns=options.pop("turns"), cached=options.pop("cached_price"))
    open_pruner = partial(ContextPruner, **options, prices=prices)
    pruned = pruners.prune(request.messages, request.task, scope=scope, open_pruner=open_pruner)
    return PruneAnswer(messages=pruned.messages, report=pruned.report.to_json())


def question_of(request: ChatRequest) -> str:
    """Return the last user message. Raises `Problem` if there is none, or if it is empty or too long."""
    question = next((message.text for message in reversed(request.messages) if message.role == "user"), None)
    if question is None or not question.strip():
        reason = "there is no user message" if question is None else "the last user message is empty"
        raise Problem(400, "no_question", f"{reason}; it is the question to search for", "messages")
    if len(question) > MAX_QUESTION:
        message = f"the last user message has {len(question):,} characters; the limit is {MAX_QUESTION:,}"
        raise Problem(400, "question_too_long", message, "messages")
    return question


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer as a chat completion in OpenAI's format, whole or in chunks.

    The content lists the best passage of each document, numbered, with its id. The field `documents`, which OpenAI's
    clients keep, has the documents as data.
    """

    id: str
    model: str
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, answer: ServedAnswer) -> dict[str, Any]:
        """Return the completion in one piece."""
        message = {"role": "assistant", "content": answer.text(), "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(answer)}
        return {**self._head("chat.completion"), "choices": [choice], "usage": _usage(answer), **_search_fields(answer)}

    def opening(self) -> bytes:
        """Return the first chunk, which has the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def chunks(self, answer: Progress | ServedAnswer, *, with_usage: bool) -> Iterator[bytes]:
        """Yield the chunks after the first: one per passage, one with the documents, on request the usage."""
        if isinstance(answer, Progress):
            return
        for number, paragraph in enumerate(answer.paragraphs()):
            yield self._chunk({"content": f"\n\n{paragraph}" if number else paragraph})
        yield self._chunk({}, _finish_reason(answer), _search_fields(answer))
        if with_usage:
            yield _data({**self._head("chat.completion.chunk"), "choices": [], "usage": _usage(answer)})
        yield STREAM_END

    def failure(self, problem: Problem) -> bytes:
        """Return a chunk with an error, which ends the stream."""
        return _data(problem.to_json())

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _chunk(self, delta: dict[str, Any], reason: str | None = None, fields: dict[str, Any] | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _data({**self._head("chat.completion.chunk"), "choices": [choice], **(fields or {})})


def _finish_reason(answer: ServedAnswer) -> str:
    return "stop" if answer.complete else "length"


def _usage(answer: ServedAnswer) -> dict[str, int]:
    """Return the tokens of the whole search: those that the policy wrote as completion, all others as prompt."""
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


class ClientGone(Exception):
    """The client closed the connection."""


class EventResponse(StreamingResponse):
    """A response of events. At its end it calls `leave` with whether all were sent, even if none was."""

    def __init__(self, events: AsyncGenerator[bytes], leave: Callable[[bool], None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers=STREAM_HEADERS)
        self._events, self._leave = events, leave

    async def stream_response(self, send: Send) -> None:
        """Sends the events."""
        complete = False
        try:
            async with aclosing(self._events):
                await super().stream_response(send)
            complete = True
        finally:
            self._leave(complete)


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work. If the client disconnects first, cancels the work and raises `ClientGone`."""
    work_task, disconnect_task = asyncio.create_task(work), asyncio.create_task(_disconnect(request.receive))
    try:
        await asyncio.wait({work_task, disconnect_task}, return_when=asyncio.FIRST_COMPLETED)
        if not work_task.done():
            raise ClientGone
        return work_task.result()
    finally:
        for task in (work_task, disconnect_task):
            task.cancel()
        await asyncio.gather(work_task, disconnect_task, return_exceptions=True)


async def _disconnect(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def with_heartbeat(source: AsyncIterator[T], every: float) -> AsyncGenerator[T | None]:
    """Yield the items of the source, and None after each `every` seconds of silence. Closing this closes the source.

    At most `BUFFERED` items wait for a reader; then the source waits, too.
    """
    queue: asyncio.Queue[tuple[T] | tuple[()]] = asyncio.Queue()
    room = asyncio.Semaphore(BUFFERED)

    async def pump() -> None:
        async for item in source:
            await room.acquire()
            queue.put_nowait((item,))

    pump_task = asyncio.create_task(pump())
    pump_task.add_done_callback(lambda _: queue.put_nowait(()))
    try:
        while True:
            try:
                async with asyncio.timeout(every):
                    entry = await queue.get()
            except TimeoutError:
                yield None
                continue
            if not entry:
                break
            room.release()
            yield entry[0]
        pump_task.result()
    finally:
        pump_task.cancel()
        await asyncio.gather(pump_task, return_exceptions=True)


def search_events(item: Progress | ServedAnswer) -> Iterator[bytes]:
    """Yield the server-sent events of a search's progress and of its answer; none for events that clients do not
    get.
    """
    if isinstance(item, ServedAnswer):
        yield _event("end", item.to_json())
    elif (event := _progress_event(item)) is not None:
        yield event


def error_event(problem: Problem) -> bytes:
    """Return the server-sent event that ends a failed search."""
    return _event("error", problem.to_json())


def _event(name: str, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode(data))


def _progress_event(progress: Progress) -> bytes | None:
    event = progress.event
    match event:
        case ActionTaken():
            calls = [{"name": call.name, "arguments": call.arguments} for call in event.action.calls]
            data = {"calls": calls, "tokens": event.tokens, "context_tokens": progress.view.tokens}
            return _turn_event("turn", progress, event.turn, event.seconds, data)
        case EditApplied(edit=edit, cost=cost):
            ids = {key: block.id for key, block in progress.view.by_key().items()}
            pruned, restored = ([ids[key] for key in keys] for keys in (edit.pruned, edit.restored))
            data = {"pruned": pruned, "restored": restored, "freed": cost.freed, "recomputed": cost.recomputed}
            if edit.summaries:
                data["summaries"] = [
                    {"id": summary.id, "of": [ids[key] for key in summary.of]} for summary in edit.summaries
                ]
            return _turn_event("edit", progress, event.turn, None, data)
        case ToolResult():
            chunks = [_chunk_data(block) for block in event.segments if isinstance(block, Block)]
            data = {"call": event.call, "name": event.name, "mistake": event.mistake, "chunks": chunks}
            return _turn_event("result", progress, event.turn, event.seconds, data)
    return None


def _turn_event(name: str, progress: Progress, turn: int, seconds: float | None, data: dict[str, Any]) -> bytes:
    duration = {} if seconds is None else {"seconds": round(seconds, 4)}
    return _event(name, {"rollout": progress.rollout, "turn": turn, **data, **duration})


def _chunk_data(block: Block) -> dict[str, Any]:
    return {
        "id": block.id,
        "document_id": block.document_id,
        "title": block.hit.chunk.title,
        "tokens": block.tokens,
        "rank": block.hit.rank,
    }


with extra("serve"):
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route


def is_public(path: str) -> bool:
    """Return whether the path is one of the page's own, which need no token."""
    return path == "/" or path.startswith(("/ui/", "/episodes/"))


def _answer(request: Request, name: str) -> Response:
    content, headers = ui.page_file(name)
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers)


async def _ask(request: Request) -> Response:
    """`GET /`."""
    return _answer(request, "ask.html")


async def _episode(request: Request) -> Response:
    """`GET /episodes/{name}`; the viewer fetches the episode."""
    return _answer(request, "episode.html")


async def _asset(request: Request) -> Response:
    """`GET /ui/{name}`."""
    name = request.path_params["name"]
    if name not in ui.ASSETS:
        raise HTTPException(404)
    return _answer(request, name)


ROUTES = (Route("/", _ask), Route("/episodes/{name}", _episode), Route("/ui/{name}", _asset))


def episode_data(log: FeedbackLog, name: str) -> dict[str, Any]:
    """Return a recorded episode and those of its sub-agents, as the viewer reads them, without paths.

    Raises `DataError` for a trajectory that is unknown or cannot be shown.
    """
    log.header(name)
    main = log.folder / f"{name}.jsonl"
    try:
        (loaded,) = read_all([main]).loaded
        shown = view_data(read_all([main, *_sub_agents(log, loaded.trajectory)]))
    except DataError:  # Its message names the path.
        raise DataError(f"the trajectory {name!r} cannot be read") from None
    if not shown.rows:
        raise DataError(f"the trajectory {name!r} cannot be shown")
    rows = tuple(replace(row, file=Path(row.file).name, run="") for row in shown.rows)
    return viewer.page_data(replace(shown, rows=rows, problems=()))


def _sub_agents(log: FeedbackLog, trajectory: Trajectory) -> Iterator[Path]:
    """Yield the files of the sub-agents that the trajectory started, if they are there."""
    for event in trajectory.events:
        for sub_agent in event.delegated if isinstance(event, ToolResult) else ():
            with suppress(TrajectoryError):
                log.header(sub_agent.id)
                yield log.folder / f"{sub_agent.id}.jsonl"
