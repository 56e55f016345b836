"""A chat server that plays a script, for tests without a model.

You may use it in your own tests. It uses only the standard library, and runs in one thread on one port.

    steps = [says(calls=[("search_corpus", {"query": "comets"})]), fails(429, headers={"Retry-After": "0"}), rank_seen]
    with ScriptedServer(steps) as server:
        SearchAgent(corpus, ChatPolicy("scripted", base_url=server.url)).search("which comet?")
    assert len(server.requests) == 3

It answers `/v1/chat/completions` and Anthropic's `/v1/messages`, both streamed on request. It also answers `/v1/models`
and, if you give a function for it, `/v1/completions`. It checks only the model's name in a request.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

STOP_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
"""A chat completion's finish reasons in the words of the API. Any other one is sent as it is."""
PIECE = 12
"""Characters in a streamed event."""


def anthropic_message(message: Mapping[str, Any], model: str, finish: str, usage: Mapping[str, Any] | None) -> Any:
    """Return the body of a whole message.

    The `blocks` of a chat message are sent unchanged, before its text and its calls.
    """
    texts = [{"type": "text", "text": message["content"], "citations": None}] if message.get("content") else []
    uses = [_tool_use(call) for call in message.get("tool_calls", ())]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [*message.get("blocks", ()), *texts, *uses],
        "stop_reason": STOP_REASONS.get(finish, finish),
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0} if usage is None else usage,
    }


def anthropic_events(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a stream's events.

    Each event has a name, because the official client ignores events without one.
    """
    for event in _message_events(message):
        yield f"event: {event['type']}\ndata: {json.dumps(event)}"


def _message_events(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the message, its blocks in pieces, the stop reason, and the end."""
    usage = {**message["usage"], "output_tokens": 0}
    start = {**message, "content": [], "stop_reason": None, "usage": usage}
    yield {"type": "message_start", "message": start}
    for index, block in enumerate(message["content"]):
        empty, deltas = _pieces(block)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "ping"}
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": message["usage"]}
    yield {"type": "message_stop"}


