"""The HTTP embedder against a real local server, which answers well and badly."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import numpy as np
import pytest

from context_agent.errors import ConfigError, EmbedderError
from context_agent.retrieval.embedders import Embedder, load_embedder
from context_agent.retrieval.embedders.openai import OpenAIEmbedder
from tests.support.http_server import serving

KEY = "sk-very-secret"
Reply = tuple[int, dict[str, str], Any]


def good(request: dict[str, Any]) -> Reply:
    """Vectors of 4 values that tell the text's length; listed backwards, as the protocol allows."""
    rows = [{"index": i, "embedding": [float(len(text)), 1, 2, 3]} for i, text in enumerate(request["input"])]
    return 200, {}, {"object": "list", "data": rows[::-1]}


@dataclass
class Server:
    url: str = ""
    script: list[Callable[[dict[str, Any]], Reply]] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)

    def answer(self, request: dict[str, Any]) -> Reply:
        return (self.script.pop(0) if self.script else good)(request)

    def fail(self, status: int, times: int = 1, body: Any = None, **headers: str) -> None:
        header_values = {name.replace("_", "-"): value for name, value in headers.items()}
        self.script += [lambda _: (status, header_values, {"error": "no"} if body is None else body)] * times

    def say(self, body: Any) -> None:
        self.script.append(lambda _: (200, {}, body))


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.requests.append({"path": self.path, **request})
            state.keys.append(self.headers.get("Authorization"))
            status, headers, body = state.answer(request)
            payload = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(payload))}.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # the test of a slow server hangs up
                self.wfile.write(payload)

        def log_message(self, *args: object) -> None:
            """Silent: a test's output is for failures."""

    with serving(Handler) as port:
        state.url = f"http://127.0.0.1:{port}/v1"
        yield state
        state.release.set()


@pytest.fixture
def embedder(server: Server) -> Iterator[OpenAIEmbedder]:
    embedder = OpenAIEmbedder("tiny", base_url=server.url, batch_size=2, retries=3, backoff=0.01)
    yield embedder
    embedder.close()


def test_texts_go_in_batches_and_come_back_in_order_as_unit_rows(server: Server, embedder: OpenAIEmbedder) -> None:
    vectors = embedder.embed_documents(["a", "bb", "ccc"])
    assert isinstance(embedder, Embedder)
    assert [request["input"] for request in server.requests] == [["a", "bb"], ["ccc"]]
    assert server.requests[0]["path"] == "/v1/embeddings"
    assert server.requests[0]["model"] == "tiny"
    np.testing.assert_allclose(vectors[:, 0] / vectors[:, 1], [1, 2, 3], rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def test_an_address_may_end_in_a_query(server: Server) -> None:
    OpenAIEmbedder("tiny", base_url=f"{server.url}/?api-version=1").embed_query("a")
    assert server.requests[0]["path"] == "/v1/embeddings?api-version=1"


def test_blank_texts_are_zero_and_not_sent(server: Server, embedder: OpenAIEmbedder) -> None:
    vectors = embedder.embed_documents(["", "a", " \n"])
    assert vectors.any(axis=1).tolist() == [False, True, False]
    assert server.requests[0]["input"] == ["a"]


def test_nothing_to_embed_has_the_right_shape(embedder: OpenAIEmbedder) -> None:
    assert embedder.embed_documents([]).shape == (0, 4)


def test_lone_surrogates_can_be_sent(server: Server, embedder: OpenAIEmbedder) -> None:
    assert np.isfinite(embedder.embed_query("a\ud800b")).all()
    assert server.requests[0]["input"] == ["a?b"]


def test_prompts_are_put_before_the_texts_and_name_the_vectors(server: Server) -> None:
    embedder = OpenAIEmbedder("tiny", base_url=server.url, query_prompt="query: ", document_prompt="passage: ")
    embedder.embed_query("a")
    embedder.embed_documents(["b"])
    assert [request["input"] for request in server.requests] == [["query: a"], ["passage: b"]]
    assert "query: " in embedder.name
    embedder.close()


def test_the_dimension_is_asked_for_once(server: Server, embedder: OpenAIEmbedder) -> None:
    assert (embedder.dimension, embedder.dimension) == (4, 4)
    assert len(server.requests) == 1


def test_a_shortened_dimension_is_asked_of_the_server(server: Server) -> None:
    embedder = OpenAIEmbedder("tiny", base_url=server.url, dimension=4, request_dimension=True)
    embedder.embed_query("a")
    assert server.requests[0]["dimensions"] == 4
    assert embedder.name == "openai:tiny@127.0.0.1+4||"
    embedder.close()


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_what_may_pass_is_tried_again(server: Server, embedder: OpenAIEmbedder, status: int) -> None:
    server.fail(status, times=2)
    assert embedder.embed_query("a").any()
    assert len(server.requests) == 3


def test_retry_after_is_honoured(server: Server, embedder: OpenAIEmbedder) -> None:
    server.fail(429, Retry_After="0.3")
    start = time.perf_counter()
    embedder.embed_query("a")
    assert time.perf_counter() - start >= 0.3


@pytest.mark.parametrize("value", ["soon", "nan", "inf", "-3"])
def test_a_senseless_retry_after_does_no_harm(server: Server, embedder: OpenAIEmbedder, value: str) -> None:
    server.fail(429, Retry_After=value)
    assert embedder.embed_query("a").any()


def test_a_wait_of_an_hour_is_the_callers_decision(server: Server, embedder: OpenAIEmbedder) -> None:
    server.fail(429, Retry_After="3600")
    with pytest.raises(EmbedderError, match="asks to wait 3600 s, which is longer than the maximum of 60 s"):
        embedder.embed_query("a")
    assert len(server.requests) == 1


def test_it_gives_up_and_says_after_how_many_attempts(server: Server, embedder: OpenAIEmbedder) -> None:
    server.fail(500, times=9, body="the model is gone")
    with pytest.raises(EmbedderError, match=r"HTTP 500: .*the model is gone \(4 tries"):
        embedder.embed_query("a")
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("status", "hint"), [(400, "HTTP 400"), (401, "CTX1_TEST_KEY, which is not set"), (404, "/v1")]
)
def test_what_will_not_pass_is_told_at_once(server: Server, status: int, hint: str) -> None:
    server.fail(status)
    embedder = OpenAIEmbedder("tiny", base_url=server.url, api_key_env="CTX1_TEST_KEY")
    with pytest.raises(EmbedderError, match=hint):
        embedder.embed_query("a")
    assert len(server.requests) == 1
    embedder.close()


