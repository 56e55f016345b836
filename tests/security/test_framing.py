"""Where a request and a response end: no message can be read in two ways by two servers on its way."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from context_agent import MemoryCorpus, SearchAgent
from context_agent.integrations.mcp.serving import application as mcp_application
from context_agent.integrations.server.connections import MAX_HEADER
from context_agent.integrations.server.service import Service
from context_agent.integrations.server.settings import Settings
from tests.support.raw_http import exchange, get, proxy_before, raw_upstream, status
from tests.support.served_index import DOCUMENTS
from tests.support.servers import listening, one_search, running

PATHS = {"serve": b"/v1/prune", "mcp": b"/mcp", "proxy": b"/v1/files"}
BODY = b'{"messages":[]}'
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
SECOND = b"GET /smuggled HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture(scope="module", params=list(PATHS))
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, bytes, list[bytes]]]:
    """Each server in turn: its address, a path that takes a POST, and what reached the proxy's upstream."""
    path = PATHS[request.param]
    if request.param == "proxy":
        with raw_upstream() as upstream, proxy_before(upstream.url) as url:
            yield url, path, upstream.requests
        return
    with SearchAgent(MemoryCorpus(DOCUMENTS), one_search()) as agent:
        if request.param == "serve":
            with running(agent) as server:
                yield server.url, path, []
        else:
            service = Service.of(agent, Settings(grace=1.0))
            with listening(service, mcp_application) as url:
                yield url, path, []


def post(path: bytes, *fields: bytes, version: bytes = b"1.1") -> bytes:
    kinds = (b"Content-Type: application/json", b"Accept: application/json, text/event-stream")
    head = [b"POST %b HTTP/%b" % (path, version), b"Host: 127.0.0.1", *kinds, *fields, b"", b""]
    return b"\r\n".join(head)


