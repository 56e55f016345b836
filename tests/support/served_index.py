"""An index that is served by a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from context_agent import Document
from tests.support.ctx1_process import CTX1, ONE_THREAD, PATIENCE
from tests.support.forked_ctx1 import forked_ctx1

DOCUMENTS = [Document(f"d{number}", f"Comet {number} grows a tail near the sun.") for number in range(20)]
CALL = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@contextmanager
def serving(index: Path, *command: str) -> Iterator[str]:
    """Start a server as a fork, and give its address."""
    with _started(forked_ctx1(), *command, "--path", str(index)) as (url, _):
        yield url


@contextmanager
def serving_process(index: Path, *command: str, descriptors: int | None = None) -> Iterator[tuple[str, int]]:
    """Start the installed `ctx1`, with at most so many file descriptors. Give its address and its process id."""
    limit = [] if descriptors is None else ["sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh"]
    with _started(*limit, CTX1, *command, "--path", str(index)) as server:
        yield server


@contextmanager
def _started(*command: str) -> Iterator[tuple[str, int]]:
    line = [*command, "--port", "0", "--json", "--log-level", "error"]
    environment = {**os.environ, **ONE_THREAD}
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout
            yield json.loads(process.stdout.readline())["url"], process.pid
        finally:
            process.terminate()
            process.wait(PATIENCE)


def address_of(url: str) -> tuple[str, int]:
    parsed = httpx.URL(url)
    assert parsed.port
    return parsed.host, parsed.port


def called(url: str, tool: str, **arguments: Any) -> str:
    """Return the answer of an MCP tool as it came, without a session."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    return httpx.post(url, json=body, headers=CALL, timeout=60).text
