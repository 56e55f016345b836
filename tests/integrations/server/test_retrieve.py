"""`POST /v1/retrieve`, and the errors for requests that cannot be answered."""

from __future__ import annotations

import asyncio
import errno
import gzip
import itertools
import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from context_agent import Document, MemoryCorpus, ScriptedPolicy, SearchAgent
from context_agent.errors import CorpusCorruptError, PolicyError
from context_agent.harness.trajectory_file import TrajectoryWriter
from context_agent.integrations import feedback
from context_agent.integrations.server.app import application
from context_agent.integrations.server.bodies import read_body
from context_agent.integrations.server.body_room import BodyRoom, HeldBody
from context_agent.integrations.server.errors import Problem
from context_agent.integrations.server.logs import SERVER_LOGGER, JsonLines
from context_agent.integrations.server.schema import RetrieveAnswer
from context_agent.integrations.server.settings import Settings
from context_agent.pruning.view import View
from context_agent.testing.actions import call, search
from context_agent.types import Action
from tests.support.servers import Serve, problem

SECRET = "/secret/place sk-key"
"""Internal errors contain this text; answers must not."""


def test_the_answer_is_that_of_a_search(serve: Serve, tmp_path: Path) -> None:
    with serve() as server:
        response = server.ask("comets?", k=3, id="q7")
        body = response.json()
        RetrieveAnswer.model_validate_json(response.content)
        direct = server.service.index._template.search("comets?", k=3).to_json()
    assert response.status_code == 200
    assert (body["id"], body["question"], body["stop_reason"], body["error"]) == ("q7", "comets?", "finished", None)
    documents = [
        {name: document[name] for name in ("id", "title", "score", "chunks")} for document in body["documents"]
    ]
    assert documents == direct["documents"]
    assert len(documents) == 3
    assert body["usage"]["turns"] == body["turns"] == direct["turns"]
    assert 0 < body["usage"]["output_tokens"] < body["usage"]["tokens"] == direct["tokens"]
    assert (tmp_path / "trajectories" / f"{body['trajectory']}.jsonl").exists()
    assert str(tmp_path) not in response.text


def test_filters_and_metadata_pass_through(serve: Serve) -> None:
    documents = [Document(f"d{year}", f"comets seen in {year}", "", {"year": year}) for year in (1680, 1910, 1986)]
    with serve(on=MemoryCorpus(documents)) as server:
        results = server.ask(where={"year": {"$gte": 1900}}).json()["documents"]
    assert {document["id"]: document["metadata"] for document in results} == {
        "d1910": {"year": 1910},
        "d1986": {"year": 1986},
    }


def test_what_json_cannot_say(serve: Serve) -> None:
    unencodable = Document("odd", "comets \ud800 cut", "", {"n": float("nan"), "m": 1.5})
    policy = ScriptedPolicy([search("comets"), call("search_corpus", query="x", limit=float("inf"))])
    with serve(policy, on=MemoryCorpus([unencodable])) as server:
        (document,) = server.ask().json()["documents"]
        stream = server.ask(stream=True)
    assert document["metadata"] == {"n": None, "m": 1.5}
    assert document["chunks"][0]["text"] == "comets ? cut"
    assert "event: end" in stream.text
    assert "Infinity" not in stream.text


def test_a_request_id_is_taken_where_it_is_sane(serve: Serve) -> None:
    with serve() as server:
        valid = server.client.get("/health", headers={"X-Request-ID": "job-7:a"})
        with_spaces = server.client.get("/health", headers={"X-Request-ID": "a b\tc"})
        too_long = server.client.get("/health", headers={"X-Request-ID": "a" * 200})
    assert valid.headers["x-request-id"] == "job-7:a"
    assert len(with_spaces.headers["x-request-id"]) == len(too_long.headers["x-request-id"]) == 32


