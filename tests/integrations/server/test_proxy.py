"""The proxy between real sockets: what passes unchanged, what is pruned, and what happens when a side disconnects."""

from __future__ import annotations

import io
import json
import logging
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from context_agent._support.cancellation import check_cancelled
from context_agent.errors import ConfigError
from context_agent.integrations.conversation_pruners import ConversationPruners
from context_agent.integrations.server.body_room import BodyRoom
from context_agent.integrations.server.logs import SERVER_LOGGER, to_stream
from context_agent.integrations.server.proxy import Proxy, proxy_application
from context_agent.integrations.server.pruned_bodies import BodyPruner
from context_agent.integrations.server.settings import Settings
from context_agent.integrations.server.upstream import upstream_address
from context_agent.policies.chat.scripted_server import ScriptedServer, says
from context_agent.pruning.pruner import ContextPruner
from tests.support.proxied import CHAT, KEY, TOPICS, conversation, proxy_client, tool_result
from tests.support.servers import PATIENCE, listening, problem
from tests.support.upstream import Received, Reply, upstream


def test_other_paths_pass_byte_for_byte() -> None:
    reply_headers = [
        ("Date", "Mon, 01 Jan 2024 00:00:00 GMT"), ("X-Request-ID", "theirs"), ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"), ("Content-Encoding", "br"), ("Keep-Alive", "timeout=5"),
    ]  # fmt: skip
    with (
        upstream(lambda _: Reply(b"\x00\xff not brotli", 418, reply_headers)) as server,
        proxy_client(server.url) as client,
    ):
        address = urlsplit(str(client.base_url))
        body = b'{"input" : "a",  "n":1e400, "n":2}'
        request_head = (
            "POST /v1/embeddings%2Fx/?key=k%20v&b HTTP/1.1", f"Host: {address.netloc}", f"Authorization: Bearer {KEY}",
            "X-Twice: 1", "X-Twice: 2", "Connection: close, X-Hop", "X-Hop: here", "TE: trailers",
            "Expect: 100-continue", f"Content-Length: {len(body)}", "", "",
        )  # fmt: skip
        with socket.create_connection((address.hostname or "", address.port or 0)) as connection:
            connection.sendall("\r\n".join(request_head).encode() + body)
            response = b"".join(iter(lambda: connection.recv(65_536), b""))
        request = server.requests[0]
    assert (request.method, request.path, request.body) == ("POST", "/v1/embeddings%2Fx/?key=k%20v&b", body)
    names = [name.lower() for name, _ in request.headers]
    assert sorted(names) == ["authorization", "content-length", "host", "x-twice", "x-twice"]
    assert ("authorization", f"Bearer {KEY}") in [(name.lower(), value) for name, value in request.headers]
    response_head, _, content = response.rpartition(b"\r\n\r\n")
    assert content == b"\x00\xff not brotli"
    lines = response_head[response_head.index(b"HTTP/1.1 4") :].decode().lower().split("\r\n")
    assert lines[0].startswith("http/1.1 418")
    assert sorted(lines[1:]) == [
        "connection: close", "content-encoding: br", "content-length: 13", "date: mon, 01 jan 2024 00:00:00 gmt",
        "set-cookie: a=1", "set-cookie: b=2", "x-request-id: theirs",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "body", [b"not json", b"[]", b'{"messages": "x"}', b'{"messages": [1, {"role": "tool"}]}', b"", b"[" * 100_000]
)
@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses"])
def test_a_body_that_is_no_conversation_passes_untouched(body: bytes, path: str) -> None:
    with upstream() as server, proxy_client(server.url) as client:
        response = client.post(path, content=body)
        assert response.status_code == 200
        assert "outcome" in json.loads(response.headers["x-context-pruned"])
        assert server.requests[0].body == body


def test_a_conversation_within_the_budget_passes_byte_for_byte() -> None:
    body = json.dumps({"messages": conversation(1), "temperature": 0.10, "model": "m"}, indent=3).encode()
    with upstream() as server, proxy_client(server.url, budget=100_000) as client:
        response = client.post(CHAT, content=body)
        assert json.loads(response.headers["x-context-pruned"])["outcome"] == "within budget"
        assert server.requests[0].body == body


