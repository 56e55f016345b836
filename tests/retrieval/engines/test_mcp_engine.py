"""The search tool of an MCP server as an engine."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import pytest
from mcp import StdioServerParameters
from mcp.server import MCPServer
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult, TextContent, Tool
from pydantic import Field

from context_agent import EngineCorpus, MemoryCorpus, ScriptedPolicy, SearchAgent
from context_agent.errors import ConfigError, CorpusError
from context_agent.integrations.mcp.server import make_server
from context_agent.retrieval.engines.mcp_engine import McpEngine, call_arguments, hits_of_result, search_tool
from context_agent.types import Document
from tests.support.ctx1_process import PATIENCE

ROWS = [{"id": "a", "title": "Rope", "text": "A film of 1948."}, {"id": "b", "title": "Bread", "text": "Flour, water."}]
calls: list[dict[str, Any]] = []


def server() -> MCPServer:
    calls.clear()
    mcp_server = MCPServer("wiki")

    @mcp_server.tool()
    def search_wiki(
        query: str, max_results: Annotated[int, Field(le=20)] = 5, lang: str = "en"
    ) -> list[dict[str, str]]:
        calls.append({"query": query, "max_results": max_results, "lang": lang})
        return ROWS

    @mcp_server.tool()
    def ask(question: str) -> str:
        return f"A text about {question}"

    @mcp_server.tool()
    def fails(query: str) -> str:
        raise ValueError("the index is gone")

    @mcp_server.tool()
    def no_query(left: int, right: int) -> int:
        return left + right

    return mcp_server


def test_the_tool_that_searches_is_found_and_called_as_its_schema_says() -> None:
    with McpEngine(server(), arguments={"lang": "de"}) as engine:
        corpus = EngineCorpus(engine)
        assert [hit.chunk.document_id for hit in corpus.search("a film", k=50)] == ["a", "b"]
        corpus.search("bread", k=3)
    assert calls == [
        {"query": "a film", "max_results": 20, "lang": "de"},
        {"query": "bread", "max_results": 3, "lang": "de"},
    ]


def test_a_tool_that_returns_plain_text_returns_one_passage() -> None:
    with McpEngine(server(), "ask") as engine:
        (hit,) = EngineCorpus(engine).search("Rope")
    assert "A text about Rope" in hit.chunk.text


@pytest.mark.parametrize("text", ["1984", "true", "null", '"Rope"', "[" * 5_000])
def test_a_text_that_is_no_list_of_json_is_a_passage(text: str) -> None:
    assert hits_of_result(CallToolResult(content=[TextContent(type="text", text=text)])) == [text]


@pytest.mark.parametrize(
    ("schema", "limit"),
    [
        ({"type": "integer", "maximum": 3}, 3),
        ({"anyOf": [{"type": "integer", "maximum": 3}, {"type": "null"}]}, 3),
        ({"maximum": 3.5}, 3),
        ({"maximum": None}, 5),
        (True, 5),
    ],
)
def test_the_limit_keeps_to_the_maximum_of_the_schema(schema: Any, limit: int) -> None:
    tool = Tool(name="search", input_schema={"type": "object", "properties": {"query": True, "limit": schema}})
    assert call_arguments(tool, "Rope", 5) == {"query": "Rope", "limit": limit}


def test_an_error_of_the_tool_is_a_corpus_error() -> None:
    with McpEngine(server(), "fails") as engine, pytest.raises(CorpusError, match=r"the MCP tool failed .*fails"):
        EngineCorpus(engine).search("Rope")


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("none", r"no tool 'none'\. Pass tool= with one of search_wiki"),
        ("no_query", r"takes a query\. Its arguments are left, right"),
    ],
)
def test_a_tool_that_cannot_search_is_refused(tool: str, message: str) -> None:
    with McpEngine(server(), tool) as engine, pytest.raises((ConfigError, CorpusError), match=message):
        EngineCorpus(engine).search("Rope")


def test_a_server_without_tools_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"has 0 tools that search\. It has no other tools\. Name another server"):
        search_tool([], None)


def test_it_connects_again_after_it_was_closed() -> None:
    engine = McpEngine(server())
    engine("a film", 1)
    engine.close()
    engine("a film", 1)
    engine.close()
    engine.close()
    assert len(calls) == 2


SLOW_SERVER = """
import asyncio, pathlib
from mcp.server import MCPServer
from mcp.shared.exceptions import MCPError

