"""A process that answers questions for `runner`, so that one that hangs or dies can be given up without the others.

Jobs run in threads: a policy that blocks its thread holds up no job that has begun. The process that started this one
keeps the time, and ends it by force when a job is overdue.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from context_agent.agent import SearchResult
from context_agent.errors import ContextAgentError
from context_agent.eval.gold import Gold, gold_of
from context_agent.eval.prices import Price
from context_agent.eval.record import Record
from context_agent.eval.saved import Shelf, of_benchmark
from context_agent.eval.scoring import broken, failure, score
from context_agent.eval.systems import Answerer, Settings, System
from context_agent.harness.policy import Policy
from context_agent.questions import Question
from context_agent.retrieval.protocol import Corpus
from context_agent.tokens import HarmonyCounter


@dataclass(frozen=True, slots=True)
class Job:
    """One question for one system; `key` is that of the record to be."""

    benchmark: str
    system: System
    window: int
    seed: int
    question: Question

    @property
    def key(self) -> tuple[str, str, int, int, str]:
        """See `Record.key`."""
        return (self.benchmark, self.system.name, self.window, self.seed, self.question.id)


@dataclass(frozen=True, slots=True)
class Kit:
    """What a worker opens for itself: everything in it can be sent to another process.

    `corpora` and `policy` are functions of a module, or values that can be called, as `corpora.Snapshot` is.
    """

    corpora: Mapping[str, Callable[[], Corpus]]
    policy: Callable[[], Policy]
    settings: Settings
    price: Price | None = None
    shelf: Shelf | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """A job is under way: from here on its time counts."""

    key: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """The worker cannot work at all: a corpus or the policy cannot be opened."""

    error: Exception


Said = Begun | Broken | Record


def serve(kit: Kit, pipe: Connection, slots: int) -> None:
    """Answers the jobs that come through the pipe, `slots` at once, until it closes. The body of the process."""
    # Ctrl-C reaches every process of a terminal; the one that started this one decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    desk, waiting, lock = _Desk(kit), SimpleQueue[Job](), threading.Lock()

    def say(message: Said) -> None:
        with lock:
            pipe.send(message)

    def work() -> None:
        while True:
            job = waiting.get()
            try:
                answerer = desk.answerer(job.benchmark)
            except Exception as error:  # noqa: BLE001 - whatever it is, the process that asked must hear of it
                say(Broken(error if isinstance(error, ContextAgentError) else RuntimeError(repr(error))))
                return
            say(Begun(job.key))
            record = answered(job, answerer, kit.price)
            say(record if kit.shelf is None else replace(record, trajectories=kit.shelf.keep(job.key)))

    for _ in range(slots):
        threading.Thread(target=work, daemon=True).start()
    while True:
        try:
            waiting.put(pipe.recv())
        except (EOFError, OSError):
            # Not sys.exit: it would wait for threads, and one of them may never end.
            os._exit(0)


def answered(job: Job, answerer: Answerer, price: Price | None = None) -> Record:
    """The record of a job, whatever happens in it: a bug in one policy must not cost the other questions."""
    started = time.perf_counter()
    try:
        gold = gold_of(job.question, answerer.corpus)
        result = answerer.answer(job.system, job.question, gold, window=job.window, seed=job.seed)
    except BaseException as failed:  # noqa: BLE001 - see above; a cancellation would end the thread unheard
        return unanswered(job, _reason(failed), time.perf_counter() - started)
    seconds = time.perf_counter() - started
    try:
        return _scored(job, result, gold, price, seconds)
    except Exception as failed:  # noqa: BLE001 - see above
        return unanswered(job, f"its result cannot be scored: {_reason(failed)}", seconds)


def _scored(job: Job, result: SearchResult, gold: Gold, price: Price | None, seconds: float) -> Record:
    scores, curve = score(job.question, result, gold=gold, price=price, context=job.system.keeps_context)
    return Record(
        *job.key,
        type=job.question.type,
        hops=job.question.hops,
        scores=scores,
        stop_reason=result.stop_reason,
        error=failure(result),
        broken=broken(result),
        seconds=seconds,
        curve=curve,
        ranking=tuple(one.id for one in result.documents),
    )


def _reason(failed: BaseException) -> str:
    return str(failed) if isinstance(failed, ContextAgentError) else f"unexpected {type(failed).__name__}: {failed}"


def unanswered(job: Job, error: str, seconds: float) -> Record:
    """The record of a job that was given up: a failure, which counts as zero and is never left out."""
    scores, curve = score(job.question, None, error=error or "failed", context=job.system.keeps_context)
    return Record(
        *job.key,
        type=job.question.type,
        hops=job.question.hops,
        scores=scores,
        stop_reason="error",
        error=error,
        seconds=seconds,
        curve=curve,
    )


class _Desk:
    """What this worker has opened so far."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._policy: Policy | None = None
        self._answerers: dict[str, Answerer] = {}
        self._lock = threading.Lock()

    def answerer(self, benchmark: str) -> Answerer:
        """The one for a benchmark's corpus, opened at its first use."""
        with self._lock:
            return self._opened(benchmark)

    def _opened(self, benchmark: str) -> Answerer:
        if self._policy is None:
            self._policy = self._kit.policy()
            # Vocabularies are loaded at their first use; that must not count as time of the first question.
            (self._policy.counter or HarmonyCounter()).count("ready")
        if benchmark not in self._answerers:
            settings, corpus = self._kit.settings, self._kit.corpora[benchmark]()
            if settings.trajectories is not None:
                settings = replace(settings, trajectories=of_benchmark(settings.trajectories, benchmark))
            self._answerers[benchmark] = Answerer(corpus, self._policy, settings)
        return self._answerers[benchmark]
