"""A chat server that plays a script: for tests without a model, also yours. Standard library only; a thread, one port.

    steps = [says(calls=[("search_corpus", {"query": "comets"})]), fails(429, headers={"Retry-After": "0"}), rank_seen]
    with ScriptedServer(steps) as server:
        SearchAgent(corpus, ChatPolicy("scripted", base_url=server.url)).search("which comet?")
    assert len(server.requests) == 3

It speaks `/v1/chat/completions` (streamed where asked), `/v1/models` and, where given, `/v1/completions`. It checks
nothing about a request but its model; it is no model.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

PIECE = 12
"""Characters a streamed event carries."""
_SEEN = re.compile(r"^# DOCUMENT ID: (\S+)", re.M)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server does with one request. `delay` is in seconds; `cut` breaks the connection half-way.

    `error` is the words of a status other than 200; `body` is sent in place of all that, as it stands.
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
class Request:
    """A request as it came. `headers` have lower-case names."""

    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: Mapping[str, Any]


Step = Answer | Callable[[Mapping[str, Any]], Answer]
"""An answer, or a function from the request's body to one."""


def says(
    text: str = "",
    *,
    calls: Sequence[tuple[str, Any]] = (),
    reasoning: str = "",
    reasoning_field: str = "reasoning",
    usage: Mapping[str, Any] | None = None,
    finish: str = "",
    delay: float = 0.0,
    cut: bool = False,
) -> Answer:
    """A message of the model; a call is (name, arguments), arguments a mapping or the raw text."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if reasoning:
        message[reasoning_field] = reasoning
    if calls:
        message["tool_calls"] = [_call(index, name, arguments) for index, (name, arguments) in enumerate(calls)]
    return Answer(
        message=message, finish=finish or ("tool_calls" if calls else "stop"), usage=usage, delay=delay, cut=cut
    )


def fails(status: int, error: Any = "", *, headers: Mapping[str, str] | None = None, delay: float = 0.0) -> Answer:
    """An error; `error` is its message, or the whole JSON body."""
    told = {"error": error} if isinstance(error, str) else {"body": error}
    return Answer(status=status, headers=headers or {}, delay=delay, **told)


def rank_seen(body: Mapping[str, Any]) -> Answer:
    """Ends with every chunk that the request's messages show, in their order: what is played after the last step."""
    texts = [str(message.get("content")) for message in body["messages"] if message["role"] in ("tool", "user")]
    ids = dict.fromkeys(_SEEN.findall("\n".join(texts)))
    return says("\n".join(f"<Document id={item}><Justification>seen</Justification></Document>" for item in ids))


class ScriptedServer:
    """Plays `steps` in the order in which requests come; after the last one, `rank_seen`. Use it with `with`.

    `completions` answers `/v1/completions`: a function from the body to (status, answer). `model_length` is told in
    `/v1/models` as vLLM does. With a `key`, requests without it are refused. `stop` and then `start` is a restart on
    the same port.
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
        self.requests: list[Request] = []
        self.at_once = 0
        """The most chat requests that were being answered at the same time."""
        self._steps = iter(steps)
        self._lock = threading.Lock()
        self._running = 0
        self._stopping = threading.Event()
        self._port = 0
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """The address to give as `base_url`."""
        return f"http://127.0.0.1:{self._port}/v1"

    def start(self) -> None:
        """Begins to listen, on the port it had before if it had one."""
        self._stopping.clear()
        self._server = _Listener(("127.0.0.1", self._port), self._handler())
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True, name="scripted-server").start()

    def stop(self) -> None:
        """Stops listening; answers still under way are broken off."""
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
        """Goes on with these steps instead of those that are left."""
        self._steps = iter(steps)

    def chat_bodies(self) -> list[Mapping[str, Any]]:
        """The bodies of the chat requests so far."""
        return [request.body for request in self.requests if request.path.endswith("/chat/completions")]

    def answer(self, body: Mapping[str, Any]) -> Answer:
        """The next step's answer, once its delay is over."""
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
        """Whether a request brings the key, where one is wanted."""
        return self._key is None or headers.get("authorization") == f"Bearer {self._key}"

    def listed(self) -> dict[str, Any]:
        """The answer of `/v1/models`."""
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
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    server_script: ScriptedServer
    protocol_version = "HTTP/1.1"
    # Head and body leave together and at once: two small packets would wait 40 ms for each other.
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        if not self._noted({}):
            return
        found = self.path == "/v1/models"
        self._send(200 if found else 404, self.server_script.listed() if found else {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        script = self.server_script
        if not self._noted(body):
            return
        if self.path == "/v1/completions" and script.completions is not None:
            self._send(*script.completions(body))
        elif self.path != "/v1/chat/completions":
            self._send(404, {"detail": "Not Found"})
        else:
            self._answer(script.answer(body), body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: a test's output is its own."""

    def _noted(self, body: Mapping[str, Any]) -> bool:
        """Records the request; refuses it, and says so, where it lacks the key."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server_script.requests.append(Request(self.path, headers, body))
        if not self.server_script.admits(headers):
            self._send(401, {"error": {"message": "Incorrect API key provided."}})
            return False
        return True

    def _answer(self, answer: Answer, body: Mapping[str, Any]) -> None:
        if answer.status != 200 or answer.body is not None:
            told = {"error": {"message": answer.error}} if answer.body is None else answer.body
            self._send(answer.status, told, answer.headers)
        elif body.get("stream"):
            self._stream(answer, body)
        else:
            choice = {"index": 0, "message": answer.message, "finish_reason": answer.finish}
            usage = {} if answer.usage is None else {"usage": answer.usage}
            self._send(200, {"model": body["model"], "choices": [choice], **usage}, cut=answer.cut)

    def _send(self, status: int, value: Any, headers: Mapping[str, str] | None = None, *, cut: bool = False) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if cut else data)
        self.close_connection = cut

    def _stream(self, answer: Answer, body: Mapping[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        lines = list(_events(answer, body))
        for line in lines[: len(lines) // 2] if answer.cut else lines:
            self.wfile.write(f"data: {line}\n\n".encode())
            self.wfile.flush()


def _call(index: int, name: str, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": text}}


def _events(answer: Answer, body: Mapping[str, Any]) -> Iterator[str]:
    """The events of a streamed message: texts and arguments in pieces, then the reason, the usage, and the end."""
    for delta in _deltas(answer.message):
        yield json.dumps({"model": body["model"], "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": answer.finish}]})
    if answer.usage is not None and body.get("stream_options", {}).get("include_usage"):
        yield json.dumps({"choices": [], "usage": answer.usage})
    yield "[DONE]"


def _deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for name, value in message.items():
        if name not in ("role", "tool_calls"):
            yield from ({name: piece} for piece in _pieces(value))
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        yield {"tool_calls": [{**call, "index": index, "function": {"name": function["name"], "arguments": ""}}]}
        for piece in _pieces(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))
