"""What a client of `ctx1 serve` and `ctx1 mcp` can make large, and where the servers stop it."""

from __future__ import annotations

import asyncio
import logging
import socket
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import Counter
from pydantic import ValidationError

from context_agent import ChromaCorpus, MemoryCorpus, ScriptedPolicy, SearchAgent, index_documents
from context_agent.errors import ConfigError, FeedbackLimitError
from context_agent.integrations import feedback as feedback_module
from context_agent.integrations.feedback import JUDGMENTS_FILE, SERVED_FILE, FeedbackLog, judgment
from context_agent.integrations.framework_filters import from_haystack, from_llamaindex
from context_agent.integrations.server import connections
from context_agent.integrations.server.connections import MAX_HEADER, ConnectionTable
from context_agent.integrations.server.logs import SERVER_LOGGER
from context_agent.integrations.server.schema import ChatRequest
from context_agent.integrations.server.streams import MAX_BUFFERED_EVENTS, with_heartbeat
from context_agent.retrieval.filters import MAX_CONDITIONS, MAX_DEPTH, MAX_TEXT, MAX_VALUES, check_where, compile_where
from tests.support.held_policy import HeldPolicy
from tests.support.served_index import CALL, DOCUMENTS, address_of, called, serving, serving_process
from tests.support.servers import Running, one_search, running

