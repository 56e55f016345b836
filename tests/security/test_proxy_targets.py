"""Paths through the proxy: none leaves the upstream's base path, in any spelling; sound ones arrive byte for byte."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from context_agent.integrations.server.request_targets import MAX_ENCODINGS, path_fault
from tests.support.raw_http import RawUpstream, exchange, get, proxy_before, raw_upstream, status

LEADING_OUT = [
    b"/../admin",
    b"/v1/../../admin",
    b"/%2e%2e/%2e%2e/admin",
    b"/%2E%2e/admin",
    b"/.%2e/admin",
    b"/%2e./admin",
    b"/..%2fadmin",
    b"/..%2Fadmin",
    b"/v1%2f..%2f..%2fadmin",
    b"/..\\..\\admin",
    b"/..%5c..%5cadmin",
    b"/v1\\..\\..\\admin",
    b"/%252e%252e/admin",
    b"/%25252e%25252e/admin",
    b"/..%252fadmin",
    b"/..;/admin",
    b"/..;x=1/admin",
    b"/%2e%2e;/admin",
    b"/..%3b/admin",
    b"/..%3f/admin",
    b"/..%23/admin",
    b"/..::$DATA/admin",
    b"/..%00/admin",
    b"/.%00./admin",
    b"/%00/admin",
    b"/..%09/admin",
    b"/.%09./admin",
    b"/..%20/admin",
    b"/..%20%2fadmin",
    b"/.%0d./admin",
    b"/v1%0d%0aHost:%20evil/x",
    b"/v1%7f",
    b"/v1%1b[2J",
    b"/v1%c2%85x",
    b"/.../admin",
    b"/....//admin",
    b"/%c0%ae%c0%ae/admin",
    b"/..%c0%afadmin",
    b"/..%c1%9cadmin",
    b"/%e0%80%ae%e0%80%ae/admin",
    b"/%f0%80%80%ae./admin",
    b"/%u002e%u002e/admin",
    b"/..%u2215admin",
    b"/..%uff0fadmin",
    b"/%EF%BC%8E%EF%BC%8E/admin",
    b"/..%EF%BC%8Fadmin",
    b"/..%EF%BC%BCadmin",
    b"/%E2%80%A4%E2%80%A4/admin",
    b"/%E2%80%A5/admin",
    b"/%E2%80%A6/admin",
    b"/..%E2%88%95admin",
    b"/..%E2%81%84admin",
    b"/..%E2%88%96admin",
    b"/%E3%80%82%E3%80%82/admin",
    b"/.%E2%80%8B./admin",
    b"/..%EF%BB%BF/admin",
    b"/.%C2%AD./admin",
    b"/%EF%BC%852e%EF%BC%852e/admin",
    b"//evil.example/x",
    b"//",
    b"/\\evil.example/x",
    b"\\\\evil.example\\x",
    b"/%2fevil.example/x",
    b"/%5cevil.example",
    b"/.//evil.example",
    b"/;/evil.example",
    b"/%20/evil.example",
    b"/x#/../admin",
    b"/#@evil.example",
    b"http://evil.example/v1/models",
    b"http://127.0.0.1@evil.example/",
    b"HTTPS://evil.example/",
    b"file:///etc/passwd",
    b"gopher://127.0.0.1:6379/_x",
    b"*",
    b"v1/models",
    b"@evil.example/x",
    b":80/x",
    b".evil.example/x",
    b"%2fadmin",
    b"/%2525252525/x",
]
SOUND = [
    b"/",
    b"/v1/models",
    b"/v1/models/a%2Fb",
    b"/v1/embeddings%2Fx/?key=k%20v&b",
    b"/v1//models",
    b"/v1/./models",
    b"/v1/.hidden/..x/x../a..b/v1.2",
    b"/v1/models/a:b@c;d=1,e+f!g~h'(i)*$&",
    b'/v1/"quoted"/<x>/{y}|^`[z]',
    b"/v1/caf%C3%A9/%E6%BC%A2/%F0%9F%98%80",
    b"/v1/caf%E9",
    b"/v1/100%25",
    b"/v1/x%3Fy%23z",
    b"/v1/a%20b",
    b"/v1/x?next=/../..&a=http://evil.example//x#&b=%2e%2e",
    b"/v1/x?a=?b=%zz",
    b"/v1/%zz",
    b"/" + b"x" * 8_000,
]


@pytest.fixture(scope="module", params=[b"", b"/api/v1"], ids=["at the root", "at a path"])
def relayed(request: pytest.FixtureRequest) -> Iterator[tuple[str, RawUpstream, bytes]]:
    """A proxy's address, its upstream, and the base path."""
    with raw_upstream() as upstream, proxy_before(upstream.url + request.param.decode()) as url:
        yield url, upstream, request.param.removesuffix(b"/v1")


