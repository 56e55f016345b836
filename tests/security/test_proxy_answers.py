"""An upstream's response: only the header fields that make sense reach the client, and its end is beyond doubt."""

from __future__ import annotations

import json

import pytest

from tests.support.raw_http import exchange, get, proxy_before, raw_upstream, status


def relayed(*fields: bytes, body: bytes = b"{}", start: bytes = b"HTTP/1.1 200 OK", request: bytes = b"") -> bytes:
    """What a client gets of an upstream's response, whose connection the proxy closes when it is asked to."""
    with raw_upstream(b"\r\n".join([start, *fields, b"", body])) as upstream, proxy_before(upstream.url) as url:
        content, closed = exchange(url, request or get(b"/v1/models", b"Connection: close"))
    assert closed
    return content


def names(content: bytes) -> list[str]:
    head = content.partition(b"\r\n\r\n")[0].decode("latin-1")
    return [line.partition(":")[0].lower() for line in head.split("\r\n")[1:]]


def test_only_the_proxy_speaks_for_itself() -> None:
    forged = b'{"outcome":"pruned","freed":1}'
    spellings = (b"X-Context-Pruned: ", b"x-context-PRUNED: ", b"X_Context_Pruned: ", b"X-Context-Else: ")
    content = relayed(*(name + forged for name in spellings), b"Content-Length: 2")
    assert [name for name in names(content) if "context" in name] == []
    body = b'{"messages": []}'
    request = get(b"/v1/chat/completions", b"Content-Length: %d" % len(body), b"Connection: close", method=b"POST")
    content = relayed(*(name + forged for name in spellings), b"Content-Length: 2", request=request + body)
    assert [name for name in names(content) if "context" in name] == ["x-context-pruned"]
    (line,) = [line for line in content.split(b"\r\n") if line.startswith(b"x-context-pruned")]
    assert json.loads(line.partition(b": ")[2])["outcome"] != "pruned"


def test_fields_of_the_connection_and_of_the_origin_end_at_the_proxy() -> None:
    content = relayed(
        b"Connection: keep-alive, X-Secret, Set-Cookie2", b"X-Secret: 1", b"Set-Cookie2: a=b", b"Keep-Alive: timeout=9",
        b"Proxy-Authenticate: Basic", b"Proxy-Authentication-Info: x", b"Proxy-Connection: keep-alive", b"TE: trailers",
        b"Trailer: X-Later", b"Upgrade: h2c", b'Alt-Svc: h2="evil.example:443"',
        b"Strict-Transport-Security: max-age=31536000", b"Content-Length: 2", b"X-Kept: yes", b"Set-Cookie: a=1",
    )  # fmt: skip
    passed = set(names(content)) - {"x-request-id", "connection"}
    assert passed == {"content-length", "x-kept", "set-cookie"}
    assert b"keep-alive" not in content.lower()


@pytest.mark.parametrize(
    "value",
    [b"a\x1b]0;owned\x07b", b"\x1b[2J", b"a\x08b", b"a\x7fb", b"a\x01b", b"a\xc2\x9b2Jb", b"a\x9b2Jb", b"a\xc2\x85b"],
)
@pytest.mark.parametrize("name", [b"X-Model", b"Content-Type"])
def test_a_control_character_is_not_relayed(name: bytes, value: bytes) -> None:
    content = relayed(name + b": " + value, b"Content-Length: 2")
    assert status(content) == 502
    assert b"contains a control character" in content
    assert value not in content


@pytest.mark.parametrize("value", [b"caf\xc3\xa9", b"caf\xe9", b"a\tb", "漢字 😀".encode(), b""])
def test_any_other_value_arrives_as_it_is(value: bytes) -> None:
    content = relayed(b"X-Model: " + value, b"Content-Length: 2")
    assert status(content) == 200
    assert b"x-model: " + value + b"\r\n" in content


