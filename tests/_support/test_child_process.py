"""A child process and its parent: requests in both directions, progress, errors, and the end of either side."""

from __future__ import annotations

import os
import signal
from concurrent.futures import Future

import pytest

from context_agent._support.child_process import (
    ChildProcess,
    ParentPipe,
    Progress,
    Reply,
    Request,
    SentRequests,
    start_process,
)
from tests.support.descriptors import open_descriptors


def counts(limit: int, parent: ParentPipe) -> None:
    """Count to the number in each request, and refuse a number above the limit."""
    while True:
        request: Request = parent.receive()
        if request.content > limit:
            parent.send(Reply(request.number, None, ValueError(f"more than {limit}")))
            continue
        for number in range(request.content):
            parent.send(Progress(request.number, number))
        parent.send(Reply(request.number, os.environ["CTX1_COUNTED"] * request.content))


def start(limit: int = 3) -> ChildProcess:
    return ChildProcess(*start_process(counts, (limit,), name="counts", variables={"CTX1_COUNTED": "x"}))


def test_a_request_gets_its_progress_and_its_answer_or_its_error() -> None:
    child, seen = start(), list[int]()
    requests = SentRequests(child.send)
    answers = [requests.send(2, seen.append), requests.send(4), requests.send(0)]
    while not all(answer.done() for answer in answers):
        requests.receive(child.pipe.recv())
    child.kill()
    assert seen == [0, 1]
    assert (answers[0].result(), answers[2].result()) == ("xx", "")
    with pytest.raises(ValueError, match="more than 3"):
        answers[1].result()


def test_a_child_ignores_ctrl_c_and_ends_when_its_pipe_closes() -> None:
    child = start()
    child.send(Request(0, 1))
    assert child.pipe.recv() == Progress(0, 0)
    os.kill(child.process.pid, signal.SIGINT)  # type: ignore[attr-defined]
    child.send(Request(1, 0))
    assert [child.pipe.recv(), child.pipe.recv()] == [Reply(0, "x"), Reply(1, "")]
    assert child.exit_code(0) is None
    child.pipe.close()
    child.end(30)
    assert child.exit_code(0) == 0


def test_a_child_that_does_not_end_is_killed() -> None:
    child = start()
    child.end(0)
    assert child.exit_code(0) == -signal.SIGKILL


def test_requests_without_an_answer_fail_and_so_do_later_ones() -> None:
    sent = list[Request]()
    requests = SentRequests(sent.append)
    waiting: Future[int] = requests.send("first")
    requests.fail(EOFError("the process has ended"))
    for answer in (waiting, requests.send("second")):
        with pytest.raises(EOFError, match="has ended"):
            answer.result()
    assert [request.content for request in sent] == ["first"]


def test_what_cannot_be_pickled_starts_no_process() -> None:
    before = open_descriptors()
    with pytest.raises(Exception, match="pickle"):
        start_process(counts, (lambda: None,), name="counts")
    assert open_descriptors() <= before + 1, "the spawn method may have started its resource tracker"
