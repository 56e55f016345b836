"""A local HTTP server whose answers a test writes byte by byte."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Response:
    """A response. A body that is an iterable is sent as it comes, without a length; other values are sent as JSON."""

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Server:
    """Answers with the responses in turn; the last one is repeated. `requests` has path, headers and JSON body."""

    responses: list[Response | Callable[[Mapping[str, Any]], Response]]
    port: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)

    def url(self, host: str = "127.0.0.1") -> str:
        """Return the address. `localhost` is another host than `127.0.0.1`, and the same server."""
        return f"http://{host}:{self.port}"

    def respond(self, body: Mapping[str, Any]) -> Response:
        response = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
        return response(body) if callable(response) else response


@contextmanager
def http_server(*responses: Response | Callable[[Mapping[str, Any]], Response]) -> Iterator[Server]:
    """Yield a server on a free port of this machine."""
    server = Server(list(responses))
    with serving(_handler(server)) as server.port:
        yield server


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """Serve with this handler on a free port until the block ends, and yield the port."""
    listener = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    listener.daemon_threads = True
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield listener.server_port
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def log_message(self, *args: object) -> None:
            """Silent: a test's output is for failures."""

        def _answer(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
            headers = {name.lower(): value for name, value in self.headers.items()}
            server.requests.append({"path": self.path, "headers": headers, "body": body})
            response = server.respond(body)
            pieces = _pieces(response.body)
            self.send_response(response.status)
            length = {"Content-Length": str(len(pieces[0]))} if isinstance(pieces, list) else {}
            for name, value in {"Content-Type": "application/json", **length, **response.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # a client may hang up on a body that is too large
                for piece in pieces:
                    self.wfile.write(piece)

    return Handler


def _pieces(body: Any) -> list[bytes] | Iterable[bytes]:
    if isinstance(body, bytes):
        return [body]
    return body if isinstance(body, Iterator) else [json.dumps(body).encode()]