@pytest.mark.parametrize(
    ("header", "said"),
    [(None, "needed"), ("Bearer wrong", "wrong"), ("Basic abc", "wrong"), ("Bearer \xe4", "wrong"), ("abc", "needed")],
)
def test_a_token_is_asked_for(serve: Serve, header: str | None, said: str) -> None:
    with serve(token="abc") as server:
        headers = {"Authorization": "" if header is None else header.encode("latin-1")}
        for path in ("/v1/retrieve", "/metrics", "/openapi.json", "/nowhere"):
            refusal = server.client.get(path, headers=headers)
            assert said in problem(refusal, 401, "invalid_api_key")
            assert refusal.headers["www-authenticate"] == "Bearer"
        assert server.client.get("/health", headers=headers).status_code == 200
        assert server.ask().status_code == 200
        server.expect('ctx1_errors_total{code="invalid_api_key"}', 4)


@pytest.mark.parametrize(
    ("token", "sent"),
    [
        # In UTF-8, the last byte of this letter is a no-break space in Latin-1.
        ("voil\xe0", b" voil\xc3\xa0 "),
        # An environment variable may have bytes that are not UTF-8.
        ("a\udcff", b"a\xff"),
    ],
)
async def test_a_token_may_have_any_letter(token: str, sent: bytes) -> None:
    agent = SearchAgent(MemoryCorpus([Document("d", "comets")]), ScriptedPolicy([]))
    app = httpx.ASGITransport(application(agent, Settings(token=token)))
    async with httpx.AsyncClient(transport=app, base_url="http://localhost") as client:
        accepted = await client.get("/v1/models", headers={"Authorization": b"Bearer " + sent})
        refused = await client.get("/v1/models", headers={"Authorization": b"Bearer " + sent.strip()[:-1]})
    assert (accepted.status_code, refused.status_code) == (200, 401)


async def test_the_application_can_be_mounted_below_a_path_of_another_one() -> None:
    agent = SearchAgent(MemoryCorpus([Document("d", "comets")]), ScriptedPolicy([search("comets")]))
    routes = [Mount("/search", application(agent, Settings(token="abc")))]
    transport = httpx.ASGITransport(Starlette(routes=routes))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for public in ("/search/", "/search/health", "/search/ui/page.js"):
            assert (await client.get(public)).status_code == 200, public
        for secret in ("/search/v1/agent", "/search/metrics", "/search/uix", "/search//health"):
            assert (await client.get(secret)).status_code == 401, secret
        token = {"Authorization": "Bearer abc"}
        assert (await client.post("/search/v1/retrieve", json={"question": "comets?"}, headers=token)).is_success
        metrics = (await client.get("/search/metrics", headers=token)).text
    assert 'ctx1_requests_total{path="/v1/retrieve",status="200"} 1.0' in metrics
    assert 'ctx1_queue_seconds_count{path="/v1/retrieve"} 1.0' in metrics


def test_only_names_that_are_its_own_are_answered(serve: Serve) -> None:
    with serve(hosts=("127.0.0.1", "[::1]", "Search.example")) as server:
        for name in ("127.0.0.1:80", "search.example", "SEARCH.example:8321", "[::1]:80", "[::1]"):
            assert server.client.get("/v1/models", headers={"Host": name}).status_code == 200, name
        for name in ("evil.example", "127.0.0.1.evil.example:80", "[::2]:80", ""):
            problem(server.client.get("/v1/models", headers={"Host": name}), 403, "host_not_allowed")


@pytest.mark.parametrize(
    ("body", "status", "code", "said"),
    [
        (b"{", 400, "invalid_json", "EOF"),
        (b"\xff\xfe", 400, "invalid_json", "line 1"),
        (b'{"question": "\\ud80"}', 400, "invalid_json", "escape"),
        (b"[1]", 422, "invalid_request", "body"),
        (b"{}", 422, "invalid_request", "question: Field required"),
        (b'{"question": "  "}', 422, "invalid_request", "question"),
        (b'{"question": "\\u001c \\u001f"}', 422, "invalid_request", "question"),
        (b'{"question": "x", "k": 0}', 422, "invalid_request", "k: "),
        (b'{"question": "x", "k": "3"}', 422, "invalid_request", "k: "),
        (b'{"question": "x", "deadline": 0}', 422, "invalid_request", "deadline: "),
        (b'{"question": "x", "qestion": "y"}', 422, "invalid_request", "qestion"),
        (b'{"question": "x", "where": {"a": {"$foo": 1}}}', 400, "invalid_filter", "$foo"),
        (b'{"question": "x", "where": {"a": {"$gt": "b"}}}', 400, "invalid_filter", "$gt"),
        (b'{"question": "x", "where": {}}', 400, "invalid_filter", "exactly one"),
        (b'{"question": "x", "where": {"a": 1e999}}', 400, "invalid_filter", "finite"),
        (b'{"question": "x", "where": {"a": 99999999999999999999}}', 400, "invalid_filter", "64 bits"),
        (
            b'{"question": "x", "where": ' + b'{"$and": [' * 9 + b"1" + b"]}" * 9 + b"}",
            400,
            "invalid_filter",
            "16 levels",
        ),
    ],
)
def test_bad_bodies(serve: Serve, body: bytes, status: int, code: str, said: str) -> None:
    with serve() as server:
        response = server.client.post("/v1/retrieve", content=body, headers={"Content-Type": "application/json"})
        assert said in problem(response, status, code)
        assert server.service.admission.running == server.service.admission.waiting == 0


