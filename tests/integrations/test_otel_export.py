"""Spans of a process go where OpenTelemetry's environment variables say."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support.ctx1_process import run as run_ctx1
from tests.support.ctx1_server import serving
from tests.support.forked_programs import run_program

Search = Callable[..., CompletedProcess[str]]

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


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Search:
    """Run a search in a process of its own, with these environment variables and no others of OpenTelemetry."""
    program = tmp_path / "search.py"
    program.write_text(CODE, encoding="utf-8")

    def search(**env: str) -> CompletedProcess[str]:
        with monkeypatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("OTEL_")]:
                patch.delenv(name)
            for name, value in env.items():
                patch.setenv(name, value)
            process = run_program(program)
        assert process.returncode == 0, process.stderr
        return process

    return search


def test_the_console_is_stderr(search: Search) -> None:
    process = search(OTEL_TRACES_EXPORTER="console")
    assert process.stdout == "searched\n"
    assert '"name": "invoke_agent context-agent"' in process.stderr
    assert '"service.name": "ctx1"' in process.stderr


def test_the_service_is_named_by_the_environment(search: Search) -> None:
    process = search(OTEL_TRACES_EXPORTER="console", OTEL_SERVICE_NAME="librarian")
    assert '"service.name": "librarian"' in process.stderr


def test_none_sends_nothing(search: Search) -> None:
    process = search(OTEL_TRACES_EXPORTER="none")
    assert (process.stdout, process.stderr) == ("searched\n", "")


def test_an_exporter_that_is_not_installed(search: Search) -> None:
    output = search(OTEL_TRACES_EXPORTER="zipkin").stdout
    assert output.startswith(
        "refused: OTEL_TRACES_EXPORTER=zipkin names an exporter that is not installed. Install it, or use one of "
    )
    assert "console, none" in output


def test_a_protocol_that_is_not_installed_or_unknown(search: Search) -> None:
    output = search(OTEL_EXPORTER_OTLP_PROTOCOL="http/json").stdout
    assert output == "refused: OTEL_EXPORTER_OTLP_PROTOCOL must be one of grpc, http/protobuf; got http/json\n"


def test_the_http_server_goes_on_with_its_client_s_trace(tmp_path: Path) -> None:
    (tmp_path / "rope.txt").write_text("Rope is a film of 1948 directed by Alfred Hitchcock.")
    assert run_ctx1("index", "rope.txt", cwd=tmp_path).returncode == 0
    options = ("--otel", "--log-level", "error")
    with serving(*options, cwd=tmp_path, OTEL_TRACES_EXPORTER="console") as server:
        trace = "0af7651916cd43dd8448eb211c80319c"
        headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        response = server.client.post("/v1/retrieve", json={"question": "Who directed Rope?"}, headers=headers)
        assert response.status_code == 200
        server.process.terminate()
        _, spans = server.process.communicate(timeout=60)
    assert server.process.returncode == 0
    assert '"name": "invoke_agent context-agent"' in spans
    assert f'"trace_id": "0x{trace}"' in spans
    assert "Hitchcock" not in spans
