"""Requests made at random: every one is answered, none with a 5xx, and the servers go on."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from context_agent import ChromaCorpus, MemoryCorpus, SearchAgent, index_documents
from context_agent.errors import ConfigError
from context_agent.retrieval.filters import check_where
from tests.support.served_index import CALL, DOCUMENTS, address_of, called, serving
from tests.support.servers import Running, one_search, running

FUZZ = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
PATHS = ("/v1/retrieve", "/v1/chat/completions", "/v1/feedback", "/v1/prune")

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from([2**63, -(2**63), "x" * 5_000, "\x00", "\u202e", "$eq", 0, ""]),
)
keys = st.one_of(
    st.sampled_from(["$and", "$or", "$eq", "$ne", "$gt", "$in", "$nin", "$not", "$regex", "#document", "year", ""]),
    st.text(max_size=8),
)
trees: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=30,
)
comparisons = st.dictionaries(
    st.sampled_from(["year", "name", "\x00", "a.b", "chroma:document"]),
    st.one_of(
        scalars,
        st.dictionaries(st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]), scalars, min_size=1, max_size=1),
        st.dictionaries(st.sampled_from(["$in", "$nin"]), st.lists(scalars, max_size=4), min_size=1, max_size=1),
    ),
    min_size=1,
    max_size=1,
)
well_formed: st.SearchStrategy[Any] = st.recursive(
    comparisons,
    lambda inner: st.dictionaries(
        st.sampled_from(["$and", "$or"]), st.lists(inner, min_size=2, max_size=4), min_size=1, max_size=1
    ),
    max_leaves=12,
)
filters = st.one_of(well_formed, trees, st.dictionaries(keys, trees, max_size=3))
questions = st.one_of(st.text(min_size=1, max_size=40), trees)
common = {"k": st.one_of(st.integers(1, 5), scalars), "where": filters, "deadline": st.one_of(st.just(5.0), scalars)}
message = st.fixed_dictionaries({"role": st.just("user"), "content": questions})
FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "/v1/retrieve": ({"question": questions}, {**common, "id": scalars, "stream": st.booleans()}),
    "/v1/chat/completions": (
        {"model": st.just("context-agent"), "messages": st.one_of(st.lists(message, max_size=3), trees)},
        {**common, "stream": st.booleans(), "n": scalars, "stream_options": trees},
    ),
    "/v1/prune": (
        {"messages": st.one_of(st.lists(st.one_of(message, trees), max_size=4), trees)},
        {"task": questions, "budget": scalars, "turns": scalars, "restore": st.lists(scalars, max_size=2)},
    ),
    "/v1/feedback": (
        {"trajectory": scalars},
        {"relevant": st.lists(st.text(max_size=5), max_size=4), "irrelevant": trees, "rating": st.integers(0, 6)},
    ),
}
requests = st.sampled_from(PATHS).flatmap(
    lambda path: st.tuples(
        st.just(path), st.one_of(st.fixed_dictionaries(FIELDS[path][0], optional=FIELDS[path][1]), trees)
    )
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server in a thread, on a corpus in memory."""
    folder = tmp_path_factory.mktemp("fuzz") / "trajectories"
    with (
        SearchAgent(MemoryCorpus(DOCUMENTS), one_search(), trajectories=folder) as agent,
        running(agent) as running_server,
    ):
        yield running_server


@pytest.fixture(scope="module")
def chroma(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChromaCorpus]:
    """An index in a local folder."""
    folder = tmp_path_factory.mktemp("fuzz") / "index"
    index_documents(DOCUMENTS, path=folder)
    with ChromaCorpus.open(path=folder) as corpus:
        yield corpus


