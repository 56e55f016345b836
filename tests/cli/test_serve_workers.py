"""`ctx1 serve --workers`: processes that share an address, an index and a conversation; one dies, or the supervisor."""

import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.cli.process import PATIENCE
from tests.cli.serving import serving
from tests.pruning.conversations import rendered
from tests.pruning.test_pruner import LONG

QUESTION = "Which river flows past the birthplace of the engineer who designed Orm Skerry Light?"
PRUNING = {"budget": 300, "effort": "fast", "cached_price": 1.0}
CLIENTS = 4


def post(server, path, **fields):
    """A request on a connection of its own, which any worker may accept."""
    return httpx.post(server.url + path, json=fields, timeout=PATIENCE)


def metrics(server):
    """The metrics, from any worker."""
    return httpx.get(f"{server.url}/metrics", timeout=PATIENCE).text


def answered(server, path):
    """The numbers of the workers that have answered on this path."""
    return set(re.findall(rf'ctx1_requests_total{{worker="(\d)",path="{path}",status="20.', metrics(server)))


def by_both(server, path, **fields):
    """Repeats a request until both workers have answered it, and returns the answers."""
    answers = []
    with ThreadPoolExecutor(CLIENTS) as pool:
        ends = time.monotonic() + PATIENCE
        while answered(server, path) < {"0", "1"}:
            assert time.monotonic() < ends
            answers += pool.map(lambda _: post(server, path, **fields), range(CLIENTS))
    assert {answer.status_code for answer in answers} <= {200, 201}
    return [answer.json() for answer in answers]


def worker_ids(supervisor):
    """The process ids of the workers."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def until(happens):
    """Waits for something that happens by itself."""
    ends = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_workers_share_what_a_server_remembers_and_outlive_each_other(index, tmp_path):
    with serving("--path", index, "--workers", "2", "--trajectories", "kept", cwd=tmp_path) as server:
        # What one worker has searched, any of them can judge and show.
        answers = by_both(server, "/v1/retrieve", question=QUESTION, k=4, effort="fast")
        assert len({str(answer["documents"]) for answer in answers}) == 1
        by_both(server, "/v1/feedback", request_id=answers[0]["request_id"], rating=5)
        assert len((tmp_path / "kept" / "feedback.jsonl").read_text().splitlines()) == 1
        assert httpx.get(f"{server.url}/v1/trajectories/{answers[-1]['trajectory']}").status_code == 200

        # What one worker has pruned, any of them restores.
        messages = rendered("openai", LONG)
        pruned = post(server, "/v1/prune", messages=messages, **PRUNING).json()
        others = by_both(server, "/v1/prune", messages=messages, **PRUNING)
        assert {str(other["messages"]) for other in others} == {str(pruned["messages"])}
        ids = [item["id"] for item in pruned["report"]["removed"]]
        assert ids
        for _ in range(2 * CLIENTS):
            restored = post(server, "/v1/prune", messages=pruned["messages"], restore=ids, **PRUNING)
            assert restored.json()["messages"] == messages
        unknown = [post(server, "/v1/prune", messages=messages, restore=["p99"], **PRUNING) for _ in range(CLIENTS)]
        assert {(answer.status_code, answer.json()["error"]["code"]) for answer in unknown} == {
            (400, "unknown_passage")
        }

        # A worker that is killed loses what it was answering, and nothing else.
        victim, survivor = worker_ids(server.process.pid)
        with ThreadPoolExecutor(CLIENTS) as pool:
            requests = [
                pool.submit(post, server, "/v1/retrieve", question=QUESTION, effort="fast") for _ in range(6 * CLIENTS)
            ]
            requests[CLIENTS].exception()
            os.kill(victim, signal.SIGKILL)
            errors = [request.exception() for request in requests]
        lost = [error for error in errors if error is not None]
        assert len(lost) <= CLIENTS
        assert all(isinstance(error, httpx.TransportError) for error in lost)
        assert {request.result().status_code for request in requests if request.exception() is None} == {200}
        until(lambda: set(re.findall(r'ctx1_turns_total{worker="(\d)"}', metrics(server))) == {"0", "1"})
        assert survivor in worker_ids(server.process.pid)

        # Ctrl-C in a terminal reaches every process.
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(post, server, "/v1/retrieve", question=QUESTION)
            until(lambda: re.search(r"ctx1_searches_running{.*} 1", metrics(server)) or running.done())
            for worker in worker_ids(server.process.pid):
                os.kill(worker, signal.SIGINT)
            code, log = server.end(signal.SIGINT)
            assert running.result().status_code == 200
    assert code == 130
    ended = [line for line in log if line["event"] == "worker_ended"]
    assert [(line["worker"], line["process"]) for line in ended] == [(0, victim)]
    assert "SIGKILL" in ended[0]["reason"]
    assert [line["worker"] for line in log if line["event"] == "worker_started"] == [0, 1, 0]
    assert sorted(line["worker"] for line in log if line["event"] == "draining") == [0, 1]


def test_workers_end_after_their_supervisor(index, tmp_path):
    with serving("--path", index, "--workers", "2", cwd=tmp_path) as server:
        workers = worker_ids(server.process.pid)
        assert len(workers) == 2
        server.process.kill()
        until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))


def test_an_index_that_cannot_be_opened_is_one_error(ctx1, index):
    alone = ctx1("serve", "--path", index, "--collection", "absent", "--port", 0)
    several = ctx1("serve", "--path", index, "--collection", "absent", "--port", 0, "--workers", 2)
    assert (several.returncode, several.stderr) == (alone.returncode, alone.stderr)
    assert several.returncode == 1
    assert several.stdout == ""