QUESTION = {"question": "Which comet grows a tail?"}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index in a local folder."""
    folder = tmp_path_factory.mktemp("limits") / "index"
    index_documents(DOCUMENTS, path=folder)
    return folder


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    """A server in a thread, on a corpus in memory."""
    with serving_here(tmp_path) as running_server:
        yield running_server


@contextmanager
def serving_here(folder: Path, policy: ScriptedPolicy | None = None, **settings: Any) -> Iterator[Running]:
    corpus = MemoryCorpus(DOCUMENTS)
    with (
        SearchAgent(corpus, policy or one_search(), trajectories=folder / "trajectories") as agent,
        running(agent, **settings) as server,
    ):
        yield server


def connect(url: str, content: bytes = b"") -> socket.socket:
    """A connection on which these bytes were sent."""
    connection = socket.create_connection(address_of(url), timeout=120)
    connection.sendall(content)
    return connection


def read_all(connection: socket.socket) -> bytes:
    """All that the server sends until it closes."""
    content = bytearray()
    with suppress(ConnectionError):
        while part := connection.recv(65_536):
            content += part
    return bytes(content)


def nested(depth: int) -> dict[str, Any]:
    where: dict[str, Any] = {"year": 1}
    for _ in range(depth):
        where = {"$and": [where, {"year": 2}]}
    return where


WIDE = {"$or": [{"year": number} for number in range(12_000)]}
REFUSED: list[tuple[Any, str]] = [
    (WIDE, f"more than {MAX_CONDITIONS} conditions"),
    ({"$or": [{"$and": []} for _ in range(12_000)]}, f"more than {MAX_CONDITIONS} conditions"),
    ({"$or": [{} for _ in range(12_000)]}, f"more than {MAX_CONDITIONS} conditions"),
    ({"$or": [0 for _ in range(12_000)]}, f"more than {MAX_VALUES:,} values"),
    ({str(number): 1 for number in range(1_000)}, f"more than {MAX_CONDITIONS} conditions"),
    (nested(100_000), f"more than {MAX_DEPTH} levels"),
    ({"year": {"$in": list(range(MAX_VALUES + 1))}}, f"more than {MAX_VALUES:,} values"),
    ({"name": "x" * (MAX_TEXT + 1)}, f"at most {MAX_TEXT:,}"),
    ({"x" * (MAX_TEXT + 1): 1}, f"at most {MAX_TEXT:,}"),
    ({"year": float("nan")}, "finite"),
    ({"year": 2**63}, "64 bits"),
]


# Filters


@pytest.mark.parametrize(("where", "message"), REFUSED)
def test_a_filter_beyond_a_limit_is_refused_with_the_limit(where: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_where(where)


@pytest.mark.parametrize("where", [WIDE, nested(100_000)])
def test_every_corpus_and_the_agent_refuse_a_large_filter(index: Path, where: dict[str, Any]) -> None:
    memory = MemoryCorpus(DOCUMENTS)
    with ChromaCorpus.open(path=index) as chroma, SearchAgent(memory, one_search()) as agent:
        calls: list[Callable[[], object]] = [
            lambda: memory.search("comet", where=where),
            lambda: memory.grep("comet", where=where),
            lambda: chroma.search("comet", where=where),
            lambda: chroma.grep("comet", where=where),
            lambda: agent.search("Which comet?", where=where),
            lambda: compile_where(where),
        ]
        for call in calls:
            with pytest.raises(ConfigError, match="the metadata filter has more than"):
                call()


def test_the_largest_filter_works(index: Path) -> None:
    widest = {"$or": [{"year": {"$ne": number}} for number in range(MAX_CONDITIONS)]}
    longest = {"year": {"$nin": list(range(MAX_VALUES))}}
    with ChromaCorpus.open(path=index) as chroma:
        for where in (widest, longest):
            assert len(chroma.search("comet", k=5, where=where)) == 5
            assert len(MemoryCorpus(DOCUMENTS).search("comet", k=5, where=where)) == 5


def test_frameworks_filters_are_bounded_in_depth() -> None:
    from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

    haystack: dict[str, Any] = {"field": "meta.year", "operator": "==", "value": 1}
    llamaindex: Any = MetadataFilter(key="year", value=1)
    for _ in range(50_000):
        haystack = {"operator": "AND", "conditions": [haystack]}
    for _ in range(100):
        llamaindex = MetadataFilters.model_construct(filters=[llamaindex], condition="and")
    with pytest.raises(ConfigError, match=f"more than {MAX_DEPTH} levels"):
        from_haystack(haystack)
    with pytest.raises(ConfigError, match=f"more than {MAX_DEPTH} levels"):
        from_llamaindex(llamaindex)


def test_serve_answers_400_to_filters_that_crashed_it(index: Path) -> None:
    deep = b'{"question": "x", "where": ' + b'{"$and":[' * 100_000 + b"]}" * 100_000 + b"}"
    with serving(index, "serve", "--max-body", "2000000") as url, httpx.Client(base_url=url, timeout=60) as client:
        for count in (2_000, 12_000):
            where = {"$or": [{"year": number} for number in range(count)]}
            refused = client.post("/v1/retrieve", json={**QUESTION, "where": where})
            assert refused.status_code == 400
            assert refused.json()["error"]["code"] == "invalid_filter"
            assert f"more than {MAX_CONDITIONS} conditions" in refused.json()["error"]["message"]
        answer = client.post("/v1/retrieve", content=deep, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400
        assert client.post("/v1/retrieve", json=QUESTION).json()["documents"]


def test_mcp_refuses_filters_that_crashed_it(index: Path) -> None:
    with serving(index, "mcp", "--http") as url:
        for tool, arguments in (
            ("retrieve", {"question": "Which comet?"}),
            ("search", {"query": "comet"}),
            ("grep", {"pattern": "comet"}),
        ):
            assert f"more than {MAX_CONDITIONS} conditions" in called(url, tool, **arguments, where=WIDE), tool
        deep = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        assert httpx.post(url, content=deep, headers=CALL, timeout=60).status_code == 400
        assert "tail" in called(url, "search", query="comet")


def test_chromas_message_does_not_repeat_a_large_filter(server: Running) -> None:
    refused = server.ask(where={"$or": [{"year": {"$in": ["x" * 4_000, number]}} for number in range(20)]})
    assert refused.status_code == 400
    assert len(refused.content) < 1_000


def test_a_body_full_of_mistakes_is_refused_at_the_first() -> None:
    """330,000 wrong parts have one error for each reading of `content`, not two each."""
    body = b'{"model": "m", "messages": [{"role": "u", "content": [' + b"{}," * 330_000 + b"{}]}]}"
    with pytest.raises(ValidationError) as refused:
        ChatRequest.model_validate_json(body)
    assert refused.value.error_count() <= 3


# Connections


def table(limit: int) -> tuple[ConnectionTable, Callable[[str], Any]]:
    connections = ConnectionTable(limit, Counter("n", "told", ("code",), registry=None))

    class Fake:
        def __init__(self, name: str) -> None:
            self.name, self.gone = name, False

        def evict(self) -> None:
            self.gone = True

    return connections, Fake


def test_the_longest_waiting_connection_makes_room() -> None:
    full, connection = table(2)
    first, second, third = connection("1"), connection("2"), connection("3")
    assert full.admit(first)
    assert full.admit(second)
    full.wait(first)  # It has just been answered: now the second has waited longer.
    assert full.admit(third)
    assert [first.gone, second.gone, third.gone] == [False, True, False]
    assert len(full) == 2


def test_a_connection_that_is_answered_is_never_evicted() -> None:
    full, connection = table(2)
    busy, other, late = connection("1"), connection("2"), connection("3")
    for member in (busy, other):
        assert full.admit(member)
        full.serve(member)
    assert not full.admit(late)
    full.wait(other)
    assert full.admit(late)
    assert [busy.gone, other.gone] == [False, True]


def test_slow_connections_leave_descriptors_and_room_for_good_clients(index: Path) -> None:
    """600 clients that never finish a header, and a process that may have 400 files open."""
    limit = 400
    with serving_process(index, "serve", descriptors=limit) as (url, pid), ExitStack() as slow:
        for _ in range(600):
            with suppress(OSError):
                slow.enter_context(connect(url, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "))
        with httpx.Client(base_url=url, timeout=60) as client:
            for _ in range(3):
                assert client.post("/v1/retrieve", json=QUESTION).status_code == 200
            assert len(list(Path(f"/proc/{pid}/fd").iterdir())) < limit
            metrics = client.get("/metrics").text
        evictions = next(line for line in metrics.splitlines() if 'refused_total{code="evicted"}' in line)
        assert float(evictions.split()[-1]) >= 300


def test_mcp_has_the_same_bound_on_connections(index: Path) -> None:
    with serving_process(index, "mcp", "--http", "--max-connections", "30") as (url, pid), ExitStack() as slow:
        before = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        for _ in range(150):
            with suppress(OSError):
                slow.enter_context(connect(url, b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n"))
        assert "tail" in called(url, "search", query="comet")
        assert len(list(Path(f"/proc/{pid}/fd").iterdir())) <= before + 40


def test_a_header_must_arrive_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_TIMEOUT", 0.5)
    with serving_here(tmp_path) as server:
        late = connect(server.url, b"GET /health HTTP/1.1\r\nX-Slow: ")
        silent = connect(server.url)
        for _ in range(3):  # Bytes that trickle in do not put off the end.
            time.sleep(0.2)
            with suppress(OSError):
                late.sendall(b"x")
        answer = read_all(late)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"did not arrive within" in answer
        assert read_all(silent) == b""
        idle = connect(server.url, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_all(idle).count(b"HTTP/1.1 200") == 1
        server.expect('ctx1_connections_refused_total{code="slow_header"}', 1)


def test_a_body_must_arrive_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("context_agent.integrations.server.bodies.BODY_TIMEOUT", 0.5)
    head = b"POST /v1/retrieve HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    with serving_here(tmp_path) as server:
        answer = read_all(connect(server.url, head))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"slow_body" in answer
    assert b"connection: close" in answer.lower()


def test_a_body_that_nobody_reads_ends_with_its_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is given before the body is there; bytes that trickle in keep the connection no longer."""
    monkeypatch.setattr(connections, "BODY_TIMEOUT", 0.5)
    monkeypatch.setattr(connections, "ANSWER_MARGIN", 0.5)
    with serving_here(tmp_path) as server:
        connection = connect(server.url, b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        ends = time.monotonic() + 15
        with suppress(ConnectionError):
            while time.monotonic() < ends:
                connection.sendall(b" ")
                time.sleep(0.1)
        assert time.monotonic() < ends


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"x" * 400_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 40_000,
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * MAX_HEADER + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: 1\r\n" % number for number in range(10_000)) + b"\r\n",
    ],
)
def test_a_header_beyond_the_limit_is_refused(server: Running, sent: bytes) -> None:
    connection = socket.create_connection(address_of(server.url), timeout=120)
    with suppress(ConnectionError):
        connection.sendall(sent)
    server.expect('ctx1_connections_refused_total{code="header_too_large"}', 1)
    answer = read_all(connection)
    if answer:  # A client that still sends when it is closed may lose the answer.
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert f"{MAX_HEADER:,} bytes".encode() in answer


