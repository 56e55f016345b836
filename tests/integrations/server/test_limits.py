"""How many searches run and wait, for how long, and how a server shuts down."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from context_agent import MemoryCorpus, SearchAgent
from context_agent.errors import ConfigError
from context_agent.harness.deadline import Deadline
from context_agent.integrations.server.admission import AdmissionQueue, QueueFull, Ticket
from context_agent.integrations.server.app import application_of
from context_agent.integrations.server.process import ACCEPT_BATCH, ServerProcess, bind_socket
from context_agent.integrations.server.service import AdmittedSearch, Problem, SearchRequest, Service
from context_agent.integrations.server.settings import Settings
from tests.support.held_policy import HeldPolicy
from tests.support.servers import Running, Serve, one_search, problem


@pytest.mark.parametrize(
    "wrong",
    [
        {"token": ""},
        {"token": " "},
        {"token": "secret\n"},
        {"deadline": float("nan")},
        {"deadline": 0},
        {"grace": "3"},
        {"check": -1},
        {"concurrency": 2.5},
        {"max_body": 0},
        {"queue": True},
    ],
)
def test_settings_with_which_no_server_works_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))}.* must ") as refusal:
        Settings(**wrong)
    assert "secret" not in str(refusal.value)


async def test_first_come_first_served() -> None:
    admission = AdmissionQueue(2, 3)
    tickets = [admission.enter() for _ in range(5)]
    with pytest.raises(QueueFull):
        admission.enter()
    assert [ticket.turn.is_set() for ticket in tickets] == [True, True, False, False, False]
    tickets[3].leave()
    tickets[0].leave()
    assert [ticket.turn.is_set() for ticket in tickets] == [True, True, True, False, False]
    assert (admission.running, admission.waiting) == (2, 1)
    for _ in range(2):
        for ticket in tickets:
            ticket.leave()
    assert (admission.running, admission.waiting, admission.empty.is_set()) == (0, 0, True)


def test_a_full_queue_says_when_to_come_again(serve: Serve) -> None:
    policy = HeldPolicy(at=0)
    with serve(policy, concurrency=1, queue=1) as server, ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(server.ask) for _ in range(2)]
        server.until(lambda: server.service.admission.waiting == 1)
        started = time.perf_counter()
        refusal = server.ask()
        assert "1 running, 1 waiting" in problem(refusal, 429, "queue_full")
        assert 1 <= int(refusal.headers["retry-after"]) <= 60
        assert server.ask(stream=True).status_code == 429
        server.expect("ctx1_searches_waiting", 1)
        server.expect("ctx1_searches_running", 1)
        waited = time.perf_counter() - started
        policy.released.set()
        responses = [future.result() for future in futures]
        assert [response.status_code for response in responses] == [200, 200]
        assert max(response.json()["usage"]["queued_seconds"] for response in responses) > waited
        server.expect("ctx1_searches_running", 0)


def test_a_deadline_hands_back_what_can_be_defended(serve: Serve) -> None:
    with serve(HeldPolicy(at=1)) as server:
        started = time.perf_counter()
        body = server.ask(deadline=1.0).json()
        assert time.perf_counter() - started < 6
    assert body["stop_reason"] == "time"
    assert len(body["documents"]) >= 5
    assert body["error"] is None


def test_the_servers_own_deadline_holds_too(serve: Serve) -> None:
    with serve(one_search(0.5), deadline=0.2) as server:
        assert server.ask(deadline=60).json()["stop_reason"] == "time"


def test_a_deadline_that_passes_in_the_queue(serve: Serve) -> None:
    policy = HeldPolicy(at=0)
    with serve(policy, concurrency=1) as server, ThreadPoolExecutor(1) as pool:
        future = pool.submit(server.ask)
        server.until(lambda: server.service.admission.running == 1)
        refusal = server.ask(deadline=0.1)
        problem(refusal, 503, "queue_timeout")
        policy.released.set()
        assert future.result().status_code == 200
        assert server.ask().status_code == 200


def start_drain(server: Running, **options: Any) -> threading.Thread:
    """Tell the server to shut down, as a signal would."""
    server.until(lambda: bool(server.service._deadlines))  # A search is admitted shortly before it has a deadline.
    loop = next(iter(server.service._deadlines))._clock.__self__  # type: ignore[attr-defined]
    future = asyncio.run_coroutine_threadsafe(server.service.drain(), loop)
    thread = threading.Thread(target=future.result, args=(20,))
    thread.start()
    return thread


def test_an_ending_server_answers_what_runs_and_refuses_what_is_new(serve: Serve) -> None:
    policy = HeldPolicy(at=0)
    with serve(policy, concurrency=1, grace=60.0) as server, ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(server.ask) for _ in range(2)]
        server.until(lambda: server.service.admission.waiting == 1)
        drain_thread = start_drain(server)
        server.until(lambda: server.service.draining)
        refusal = server.ask()
        problem(refusal, 503, "shutting_down")
        assert refusal.headers["connection"] == "close"
        health = server.client.get("/health")
        assert (health.status_code, health.json()) == (503, {"live": True, "ready": False, "draining": True})
        policy.released.set()
        for future in futures:
            response = future.result()
            assert (response.status_code, response.json()["stop_reason"]) == (200, "finished")
        drain_thread.join(120)
        assert not drain_thread.is_alive()


def test_what_still_runs_when_the_grace_is_over_is_handed_back(serve: Serve) -> None:
    policy = HeldPolicy(at=1)
    with serve(policy, concurrency=1, grace=0.5) as server, ThreadPoolExecutor(2) as pool:
        running = pool.submit(server.ask)
        server.until(lambda: server.service.admission.running == 1)
        assert policy.waits.wait(120)
        waiting = pool.submit(server.ask)
        server.until(lambda: server.service.admission.waiting == 1)
        start_drain(server).join(120)
        body = running.result().json()
        assert body["stop_reason"] == "time"
        assert body["documents"]
        problem(waiting.result(), 503, "shutting_down")


def test_a_second_signal_ends_the_server_at_once(corpus: MemoryCorpus) -> None:
    with SearchAgent(corpus, one_search()) as agent:
        service = Service.of(agent, Settings(grace=100.0))
        freed: list[bool] = []

        def signal_twice(url: str) -> None:
            """Admit a search that does not end for a long time, and stop the server twice."""
            ticket, loop = service.enter(), asyncio.get_running_loop()
            loop.call_later(30.0, lambda: (ticket.leave(), freed.append(True)))
            signal.raise_signal(signal.SIGTERM)
            loop.call_later(0.1, signal.raise_signal, signal.SIGINT)

        with bind_socket("127.0.0.1", 0) as listener:
            process = ServerProcess(service, application_of(service), signal_twice)
            process.run(sockets=[listener])
        assert (service.draining, freed, process.signaled) == (True, [], signal.SIGTERM)


def test_an_ending_server_answers_connections_that_it_has_not_accepted_yet(corpus: MemoryCorpus) -> None:
    clients: list[socket.socket] = []

    with SearchAgent(corpus, one_search()) as agent, bind_socket("127.0.0.1", 0) as listener:
        service = Service.of(agent)

        def connect_and_end(url: str) -> None:
            """Send requests while the event loop cannot accept them, and end the server."""
            for _ in range(ACCEPT_BATCH + 8):
                clients.append(socket.create_connection(listener.getsockname(), timeout=20))
                clients[-1].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            service.draining = process.should_exit = True

        process = ServerProcess(service, application_of(service), connect_and_end)
        process.run(sockets=[listener])
    for client in clients:
        with client:
            assert client.recv(100).startswith(b"HTTP/1.1 503 ")


def test_settings_that_cannot_work() -> None:
    for wrong in ({"concurrency": 0}, {"queue": -1}, {"deadline": 0.0}, {"grace": -1.0}, {"max_body": 0}):
        with pytest.raises(ConfigError):
            Settings(**wrong)  # type: ignore[arg-type]
    assert "abc" not in repr(Settings(token="abc"))


def test_metrics_are_in_prometheus_format(serve: Serve) -> None:
    with serve() as server:
        for _ in range(3):
            server.ask()
        server.client.get("/v1/retrieve")
        response = server.client.get("/metrics")
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        families = parse_metrics(response)
        assert families["ctx1_requests_total"] == "counter"
        assert families["ctx1_request_seconds"] == "histogram"
        server.expect('ctx1_requests_total{path="/v1/retrieve",status="200"}', 3)
        server.expect('ctx1_errors_total{code="method_not_allowed"}', 1)
        server.expect('ctx1_searches_total{stop_reason="finished"}', 3)
        server.expect('ctx1_request_seconds_count{path="/v1/retrieve"}', 4)
        server.expect('ctx1_request_seconds_bucket{le="+Inf",path="/v1/retrieve"}', 4)
        server.expect("ctx1_turns_total", 3)
        assert server.metric("ctx1_tokens_total") > 0
        server.expect("ctx1_index_stale", 0)


def parse_metrics(response: httpx.Response) -> dict[str, str]:
    """The type of each metric family. Fails on an invalid line or a sample without a family."""
    families: dict[str, str] = {}
    for line in response.text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            families[name] = kind
        elif not line.startswith("# HELP "):
            name, _, value = line.rpartition(" ")
            float(value)
            base_name = name.partition("{")[0]
            candidates = (base_name, *(base_name.removesuffix(suffix) for suffix in ("_bucket", "_sum", "_count")))
            assert any(candidate in families for candidate in candidates), line
    return families


async def test_retry_after_is_the_running_average_of_the_seconds_that_searches_take(corpus: MemoryCorpus) -> None:
    with SearchAgent(corpus, one_search()) as agent:
        service = Service.of(agent, Settings(concurrency=2, queue=2))
        result = await agent.asearch("comets?")
        tickets = [service.enter() for _ in range(4)]

        async def wait_after(seconds: float, queued: float, searches: int) -> int:
            """The seconds that a full server names after searches that took as long, `queued` of them in the queue."""
            for _ in range(searches):
                search = _admitted(tickets[0], seconds)
                await service._answered(search, result, queued)
            with pytest.raises(Problem) as refusal:
                service.enter()
            return int(refusal.value.headers["Retry-After"])

        # Two searches run and two wait, so the third waits for one and a half: 1.5 times the average.
        assert await wait_after(0, 0, 0) == 1, "half a second is assumed at first"
        assert await wait_after(30, 10, 1) == 4, "0.5 + (20 - 0.5) / 10 = 2.45"
        assert await wait_after(30, 10, 1) == 7, "2.45 + (20 - 2.45) / 10 = 4.205"
        assert await wait_after(30, 10, 50) == 30, "at last 20 seconds: the time in the queue does not count"
        assert await wait_after(300, 0, 100) == 60, "at most a minute"
        assert await wait_after(0.01, 0, 200) == 1, "at least a second"
        for ticket in tickets:
            ticket.leave()


def _admitted(ticket: Ticket, seconds: float) -> AdmittedSearch:
    """A search that arrived so many seconds ago."""
    deadline = Deadline(60.0)
    return AdmittedSearch(
        SearchRequest("comets?", 5, "/v1/retrieve"), ticket, deadline, arrival=time.perf_counter() - seconds
    )