def test_what_is_not_there(serve: Serve) -> None:
    with serve() as server:
        problem(server.client.get("/nowhere"), 404, "not_found")
        # A redirect would name an address that a proxy before the server does not have.
        problem(server.client.post("/v1/retrieve/", json={"question": "x"}), 404, "not_found")
        refusal = server.client.get("/v1/retrieve")
        assert "does not support GET. Use POST" in problem(refusal, 405, "method_not_allowed")
        assert refusal.headers["allow"] == "POST"
        untyped = server.client.post("/v1/retrieve", content=b'{"question": "x"}')
        assert "Content-Type: application/json" in problem(untyped, 415, "unsupported_media_type")
        server.expect('ctx1_requests_total{path="other",status="404"}', 2)


@pytest.mark.parametrize(("length", "accepted"), [("²", True), ("9" * 5_000, False)])
def test_a_length_that_python_cannot_read_as_a_number(length: str, accepted: bool) -> None:
    """The server's parser refuses these lengths, but another ASGI server may pass them on."""
    headers = [(b"content-length", length.encode("latin-1"))]
    body = {"type": "http.request", "body": b"{}", "more_body": False}

    async def receive() -> dict[str, Any]:
        return body

    request = Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive)
    if accepted:
        assert asyncio.run(read_body(request, 1_000, HeldBody(BodyRoom(1_000)))) == b"{}"
    else:
        with pytest.raises(Problem) as refused:
            asyncio.run(read_body(request, 1_000, HeldBody(BodyRoom(1_000))))
        assert refused.value.status == 413


def test_a_body_that_is_too_large(serve: Serve) -> None:
    with serve(max_body=1_000) as server:
        problem(server.ask("x" * 1_000), 413, "too_large")

        def parts() -> Any:
            for _ in range(20):
                yield b" " * 100

        chunked = server.client.post("/v1/retrieve", content=parts(), headers={"Content-Type": "application/json"})
        problem(chunked, 413, "too_large")
        assert server.ask("x" * 500).status_code == 200


def test_a_question_that_the_budget_cannot_hold(serve: Serve) -> None:
    with serve() as server:
        assert "soft threshold" in problem(server.ask("word " * 19_000), 400, "question_too_long")


def fail(view: View) -> Action:
    """A step that fails with a policy error."""
    raise PolicyError(f"{SECRET} is down")


class DamagedCorpus(MemoryCorpus):
    """An index with damaged files. Only grep notices."""

    def grep(self, *args: Any, **options: Any) -> Any:
        raise CorpusCorruptError(f"Chroma cannot read {SECRET}")


def test_failures_inside_are_told_by_kind(serve: Serve) -> None:
    with serve(ScriptedPolicy([fail])) as server:
        assert problem(server.ask(), 502, "policy_error") == "the policy failed"
    corpus = DamagedCorpus([Document("a", "comets")])
    with serve(ScriptedPolicy([call("grep_corpus", pattern="x")]), on=corpus) as server:
        refusal = server.ask()
        assert problem(refusal, 503, "index_error") == "the index could not be searched"
        assert refusal.headers["retry-after"] == "5"