def test_a_client_that_does_not_read_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "WRITE_TIMEOUT", 0.5)
    with serving_here(tmp_path) as server:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.settimeout(1)
        connection.connect(address_of(server.url))
        with suppress(OSError):
            for _ in range(500):
                connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
        server.until(lambda: server.metric('ctx1_connections_refused_total{code="slow_reader"}') == 1)
        server.expect("ctx1_connections", 1)
        connection.close()


def test_all_connections_busy(tmp_path: Path) -> None:
    policy = HeldPolicy(at=0)
    with serving_here(tmp_path, policy, max_connections=2) as server, ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(httpx.post, f"{server.url}/v1/retrieve", json=QUESTION, timeout=30) for _ in range(2)]
        server.until(lambda: server.service.admission.running == 2)
        refused = read_all(connect(server.url))
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"--max-connections" in refused
        policy.released.set()
        assert [answer.result().status_code for answer in answers] == [200, 200]


def test_a_slow_reader_holds_up_the_search() -> None:
    """A stream's events do not pile up beyond the buffer."""
    produced = 0

    async def source() -> AsyncIterator[int]:
        nonlocal produced
        for number in range(1_000):
            produced += 1
            yield number

    async def read_two() -> None:
        stream = with_heartbeat(source(), 5.0)
        assert [await anext(stream), await anext(stream)] == [0, 1]
        await asyncio.sleep(0.05)
        await stream.aclose()

    asyncio.run(read_two())
    assert produced <= MAX_BUFFERED_EVENTS + 4