def _tool_use(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the call as a block.

    In a whole message, the input is an object. Broken JSON can only arrive in a stream.
    """
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    try:
        value = json.loads(arguments)
    except ValueError:
        value = arguments
    return {"type": "tool_use", "id": f"toolu_{call['id']}", "name": name, "input": value}


def _pieces(block: Mapping[str, Any]) -> tuple[dict[str, Any], Sequence[Mapping[str, Any]]]:
    """Return the first form of a block in a stream, and the deltas that complete the block."""
    kind = block["type"]
    if kind == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in cut(block["text"])]
    if kind == "thinking":
        thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in cut(block["thinking"])]
        return {**block, "thinking": "", "signature": ""}, [
            *thoughts,
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    if kind == "tool_use":
        text = block["input"] if isinstance(block["input"], str) else json.dumps(block["input"])
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in cut(text)]
    return dict(block), ()


def cut(text: str) -> Iterator[str]:
    """Cut the text into pieces, as a stream sends them."""
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))


MESSAGES_PATH = "/v1/messages"
_DOCUMENT_ID = re.compile(r"^# DOCUMENT ID: (\S+)", re.M)


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """The server's response to one request. `delay` is in seconds. If `cut` is true, the connection breaks halfway.

    If the status is not 200, `error` is the error message. `body` replaces the whole response body.
    """

    status: int = 200
    message: Mapping[str, Any] = field(default_factory=dict)
    finish: str = "stop"
    usage: Mapping[str, Any] | None = None
    error: str = ""
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    cut: bool = False


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request as received. `headers` have lower-case names."""

    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: Mapping[str, Any]


Step = ScriptedAnswer | Callable[[Mapping[str, Any]], ScriptedAnswer]
"""An answer, or a function from a request's body to an answer."""


def says(
    text: str = "",
    *,
    calls: Sequence[tuple[str, Any]] = (),
    reasoning: str = "",
    reasoning_field: str = "reasoning",
    blocks: Sequence[Mapping[str, Any]] = (),
    usage: Mapping[str, Any] | None = None,
    finish: str = "",
    delay: float = 0.0,
    cut: bool = False,
) -> ScriptedAnswer:
    """Return a message of the model. A call is (name, arguments). The arguments are a mapping or raw text.

    `blocks` are thoughts before the text. Only Anthropic's API sends them.
    """
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if blocks:
        message["blocks"] = blocks
    if reasoning:
        message[reasoning_field] = reasoning
    if calls:
        message["tool_calls"] = [_call(index, name, arguments) for index, (name, arguments) in enumerate(calls)]
    return ScriptedAnswer(
        message=message, finish=finish or ("tool_calls" if calls else "stop"), usage=usage, delay=delay, cut=cut
    )


def fails(
    status: int, error: Any = "", *, headers: Mapping[str, str] | None = None, delay: float = 0.0
) -> ScriptedAnswer:
    """Return an error response. `error` is its message, or the whole JSON body."""
    content = {"error": error} if isinstance(error, str) else {"body": error}
    return ScriptedAnswer(status=status, headers=headers or {}, delay=delay, **content)


def rank_seen(body: Mapping[str, Any]) -> ScriptedAnswer:
    """Return a final ranking of every chunk in the request's messages, in their order.

    The server plays it after the last step.
    """
    texts = [_seen(message.get("content")) for message in body["messages"] if message["role"] in ("tool", "user")]
    ids = dict.fromkeys(_DOCUMENT_ID.findall("\n".join(texts)))
    return says("\n".join(f"<Document id={item}><Justification>seen</Justification></Document>" for item in ids))


class ScriptedServer:
    """A server that answers each request with the next of the `steps`.

    After the last step, it plays `rank_seen`. Use it in a `with` statement.

    `completions` answers `/v1/completions`. It is a function that takes the body and returns a status and an answer.
    `/v1/models` reports `model_length` as vLLM does. If there is a `key`, the server refuses requests without it. To
    restart the server on the same port, call `stop` and then `start`.
    """

    def __init__(
        self,
        steps: Sequence[Step] = (),
        *,
        models: Sequence[str] = ("scripted",),
        model_length: int | None = None,
        completions: Callable[[Mapping[str, Any]], tuple[int, Any]] | None = None,
        key: str | None = None,
    ) -> None:
        self.models = tuple(models)
        self.model_length = model_length
        self.completions = completions
        self._key = key
        self.requests: list[ReceivedRequest] = []
        self.at_once = 0
        """Maximum number of chat requests that were being answered at the same time."""
        self._steps = iter(steps)
        self._lock = threading.Lock()
        self._running = 0
        self._stopping = threading.Event()
        self._port = 0
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """The address to pass as `base_url`."""
        return f"http://127.0.0.1:{self._port}/v1"

    def start(self) -> None:
        """Start listening. After a `stop`, the port is the same as before."""
        self._stopping.clear()
        self._server = _Listener(("127.0.0.1", self._port), self._handler())
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True, name="scripted-server").start()

    def stop(self) -> None:
        """Stop listening, and cut off unfinished answers."""
        self._stopping.set()
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def play(self, *steps: Step) -> None:
        """Replace the remaining steps."""
        self._steps = iter(steps)

    def chat_bodies(self) -> list[Mapping[str, Any]]:
        """Return the bodies of all chat requests so far, in either API."""
        return [request.body for request in self.requests if request.path.endswith(("/chat/completions", "/messages"))]

    def answer(self, body: Mapping[str, Any]) -> ScriptedAnswer:
        """Return the answer of the next step when its delay is over."""
        if body.get("model") not in self.models:
            return fails(404, {"error": {"message": f"The model `{body.get('model')}` does not exist.", "code": 404}})
        with self._lock:
            self._running += 1
            self.at_once = max(self.at_once, self._running)
            step = next(self._steps, rank_seen)
        try:
            answer = step(body) if callable(step) else step
            stopped = answer.delay > 0 and self._stopping.wait(answer.delay)
            return replace(answer, cut=True) if stopped else answer
        finally:
            with self._lock:
                self._running -= 1

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Return True if the request has the key, or if no key is needed."""
        keys = (headers.get("authorization", "").removeprefix("Bearer "), headers.get("x-api-key"))
        return self._key is None or self._key in keys

    def listed(self) -> dict[str, Any]:
        """Return the response to `/v1/models`."""
        length = {} if self.model_length is None else {"max_model_len": self.model_length}
        return {"object": "list", "data": [{"id": name, "object": "model", **length} for name in self.models]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        script = self

        class Handler(_Handler):
            server_script = script

        return Handler


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect."""