@pytest.mark.parametrize("target", LEADING_OUT)
def test_a_path_that_could_lead_out_is_refused(relayed: tuple[str, RawUpstream, bytes], target: bytes) -> None:
    url, upstream, _ = relayed
    upstream.requests.clear()
    content, _ = exchange(url, get(target, b"Connection: close"))
    assert status(content) == 400
    assert b"the path is not relayed: " in content
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("method", "target"), [(b"CONNECT", b"api.example:443"), (b"GET", b"http://api.example/v1/models")]
)
def test_a_client_that_takes_the_proxy_for_a_web_proxy_is_told_so(
    relayed: tuple[str, RawUpstream, bytes], method: bytes, target: bytes
) -> None:
    """The error said to allow the host, with which nothing works either."""
    url, upstream, _ = relayed
    upstream.requests.clear()
    content, closed = exchange(url, get(target, method=method, host=b"api.example"))
    assert (status(content), closed, upstream.requests) == (400, True, [])
    assert b"base URL" in content
    assert b"HTTPS_PROXY" in content


@pytest.mark.parametrize("target", SOUND)
def test_any_other_path_arrives_byte_for_byte(relayed: tuple[str, RawUpstream, bytes], target: bytes) -> None:
    url, upstream, base = relayed
    upstream.requests.clear()
    content, _ = exchange(url, get(target, b"Connection: close"))
    assert status(content) == 200, content
    assert upstream.targets() == [base + target]


@pytest.mark.parametrize("target", [b"/a b", b"/a\tb", b"/a\x00b", b"/\xff", "/．．/x".encode(), b""])
def test_what_is_no_target_is_refused(relayed: tuple[str, RawUpstream, bytes], target: bytes) -> None:
    url, upstream, _ = relayed
    upstream.requests.clear()
    content, closed = exchange(url, get(target))
    assert (status(content), closed, upstream.requests) == (400, True, [])


def test_a_conversation_is_pruned_at_an_encoded_path_too() -> None:
    with raw_upstream() as upstream, proxy_before(upstream.url, hosts=()) as url:
        body = b'{"messages": []}'
        head = (
            b"POST /v1/chat%%2Fcompletions HTTP/1.1\r\nHost: x/y?z\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        )
        content, _ = exchange(url, head % len(body) + body)
        assert status(content) == 200
        assert b"x-context-pruned" in content
        assert upstream.targets() == [b"/v1/chat%2Fcompletions"]


def seconds(path: bytes) -> float:
    times = []
    for _ in range(3):
        started = time.thread_time()
        path_fault(path)
        times.append(time.thread_time() - started)
    return min(times)


@pytest.mark.parametrize(
    "piece", [b"%25", b"/.", b"/;", b"/;x", b".", b"%EF%B7%BA", b"%u2025", b"%C2%AD", b"/..x", b"%252525"]
)
def test_a_path_is_checked_in_linear_time(piece: bytes) -> None:
    small, large = (seconds(b"/v1" + piece * (size // len(piece))) for size in (4_000, 16_000))
    assert large < 12 * small + 0.01
    assert MAX_ENCODINGS < 5