def test_a_made_up_method_does_not_fill_the_log(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, SERVER_LOGGER.name)
    assert read_all(connect(server.url, b"M" * 10_000 + b" /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
    server.expect('ctx1_requests_total{path="other",status="404"}', 1)
    requests = [vars(record)["fields"] for record in caplog.records if record.message == "request"]
    assert requests[0]["method"] == "other"
    assert len(str(requests[0])) < 500


# MCP sessions


def test_initialize_opens_no_session(index: Path) -> None:
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    }
    with serving_process(index, "mcp", "--http") as (url, pid), httpx.Client(headers=CALL, timeout=60) as client:
        for _ in range(100):
            answer = client.post(url, json=body)
            assert answer.status_code == 200
            assert "mcp-session-id" not in answer.headers
        before = resident(pid)
        for _ in range(400):
            client.post(url, json=body)
        assert resident(pid) < before + 10
        for method in ("GET", "DELETE"):
            assert client.request(method, url).status_code == 405


def resident(process: int) -> float:
    """Resident memory of a process in MB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


# Feedback


@pytest.fixture
def log(tmp_path: Path) -> tuple[FeedbackLog, str]:
    """A log beside one trajectory, and the trajectory's id."""
    with SearchAgent(MemoryCorpus(DOCUMENTS), one_search(), trajectories=tmp_path / "kept") as agent:
        path = agent.search("Which comet?").trajectory
    assert path is not None
    return FeedbackLog(path.parent), path.stem


def bytes_read() -> int:
    """What this process has read from files so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar")).split()[1])


def test_judgments_cost_the_same_however_long_the_log_is(log: tuple[FeedbackLog, str]) -> None:
    feedback_log, trajectory = log
    before = bytes_read()
    for number in range(150):
        assert feedback_log.add(judgment(trajectory=trajectory, comment="x" * 50_000, id=f"j{number}"))
    size = (feedback_log.folder / JUDGMENTS_FILE).stat().st_size
    assert bytes_read() - before < 4 * size


def test_requests_are_looked_up_without_reading_the_log_again(log: tuple[FeedbackLog, str]) -> None:
    feedback_log, trajectory = log
    for number in range(2_000):
        feedback_log.record_request(f"r{number}", [trajectory])
    feedback_log.record_request("r7", ["later"])
    before = bytes_read()
    assert {feedback_log.trajectory_of(f"r{number}") for number in range(1_000, 1_200)} == {trajectory}
    assert feedback_log.trajectory_of("r7") == "later"
    assert bytes_read() - before < 20 * (feedback_log.folder / SERVED_FILE).stat().st_size


def test_a_judgment_has_a_size_limit(log: tuple[FeedbackLog, str], server: Running) -> None:
    feedback_log, trajectory = log
    with pytest.raises(FeedbackLimitError, match="at most 65,536"):
        feedback_log.add(judgment(trajectory=trajectory, comment="x" * 70_000))
    assert not (feedback_log.folder / JUDGMENTS_FILE).exists()
    body = {"trajectory": server.ask().json()["trajectory"], "relevant": [f"{n}" + "x" * 250 for n in range(1_000)]}
    refused = server.client.post("/v1/feedback", json=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "feedback_limit")
    assert "65,536" in refused.json()["error"]["message"]


def test_a_log_has_a_most_of_judgments(log: tuple[FeedbackLog, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedback_module, "MAX_JUDGMENTS", 3)
    feedback_log, trajectory = log
    for number in range(3):
        assert feedback_log.add(judgment(trajectory=trajectory, rating=1, id=f"j{number}"))
    with pytest.raises(FeedbackLimitError, match="3 judgments"):
        feedback_log.add(judgment(trajectory=trajectory, rating=1, id="j3"))
    assert not feedback_log.add(judgment(trajectory=trajectory, rating=1, id="j2"))


def test_several_logs_on_one_folder_know_each_others_judgments(log: tuple[FeedbackLog, str]) -> None:
    """As several processes do; one that puts another file in the log's place is noticed, too."""
    feedback_log, trajectory = log
    other_log = FeedbackLog(feedback_log.folder)
    entry = judgment(trajectory=trajectory, rating=1, id="j")
    assert feedback_log.add(entry)
    assert not other_log.add(entry)
    assert other_log.add(judgment(trajectory=trajectory, rating=2, id="k"))
    assert not feedback_log.add(judgment(trajectory=trajectory, rating=2, id="k"))
    (feedback_log.folder / JUDGMENTS_FILE).rename(feedback_log.folder / "moved.jsonl")
    assert feedback_log.add(entry)
    assert not other_log.add(entry)


def test_the_logs_are_private(log: tuple[FeedbackLog, str]) -> None:
    feedback_log, trajectory = log
    feedback_log.add(judgment(trajectory=trajectory, rating=1))
    feedback_log.record_request("r", [trajectory])
    for name in (JUDGMENTS_FILE, SERVED_FILE):
        assert stat.S_IMODE((feedback_log.folder / name).stat().st_mode) == 0o600
