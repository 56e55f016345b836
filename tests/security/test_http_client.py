"""The HTTP client against servers that want keys, memory or belief that they should not get."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from context_agent import SearchAgent
from context_agent._support.http_body import LIMIT_VARIABLE
from context_agent._support.http_client import BASE_URL, Endpoint, Events, Refusal
from context_agent._support.processes import environment
from context_agent.errors import ConfigError, ContextAgentError, EmbedderError, PolicyError, RerankerError, ServerError
from context_agent.harness.trajectory_file import read
from context_agent.policies.chat import ChatPolicy
from context_agent.policies.chat.probe import inspect_server
from context_agent.policies.chat.replies import LONGEST_TEXT, read_reply
from context_agent.policies.chat.scripted_server import ScriptedServer, says
from context_agent.retrieval.embedders import load_embedder
from context_agent.retrieval.embedders.openai import OpenAIEmbedder
from context_agent.retrieval.rerankers import HttpReranker, load_reranker
from tests.support.bounded import bounded
from tests.support.chatting import QUESTION, corpus
from tests.support.http_server import Response, http_server
from tests.support.raw_http import raw_upstream

KEY = "sk-very/secret+key=123456789"
VECTORS = Response({"data": [{"index": 0, "embedding": [1.0, 2.0]}]})
SCORES = Response([{"index": 0, "score": 1.0}])
MESSAGE = {"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]}


@pytest.fixture
def openai_key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return KEY


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    """Requests to any host, answered here: there is no network in a test."""
    requests: list[httpx.Request] = []

    async def handle(self: object, request: httpx.Request) -> httpx.Response:
        await request.aread()
        requests.append(request)
        return httpx.Response(200, stream=httpx.ByteStream(json.dumps(VECTORS.body).encode()))

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", handle)
    return requests


# Keys go to the host they are meant for ---------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_openai_key_goes_to_no_host_that_the_user_names(openai_key: str, host: str) -> None:
    with http_server(VECTORS) as server:
        load_embedder(f"openai:m@{server.url(host)}/v1").embed_query("a")
    assert openai_key not in json.dumps(server.requests)
    assert "authorization" not in server.requests[0]["headers"]


@pytest.mark.parametrize(
    ("address", "sent"),
    [
        ("https://api.openai.com/v1", True),
        ("https://API.openai.com:443/v1", True),
        ("http://api.openai.com/v1", False),
        ("https://api.openai.com:8443/v1", False),
        ("https://api.openai.com.example.org/v1", False),
        ("https://api.openai.com@example.org/v1", False),
        ("https://example.org/api.openai.com/v1", False),
        ("https://xapi.openai.com/v1", False),
        ("https://api.openai.com./v1", False),
    ],
)
def test_the_openai_key_goes_to_openai_alone(
    openai_key: str, recorded: list[httpx.Request], address: str, sent: bool
) -> None:
    load_embedder(f"openai:m@{address}").embed_query("a")
    assert (recorded[0].headers.get("authorization") == f"Bearer {openai_key}") is sent


def test_without_an_address_the_key_goes_to_openai(openai_key: str, recorded: list[httpx.Request]) -> None:
    load_embedder("openai:m").embed_query("a")
    assert recorded[0].url == "https://api.openai.com/v1/embeddings"
    assert recorded[0].headers["authorization"] == f"Bearer {openai_key}"


def test_no_reranker_gets_a_key_that_was_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONTEXT_AGENT_RERANK_API_KEY", "OPENAI_API_KEY", "CTX1_API_KEY"):
        monkeypatch.setenv(name, KEY)
    with http_server(SCORES) as server:
        reranker = load_reranker(f"{server.url()}/rerank#m")
        assert reranker is not None
        reranker.score("q", ["a"])
    assert "authorization" not in server.requests[0]["headers"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_takes_no_key_and_no_question_to_another_host(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with http_server(VECTORS) as other_server:
        location = other_server.url("localhost") + "/v1/embeddings"
        with http_server(Response(b"", status, {"Location": location})) as server:
            embedder = OpenAIEmbedder("m", base_url=server.url() + "/v1", api_key_env="MY_KEY", retries=0)
            with pytest.raises(EmbedderError, match=r"it redirects to http://localhost.*Pass the final address"):
                embedder.embed_query("a")
            policy = ChatPolicy("m", base_url=server.url() + "/v1", api_key_env="MY_KEY", retries=0)
            with pytest.raises(PolicyError, match="redirects"):
                SearchAgent(corpus(), policy).search(QUESTION)
    assert not other_server.requests
    assert [request["headers"]["authorization"] for request in server.requests] == [f"Bearer {KEY}"] * 2


# Keys are shown nowhere -------------------------------------------------------------------------------------------


def spellings() -> dict[str, str]:
    """The key as servers quote it."""
    return {
        "plain": KEY,
        "quoted": quote(KEY, safe=""),
        "escaped": KEY.replace("/", "\\/"),
        "base64": base64.b64encode(KEY.encode()).decode(),
        "header in base64": base64.b64encode(f"Bearer {KEY}".encode()).decode(),
    }


def shows_key(text: str) -> bool:
    """Whether a text has a recognizable part of the key."""
    middle = [spelling[6:-6] for spelling in spellings().values()]
    return any(part in text for part in middle)


@pytest.mark.parametrize("spelling", spellings())
@pytest.mark.parametrize("status", [401, 500])
@pytest.mark.parametrize("shape", ["json", "text"])
def test_an_error_that_quotes_the_key_is_shown_without_it(
    spelling: str, status: int, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    quoted = spellings()[spelling]
    body: Any = {"error": {"message": f"Bad key {quoted}."}} if shape == "json" else f"Bad key {quoted}.".encode()
    with http_server(Response(body, status)) as server:
        calls = [
            lambda: OpenAIEmbedder("m", base_url=server.url(), api_key_env="MY_KEY", retries=0).embed_query("a"),
            lambda: HttpReranker(server.url(), api_key_env="MY_KEY", retries=0).score("q", ["a"]),
            lambda: SearchAgent(
                corpus(), ChatPolicy("m", base_url=server.url(), api_key_env="MY_KEY", retries=0)
            ).search(QUESTION),
        ]
        for call in calls:
            with pytest.raises((EmbedderError, PolicyError, RerankerError)) as excinfo:
                call()
            assert "[key]" in str(excinfo.value)
            assert not shows_key(str(excinfo.value))
        checks = inspect_server(server.url(), "m", api_key_env="MY_KEY", timeout=5.0)
    assert not shows_key(repr(checks))


@pytest.mark.parametrize("body", [KEY.encode(), b"x" + KEY.encode(), b'["' + KEY.encode()], ids=["key", "x", "list"])
def test_a_body_that_is_no_json_is_quoted_without_the_key(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with http_server(Response(body)) as server, pytest.raises(EmbedderError) as excinfo:
        OpenAIEmbedder("m", base_url=server.url(), api_key_env="MY_KEY", retries=0).embed_query("a")
    assert KEY[:12] not in str(excinfo.value)


def test_a_password_in_an_address_is_redacted_as_a_key_is() -> None:
    with http_server(Response(b"hunter2-hunter2 is wrong", 500)) as server:
        address = server.url().replace("http://", "http://user:hunter2-hunter2@")
        with pytest.raises(EmbedderError, match=r"\[key\] is wrong") as excinfo:
            OpenAIEmbedder("m", base_url=address, retries=0).embed_query("a")
    assert "hunter2" not in str(excinfo.value)


@pytest.mark.parametrize("spelling", spellings())
@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_that_quotes_the_key_leaves_it_out_of_the_trajectory(
    spelling: str, stream: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where a stream brings the key in pieces, and where it is escaped in arguments, which are JSON in JSON."""
    monkeypatch.setenv("MY_KEY", KEY)
    quoted = spellings()[spelling]
    arguments = '{"query": "' + quoted.replace("/", "\\/").replace("s", "\\u0073") + '"}'
    reply = says(f"Your key is {quoted}.", reasoning=f"The key: {quoted}", calls=[("search_corpus", arguments)])
    final = says(f"{quoted}\n<Document id=d0><Justification>{quoted}</Justification></Document>")
    with ScriptedServer([reply, final]) as server:
        policy = ChatPolicy("scripted", base_url=server.url, api_key_env="MY_KEY", stream=stream)
        result = SearchAgent(corpus(), policy, trajectories=tmp_path).search(QUESTION)
    assert result.trajectory is not None
    trajectory_text = result.trajectory.read_text()
    assert "[key]" in trajectory_text
    assert not shows_key(trajectory_text + repr(result))
    read(result.trajectory).verify()


