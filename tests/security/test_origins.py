"""Web pages and the servers of this machine: a page of another origin or behind a rebound name reaches none of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import httpx
import pytest

from context_agent import MemoryCorpus, SearchAgent
from context_agent.integrations.mcp.serving import application as mcp_application
from context_agent.integrations.server.app import application_of
from context_agent.integrations.server.origins import LOOPBACK_NAMES
from context_agent.integrations.server.service import Service
from context_agent.integrations.server.settings import Settings
from tests.support.browser import Browser
from tests.support.http_server import Response, http_server
from tests.support.raw_http import exchange, proxy_before, raw_upstream, status
from tests.support.served_index import CALL, DOCUMENTS
from tests.support.servers import listening, one_search

PATHS = {"serve": "/v1/prune", "proxy": "/v1/chat/completions", "proxy, another path": "/api/pull", "mcp": "/mcp"}
BODY = b'{"messages": []}'
CALL_BODY = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'


@dataclass
class Target:
    """A server of this machine, a path of it, and the requests that reached the proxy's upstream."""

    kind: str
    url: str
    path: str
    upstream: list[bytes]

    @property
    def host(self) -> str:
        return httpx.URL(self.url).netloc.decode()

    def post(self, headers: Mapping[str, str]) -> httpx.Response:
        """A POST as the server takes it, with the headers."""
        body = CALL_BODY if self.kind == "mcp" else BODY
        return httpx.post(self.url + self.path, content=body, headers={**CALL, **headers}, timeout=120)


@contextmanager
def serving(kind: str, hosts: tuple[str, ...] = LOOPBACK_NAMES, origins: tuple[str, ...] = ()) -> Iterator[Target]:
    """A server of the kind, which allows these names and web pages."""
    with ExitStack() as stack:
        requests: list[bytes] = []
        if kind.startswith("proxy"):
            upstream = stack.enter_context(raw_upstream())
            requests, url = upstream.requests, stack.enter_context(proxy_before(upstream.url, hosts, origins))
        else:
            agent = stack.enter_context(SearchAgent(MemoryCorpus(DOCUMENTS), one_search()))
            settings = Settings(hosts=hosts, origins=origins, grace=1.0)
            service = Service.of(agent, settings)
            host = "127.0.0.1" if hosts else "0.0.0.0"  # the name alone: the test listens on loopback
            applications = {"serve": application_of, "mcp": lambda one: mcp_application(one, host, origins=origins)}
            url = stack.enter_context(listening(service, applications[kind]))
        yield Target(kind, url, PATHS[kind], requests)


@pytest.fixture(scope="module", params=list(PATHS))
def server(request: pytest.FixtureRequest) -> Iterator[Target]:
    """Each server in turn, as its command starts it on loopback."""
    with serving(request.param) as target:
        yield target


