"""What an engine, an MCP server or an upstream answers never decides whom this package contacts next."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx
import pytest

from context_agent import MemoryCorpus, SearchAgent
from context_agent._support.credentials import checked_address
from context_agent.errors import ConfigError, ContextAgentError, CorpusError
from context_agent.integrations.mcp.serving import application
from context_agent.integrations.server.service import Service
from context_agent.integrations.server.settings import Settings
from context_agent.integrations.server.upstream import upstream_address
from context_agent.retrieval.engines.corpus import EngineCorpus
from context_agent.retrieval.engines.http_engine import HttpEngine
from context_agent.retrieval.engines.mcp_engine import McpEngine
from context_agent.testing.hostile_indexes import AttackerServer
from tests.support.http_server import Response, http_server, serving
from tests.support.raw_http import exchange, get, proxy_before, raw_upstream, status
from tests.support.served_index import CALL, DOCUMENTS
from tests.support.servers import listening, one_search

NOT_HTTP = [
    "file:///etc/passwd",
    "file://localhost/etc/passwd",
    "gopher://127.0.0.1:6379/_SET%20x",
    "ftp://127.0.0.1/x",
    "dict://127.0.0.1:11211/stats",
    "ldap://127.0.0.1/x",
    "unix:///var/run/docker.sock",
    "http+unix://%2Fvar%2Frun%2Fdocker.sock/x",
    "data:application/json,[]",
    "jar:http://127.0.0.1!/x",
    "javascript:1",
    "//127.0.0.1/x",
    "/etc/passwd",
    "http:///x",
    "http://",
    "https://[::1",
    "http://127.0.0.1:99999/x",
    "http://127.0.0.1:-1/x",
    "http://127.0.0.1/x\r\nX-Injected: 1",
    "http://127.0.0.1/\x00",
    "http://127.0.0.1/x#fragment",
    "http://local host/x",
    "http://a%20b/x",
]


@pytest.mark.parametrize("address", NOT_HTTP)
def test_an_address_that_is_not_http_is_refused_before_anything_is_contacted(address: str) -> None:
    for check in (checked_address, upstream_address, HttpEngine, EngineCorpus):
        with pytest.raises(ConfigError) as caught:
            check(address)
        assert "\r" not in str(caught.value)


@contextmanager
def redirecting(to: str, code: int) -> Iterator[str]:
    """A server that redirects every request."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.send_response(code)
            self.send_header("Location", to)
            self.send_header("Refresh", f"0; url={to}")
            self.send_header("Link", f"<{to}>; rel=preload")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST  # noqa: N815 - the library's names

        def log_message(self, *_: object) -> None:
            """Silent."""

    with serving(Handler) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def stranger() -> Iterator[AttackerServer]:
    """A server that nobody named; it records who calls."""
    server = AttackerServer()
    yield server
    server.close()


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("kind", ["post", "get"])
def test_no_engine_follows_a_redirect(stranger: AttackerServer, code: int, kind: str) -> None:
    with redirecting(f"{stranger.address}/latest/meta-data", code) as url:
        engine = HttpEngine(url + ("/search?q={query}" if kind == "get" else "/search"), retries=0)
        with pytest.raises(CorpusError):
            EngineCorpus(engine, timeout=10).search("tides")
        engine.close()
    assert stranger.requests == []


@pytest.mark.parametrize("code", [302, 307, 308])
def test_no_mcp_engine_follows_a_redirect_to_another_server(stranger: AttackerServer, code: int) -> None:
    with (
        redirecting(f"{stranger.address}/mcp", code) as url,
        McpEngine(f"{url}/mcp") as engine,
        pytest.raises(CorpusError),
    ):
        EngineCorpus(engine, timeout=10).search("tides")
    assert stranger.requests == []


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_the_proxy_follows_no_redirect(stranger: AttackerServer, code: int) -> None:
    start = f"HTTP/1.1 {code} X\r\nLocation: {stranger.address}/latest\r\nContent-Length: 0\r\n\r\n".encode()
    with raw_upstream(start) as upstream, proxy_before(upstream.url) as url:
        content, _ = exchange(url, get(b"/v1/models", b"Connection: close"))
    assert status(content) == code
    assert stranger.requests == []