# Memory -----------------------------------------------------------------------------------------------------------


def call_chat(url: str) -> object:
    return asyncio.run(Endpoint(url, api_key_env=None, retries=0).post("/c", {"model": "m"}, read_reply))


def call_embedder(url: str) -> object:
    return OpenAIEmbedder("m", base_url=url, retries=0).embed_query("a")


def call_reranker(url: str) -> object:
    return HttpReranker(url, retries=0).score("q", ["a"])


CALLS = {"chat": call_chat, "embedder": call_embedder, "reranker": call_reranker}
LIMIT_MB = 4
"""The limit that the calls get, so that they read a quarter of the default one."""
MEGABYTES = 20 * LIMIT_MB
"""What a call may take: the response as bytes and as text, and eight times the limit for what is decoded."""
GIGABYTE = 1 << 30
PIECE = 1 << 20
WITHIN_LIMIT = (LIMIT_MB << 20) - PIECE


def error_of(kind: str, url: str) -> str:
    try:
        CALLS[kind](url)
    except ContextAgentError as error:
        return str(error)[:1000]
    return "no error"


def measure(kind: str, url: str) -> tuple[int, str]:
    """Megabytes that one call takes above the process at rest, with a limit of `LIMIT_MB`, and its error."""
    with environment({LIMIT_VARIABLE: str(LIMIT_MB)}):
        outcome = bounded(error_of, kind, url, seconds=300)
    assert outcome.error is None, repr(outcome.error)
    return outcome.memory >> 20, outcome.value


