"""`ctx1 serve --workers`: processes share an address, an index and conversations; a worker or the supervisor dies."""

import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.support.conversations import rendered
from tests.support.ctx1_process import CTX1, PATIENCE
from tests.support.ctx1_server import serving
from tests.support.long_conversation import LONG

QUESTION = "Which river flows past the birthplace of the engineer who designed Orm Skerry Light?"
PRUNING = {"budget": 300, "effort": "fast", "cached_price": 1.0}
CLIENTS = 4


def post(server, path, **fields):
    """Post on a new connection, which any worker may accept."""
    return httpx.post(server.url + path, json=fields, timeout=PATIENCE)


def metrics(server):
    """The metrics, from any worker."""
    return httpx.get(f"{server.url}/metrics", timeout=PATIENCE).text


def workers_that_answered(server, path):
    """The numbers of the workers that have answered on this path."""
    return set(re.findall(rf'ctx1_requests_total{{path="{path}",status="20.",worker="(\d)"', metrics(server)))


def post_to_both(server, path, **fields):
    """Repeat a request until both workers have answered it, and return the answers."""
    answers = []
    with ThreadPoolExecutor(CLIENTS) as pool:
        deadline = time.monotonic() + PATIENCE
        while workers_that_answered(server, path) < {"0", "1"}:
            assert time.monotonic() < deadline
            answers += pool.map(lambda _: post(server, path, **fields), range(CLIENTS))
    assert {answer.status_code for answer in answers} <= {200, 201}
    return [answer.json() for answer in answers]


def worker_ids(supervisor):
    """The process ids of the workers."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def is_running(process):
    """Return True unless the process has ended. Until someone waits for its end, it is listed, with no command."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes() != b""
    except OSError:
        return False


def wait_until(condition):
    """Wait until the condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_workers_share_what_a_server_remembers_and_outlive_each_other(index, tmp_path):
    with serving("--path", index, "--workers", "2", "--save", "kept", cwd=tmp_path, ctx1=CTX1) as server:
        # Any worker can judge and show what another one has searched.
        answers = post_to_both(server, "/v1/retrieve", question=QUESTION, k=4, effort="fast")
        assert len({str(answer["documents"]) for answer in answers}) == 1
        post_to_both(server, "/v1/feedback", request_id=answers[0]["request_id"], rating=5)
        assert len((tmp_path / "kept" / "feedback.jsonl").read_text().splitlines()) == 1
        assert httpx.get(f"{server.url}/v1/trajectories/{answers[-1]['trajectory']}").status_code == 200

        # Any worker restores what another one has pruned.
        messages = rendered("openai", LONG)
        pruning = post(server, "/v1/prune", messages=messages, **PRUNING).json()
        replies = post_to_both(server, "/v1/prune", messages=messages, **PRUNING)
        assert {str(reply["messages"]) for reply in replies} == {str(pruning["messages"])}
        ids = [item["id"] for item in pruning["report"]["removed"]]
        assert ids
        for _ in range(2 * CLIENTS):
            response = post(server, "/v1/prune", messages=pruning["messages"], restore=ids, **PRUNING)
            assert response.json()["messages"] == messages
        responses = [post(server, "/v1/prune", messages=messages, restore=["p99"], **PRUNING) for _ in range(CLIENTS)]
        assert {(answer.status_code, answer.json()["error"]["code"]) for answer in responses} == {
            (400, "unknown_passage")
        }

        # A killed worker loses the requests that it was answering, and no others.
        victim, survivor = worker_ids(server.process.pid)
        with ThreadPoolExecutor(CLIENTS) as pool:
            requests = [
                pool.submit(post, server, "/v1/retrieve", question=QUESTION, effort="fast") for _ in range(6 * CLIENTS)
            ]
            requests[CLIENTS].exception()
            os.kill(victim, signal.SIGKILL)
            errors = [request.exception() for request in requests]
        failures = [error for error in errors if error is not None]
        assert len(failures) <= CLIENTS
        assert all(isinstance(error, httpx.TransportError) for error in failures)
        assert {request.result().status_code for request in requests if request.exception() is None} == {200}
        wait_until(lambda: set(re.findall(r'ctx1_turns_total{worker="(\d)"}', metrics(server))) == {"0", "1"})
        assert survivor in worker_ids(server.process.pid)

        # Ctrl-C in a terminal reaches every process.
        with ThreadPoolExecutor(1) as pool:
            search_request = pool.submit(post, server, "/v1/retrieve", question=QUESTION)
            wait_until(lambda: re.search(r"ctx1_searches_running{.*} 1", metrics(server)) or search_request.done())
            for worker in worker_ids(server.process.pid):
                os.kill(worker, signal.SIGINT)
            code, log = server.end(signal.SIGINT)
            assert search_request.result().status_code == 200
    assert code == 130
    ended_events = [line for line in log if line["event"] == "worker_ended"]
    assert [(line["worker"], line["process"]) for line in ended_events] == [(0, victim)]
    assert "SIGKILL" in ended_events[0]["reason"]
    assert [line["worker"] for line in log if line["event"] == "worker_started"] == [0, 1, 0]
    assert sorted(line["worker"] for line in log if line["event"] == "draining") == [0, 1]


def test_the_end_of_the_terminal_ends_them_in_order(index, tmp_path):
    sockets = tmp_path / "sockets"
    sockets.mkdir()
    with serving("--path", index, "--workers", "2", cwd=tmp_path, ctx1=CTX1, TMPDIR=str(sockets)) as server:
        assert len(list(sockets.iterdir())) == 1
        code, log = server.end(signal.SIGHUP)
    assert code == 0
    assert sorted(line["worker"] for line in log if line["event"] == "draining") == [0, 1]
    assert not list(sockets.iterdir())


def test_workers_end_after_their_supervisor(index, tmp_path):
    with serving("--path", index, "--workers", "2", cwd=tmp_path, ctx1=CTX1) as server:
        workers = worker_ids(server.process.pid)
        assert len(workers) == 2
        server.process.kill()
        wait_until(lambda: not any(map(is_running, workers)))


def test_an_index_that_cannot_be_opened_is_one_error(ctx1, index):
    serve = ("serve", "--path", index, "--collection", "absent", "--port", 0)
    one_worker = ctx1(*serve)
    two_workers = ctx1(*serve, "--workers", 2, ctx1=CTX1)
    assert (two_workers.returncode, two_workers.stderr) == (one_worker.returncode, one_worker.stderr)
    assert two_workers.returncode == 1
    assert two_workers.stdout == ""
