"""Spans of a process go where OpenTelemetry's environment variables say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx

from tests.support.ctx1_process import CTX1, ONE_THREAD
from tests.support.ctx1_process import run as run_ctx1

CODE = """
from context_agent import Document, MemoryCorpus, SearchAgent
from context_agent.errors import ConfigError
from context_agent.integrations.otel import Tracing
from context_agent.integrations.otel_export import exporting

try:
    with exporting():
        SearchAgent(MemoryCorpus([Document("1", "A comet.")]), observers=[Tracing()]).search("What of comets?")
        print("searched")
except ConfigError as error:
    print("refused:", error)
"""


def run(**env: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    command = [sys.executable, "-c", CODE]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env={**inherited, **env})


def test_the_console_is_stderr() -> None:
    process = run(OTEL_TRACES_EXPORTER="console")
    assert process.stdout == "searched\n"
    assert '"name": "invoke_agent context-agent"' in process.stderr
    assert '"service.name": "ctx1"' in process.stderr


def test_the_service_is_named_by_the_environment() -> None:
    assert '"service.name": "librarian"' in run(OTEL_TRACES_EXPORTER="console", OTEL_SERVICE_NAME="librarian").stderr


def test_none_sends_nothing() -> None:
    process = run(OTEL_TRACES_EXPORTER="none")
    assert (process.stdout, process.stderr) == ("searched\n", "")


def test_an_exporter_that_is_not_installed() -> None:
    output = run(OTEL_TRACES_EXPORTER="zipkin").stdout
    assert output.startswith(
        "refused: OTEL_TRACES_EXPORTER=zipkin names an exporter that is not installed. Install it, or use one of "
    )
    assert "console, none" in output


def test_a_protocol_that_is_not_installed_or_unknown() -> None:
    output = run(OTEL_EXPORTER_OTLP_PROTOCOL="http/json").stdout
    assert output == "refused: OTEL_EXPORTER_OTLP_PROTOCOL must be one of grpc, http/protobuf; got http/json\n"


def test_the_http_server_goes_on_with_its_client_s_trace(tmp_path: Path) -> None:
    (tmp_path / "rope.txt").write_text("Rope is a film of 1948 directed by Alfred Hitchcock.")
    assert run_ctx1("index", "rope.txt", cwd=tmp_path).returncode == 0
    command = [CTX1, "serve", "--port", "0", "--json", "--otel", "--log-level", "error"]
    env = {**os.environ, **ONE_THREAD, "OTEL_TRACES_EXPORTER": "console"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=tmp_path
    ) as process:
        assert process.stdout
        url = json.loads(process.stdout.readline())["url"]
        trace = "0af7651916cd43dd8448eb211c80319c"
        headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        response = httpx.post(
            f"{url}/v1/retrieve", json={"question": "Who directed Rope?"}, headers=headers, timeout=60
        )
        assert response.status_code == 200
        process.terminate()
        _, spans = process.communicate(timeout=60)
    assert process.returncode == 0
    assert '"name": "invoke_agent context-agent"' in spans
    assert f'"trace_id": "0x{trace}"' in spans
    assert "Hitchcock" not in spans