def repeat_bytes(piece: bytes, total: int = GIGABYTE, *, start: bytes = b"") -> Iterator[bytes]:
    yield start
    block = piece * (PIECE // len(piece))
    for _ in range(total // len(block)):
        yield block


def event(content: str) -> bytes:
    return f"data: {json.dumps({'choices': [{'delta': {'content': content}}]})}\n\n".encode()


@cache
def bomb(size: int = GIGABYTE) -> bytes:
    """A gzip file of about a thousandth of its content's size."""
    block, count = b" " * PIECE, size // PIECE
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    # After a full flush, the same block is compressed to the same bytes.
    packed = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = 0
    for _ in range(count):
        checksum = zlib.crc32(block, checksum)
    head = gzip.compress(b"")[:10]
    return head + packed * count + packer.flush() + struct.pack("<LL", checksum, size & 0xFFFFFFFF)


def test_the_bomb_is_a_whole_gzip_file() -> None:
    assert gzip.decompress(bomb(3 * PIECE)) == b" " * (3 * PIECE)


def says_once(content: str) -> bytes:
    message = {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}
    return json.dumps(message, ensure_ascii=False).encode()


STREAM = {"Content-Type": "text/event-stream"}
GZIP = {"Content-Encoding": "gzip"}
BODIES = {
    "200": lambda: Response(repeat_bytes(b"a" * 64, start=b'{"data": "')),
    "200 with a length": lambda: Response(repeat_bytes(b"a" * 64), headers={"Content-Length": str(GIGABYTE)}),
    "400": lambda: Response(repeat_bytes(b"error "), 400),
    "500": lambda: Response(repeat_bytes(b"error "), 500),
    "stream": lambda: Response(repeat_bytes(event("word")), headers=STREAM),
    "stream of one line": lambda: Response(repeat_bytes(b"a" * 64, start=b"data: "), headers=STREAM),
    "stream of comments": lambda: Response(repeat_bytes(b": ping\n"), headers=STREAM),
    "gzip": lambda: Response(bomb(), headers=GZIP),
    "gzip in an error": lambda: Response(bomb(), 400, headers=GZIP),
    "gzip in a stream": lambda: Response(bomb(), headers={**STREAM, **GZIP}),
    "many values": lambda: Response(repeat_bytes(b"{},", WITHIN_LIMIT, start=b"[")),
    "many events": lambda: Response(repeat_bytes(b"data:{}\n", WITHIN_LIMIT), headers=STREAM),
    "many names": lambda: Response(b"{" + b",".join(b'"%d":0' % i for i in range(WITHIN_LIMIT // 12)) + b"}"),
    "many strings": lambda: Response(b"[" + b",".join(b'"%d"' % i for i in range(WITHIN_LIMIT // 10)) + b"]"),
    "many numbers": lambda: Response(b"[" + b",".join(b"%d.5" % i for i in range(WITHIN_LIMIT // 10)) + b"]"),
    "wide text": lambda: Response(says_once("😀" + "a" * WITHIN_LIMIT)),
}


@pytest.mark.slow
@pytest.mark.parametrize("body", BODIES)
def test_a_response_of_a_gigabyte_takes_bounded_memory(body: str) -> None:
    with http_server(lambda _: BODIES[body]()) as server:
        megabytes, message = measure("chat", server.url())
    assert megabytes <= MEGABYTES, message
    if body.startswith(("400", "500")):
        assert f"HTTP {body}" in message
    elif not body.startswith(("gzip in an error", "wide", "many")):
        assert LIMIT_VARIABLE in message


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["embedder", "reranker"])
@pytest.mark.parametrize("body", ["200", "400", "gzip"])
def test_embedders_and_rerankers_have_the_same_bound(kind: str, body: str) -> None:
    with http_server(lambda _: BODIES[body]()) as server:
        megabytes, message = measure(kind, server.url())
    assert megabytes <= MEGABYTES, message
    assert "failed" in message


def test_the_limit_can_be_raised_and_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"data": [{"index": 0, "embedding": [1.0]}], "note": "word " * 500_000}
    with http_server(Response(words)) as server:
        embedder = OpenAIEmbedder("m", base_url=server.url(), retries=0)
        monkeypatch.setenv(LIMIT_VARIABLE, "1")
        with pytest.raises(EmbedderError, match=f"larger than 1 MB.*set {LIMIT_VARIABLE}"):
            embedder.embed_query("a")
        monkeypatch.setenv(LIMIT_VARIABLE, "3")
        assert embedder.embed_query("a").shape == (1,)
        monkeypatch.setenv(LIMIT_VARIABLE, "many")
        with pytest.raises(ConfigError, match="number of megabytes"):
            embedder.embed_query("a")


def test_a_compressed_response_is_read() -> None:
    with http_server(Response(gzip.compress(json.dumps(VECTORS.body).encode()), headers=GZIP)) as server:
        assert OpenAIEmbedder("m", base_url=server.url()).embed_query("a").shape == (2,)
    assert server.requests[0]["headers"]["accept-encoding"] == "gzip"


@pytest.mark.parametrize(
    ("data", "encoding", "words"),
    [
        (gzip.compress(b"{}" * 999)[:-9], "gzip", "truncated gzip"),
        (b"no gzip", "gzip", "broken gzip"),
        (b"{}", "br", "'br', which was not requested"),
    ],
    ids=["truncated", "broken", "another"],
)
def test_a_compression_that_cannot_be_read_is_an_error(data: bytes, encoding: str, words: str) -> None:
    with (
        http_server(Response(data, headers={"Content-Encoding": encoding})) as server,
        pytest.raises(EmbedderError, match=words),
    ):
        OpenAIEmbedder("m", base_url=server.url(), retries=0).embed_query("a")


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("depth", [500, 900, 950, 980, 100_000])
def test_nesting_is_survived(status: int, depth: int) -> None:
    body = b'{"error": ' + b"[" * depth + b"]" * depth + b"}"
    with http_server(Response(body, status)) as server, pytest.raises(ServerError):
        Endpoint(server.url(), api_key_env=None, retries=0).post_sync("", {}, read_reply)


def test_brackets_in_a_text_are_no_values() -> None:
    """A model that repeats itself is no attack."""
    text = "[{,}]" * 1_000_000
    with http_server(Response({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})) as server:
        reply = Endpoint(server.url(), api_key_env=None).post_sync("", {}, read_reply)
    assert reply.text == text[:LONGEST_TEXT]


# Time -------------------------------------------------------------------------------------------------------------


def slowly(piece: bytes) -> Iterator[bytes]:
    for _ in range(600):
        time.sleep(0.1)
        yield piece


@pytest.mark.parametrize(
    "response",
    [
        lambda: Response(slowly(b" ")),
        lambda: Response(slowly(b" "), 400),
        lambda: Response(slowly(b": \n"), 200, STREAM),
    ],
    ids=["200", "400", "stream"],
)
def test_a_server_that_trickles_meets_the_deadline(response: Any) -> None:
    start = time.perf_counter()
    with http_server(lambda _: response()) as server:
        endpoint = Endpoint(server.url(), api_key_env=None, timeout=0.3, retries=0)
        with pytest.raises(ServerError, match="no answer within"):
            endpoint.post_sync("", {}, read_reply)
    assert time.perf_counter() - start < 15


def test_headers_that_trickle_meet_the_deadline() -> None:
    with trickling_headers() as url:
        endpoint = Endpoint(url, api_key_env=None, timeout=0.5, retries=0)
        start = time.perf_counter()
        with pytest.raises(ServerError, match=r"no answer within 0\.5 s"):
            endpoint.post_sync("", {}, read_reply)
        assert time.perf_counter() - start < 15


@contextmanager
def trickling_headers() -> Iterator[str]:
    import socket

    stopping = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\n")
                while not stopping.wait(0.1):
                    connection.sendall(b"X-Slow: yes\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        stopping.set()
        thread.join(5)


def test_a_retry_after_of_years_is_not_waited_for() -> None:
    with http_server(Response(b"later", 429, {"Retry-After": "1e9"})) as server:
        endpoint = Endpoint(server.url(), api_key_env=None)
        with pytest.raises(ServerError, match="asks to wait 1000000000 s, which is longer than the maximum of 600 s"):
            endpoint.post_sync("", {}, read_reply)
    assert len(server.requests) == 1


def test_synchronous_calls_work_inside_an_event_loop_and_from_many_threads() -> None:
    import asyncio

    async def embed(embedder: OpenAIEmbedder) -> int:
        return int(embedder.embed_query("a").shape[0])

    with http_server(VECTORS) as server:
        embedder = OpenAIEmbedder("m", base_url=server.url())
        assert asyncio.run(embed(embedder)) == 2
        shapes: list[tuple[int, ...]] = []
        threads = [threading.Thread(target=lambda: shapes.append(embedder.embed_query("a").shape)) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        embedder.close()
        assert embedder.embed_query("a").shape == (2,)
    assert shapes == [(2,)] * 16


# What a server reports --------------------------------------------------------------------------------------------

REQUEST = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 500}


@pytest.mark.parametrize(
    "count", [1e30, 10**30, -1, 501, True, "33", None, [33], float("nan"), float("inf"), 33.0, {"n": 33}], ids=repr
)
def test_a_count_of_tokens_that_cannot_be_is_not_believed(count: Any) -> None:
    usage = {
        "prompt_tokens": 10**9 if count == 501 else count,
        "completion_tokens": count,
        "prompt_tokens_details": {"cached_tokens": count},
        "completion_tokens_details": {"reasoning_tokens": count},
    }
    events: Events = [{**MESSAGE, "usage": usage}]
    assert read_reply(events, REQUEST).usage == {}


def test_parts_are_no_larger_than_their_whole() -> None:
    usage = {
        "prompt_tokens": 40,
        "completion_tokens": 500,
        "prompt_tokens_details": {"cached_tokens": 41},
        "completion_tokens_details": {"reasoning_tokens": 501},
    }
    assert read_reply([{**MESSAGE, "usage": usage}], REQUEST).usage == {"prompt_tokens": 40, "completion_tokens": 500}


@pytest.mark.parametrize("count", ["1e30", "1" + "0" * 30, "-5", "true", '"9"', "NaN"])
def test_an_invented_size_does_not_end_an_episode(count: str, tmp_path: Path) -> None:
    usage = json.loads(f'{{"prompt_tokens": {count}, "completion_tokens": {count}}}')
    with ScriptedServer([says(calls=[("search_corpus", {"query": "comets"})], usage=usage)]) as server:
        policy = ChatPolicy("scripted", base_url=server.url)
        result = SearchAgent(corpus(), policy, trajectories=tmp_path).search(QUESTION)
    assert result.stop_reason == "finished"
    assert all(event.action.extra["usage"] == {} for event in result.trajectories[0].events if hasattr(event, "action"))
    assert server.chat_bodies()[1]["max_tokens"] > 1_000


@pytest.mark.parametrize(
    "changed",
    [
        {"token_ids": [1e30]},
        {"token_ids": [True]},
        {"token_ids": [-1]},
        {"token_ids": ["5"]},
        {"logprobs": {"token_logprobs": [float("nan")]}},
        {"logprobs": {"token_logprobs": ["-1"]}},
        {"logprobs": {"token_logprobs": [1e30]}},
        {"logprobs": [1]},
        {"logprobs": "x"},
    ],
    ids=repr,
)
def test_tokens_and_log_probabilities_that_cannot_be_are_refused(changed: dict[str, Any]) -> None:
    import asyncio

    from context_agent.policies.tokens.engines import SampleRequest
    from context_agent.policies.tokens.engines.vllm import VllmEngine

    choice = {"token_ids": [5], "logprobs": {"token_logprobs": [-1.0]}, "finish_reason": "stop", **changed}
    with http_server(Response({"choices": [choice], "usage": [1]})) as server:
        engine = VllmEngine(server.url(), "m", retries=0)
        sample = engine.generate(SampleRequest([1]))
        with pytest.raises(PolicyError, match=r"the server (must return|returned no)"):
            asyncio.run(sample)


@pytest.mark.parametrize("length", [10**30, True, -5, "40960", 1e9, None, [1]], ids=repr)
def test_a_context_length_that_cannot_be_counts_as_untold(length: Any) -> None:
    models = {"data": [{"id": "m", "max_model_len": length}], "models": 7, "default_generation_settings": 7}

    with http_server(lambda body: Response(MESSAGE if body else models)) as server:
        checks = {check.name: check for check in inspect_server(server.url(), "m", timeout=5.0)}
    assert checks["context"].status == "warn"
    assert "does not report its length" in checks["context"].detail


def test_a_refusal_keeps_its_type_for_the_policies() -> None:
    with http_server(Response({"error": "no"}, 400)) as server, pytest.raises(Refusal, match="no") as excinfo:
        Endpoint(server.url(), api_key_env=None).post_sync("", {}, read_reply)
    assert excinfo.value.status == 400
    assert isinstance(excinfo.value, ContextAgentError)
    assert BASE_URL.startswith("http://localhost")


def test_a_second_answer_on_the_connection_is_nobodys() -> None:
    """Otherwise one search would get the answer that the server made for another."""
    first, second = (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n" + body for body in (b'{"n":1}', b'{"n":2}'))
    with raw_upstream(first + second, keeps_open=True) as server:
        endpoint = Endpoint(server.url, api_key_env=None, retries=0, timeout=10)
        assert [endpoint.json_sync("/ask", {}) for _ in range(3)] == [{"n": 1}] * 3
        endpoint.close()