@pytest.fixture(scope="module")
def mcp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `ctx1 mcp` as a process."""
    folder = tmp_path_factory.mktemp("fuzz") / "index"
    index_documents(DOCUMENTS, path=folder)
    with serving(folder, "mcp", "--http") as url:
        yield url


def encoded(value: object) -> bytes:
    """JSON as a careless client writes it: also NaN, and halves of surrogate pairs."""
    return json.dumps(value).encode()


@FUZZ
@given(where=filters)
@example(where={"$in": None})
def test_a_filter_is_taken_or_refused(chroma: ChromaCorpus, where: Any) -> None:
    """By both corpora, whatever it is; neither raises anything but a `ConfigError`."""
    memory = MemoryCorpus(DOCUMENTS)
    for corpus in (memory, chroma):
        for call in (corpus.search, corpus.grep):
            with suppress(ConfigError):
                call("comet", where=where)


@FUZZ
@given(value=trees)
def test_the_check_of_filters_takes_any_value(value: Any) -> None:
    with suppress(ConfigError):
        check_where(value)


@FUZZ
@given(call=requests)
@example(call=("/v1/retrieve", {"question": "x", "where": {"$and": [{"year": 1}, {"year": {"$in": [None]}}]}}))
@example(call=("/v1/retrieve", {"question": "\x00", "id": "\r\nX: 1"}))
def test_every_body_is_answered(server: Running, call: tuple[str, Any]) -> None:
    path, body = call
    answer = server.client.post(path, content=encoded(body), headers={"Content-Type": "application/json"})
    assert answer.status_code < 500, answer.text
    assert '"code":"internal"' not in answer.text
    if answer.status_code >= 400:
        assert answer.json()["error"]["message"]


@FUZZ
@given(
    path=st.sampled_from(PATHS), content=st.binary(max_size=200), kind=st.sampled_from(["application/json", "x", ""])
)
def test_every_sequence_of_bytes_is_answered(server: Running, path: str, content: bytes, kind: str) -> None:
    answer = server.client.post(path, content=content, headers={"Content-Type": kind})
    assert 400 <= answer.status_code < 500


@FUZZ
@given(
    start=st.sampled_from([b"", b"GET / HTTP/1.1\r\n", b"POST /v1/retrieve HTTP/1.1\r\nHost: x\r\n"]),
    rest=st.one_of(
        st.binary(max_size=200),
        st.lists(st.sampled_from([b"Content-Length: 5", b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"5",
                                  b"Upgrade: websocket", b"Connection: upgrade", b"\x00", b"-1", b""]), max_size=8)
        .map(b"\r\n".join),
    ),
)  # fmt: skip
def test_what_is_not_http_does_not_stop_the_server(server: Running, start: bytes, rest: bytes) -> None:
    with socket.create_connection(address_of(server.url), timeout=120) as connection, suppress(ConnectionError):
        connection.sendall(start + rest)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(64)
        assert not answer.startswith(b"HTTP/1.1 5")
    assert server.client.get("/health").status_code == 200


@FUZZ
@given(
    tool=st.sampled_from(["retrieve", "search", "grep", "read", "none"]),
    arguments=st.one_of(
        st.fixed_dictionaries(
            {},
            optional={
                "question": st.one_of(st.text(max_size=20), trees),
                "query": st.one_of(st.text(max_size=20), trees),
                "pattern": st.one_of(st.text(max_size=20), scalars),
                "document_id": st.one_of(st.sampled_from(["d1", "d1_0"]), scalars),
                "first_chunk": scalars,
                "k": st.one_of(st.integers(1, 5), scalars),
                "where": filters,
            },
        ),
        trees,
    ),
)
def test_every_call_of_a_tool_is_answered(mcp: str, tool: str, arguments: Any) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    answer = httpx.post(mcp, content=encoded(body), headers=CALL, timeout=60)
    assert answer.status_code < 500, answer.text
    assert answer.text


def test_the_servers_are_well_after_all_of_it(server: Running, mcp: str) -> None:
    assert server.ask("Which comet?").json()["documents"]
    assert 'status="500"' not in server.client.get("/metrics").text
    assert "tail" in called(mcp, "search", query="comet")