def test_what_the_model_asks_to_restore_comes_back_and_stays() -> None:
    messages = conversation(len(TOPICS))
    with upstream() as server, proxy_client(server.url) as client:
        client.post(CHAT, json={"messages": messages})
        stub = json.loads(server.requests[0].body)["messages"][5]["content"]
        (first, *_) = re.findall(r"restore: (p\d+)", stub)
        messages += [{"role": "assistant", "content": f"I need it again: restore: {first}"}]
        messages += [{"role": "user", "content": "What is known about violins?"}]
        for _ in range(2):
            response = client.post(CHAT, json={"messages": messages})
        bodies = [json.loads(request.body)["messages"] for request in server.requests]
    assert json.loads(response.headers["x-context-pruned"])["restored"] == 0
    assert tool_result("violins").split("\n\n")[0] not in bodies[0][5]["content"]
    assert tool_result("violins").split("\n\n")[0] in bodies[1][5]["content"]
    assert bodies[1] == bodies[2]


def test_a_growing_conversation_is_pruned_and_its_prefix_stays() -> None:
    with upstream() as server, proxy_client(server.url) as client:
        for steps in range(1, len(TOPICS) + 1):
            response = client.post(CHAT, json={"model": "m", "messages": conversation(steps), "stream": False})
            assert response.status_code == 200
        reports = json.loads(response.headers["x-context-pruned"])
        bodies = [json.loads(request.body) for request in server.requests]
    original, last_body = conversation(len(TOPICS)), bodies[-1]
    assert list(last_body) == ["model", "messages", "stream"]
    assert reports["tokens_after"] < reports["tokens_before"]
    assert [message["role"] for message in last_body["messages"]] == [message["role"] for message in original]
    pruned_indices = [index for index, message in enumerate(original) if last_body["messages"][index] != message]
    assert pruned_indices
    assert {original[index]["role"] for index in pruned_indices} == {"tool"}
    assert last_body["messages"][-1] == original[-1]
    # Once pruned, a result is sent with the same bytes, unless a later batch prunes more of it.
    versions = [
        [body["messages"][index]["content"] for body in bodies if len(body["messages"]) > index]
        for index in pruned_indices
    ]
    for texts in versions:
        distinct = list(dict.fromkeys(texts))
        assert [text for number, text in enumerate(texts) if number and text != texts[number - 1]] == distinct[1:]


def test_callers_and_conversations_are_told_apart() -> None:
    pruners: list[ContextPruner] = []

    def open_pruner() -> ContextPruner:
        pruners.append(ContextPruner(300, strategy="bm25"))
        return pruners[-1]

    conversations = ConversationPruners(open_pruner, limit=2)
    bodies = BodyPruner(conversations, 1_000_000)
    in_parts = conversation(2)
    in_parts[1] = {**in_parts[1], "content": [{"type": "text", "text": in_parts[1]["content"]}]}
    with_cache = json.loads(json.dumps(in_parts))
    with_cache[1]["content"][0]["cache_control"] = {"type": "ephemeral"}
    for number, (messages, caller) in enumerate(
        [
            (conversation(1), b"a"),
            (conversation(2), b"a"),
            (conversation(2), b"b"),
            (in_parts, b"a"),
            (with_cache, b"a"),
        ]
    ):
        bodies.prune(json.dumps({"messages": messages}).encode(), "messages", caller)
        assert len(pruners) == (1, 1, 2, 2, 2)[number]
    bodies.prune(json.dumps({"system": "x", "messages": conversation(1)}).encode(), "messages", b"a")
    assert len(pruners) == 3
    assert len(conversations) == 2


def test_a_failing_pruner_lets_the_request_pass(caplog: pytest.LogCaptureFixture) -> None:
    def fail(passages: Any, task: str) -> list[float]:
        raise RuntimeError("broken")

    bodies = BodyPruner(ConversationPruners(lambda: ContextPruner(10, strategy=fail)), 1_000_000)
    body = json.dumps({"messages": conversation(4)}).encode()
    with caplog.at_level(logging.ERROR):
        result = bodies.prune(body, "messages", b"")
    assert result.body is body
    assert json.loads(result.header) == {"outcome": "failed"}


def test_the_first_token_arrives_before_the_second_is_sent() -> None:
    gate = threading.Event()

    def stream() -> Iterator[bytes]:
        yield b"data: one\n\n"
        assert gate.wait(PATIENCE)
        yield b"data: two\n\n"

    reply = Reply(stream(), headers=[("Content-Type", "text/event-stream")])
    with upstream(lambda _: reply) as server, proxy_client(server.url) as client:
        with client.stream("POST", CHAT, json={"messages": conversation(1), "stream": True}) as response:
            chunks = response.iter_raw()
            assert next(chunks) == b"data: one\n\n"
            assert not gate.is_set()
            gate.set()
            assert b"".join(chunks) == b"data: two\n\n"
        assert response.headers["content-type"] == "text/event-stream"