AMBIGUOUS: dict[str, tuple[tuple[bytes, ...], bytes]] = {
    "both lengths": ((b"Content-Length: 4", b"Transfer-Encoding: chunked"), CHUNKED),
    "both lengths, the other order": ((b"Transfer-Encoding: chunked", b"Content-Length: 99"), CHUNKED),
    "a length of nothing and chunks": ((b"Content-Length: 0", b"Transfer-Encoding: chunked"), CHUNKED),
    "two different lengths": ((b"Content-Length: 4", b"Content-Length: 15"), BODY),
    "two lengths in one field": ((b"Content-Length: 4, 15",), BODY),
    "a signed length": ((b"Content-Length: +15",), BODY),
    "a negative length": ((b"Content-Length: -1",), BODY),
    "a length in hexadecimal": ((b"Content-Length: 0xf",), BODY),
    "a length with an underscore": ((b"Content-Length: 1_5",), BODY),
    "an empty length": ((b"Content-Length:",), BODY),
    "a length of many digits": ((b"Content-Length: " + b"9" * 5_000,), BODY),
    "an unknown coding": ((b"Transfer-Encoding: identity",), BODY),
    "two codings": ((b"Transfer-Encoding: gzip, chunked",), CHUNKED),
    "chunked twice": ((b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), CHUNKED),
    "a coding with a vertical tab": ((b"Transfer-Encoding: \x0bchunked",), CHUNKED),
    "a coding with a suffix": ((b"Transfer-Encoding: chunked;x",), CHUNKED),
    "a space before the colon": ((b"Transfer-Encoding : chunked",), CHUNKED),
    "a length with a space before the colon": ((b"Content-Length : 15",), BODY),
    "a name with a control character": ((b"Content-Length\x0b: 15",), BODY),
    "a bare carriage return in a value": ((b"X: a\rContent-Length: 15",), BODY),
    "a zero byte in a value": ((b"X: a\x00b", b"Content-Length: 15"), BODY),
    "a field without a colon": ((b"nonsense", b"Content-Length: 15"), BODY),
    "a line of a zero byte": ((b"\x00",), BODY),
    "a second host": ((b"Host: evil.example", b"Content-Length: 15"), BODY),
    "a chunk of a negative size": ((b"Transfer-Encoding: chunked",), b"-1\r\n\r\n0\r\n\r\n"),
    "a chunk of too many digits": ((b"Transfer-Encoding: chunked",), b"f" * 30 + b"\r\n"),
    "a chunk in 0x": ((b"Transfer-Encoding: chunked",), b"0xf\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "a chunk longer than its size": ((b"Transfer-Encoding: chunked",), b"4\r\n" + BODY + b"\r\n0\r\n\r\n"),
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_an_ambiguous_request_is_refused_and_its_connection_closed(
    server: tuple[str, bytes, list[bytes]], name: str
) -> None:
    url, path, requests = server
    requests.clear()
    fields, body = AMBIGUOUS[name]
    content, closed = exchange(url, post(path, *fields) + body + SECOND)
    assert status(content) == 400, content
    assert closed
    assert content.count(b"HTTP/1.1 ") == 1
    assert requests == []


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        get(b"/health").replace(b"HTTP/1.1", b"HTTP/2.0"),
        get(b"/health").replace(b"HTTP/1.1", b"HTTP/9.9"),
        get(b"/health").replace(b"HTTP/1.1", b"HTTP/0.9"),
        b"GET /health\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600),
        post(b"/v1/prune", b"Transfer-Encoding: chunked", version=b"1.0") + CHUNKED,
    ],
    ids=["preface", "2.0", "9.9", "0.9", "no version", "TLS", "chunks in 1.0"],
)
def test_other_versions_and_protocols_are_refused(server: tuple[str, bytes, list[bytes]], request_bytes: bytes) -> None:
    content, closed = exchange(server[0], request_bytes)
    assert (status(content), closed) == (400, True)


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ((b"Content-Length: 15",), BODY),
        ((b"Content-Length: 15", b"Content-Length: 15"), BODY),
        ((b"Transfer-Encoding: chunked",), CHUNKED),
        ((b"Transfer-Encoding: Chunked",), CHUNKED),
        ((b"Transfer-Encoding: chunked",), b"f;name=value\r\n" + BODY + b"\r\n0\r\nX-Context-Pruned: forged\r\n\r\n"),
        ((b"X: a\r\n folded", b"Content-Length: 15"), BODY),
        ((b"Expect: 100-continue", b"Content-Length: 15"), BODY),
        ((b"Transfer_Encoding: chunked", b"Content_Length: 3", b"Content-Length: 15"), BODY),
    ],
    ids=["length", "length twice", "chunks", "case", "extension and trailer", "folded", "expect", "underscores"],
)
def test_a_request_with_one_end_is_answered_and_the_connection_goes_on(
    server: tuple[str, bytes, list[bytes]], fields: tuple[bytes, ...], body: bytes
) -> None:
    url, path, requests = server
    requests.clear()
    content, _ = exchange(url, (post(path, *fields) + body) * 2)
    statuses = [int(part[:3]) for part in content.split(b"HTTP/1.1 ")[1:]]
    final = [code for code in statuses if code != 100]
    assert len(final) == 2, content
    assert all(code < 500 for code in final)
    for request in requests:  # what the proxy sends has one end and one spelling, whatever came
        head, _, sent = request.partition(b"\r\n\r\n")
        assert sent == BODY
        assert head.lower().count(b"content-length: 15") == 1
        # Some servers read an underscore in a name as a hyphen.
        assert b"transfer-encoding" not in head.lower().replace(b"_", b"-")
        assert head.lower().replace(b"_", b"-").count(b"content-length") == 1
        assert b"forged" not in request


def test_an_upgrade_is_answered_as_what_it_asks_for(server: tuple[str, bytes, list[bytes]]) -> None:
    fields = (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Key: eA==", b"Sec-WebSocket-Version: 13")
    content, _ = exchange(server[0], get(b"/health", *fields))
    assert status(content) in (200, 405, 426)
    h2c = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__")
    content, _ = exchange(server[0], get(b"/health", *h2c))
    assert status(content) in (200, 405)
    assert all(b"upgrade" not in request.lower() for request in server[2])


@pytest.mark.parametrize("count", [1, 4_000])
def test_a_header_of_64_kilobytes_is_refused(server: tuple[str, bytes, list[bytes]], count: int) -> None:
    size = 65_536 // count
    fields = [b"X-%d: " % number + b"x" * max(1, size - 10) for number in range(count)]
    content, closed = exchange(server[0], get(b"/health", *fields))
    assert (status(content), closed) == (431, True)
    assert b"%s bytes" % f"{MAX_HEADER:,}".encode() in content


def test_clients_that_stop_in_the_middle_leave_the_server_well(server: tuple[str, bytes, list[bytes]]) -> None:
    url, path, _ = server
    whole = post(path, b"Transfer-Encoding: chunked") + CHUNKED
    threads = [
        threading.Thread(target=_abandoned, args=(url, whole[:end])) for end in range(1, len(whole), len(whole) // 12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    content, _ = exchange(url, post(path, b"Content-Length: 15", b"Connection: close") + BODY)
    assert 200 <= status(content) < 500


def _abandoned(url: str, part: bytes) -> None:
    address = urlsplit(url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=10) as connection:
        connection.sendall(part)