FOREIGN: list[dict[str, str]] = [
    {"Origin": "https://evil.example"},
    {"Origin": "https://evil.example", "Content-Type": "text/plain"},
    {"Origin": "https://evil.example", "Content-Type": "application/x-www-form-urlencoded"},
    {"Origin": "https://evil.example", "Content-Type": "multipart/form-data; boundary=x"},
    {"Origin": "https://evil.example", "Content-Type": "text/plain; application/json"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "file://"},
    {"Origin": "http://127.0.0.1.evil.example"},
    {"Origin": "http://evil.example:80#127.0.0.1"},
    {"Origin": "http://127.0.0.1@evil.example"},
    {"Origin": "//"},
    {"Origin": "http://["},
    {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    {"Origin": "https://evil.example", "Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
    {"Sec-Fetch-Site": "Cross-Site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "anything"},
    {"Sec-Fetch-Site": ""},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_a_page_of_another_origin_is_refused(server: Target, headers: dict[str, str]) -> None:
    server.upstream.clear()
    response = server.post(headers)
    assert response.status_code == 403 or (server.kind == "mcp" and response.status_code == 400)
    assert server.upstream == []
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize(
    "name", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "127.0.0.1@evil.example", "localhost.evil:1"]
)
def test_a_rebound_name_is_refused(server: Target, name: str) -> None:
    server.upstream.clear()
    for page in ({}, {"Origin": f"http://{name}"}, {"Origin": f"http://{name}", "Sec-Fetch-Site": "same-origin"}):
        assert server.post({"Host": name, **page}).status_code in (403, 421)
    assert server.upstream == []


def test_programs_and_the_own_pages_are_answered(server: Target) -> None:
    own: list[dict[str, str]] = [
        {},
        {"Origin": f"http://{server.host}"},
        {"Origin": f"HTTP://{server.host}".lower(), "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "none"},
        {"Host": f"localhost:{server.host.rpartition(':')[2]}"},
    ]
    for headers in own:
        assert server.post(headers).status_code == 200, headers


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"])
def test_no_method_of_a_foreign_page_reaches_the_upstream(server: Target, method: str) -> None:
    server.upstream.clear()
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        response = httpx.request(method, server.url + server.path, headers=headers, timeout=120)
        assert response.status_code in (403, 405)
        assert "access-control-allow-origin" not in response.headers
    navigation = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert httpx.request(method, server.url + server.path, headers=navigation, timeout=120).status_code in (403, 405)
    assert server.upstream == []


@pytest.mark.parametrize("kind", ["proxy", "mcp"])
def test_a_page_that_the_user_allowed_is_answered(kind: str) -> None:
    with serving(kind, origins=("https://App.example",)) as server:
        page = {"Origin": "https://app.example", "Sec-Fetch-Site": "cross-site"}
        assert server.post(page).is_success
        assert server.post({"Origin": "https://app.example:444"}).status_code == 403
        assert server.post({"Origin": "http://app.example"}).status_code == 403


FETCH = """
return fetch(arguments[0], {method: "POST", headers: JSON.parse(arguments[1]), body: arguments[2]})
  .then(answer => answer.text()).catch(error => "blocked")
"""


def test_a_browser_lets_only_the_page_that_the_user_allowed_call_the_mcp_server(browser: Browser) -> None:
    headers = json.dumps({**CALL, "Authorization": "Bearer x", "MCP-Protocol-Version": "2025-06-18"})
    with http_server(Response(b"<title>app</title>", headers={"Content-Type": "text/html"})) as page:
        for origins, answered in (((page.url("localhost"),), True), (("https://app.example",), False)):
            with serving("mcp", origins=origins) as target:
                browser.open(page.url("localhost"), ready="document.title")
                text = browser.run(FETCH, target.url + target.path, headers, CALL_BODY.decode())
            assert ("retrieve" in text, text == "blocked") == (answered, not answered)


def test_a_link_leads_to_the_page_and_to_nothing_else() -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    with serving("serve") as server, httpx.Client(base_url=server.url, timeout=120) as client:
        for path in ("/", "/episodes/x"):
            assert client.get(path, headers=link).status_code == 200
            for other in ({"Sec-Fetch-Dest": "iframe"}, {"Sec-Fetch-Mode": "no-cors"}, {"Origin": "null"}):
                assert client.get(path, headers={**link, **other}).status_code == 403
            assert client.post(path, headers=link).status_code in (403, 405)
        for path in ("/v1/models", "/metrics", "/v1/agent", "/v1/trajectories/x", "/openapi.json", "/health"):
            assert client.get(path, headers=link).status_code == 403
        page = client.get("/", headers={"Sec-Fetch-Site": "none"})
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]


def test_a_load_balancer_may_check_the_health_without_a_host() -> None:
    with serving("serve") as server:
        for fields, expected in ((b"", 200), (b"Host:\r\n", 403), (b"Sec-Fetch-Site: cross-site\r\n", 403)):
            answer, _ = exchange(server.url, b"GET /health HTTP/1.0\r\n" + fields + b"\r\n")
            assert status(answer) == expected, fields


@pytest.mark.parametrize("kind", ["serve", "proxy"])
def test_without_names_and_token_programs_may_use_any_name_and_pages_only_addresses(kind: str) -> None:
    with serving(kind, hosts=()) as server:
        assert server.post({"Host": "inference.internal:8323"}).status_code == 200
        for host in (server.host, "localhost:80", "192.168.0.7:8323", "[fe80::1]:8323"):
            page = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
            assert server.post(page).status_code == 200, host
        rebound = {"Host": "evil.example:8323", "Origin": "http://evil.example:8323"}
        assert server.post(rebound).status_code == 403
        assert server.post({**rebound, "Sec-Fetch-Site": "same-origin"}).status_code == 403


def test_a_foreign_page_does_not_reach_mcp_at_another_address() -> None:
    with serving("mcp", hosts=()) as server:
        assert server.post({"Host": "inference.internal:8323"}).status_code == 200
        for headers in FOREIGN:
            assert server.post(headers).status_code in (400, 403)
