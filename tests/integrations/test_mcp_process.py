"""`ctx1 mcp` as a process, called by the SDK's own client: over stdio, and over streamable HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.support.ctx1_process import CTX1, ONE_THREAD, run
from tests.support.film_question import QUESTION, TEXTS
from tests.support.forked_ctx1 import forked_ctx1

TOKEN = "a-token-for-tests"
PATIENCE = 120
FREED_SECONDS = 60
"""The time in which a search must end after its client has hung up. By itself, it ends after 120 seconds."""


NOISE = """
import sys

class Noisy:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("chromadb", "tantivy", "mcp")):
            print("noise", name)

sys.meta_path.insert(0, Noisy())
"""
"""Libraries that print when they are imported, as a `sitecustomize` module."""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the documents, made by `ctx1 index`."""
    folder = tmp_path_factory.mktemp("mcp")
    for title, (text, _) in TEXTS.items():
        (folder / "notes").mkdir(exist_ok=True)
        (folder / "notes" / f"{title}.md").write_text(f"# {title}\n\n{text}\n", encoding="utf-8")
    result = run("index", folder / "notes", "--path", folder / "index", cwd=folder)
    assert result.returncode == 0, result.stderr
    return folder / "index"


@contextmanager
def serving(index: Path, *options: str, **env: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a fork that serves on a free port. Give its address and its process, which the block may end."""
    command = [forked_ctx1(), "mcp", "--http", "--port", "0", "--path", str(index), "--json", *options]
    environment = {**os.environ, **ONE_THREAD, **env}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout
            assert process.stderr
            output = process.stdout.readline()
            assert output, process.stderr.read()
            yield json.loads(output)["url"], process
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)


async def retrieve(client: Client) -> list[str]:
    arguments = {"question": QUESTION, "k": 2, "detail": "full"}
    answer = await client.call_tool("retrieve", arguments, read_timeout_seconds=PATIENCE)
    assert not answer.is_error, answer.content
    return [item["title"] for item in (answer.structured_content or {})["documents"]]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_over_stdio(index: Path, mode: str) -> None:
    messages: list[str | None] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        messages.append(message)

    # One of them is the installed one.
    command = CTX1 if mode == "auto" else forked_ctx1()
    server = StdioServerParameters(command=command, args=["mcp", "--path", str(index)], env=ONE_THREAD)
    async with Client(server, mode=mode, read_timeout_seconds=PATIENCE) as client:
        arguments = {"question": QUESTION, "k": 2, "detail": "full"}
        answer = await client.call_tool("retrieve", arguments, progress_callback=note)
        assert [item["title"] for item in (answer.structured_content or {})["documents"]] == [
            "Rope",
            "Alfred Hitchcock",
        ]
        assert messages
        grep_answer = await client.call_tool("grep", {"pattern": "(unclosed"})
        assert grep_answer.is_error


def test_stdout_carries_the_protocol_alone_and_the_end_of_stdin_ends_the_server(index: Path, tmp_path: Path) -> None:
    requests: list[dict[str, Any]] = [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "raw", "version": "1"},
            },
        },
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "read", "arguments": {"document_id": "x"}},
        },
    ]
    (tmp_path / "sitecustomize.py").write_text(NOISE)
    command = [CTX1, "mcp", "--path", str(index), "--otel", "--log-level", "info"]
    env = {**os.environ, **ONE_THREAD, "OTEL_TRACES_EXPORTER": "console", "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdin
        assert process.stdout
        for message in requests:
            process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        answers = {}
        while len(answers) < 2:
            answer = json.loads(process.stdout.readline())
            answers[answer["id"]] = answer
        assert answers[1]["result"]["serverInfo"]["name"] == "context-agent"
        assert answers[2]["result"]["isError"]
        rest, log = process.communicate(timeout=PATIENCE)
    assert rest == ""
    assert process.returncode == 0
    records = [json.loads(line) for line in log.splitlines() if line.startswith('{"time"')]
    assert [record["outcome"] for record in records if record["event"] == "call"] == ["refused"]
    assert "noise tantivy" in log
    assert "noise mcp" in log
    assert '"tools/call read"' in log, "spans go to stderr, and the last ones are sent before the end"


def test_an_interrupt_ends_it_over_stdio_too(index: Path) -> None:
    line = [CTX1, "mcp", "--path", str(index), "--log-level", "info"]
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write('{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert "Traceback" not in process.communicate()[1]


async def test_over_streamable_http(index: Path) -> None:
    with serving(index) as (url, process):
        async with Client(url, mode="legacy", read_timeout_seconds=PATIENCE) as client:
            assert await retrieve(client) == ["Rope", "Alfred Hitchcock"]
        async with (
            Client(url, read_timeout_seconds=PATIENCE) as first_client,
            Client(f"{url}/", read_timeout_seconds=PATIENCE) as second_client,
        ):
            answers = await asyncio.gather(retrieve(first_client), retrieve(second_client))
        assert answers == [["Rope", "Alfred Hitchcock"]] * 2
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, PATIENCE) == 0


async def test_the_token_is_asked_for(index: Path) -> None:
    with serving(index, "--token-env", "CTX1_TEST_TOKEN", CTX1_TEST_TOKEN=TOKEN) as (url, _):
        async with httpx.AsyncClient() as stranger:
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
                response = await stranger.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=headers)
                assert response.status_code == 401
                assert response.headers["WWW-Authenticate"].startswith("Bearer ")
                assert TOKEN not in response.text
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=PATIENCE) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            assert await retrieve(client) == ["Rope", "Alfred Hitchcock"]


def test_a_page_in_a_browser_cannot_call_it_unless_it_is_allowed(index: Path) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = {"Accept": "application/json, text/event-stream"}
    with serving(index, "--allow-origin", "https://app.example") as (url, _):
        statuses = {
            name: httpx.post(url, json=ping, headers={**accept, **headers}).status_code
            for name, headers in {
                "a page elsewhere": {"Origin": "https://evil.example"},
                "a rebound name": {"Host": "evil.example:80"},
                "the allowed page": {"Origin": "https://app.example"},
                "a page of this machine": {"Origin": "http://localhost:3000"},
            }.items()
        }
        assert statuses["a page elsewhere"] == 403
        assert statuses["a rebound name"] == 421
        assert statuses["the allowed page"] not in (401, 403, 421)
        assert statuses["a page of this machine"] not in (401, 403, 421)
        response = httpx.post(url, content=b"x" * 1_000_001, headers={**accept, "Content-Type": "application/json"})
        assert response.status_code == 413


def test_an_allowed_host_may_be_spelled_as_clients_spell_it(index: Path) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = {"Accept": "application/json, text/event-stream"}
    with serving(index, "--allow-host", "Search.Example.", "--allow-host", "2001:DB8::1") as (url, _):
        hosts = ("search.example", "SEARCH.example.:8322", "[2001:db8:0::1]:80", "[2001:db8::1]", "[2001:db8::2]")
        statuses = [httpx.post(url, json=ping, headers={**accept, "Host": host}).status_code for host in hosts]
    assert [status == 421 for status in statuses] == [False, False, False, False, True]


async def test_a_client_over_http_that_hangs_up_frees_its_slot(index: Path) -> None:
    """When a client disconnects, its search ends and the only slot is free for the next caller."""
    options = ("--concurrency", "1", "--queue", "0", "--policy", "chat", "--model", "x", "--base-url")
    async with hanging() as (base, reached):
        with serving(index, *options, base) as (url, _):
            for mode in ("legacy", "auto"):
                async with running_search(url, mode, reached) as client:
                    refusal = await client.call_tool("retrieve", {"question": QUESTION})
                    assert "1 running" in str(refusal.content), mode
                async with running_search(url, mode, reached):
                    pass


@asynccontextmanager
async def running_search(url: str, mode: str, reached: asyncio.Event) -> AsyncIterator[Client]:
    """Give a client whose search has reached the model. It hangs up at the end of the block.

    The server refuses the search until the one before has ended.
    """
    async with Client(url, mode=mode) as client:
        reached.clear()
        async with asyncio.timeout(FREED_SECONDS):
            while not reached.is_set():
                call = asyncio.create_task(client.call_tool("retrieve", {"question": QUESTION}))
                waiting = asyncio.create_task(reached.wait())
                await asyncio.wait([call, waiting], return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
        yield client
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


@asynccontextmanager
async def hanging() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Start a model server that never answers. Give its address, and an event that each connection sets."""
    reached = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", reached


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("--http", "--host", "0.0.0.0"), 2, "other machines can reach 0.0.0.0. Pass --token-env"),
        (("--http", "--token-env", "CTX1_NO_SUCH"), 2, "the environment variable CTX1_NO_SUCH"),
        (("--http", "--port", "99999"), 2, "99999"),
        (("--path", "nowhere"), 1, "To make this index: ctx1 index SOURCE --path nowhere"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(
    options: tuple[str, ...], code: int, told: str, tmp_path: Path
) -> None:
    result = run("mcp", *options, cwd=tmp_path)
    assert result.returncode == code
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""
