"""A model server for tests. It records requests byte by byte and answers as the test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from tests.support.http_server import serving

Headers = list[tuple[str, str]]


@dataclass(frozen=True)
class Received:
    """A request as it arrived."""

    method: str
    path: str
    headers: Headers
    body: bytes


@dataclass(frozen=True)
class Reply:
    """An answer. If the body is an iterator, its items are sent as chunks."""

    body: bytes | Iterator[bytes] = b"{}"
    status: int = 200
    headers: Headers = field(default_factory=list)


@dataclass
class Upstream:
    """The server: its address, the requests it received, and how it answers."""

    answer: Callable[[Received], Reply]
    url: str = ""
    requests: list[Received] = field(default_factory=list)


@contextmanager
def upstream(answer: Callable[[Received], Reply] = lambda _: Reply()) -> Iterator[Upstream]:
    """Run the server until the block ends."""
    server = Upstream(answer)
    with serving(_handler(server)) as port:
        server.url = f"http://127.0.0.1:{port}"
        yield server


def _handler(server: Upstream) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            request = Received(self.command, self.path, self.headers.items(), body)
            server.requests.append(request)
            reply = server.answer(request)
            self.send_response_only(reply.status)
            for name, value in reply.headers:
                self.send_header(name, value)
            if isinstance(reply.body, bytes):
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)
            else:
                self._stream(reply.body)

        def log_message(self, *args: object) -> None:
            """Log nothing, to keep the output of tests readable."""

        def _stream(self, chunks: Iterator[bytes]) -> None:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.close_connection = True
            with suppress(ConnectionError):
                for chunk in chunks:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                self.wfile.write(b"0\r\n\r\n")

    return Handler