class _Handler(BaseHTTPRequestHandler):
    server_script: ScriptedServer
    protocol_version = "HTTP/1.1"
    # Head and body are sent together and at once: two small packets would wait 40 ms for each other.
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        if not self._admit({}):
            return
        if self.path == "/v1/models":
            self._send(200, self.server_script.listed())
        else:
            self._send(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        script = self.server_script
        if not self._admit(body):
            return
        if self.path == "/v1/completions" and script.completions is not None:
            self._send(*script.completions(body))
        elif self.path not in ("/v1/chat/completions", MESSAGES_PATH):
            self._send(404, {"detail": "Not Found"})
        else:
            self._answer(script.answer(body), body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def _admit(self, body: Mapping[str, Any]) -> bool:
        """Record the request. If it lacks the key, refuse it."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server_script.requests.append(ReceivedRequest(self.path, headers, body))
        if not self.server_script.admits(headers):
            self._send(401, {"error": {"message": "Incorrect API key provided."}})
            return False
        return True

    def _answer(self, answer: ScriptedAnswer, body: Mapping[str, Any]) -> None:
        if answer.status != 200 or answer.body is not None:
            content = {"error": {"message": answer.error}} if answer.body is None else answer.body
            self._send(answer.status, content, answer.headers)
        elif self.path == MESSAGES_PATH:
            message = anthropic_message(answer.message, body["model"], answer.finish, answer.usage)
            if body.get("stream"):
                self._stream(answer, anthropic_events(message))
            else:
                self._send(200, message, cut=answer.cut)
        elif body.get("stream"):
            self._stream(answer, _events(answer, body))
        else:
            choice = {"index": 0, "message": answer.message, "finish_reason": answer.finish}
            usage = {} if answer.usage is None else {"usage": answer.usage}
            completion = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": body["model"]}
            self._send(200, {**completion, "choices": [choice], **usage}, cut=answer.cut)

    def _send(self, status: int, value: Any, headers: Mapping[str, str] | None = None, *, cut: bool = False) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if cut else data)
        self.close_connection = cut

    def _stream(self, answer: ScriptedAnswer, events: Iterator[str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        lines = list(events)
        for line in lines[: len(lines) // 2] if answer.cut else lines:
            self.wfile.write(f"{line}\n\n".encode())
            self.wfile.flush()


def _call(index: int, name: str, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": text}}


def _events(answer: ScriptedAnswer, body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the events of a streamed message.

    Texts and arguments come in pieces, then the reason, the usage, and the end.
    """
    for delta in _deltas(answer.message):
        yield _data({"model": body["model"], "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _data({"choices": [{"index": 0, "delta": {}, "finish_reason": answer.finish}]})
    if answer.usage is not None and body.get("stream_options", {}).get("include_usage"):
        yield _data({"choices": [], "usage": answer.usage})
    yield "data: [DONE]"


def _data(event: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(event)}"


def _deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for name, value in message.items():
        if name not in ("role", "tool_calls"):
            yield from ({name: piece} for piece in cut(value))
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        yield {"tool_calls": [{**call, "index": index, "function": {"name": function["name"], "arguments": ""}}]}
        for piece in cut(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _seen(content: Any) -> str:
    """Return the text of a message. Its content is text or a list of blocks."""
    if isinstance(content, list):
        return "\n".join(_seen(block.get("text") or block.get("content")) for block in content)
    return str(content)
