"""Jobs in worker processes: repeated when a process dies, ended when they hang, and able to ask their parent."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from context_agent._support import worker_pool
from context_agent._support.http_client import Refusal
from context_agent._support.worker_pool import JobLost, ThisMachine, WorkerPool
from context_agent.errors import ConfigError, MissingExtraError
from tests.support.pool_jobs import Opened


@contextmanager
def pool(setup: Opened | None = None, *, processes: int = 2, **options: Any) -> Iterator[WorkerPool[Any, Any]]:
    with WorkerPool(setup or Opened(), ThisMachine(), processes=processes, concurrency=processes, **options) as workers:
        yield workers


def test_every_process_works_and_results_belong_to_their_jobs() -> None:
    with pool() as workers:
        results = [future.result() for future in [workers.submit(("square", number)) for number in range(40)]]
    assert [square for square, _ in results] == [number**2 for number in range(40)]
    assert len({process for _, process in results}) == 2


def test_a_process_that_dies_is_replaced_and_a_request_is_answered_once_for_each_attempt(tmp_path: Path) -> None:
    requests: list[str] = []

    def answer(request: str) -> Future[str]:
        requests.append(request)
        reply = Future[str]()
        reply.set_result(request.upper())
        return reply

    with pool(Opened(tmp_path), processes=1, answer=answer) as workers:
        replies = [future.result() for future in [workers.submit(("pay", number)) for number in range(2)]]
    assert replies == [["0 FIRST", "0 SECOND"], ["1 FIRST", "1 SECOND"]]
    assert sorted(requests) == ["0 first", "0 first", "0 second", "1 first", "1 first", "1 second"]


def test_the_error_of_a_request_reaches_its_job(tmp_path: Path) -> None:
    def refuse(request: Any) -> Future[Any]:
        reply = Future[Any]()
        reply.set_exception(Refusal("http://server", 402, "no money"))
        return reply

    with pool(Opened(tmp_path), processes=1, answer=refuse) as workers, pytest.raises(Refusal, match="402") as excinfo:
        workers.submit(("pay", 0)).result()
    assert (excinfo.value.status, excinfo.value.message) == (402, "no money")


def test_a_job_that_hangs_dies_or_fails_is_lost_and_the_others_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "GRACE_PERIOD", 0.1)
    monkeypatch.setattr(worker_pool, "POLL_INTERVAL", 0.1)
    repeated_jobs: list[Any] = []
    jobs = [("square", 1), ("hang", 0), ("square", 2), ("die", 0), ("fail", 0), ("leave", 0), ("square", 3)]
    with pool(processes=1, limit=0.2, before_repeat=repeated_jobs.append) as workers:
        futures = [workers.submit(job) for job in jobs]
        errors = {job[0]: str(future.exception()) for job, future in zip(jobs, futures, strict=True)}
        assert [futures[index].result()[0] for index in (0, 2, 6)] == [1, 4, 9]
    assert errors["hang"] == "no answer came within 0.2 seconds, so the process that hung was killed"
    assert errors["die"] == "the process died 2 times (SIGKILL, which the system sends when memory runs out)"
    assert "a bug in a job" in errors["fail"]
    assert errors["leave"] == "enough"
    assert ("die", 0) in repeated_jobs
    assert ("hang", 0) not in repeated_jobs


def test_what_cannot_be_opened_ends_every_job_and_leaving_the_pool_says_why() -> None:
    errors = []
    with pytest.raises(RuntimeError, match="no weights here"), pool(Opened(fails=True)) as workers:
        errors = [workers.submit(("square", number)).exception() for number in range(2)]
    assert [type(error) for error in errors] == [RuntimeError] * 2


def test_a_machine_without_a_free_processor_ends_the_pool() -> None:
    class Full:
        cores = 1

        def start(self, setup: Any, slots: int) -> None:
            return None

    with (
        pytest.raises(ConfigError, match="no machine has a free processor"),
        WorkerPool(Opened(), Full(), processes=1, concurrency=1) as workers,
    ):
        workers.submit(("square", 1)).result()


def test_a_pool_that_ends_loses_its_jobs_at_once() -> None:
    start = time.monotonic()
    with pool(processes=1) as workers:
        hanging = workers.submit(("hang", 0))
    with pytest.raises(JobLost, match="the workers were ended"):
        hanging.result()
    with pytest.raises(JobLost, match="the workers were ended"):
        workers.submit(("square", 1)).result()
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("error", [MissingExtraError("ray", "ray"), Refusal("http://server", 401, "key")])
def test_errors_of_the_package_reach_another_process(error: Exception) -> None:
    received = pickle.loads(pickle.dumps(error))
    assert type(received) is type(error)
    assert (str(received), vars(received)) == (str(error), vars(error))