@pytest.mark.parametrize("started", [True, False])
def test_a_client_that_leaves_ends_the_request_upstream(started: bool) -> None:
    stream_closed, request_arrived = threading.Event(), threading.Event()

    def stream() -> Iterator[bytes]:
        try:
            while True:
                yield b": alive\n\n"
                request_arrived.set()
                threading.Event().wait(0.02)
        finally:
            stream_closed.set()

    def answer(_: Received) -> Reply:
        request_arrived.set()
        if not started:
            threading.Event().wait(0.3)
        return Reply(stream())

    with upstream(answer) as server, proxy_client(server.url, concurrency=1, queue=0) as client:
        if started:
            with client.stream("POST", CHAT, json={"messages": conversation(1)}) as response:
                next(response.iter_raw())
        else:
            body = json.dumps({"messages": conversation(1)}).encode()
            with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as connection:
                head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
                connection.sendall(head.encode() + body)
                assert request_arrived.wait(PATIENCE)
        assert stream_closed.wait(PATIENCE)
        # The only slot is free again.
        server.answer = lambda _: Reply()
        assert client.get("/v1/models").status_code == 200


def test_a_request_that_outlasts_the_shutdown_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    arrived, release = threading.Event(), threading.Event()

    def answer(_: Received) -> Reply:
        arrived.set()
        release.wait(PATIENCE)
        return Reply()

    with upstream(answer) as server, ThreadPoolExecutor(1) as pool:
        proxy = Proxy(server.url, ConversationPruners(lambda: ContextPruner(300, strategy="bm25")))
        with caplog.at_level(logging.INFO), listening(proxy, proxy_application) as address:
            response = pool.submit(httpx.post, address + CHAT, json={"messages": []}, timeout=PATIENCE)
            assert arrived.wait(PATIENCE)
            proxy.draining = True
        release.set()
        problem(response.result(), 503, "shutting_down")
    (line,) = (record.fields for record in caplog.records if record.getMessage() == "request")  # type: ignore[attr-defined]
    assert (line["status"], line["code"]) == (503, "shutting_down")


def test_a_prune_for_a_client_that_left_ends() -> None:
    started, ended = threading.Event(), threading.Event()

    def endless(passages: object, task: str) -> list[float]:
        started.set()
        try:
            while True:
                check_cancelled()
        finally:
            ended.set()

    pruners = ConversationPruners(lambda: ContextPruner(300, strategy=endless))
    with (
        upstream() as server,
        listening(Proxy(server.url, pruners, Settings(grace=1.0)), proxy_application, dated=False) as url,
    ):
        address = urlsplit(url)
        body = json.dumps({"messages": conversation(6)}).encode()
        with socket.create_connection((address.hostname or "", address.port or 0)) as connection:
            head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            assert started.wait(PATIENCE)
        assert ended.wait(PATIENCE)
        assert server.requests == []