def test_a_byte_order_mark_before_the_body_is_ignored(serve: Serve) -> None:
    with serve() as server:
        headers = {"Content-Type": "application/json"}
        body = b'\xef\xbb\xbf{"question": "comets?"}'
        assert server.client.post("/v1/retrieve", content=body, headers=headers).json()["documents"]


def test_a_compressed_body_is_refused(serve: Serve) -> None:
    with serve() as server:
        body = gzip.compress(b'{"question": "comets?"}')
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        refusal = server.client.post("/v1/retrieve", content=body, headers=headers)
        assert "without the header Content-Encoding" in problem(refusal, 415, "unsupported_encoding")
        assert refusal.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("lines_before", [0, 3])
@pytest.mark.parametrize("stream", [False, True])
def test_a_full_disk_loses_the_record_and_not_the_search(
    serve: Serve,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    lines_before: int,
    *,
    stream: bool,
) -> None:
    write, written = TrajectoryWriter._line, itertools.count()

    def write_until_full(self: TrajectoryWriter, data: dict[str, Any]) -> None:
        if next(written) >= lines_before:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, data)

    with caplog.at_level(logging.INFO, SERVER_LOGGER.name), serve() as server:
        with monkeypatch.context() as patched:
            patched.setattr(TrajectoryWriter, "_line", write_until_full)
            response = server.ask(stream=stream)
        assert response.status_code == 200
        answer = json.loads(response.text.split("data: ")[-1]) if stream else response.json()
        assert answer["documents"]
        assert answer["trajectory"] is None
        assert list((tmp_path / "trajectories").glob("*.jsonl")) == []
        assert server.metric("ctx1_searches_unrecorded_total") == 1
        assert server.ask().json()["trajectory"]
    (lost,) = [record for record in caplog.records if record.getMessage() == "unrecorded"]
    assert "No space left on device" in str(vars(lost))


def test_a_request_that_cannot_be_listed_is_answered(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill_disk(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(feedback, "_append", fill_disk)
    with serve() as server:
        answer = server.ask()
        assert (answer.status_code, bool(answer.json()["trajectory"])) == (200, True)
        assert server.metric("ctx1_searches_unrecorded_total") == 1
        judgment = {"trajectory": answer.json()["trajectory"], "rating": 5}
        refusal = server.client.post("/v1/feedback", json=judgment)
        assert problem(refusal, 503, "not_recorded") == "the server cannot write the judgment. Its log has the reason."
        assert refusal.headers["retry-after"] == "5"


def test_a_failure_in_the_middle_leaves_what_was_found(serve: Serve) -> None:
    with serve(ScriptedPolicy([search("comets"), fail])) as server:
        response = server.ask()
    body = response.json()
    assert (response.status_code, body["stop_reason"]) == (200, "policy_error")
    assert body["documents"]
    assert body["error"] == "the policy failed"
    assert "secret" not in response.text


def test_what_nobody_foresaw_is_no_stack_trace(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    def fail_unexpectedly(view: View) -> Action:
        raise ZeroDivisionError(SECRET)

    with caplog.at_level(logging.INFO, SERVER_LOGGER.name), serve(ScriptedPolicy([fail_unexpectedly])) as server:
        problem(server.ask(), 500, "internal")
        assert server.client.get("/health").json()["ready"] is True
    (record,) = [record for record in caplog.records if record.getMessage() == "unexpected"]
    assert record.exc_info is not None


def test_a_log_line_is_json_with_the_requests_id_and_without_the_question(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    lines: list[dict[str, Any]] = []

    class Capture(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(JsonLines().format(record)))

    handler = Capture()
    SERVER_LOGGER.addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, SERVER_LOGGER.name), serve() as server:
            request_id = server.ask("a private question").headers["x-request-id"]
    finally:
        SERVER_LOGGER.removeHandler(handler)
    (line,) = [entry for entry in lines if entry["event"] == "request"]
    assert line["request_id"] == request_id
    assert (line["method"], line["path"], line["status"], line["stop_reason"]) == (
        "POST",
        "/v1/retrieve",
        200,
        "finished",
    )
    assert line["seconds"] >= line["seconds_searched"] > 0
    assert "private" not in json.dumps(lines)