def test_addresses_in_a_reply_are_texts(stranger: AttackerServer) -> None:
    address = stranger.address
    hit: dict[str, Any] = {
        "id": f"{address}/id",
        "text": f"A tide. {address}/text ![image]({address}/image) <img src={address}/x> $ref",
        "title": address,
        "url": address,
        "next": address,
        "metadata": {"$ref": address, "source": f"file://{address}", "image": address},
        "_links": {"next": {"href": address}},
    }
    body = {"hits": [hit], "next": address, "next_page_token": address, "$ref": address, "scroll_id": address}
    headers = {"Link": f"<{address}/next>; rel=next", "Refresh": f"0;url={address}", "Alt-Svc": f'h2="{address[7:]}"'}
    with http_server(Response(body, headers=headers)) as server:
        corpus = EngineCorpus(HttpEngine(f"{server.url()}/search", retries=0), timeout=10)
        hits = corpus.search("tides")
        corpus.grep("tide")
        for found in hits:
            corpus.read(found.chunk.document_id)
        assert len(server.requests) >= 1
    assert len(hits) == 1
    assert stranger.requests == []


def test_a_query_chooses_no_host_and_no_path(stranger: AttackerServer) -> None:
    queries = [
        "@evil.example/", f"x&url={stranger.address}", "../../admin", "..\\admin", "x#y", "x?y", "\r\nHost: evil",
        "%0d%0aX: 1", "{limit}", "{query}", "//evil.example", "\x00", "\ud800", "://", "🌊",
    ]  # fmt: skip
    with http_server(Response({"hits": ["A tide."]})) as server:
        engine = HttpEngine(f"{server.url()}/search/{{query}}?q={{query}}&n={{limit}}", retries=0)
        for query in queries:
            try:
                engine(query, 3)
            except (ContextAgentError, UnicodeEncodeError):
                continue
            request = server.requests[-1]
            assert request["path"].startswith("/search/")
            assert request["path"].count("/") == 2
            assert request["path"].endswith("&n=3")
            assert request["headers"]["host"] == server.url().removeprefix("http://")
            assert "x" not in request["headers"]
    assert stranger.requests == []


def test_a_password_in_an_address_goes_to_that_server_and_into_no_error(stranger: AttackerServer) -> None:
    with redirecting(stranger.address, 302) as url:
        address = url.replace("//", "//user:secret-of-the-engine@")
        engine = HttpEngine(f"{address}/search", retries=0)
        with pytest.raises(CorpusError) as caught:
            EngineCorpus(engine, timeout=10).search("tides")
    assert "secret-of-the-engine" not in str(caught.value)
    assert stranger.requests == []


def test_the_environment_of_a_proxy_is_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind another proxy the whole address is sent, with the client's path in it byte for byte."""
    with raw_upstream() as other:
        monkeypatch.setenv("http_proxy", other.url)
        monkeypatch.setenv("no_proxy", "")
        with proxy_before("http://model.invalid/base/v1") as url:
            monkeypatch.delenv("http_proxy")
            content, _ = exchange(url, get(b'/v1/x"{y}%2F', b"Connection: close"))
            assert status(content) == 200
            exchange(url, get(b"/../x", b"Connection: close"))
        assert other.targets() == [b'http://model.invalid/base/v1/x"{y}%2F']
        assert b"host: model.invalid" in other.requests[0].lower()


def test_a_tool_of_mcp_contacts_nobody(stranger: AttackerServer) -> None:
    """An id, a pattern and a query that are addresses are looked up in the corpus, like all others."""
    address = stranger.address
    image = {"type": "image_url", "image_url": {"url": address}}
    with (
        SearchAgent(MemoryCorpus(DOCUMENTS), one_search()) as agent,
        listening(Service.of(agent, Settings(grace=1.0)), application) as url,
        httpx.Client(base_url=url, headers=CALL, timeout=30) as client,
    ):
        for tool, arguments in (
            ("read", {"document_id": address}),
            ("read", {"document_id": "file:///etc/passwd"}),
            ("search", {"query": address}),
            ("grep", {"pattern": address}),
            (
                "prune",
                {"messages": [{"role": "user", "content": [image]}]},
            ),
        ):
            params = {"name": tool, "arguments": arguments}
            response = client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
            assert response.status_code == 200
            assert "root:" not in response.text
        for uri in (
            address,
            "file:///etc/passwd",
            f"ctx1://document/{address}",
            "ctx1://document/..%2f..%2fetc/passwd",
        ):
            body = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": uri}}
            response = client.post("/mcp", content=json.dumps(body).encode())
            assert response.status_code < 500
            assert "root:" not in response.text
    assert stranger.requests == []