server = MCPServer("wiki")

@server.tool()
async def search_wiki(query: str) -> list[dict[str, str]]:
    pathlib.Path(query).touch()
    if query == "fails":
        raise MCPError(-32000, "no such query")
    while not pathlib.Path("go on").exists():
        await asyncio.sleep(0.01)
    return [{"text": query}]

server.run()
"""


def test_a_call_that_fails_does_not_end_the_calls_that_share_its_connection(tmp_path: Path) -> None:
    parameters = StdioServerParameters(command=sys.executable, args=["-c", SLOW_SERVER], cwd=tmp_path)
    with McpEngine(parameters) as engine, ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(engine, query, 1) for query in ("a film", "bread")]
        deadline = time.monotonic() + PATIENCE
        while not ((tmp_path / "a film").exists() and (tmp_path / "bread").exists()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(MCPError, match="no such query"):
            engine("fails", 1)
        (tmp_path / "go on").touch()
        assert [future.result()["result"] for future in waiting] == [[{"text": "a film"}], [{"text": "bread"}]]
        assert engine("bread", 1)["result"] == [{"text": "bread"}]


def test_this_packages_own_server_is_an_engine() -> None:
    source = MemoryCorpus([Document(row["id"], row["text"], row["title"]) for row in ROWS])
    with SearchAgent(source, ScriptedPolicy([])) as agent, McpEngine(make_server(agent), "search") as engine:
        hits = EngineCorpus(engine).search("a film of 1948", k=2)
    assert "1948" in hits[0].chunk.text


class McpOverJson(BaseHTTPRequestHandler):
    """An MCP server whose tool returns a text of `size` bytes in a response that is JSON."""

    protocol_version = "HTTP/1.1"
    size = 0
    encoding = ""

    def do_POST(self) -> None:
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        tool = {"name": "search", "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}}}
        results = {
            "initialize": {
                "protocolVersion": call.get("params", {}).get("protocolVersion", ""),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "wiki", "version": "1"},
            },
            "tools/list": {"tools": [tool]},
            "tools/call": {"content": [{"type": "text", "text": "comets " * (self.size // 7)}]},
        }
        known = call.get("method") in results
        answer = {"result": results[call["method"]]} if known else {"error": {"code": -32601, "message": "unknown"}}
        body = json.dumps({"jsonrpc": "2.0", "id": call.get("id"), **answer}).encode()
        self.send_response(200 if "id" in call else 202)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body) if "id" in call else 0))
        if self.encoding and call.get("method") == "tools/call":
            self.send_header("Content-Encoding", self.encoding)
        self.end_headers()
        if "id" in call:
            with suppress(OSError):
                self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(405)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def json_server() -> Iterator[tuple[type[McpOverJson], str]]:
    class Handler(McpOverJson):
        pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
        yield Handler, f"http://127.0.0.1:{http.server_port}/mcp"
        http.shutdown()


def test_a_response_beyond_the_limit_is_not_read(
    json_server: tuple[type[McpOverJson], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, address = json_server
    monkeypatch.setenv("CTX1_MAX_RESPONSE_MB", "1")
    with McpEngine(address) as engine:
        handler.size = 700_000
        assert len(engine("comets", 3)[0]) == 700_000
        handler.size = 4_000_000
        with pytest.raises(MCPError, match=r"larger than 1 MB\. .* set CTX1_MAX_RESPONSE_MB"):
            engine("comets", 3)
        handler.size, handler.encoding = 70, "gzip"
        with pytest.raises(MCPError):
            engine("comets", 3)