def test_a_server_that_does_not_answer_is_a_clear_error(server: Server) -> None:
    def slow(request: dict[str, Any]) -> Reply:
        server.release.wait(10)
        return good(request)

    server.script += [slow] * 2
    embedder = OpenAIEmbedder("tiny", base_url=server.url, timeout=0.1, retries=1, backoff=0.01)
    with pytest.raises(EmbedderError, match=r"no answer within 0\.1 s \(2 tries"):
        embedder.embed_query("a")
    server.release.set()
    embedder.close()


def test_no_server_is_a_clear_error() -> None:
    embedder = OpenAIEmbedder("tiny", base_url="http://127.0.0.1:9/v1", retries=1, backoff=0.01)
    with pytest.raises(EmbedderError, match=r"cannot connect.*\(2 tries"):
        embedder.embed_query("a")
    embedder.close()


def test_vectors_of_another_size_are_refused(server: Server) -> None:
    embedder = OpenAIEmbedder("tiny", base_url=server.url, dimension=8)
    with pytest.raises(EmbedderError, match=r"must have 8 values; got vectors of \[4\] values"):
        embedder.embed_query("a")
    embedder.close()


def test_a_size_that_changes_between_batches_is_refused(server: Server, embedder: OpenAIEmbedder) -> None:
    embedder.embed_query("a")
    server.say({"data": [{"index": 0, "embedding": [1, 2]}]})
    with pytest.raises(EmbedderError, match="each vector must have 4 values"):
        embedder.embed_query("b")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"<html>", "must send JSON"),
        (b"[]", "empty"),
        ({"data": [{"index": 0, "embedding": "abc"}]}, "must be a list of embeddings"),
        ({"data": [{"index": 0, "embedding": ["a"]}]}, "must have numbers"),
        ({"data": [{"index": [0], "embedding": [1.0]}]}, r"numbers below 1, each once; got \[\]"),
        (b'{"data": [{"index": 0, "embedding": [1e300]}]}', "must have finite numbers"),
        ({"data": "x"}, "must be a list of embeddings"),
        ({"data": []}, "one embedding for each of 1 texts; got 0"),
        ({"data": [{"index": 5, "embedding": [1.0]}]}, r"numbers below 1, each once; got \[5\]"),
        ({"data": [{"index": 0, "embedding": []}]}, "each vector must have at least 1 values"),
        (b'{"data": [{"index": 0, "embedding": [NaN, 1.0]}]}', "must have finite numbers"),
    ],
)
def test_a_senseless_answer_is_refused(server: Server, embedder: OpenAIEmbedder, body: Any, complaint: str) -> None:
    for _ in range(4):
        server.say(body)
    with pytest.raises(EmbedderError, match=complaint):
        embedder.embed_query("a")


def test_the_key_is_sent_and_never_shown(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTX1_TEST_KEY", KEY)
    embedder = OpenAIEmbedder("tiny", base_url=server.url, api_key_env="CTX1_TEST_KEY")
    embedder.embed_query("a")
    assert server.keys == [f"Bearer {KEY}"]
    server.fail(401)
    with pytest.raises(EmbedderError) as excinfo:
        embedder.embed_query("a")
    assert KEY not in str(excinfo.value) + repr(embedder) + str(vars(embedder)) + embedder.name
    embedder.close()


def test_an_unset_key_sends_no_header(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    load_embedder(f"openai:tiny@{server.url}").embed_query("a")
    assert server.keys == [None]


def test_a_password_in_the_address_is_never_shown() -> None:
    embedder = OpenAIEmbedder("tiny", base_url="http://user:hunter2@localhost:9/v1?token=hunter2")
    assert "hunter2" not in repr(embedder) + embedder.name


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host/v1", "http://", "http://a:b:c"])
def test_an_address_that_cannot_be_is_refused_at_construction(url: str) -> None:
    with pytest.raises(ConfigError, match="address must look like"):
        OpenAIEmbedder("tiny", base_url=url)


def test_the_spec_names_the_variable_with_the_key(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTX1_TEST_KEY", KEY)
    embedder = load_embedder(f"openai:tiny@{server.url}?api-version=1&api_key_env=CTX1_TEST_KEY")
    embedder.embed_query("a")
    assert server.keys == [f"Bearer {KEY}"]
    assert server.requests[0]["path"] == "/v1/embeddings?api-version=1"
    assert embedder.name == "openai:tiny@127.0.0.1"