def test_bodies_share_their_room() -> None:
    proxy = Proxy("http://127.0.0.1:9", ConversationPruners(), Settings(grace=1.0))
    proxy.bodies = BodyRoom(1_000)
    with listening(proxy, proxy_application, dated=False) as url:
        address = urlsplit(url)
        with socket.create_connection((address.hostname or "", address.port or 0)) as connection:
            head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 800\r\n\r\n"
            connection.sendall(head.encode() + b"x" * 700)
            while proxy.bodies.free == 1_000:
                threading.Event().wait(0.01)
            refusal = httpx.post(url + CHAT, content=b"x" * 301)
            assert "more than 1,000 bytes. Try again later." in problem(refusal, 503, "too_many_bytes")
            assert refusal.headers["retry-after"] == "1"
            problem(httpx.post(url + CHAT, content=b"x" * 300), 502, "upstream_unreachable")
        while proxy.bodies.free < 1_000:
            threading.Event().wait(0.01)
        problem(httpx.post(url + CHAT, content=b"x" * 1_000), 502, "upstream_unreachable")


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a server logs during the test."""
    for logger in (SERVER_LOGGER, logging.getLogger("uvicorn")):
        for name in ("handlers", "propagate", "level"):
            monkeypatch.setattr(logger, name, getattr(logger, name))
    stream = io.StringIO()
    to_stream(stream)
    return stream


def test_an_answer_that_breaks_off_does_not_look_complete(logged: io.StringIO) -> None:
    def stream() -> Iterator[bytes]:
        yield b"data: one\n\n"
        raise ConnectionError

    with (
        upstream(lambda received: Reply(stream()) if received.method == "POST" else Reply()) as server,
        proxy_client(server.url, concurrency=1, queue=0) as client,
    ):
        with pytest.raises(httpx.RemoteProtocolError), client.stream("POST", CHAT, json={}) as response:
            response.read()
        assert client.get("/v1/models").status_code == 200
    events = [json.loads(line)["event"] for line in logged.getvalue().splitlines()]
    assert events == ["upstream_failed", "request", "request"]


@pytest.mark.parametrize("path", ["/v1/%2e%2e/x", "/_context/x"])
def test_the_body_of_a_refused_request_is_no_request(path: str) -> None:
    inner = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(inner)}\r\n\r\n".encode()
    last = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with upstream() as server, proxy_client(server.url) as client:
        with socket.create_connection((client.base_url.host, client.base_url.port), timeout=20) as connection:
            connection.sendall(head + inner + last)
            while connection.recv(65_536):
                pass
        assert {received.path for received in server.requests} <= {"/v1/models"}


def test_redirects_and_cookies_go_to_the_client_alone() -> None:
    headers = [("Location", "http://localhost:1/elsewhere"), ("Set-Cookie", "session=1; Path=/")]
    with upstream(lambda _: Reply(b"", 307, headers)) as server, proxy_client(server.url) as client:
        for _ in range(2):
            response = client.post(CHAT, json={"messages": []})
            client.cookies.clear()
            assert response.status_code == 307
            assert response.headers["location"] == "http://localhost:1/elsewhere"
        assert [name.lower() for name, _ in server.requests[1].headers].count("cookie") == 0
        assert len(server.requests) == 2


def test_an_upstream_that_is_not_there_or_silent() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with proxy_client(url) as client:
        assert "that --upstream is its address" in problem(client.post(CHAT, json={}), 502, "upstream_unreachable")
    release = threading.Event()

    def answer(_: Received) -> Reply:
        release.wait(PATIENCE)
        return Reply()

    with upstream(answer) as server, proxy_client(server.url, pause=0.2) as client:
        assert "0.2 s" in problem(client.post(CHAT, json={}), 504, "upstream_timeout")
        release.set()


def test_a_websocket_is_refused_at_once_so_that_codex_goes_on_over_http(caplog: pytest.LogCaptureFixture) -> None:
    with upstream() as server, proxy_client(server.url) as client:
        headers = {"Connection": "Upgrade", "Upgrade": "WebSocket", "Sec-WebSocket-Version": "13"}
        refused = client.get("/v1/responses", headers={**headers, "Sec-WebSocket-Key": "oxkAQE5W/d9uve+YbV4Lng=="})
        assert "over HTTP" in problem(refused, 426, "websocket_not_supported")
        refused = client.get("/v1/responses", headers={"Connection": "Upgrade", "Upgrade": "h2c, websocket"})
        assert refused.status_code == 426
        assert client.get("/v1/models").status_code == 200
    assert [request.path for request in server.requests] == ["/v1/models"]
    assert "install" not in caplog.text, "a library for WebSockets would change nothing"


def test_limits_are_those_of_the_server() -> None:
    release = threading.Event()

    def answer(_: Received) -> Reply:
        assert release.wait(PATIENCE)
        return Reply()

    with (
        upstream(answer) as server,
        proxy_client(server.url, max_body=1_000, concurrency=1, queue=0, hosts=("127.0.0.1",)) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        problem(client.post(CHAT, content=b"x" * 1_001), 413, "too_large")
        problem(client.post(CHAT, headers={"Host": "evil.example"}, json={}), 403, "host_not_allowed")
        future = pool.submit(client.post, CHAT, json={})
        while not server.requests:
            threading.Event().wait(0.01)
        assert "1 running" in problem(client.post(CHAT, json={}), 429, "queue_full")
        release.set()
        assert future.result().status_code == 200


def test_no_path_leads_out_of_the_upstream() -> None:
    with upstream() as server, proxy_client(f"{server.url}/api/v1/") as client:
        address = urlsplit(str(client.base_url))
        targets = {"/v1/models": 200, "/../admin": 400, "/x/../../admin": 400, "//evil.example/x": 400}
        for target, status in targets.items():
            with socket.create_connection((address.hostname or "", address.port or 0)) as connection:
                connection.sendall(
                    f"GET {target} HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n".encode()
                )
                assert connection.recv(65_536).startswith(f"HTTP/1.1 {status}".encode()), target
        assert [request.path for request in server.requests] == ["/api/v1/models"]


def test_no_key_and_no_text_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), upstream() as server, proxy_client(server.url) as client:
        client.post(f"{CHAT}?key={KEY}", json={"messages": conversation(8)}, headers={"x-api-key": KEY})
        server.answer = lambda _: Reply(b"", 401)
        client.post("/v1/messages", json={"messages": conversation(8)}, headers={"x-api-key": KEY})
    records = [record for record in caplog.records if not record.name.startswith("httpx")]
    text = " ".join(f"{record.getMessage()} {getattr(record, 'fields', '')}" for record in records)
    assert "tokens_before" in text
    assert KEY not in text
    assert "tides" not in text


def test_the_log_names_the_paths_of_conversations_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, SERVER_LOGGER.name), upstream() as server, proxy_client(server.url) as client:
        for path in (CHAT, "/v1/messages", "/v1/responses", f"/v1/models/{KEY}"):
            client.post(path, json={})
    logged = [record.fields["path"] for record in caplog.records if "path" in getattr(record, "fields", {})]
    assert logged == [CHAT, "/v1/messages", "/v1/responses", "other"]


def test_the_log_counts_the_warnings_without_their_texts(caplog: pytest.LogCaptureFixture) -> None:
    unread = [
        *conversation(1),
        {"role": "assistant", "content": "I look."},
        {"role": "user", "content": "Observation: a"},
    ]
    with caplog.at_level(logging.INFO, SERVER_LOGGER.name), upstream() as server, proxy_client(server.url) as client:
        answers = [client.post(CHAT, json={"messages": messages}) for messages in (unread, conversation(1))]
    logged = [record.fields["prune"] for record in caplog.records if "prune" in getattr(record, "fields", {})]
    assert [counts.get("warnings") for counts in logged] == [1, None]
    reports = [json.loads(answer.headers["X-Context-Pruned"]) for answer in answers]
    assert ["Observation:" in str(report) for report in reports] == [True, False]


def test_the_official_client() -> None:
    with ScriptedServer([says("Twelve hours.")] * 2, key=KEY) as server, proxy_client(server.url) as client:
        official_client = openai.OpenAI(base_url=str(client.base_url.join("/v1")), api_key=KEY, max_retries=0)
        request: dict[str, Any] = {"model": "scripted", "messages": conversation(8)}
        assert official_client.chat.completions.create(**request).choices[0].message.content == "Twelve hours."
        stream = official_client.chat.completions.create(**request, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "Twelve hours."
        sizes = [len(json.dumps(body["messages"])) for body in server.chat_bodies()]
    assert max(sizes) < len(json.dumps(conversation(8)))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("address", ["https://user:pw@host/v1", "https://host/v1?key=1", "host", "ftp://host"])
def test_an_address_with_secrets_or_none_at_all(address: str) -> None:
    with pytest.raises(ConfigError):
        upstream_address(address)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without web proxies, except that none is used for this machine."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    return monkeypatch


@pytest.mark.parametrize("scheme", ["http://", ""])
@pytest.mark.parametrize("name", ["HTTP_PROXY", "ALL_PROXY"])
def test_a_web_proxy_of_the_environment_needs_no_scheme(
    name: str, scheme: str, environment: pytest.MonkeyPatch
) -> None:
    with upstream() as web_proxy:
        environment.setenv(name, scheme + web_proxy.url.removeprefix("http://"))
        with proxy_client("http://model.example") as client:
            assert client.get("/v1/models").status_code == 200
        assert [one.path for one in web_proxy.requests] == ["http://model.example/v1/models"]


@pytest.mark.parametrize("address", ["ftp://user:word@web.example", "http://web.example:port"])
@pytest.mark.parametrize("name", ["HTTPS_PROXY", "ALL_PROXY"])
def test_a_web_proxy_that_cannot_be_used_is_refused_at_the_start(
    name: str, address: str, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv(name, address)
    pruners = ConversationPruners(lambda: ContextPruner(300))
    with pytest.raises(ConfigError, match=rf"{name}.*add model\.example to NO_PROXY") as raised:
        Proxy("https://model.example", pruners)
    assert "word" not in str(raised.value)
    environment.setenv("NO_PROXY", "model.example")
    Proxy("https://model.example", pruners)


def test_certificates_that_cannot_be_read_are_an_error_at_the_start(
    tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.pem").write_text("no certificate", encoding="utf-8")
    for name in ("missing.pem", "ca.pem"):
        environment.setenv("SSL_CERT_FILE", str(tmp_path / name))
        with pytest.raises(ConfigError, match=r"SSL_CERT_FILE or SSL_CERT_DIR names cannot be read \(.*Correct"):
            Proxy("https://model.example", ConversationPruners(lambda: ContextPruner(300)))


def test_an_address_with_and_without_v1() -> None:
    assert str(upstream_address("https://api.openai.com/v1/")) == "https://api.openai.com/"
    assert str(upstream_address("https://openrouter.ai/api/v1")) == "https://openrouter.ai/api"