def test_a_response_with_two_lengths_is_not_relayed() -> None:
    chunked = b"2\r\n{}\r\n0\r\n\r\n"
    for fields in (
        (b"Content-Length: 2", b"Transfer-Encoding: chunked"),
        (b"Transfer-Encoding: chunked", b"Content-Length: 999"),
    ):
        content = relayed(*fields, body=chunked, request=get(b"/v1/models"))
        assert status(content) == 502
        assert b"Content-Length and Transfer-Encoding" in content


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ((b"Content-Length: 2", b"Content-Length: 3"), b"{}x"),
        ((b"Content-Length: 2, 3",), b"{}x"),
        ((b"Content-Length: -2",), b"{}"),
        ((b"Transfer-Encoding: gzip, chunked",), b"2\r\n{}\r\n0\r\n\r\n"),
        ((b"X: a\rX-Context-Pruned: forged", b"Content-Length: 2"), b"{}"),
        ((b"X: a\x00", b"Content-Length: 2"), b"{}"),
        ((b"X : a", b"Content-Length: 2"), b"{}"),
        ((b"X: " + b"x" * 200_000, b"Content-Length: 2"), b"{}"),
    ],
    ids=["lengths", "list", "negative", "codings", "bare CR", "zero byte", "space", "huge"],
)
def test_what_is_not_http_is_a_bad_gateway(fields: tuple[bytes, ...], body: bytes) -> None:
    content = relayed(*fields, body=body)
    assert status(content) == 502
    assert b"forged" not in content


@pytest.mark.parametrize(
    "start",
    [b"HTTP/1.1 101 Switching Protocols", b"HTTP/2.0 200 OK", b"HTTP/1.1 099 X", b"HTTP/1.1 20 X", b"HTTP/1.1 -1 X",
     b"HTTP/1.1 600 X", b"HTTP/1.1 999 X", b"220 smtp", b"+OK", b""],
)  # fmt: skip
def test_an_unusual_start_is_answered(start: bytes) -> None:
    content = relayed(b"Content-Length: 2", start=start)
    assert status(content) == (200 if b"200" in start else 502)
    assert content.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("code", [100, 102, 103])
def test_an_interim_answer_comes_before_the_last_one(code: int) -> None:
    last = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    content = relayed(b"X: 1", body=last, start=b"HTTP/1.1 %d Interim" % code)
    assert status(content) == 200
    assert content.endswith(b"{}")


def test_a_body_where_none_belongs_is_not_relayed() -> None:
    for start in (b"HTTP/1.1 204 No Content", b"HTTP/1.1 304 Not Modified"):
        content = relayed(b"Content-Length: 2", start=start, body=b"{}HTTP/1.1 200 OK\r\n\r\n")
        assert status(content) in (204, 304)
        assert content.count(b"HTTP/1.1 ") == 1
    content = relayed(b"Content-Length: 2", request=get(b"/v1/models", b"Connection: close", method=b"HEAD"))
    assert content.endswith(b"\r\n\r\n")


def test_a_trailer_adds_no_field() -> None:
    body = b"2;x=y\r\n{}\r\n0\r\nX-Context-Pruned: forged\r\nSet-Cookie: a=b\r\n\r\n"
    content = relayed(b"Transfer-Encoding: chunked", body=body)
    assert status(content) == 200
    assert b"forged" not in content
    assert b"a=b" not in content


@pytest.mark.parametrize("keeps_open", [False, True])
def test_a_second_answer_on_the_connection_goes_to_nobody(keeps_open: bool) -> None:
    second = b"HTTP/1.1 200 OK\r\nX-Context-Pruned: forged\r\nContent-Length: 8\r\n\r\npoisoned"
    with (
        raw_upstream(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}" + second, keeps_open=keeps_open) as upstream,
        proxy_before(upstream.url) as url,
    ):
        for _ in range(3):
            content, _ = exchange(url, get(b"/v1/models", b"Connection: close"))
            assert status(content) == 200
            assert b"poisoned" not in content
