"""HTTP as bytes: requests that no client library would send, and an upstream that answers with any bytes."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from context_agent.integrations.conversation_pruners import ConversationPruners
from context_agent.integrations.server.proxy import Proxy, proxy_application
from context_agent.integrations.server.settings import Settings
from context_agent.pruning.pruner import ContextPruner
from tests.support.servers import listening

PATIENCE = 20.0
"""Seconds that a server may take to answer or to close."""
SILENCE = 0.5
"""Seconds after an answer in which the server would have closed the connection."""


@dataclass
class RawUpstream:
    """A server that sends the same bytes to every request: its address, and what it received on each connection."""

    reply: bytes
    keeps_open: bool = False
    url: str = ""
    requests: list[bytes] = field(default_factory=list)

    def targets(self) -> list[bytes]:
        """Return the targets of the requests."""
        return [request.split(b" ", 2)[1] for request in self.requests]


@contextmanager
def raw_upstream(
    reply: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", *, keeps_open: bool = False
) -> Iterator[RawUpstream]:
    """Yield a server of raw bytes on a free port, until the block ends.

    It answers one request of a connection. Unless it `keeps_open`, it then closes the connection. A reply should then
    say so: otherwise a client may send its next request on a connection that is closing.
    """
    server = RawUpstream(reply, keeps_open)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=_accept, args=(listener, server), daemon=True)
        thread.start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE)


def _accept(listener: socket.socket, server: RawUpstream) -> None:
    with ExitStack() as kept:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with ExitStack() as closing, suppress(OSError):
                (kept if server.keeps_open else closing).enter_context(connection)
                connection.settimeout(PATIENCE)
                server.requests.append(_read_request(connection))
                connection.sendall(server.reply)


def _read_request(connection: socket.socket) -> bytes:
    content = b""
    while b"\r\n\r\n" not in content:
        if not (part := connection.recv(65_536)):
            return content
        content += part
    head, _, body = content.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head, re.I)
    while length is not None and len(body) < int(length[1]) and (part := connection.recv(65_536)):
        body += part
    return head + b"\r\n\r\n" + body


@contextmanager
def proxy_before(
    upstream: str, hosts: Sequence[str] = ("127.0.0.1", "localhost", "[::1]"), origins: Sequence[str] = ()
) -> Iterator[str]:
    """Run a proxy before this upstream, with the names that `ctx1 proxy` allows on loopback, and yield its address."""
    settings = Settings(max_body=1_000_000, grace=1.0, hosts=tuple(hosts), origins=tuple(origins))
    pruners = ConversationPruners(lambda: ContextPruner(300, strategy="bm25"))
    with listening(Proxy(upstream, pruners, settings, pause=PATIENCE), proxy_application, dated=False) as url:
        yield url


def exchange(url: str, request: bytes) -> tuple[bytes, bool]:
    """Send the bytes; return what comes back until a moment of silence, and whether the server closed."""
    address = urlsplit(url)
    content = bytearray()
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=PATIENCE) as connection:
        try:
            connection.sendall(request)
            while part := connection.recv(65_536):
                content += part
                connection.settimeout(SILENCE)
        except TimeoutError:
            assert content, "the server neither answered nor closed"
            return bytes(content), False
        except ConnectionError:
            pass
    return bytes(content), True


def status(content: bytes) -> int:
    """Return the status of an answer in bytes. Without one, return 0."""
    match = re.match(rb"HTTP/1\.[01] (\d{3}) ", content)
    return int(match[1]) if match else 0


def get(target: bytes, *fields: bytes, method: bytes = b"GET", host: bytes = b"127.0.0.1") -> bytes:
    """Return a request without a body, as bytes."""
    return b"\r\n".join([method + b" " + target + b" HTTP/1.1", b"Host: " + host, *fields, b"", b""])
