"""A background thread that plays episodes while the policy is trained."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from context_agent._support.journal import JsonObject
from context_agent.errors import PolicyError
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.tokens.engines import Score
from context_agent.policies.tokens.recorded_calls import calls
from context_agent.train.experimental.async_rollouts.pausable_engine import RolloutWorker, RunningEpisode
from context_agent.train.experimental.async_rollouts.rollout_log import RolloutLog, finished_record, paused_record
from context_agent.train.rl.rollouts import EpisodeResult, RolloutRequest, is_complete
from context_agent.train.rows import update_number

T = TypeVar("T")


POLL_SECONDS = 1.0
"""Seconds between two checks that the thread is alive."""


class BackgroundRollouts:
    """A thread that plays the requested episodes in order. At most `concurrency` episodes run at a time.

    An episode has ended when its trajectory is in the log. If the log already contains an episode, it is not played
    again. Only the trainer's thread calls `offer`, `wait`, `take` and `between_turns`.

    Attributes:
        paused: Number of episodes that were unfinished when weights changed, summed over all changes.
        mixed: Number of episodes that more than one policy version sampled.
    """

    def __init__(
        self,
        worker: RolloutWorker,
        log: RolloutLog,
        concurrency: int,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Set up the thread. It starts when the `with` block is entered.

        Args:
            worker: The worker that plays the episodes. Only the thread uses it.
            log: The log that stores the episodes.
            concurrency: Largest number of episodes that run concurrently.
            note: A function that receives messages for the user.
        """
        self._worker, self._log = worker, log
        self._concurrency, self._note = concurrency, note
        self._waiting: deque[RolloutRequest] = deque()
        self._running: dict[str, RunningEpisode] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: dict[str, tuple[EpisodeResult, int | None]] = {}
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._records: list[tuple[JsonObject, asyncio.Future[None] | None]] = []
        self._writing: asyncio.Task[None] | None = None
        self._idle = _IdleClock()
        self.paused = 0
        self.mixed = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="ctx1-sample", daemon=True)

    @property
    def idle_seconds(self) -> float:
        """Seconds since the start in which no episode was running."""
        return self._idle.seconds

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the thread, and log the calls of unfinished episodes. A second call does nothing."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def offer(self, requests: Sequence[RolloutRequest]) -> None:
        """Append the requests to the queue."""
        self._loop.call_soon_threadsafe(self._accept, requests)

    def wait(self, ready: Callable[[], T | None]) -> T:
        """Wait until `ready` returns a value, and return the value.

        Args:
            ready: A function that this method calls whenever an episode ends. As long as the caller must wait, it
                returns None.

        Returns:
            The value.

        Raises:
            PolicyError: If the thread has ended. If an error ended it, that error is raised.
        """
        with self._changed:
            while True:
                if self._failure is not None:
                    raise self._failure
                if (result := ready()) is not None:
                    return result
                self._changed.wait(POLL_SECONDS)
                if not self._thread.is_alive() and self._failure is None:
                    raise PolicyError(
                        "the rollout thread has ended, so no episode will end. Resume the run with --resume."
                    )

    def has_ended(self, episode: str) -> bool:
        """Return True if the episode has ended."""
        return episode in self._ended

    def oldest_version(self, episode: str) -> int | None:
        """Return the oldest policy version that sampled in the episode.

        If the episode has no call yet, or no version is a number, return None.
        """
        if (ended := self._ended.get(episode)) is not None:
            return ended[1]
        running = self._running.get(episode)
        return running.oldest_version if running is not None else None

    def take(self, episode: str) -> EpisodeResult:
        """Return the result of an ended episode, and forget it."""
        with self._changed:
            return self._ended.pop(episode)[0]

    @contextmanager
    def between_turns(self, *, drain: bool) -> Iterator[None]:
        """Pause the episodes within the block, so that the caller can change the weights.

        With `drain`, no call is in progress inside the block.
        """
        self._call(self._pause(drain=drain))
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._worker.resume)

    def score(self, ids: Sequence[int]) -> Future[Score]:
        """Request the worker's score of the ids, and return at once."""
        return asyncio.run_coroutine_threadsafe(self._worker.score(ids), self._loop)

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        while True:
            try:
                future.result(POLL_SECONDS)
                return
            except TimeoutError:
                if future.done():
                    raise
                if not self._thread.is_alive():
                    raise PolicyError(
                        "the rollout thread has ended, so no episode will end. Resume the run with --resume."
                    ) from None

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._ready.set()
        await self._stop.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._worker.resume()
        self._log_unfinished()
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)

    def _accept(self, requests: Sequence[RolloutRequest]) -> None:
        with self._changed:
            for request in requests:
                if (finished := self._log.finished.pop(request.episode, None)) is not None:
                    self._ended[request.episode] = finished, _oldest_version(finished)
                else:
                    self._waiting.append(request)
            self._changed.notify_all()
        self._pump()

    def _pump(self) -> None:
        while self._waiting and len(self._running) < self._concurrency and not self._stop.is_set():
            request = self._waiting.popleft()
            self._running[request.episode] = RunningEpisode(self._log.paused.pop(request.episode, ()))
            task = self._loop.create_task(self._work(request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._idle.set(idle=not self._running)

    async def _work(self, request: RolloutRequest) -> None:
        try:
            ended = await self._play(request)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - handed to the trainer's thread, whatever it is
            self._fail(error)
            return
        running = self._running[request.episode]
        self.mixed += len({call.sample.version for call in running.calls}) > 1
        with self._changed:
            self._ended[request.episode] = ended, running.oldest_version
            del self._running[request.episode]
            self._changed.notify_all()
        self._pump()

    async def _play(self, request: RolloutRequest) -> EpisodeResult:
        ended = await self._worker.play(request, self._running[request.episode])
        if self._running[request.episode].diverged:
            self._note(
                f"the recorded calls of paused episode {request.episode} no longer give the same prompts, because the "
                "corpus or the harness has changed. The episode starts again."
            )
            self._running[request.episode] = RunningEpisode()
            ended = await self._worker.play(request, self._running[request.episode])
        self._running[request.episode].ended = True
        if is_complete(ended):
            await self._log_and_wait(finished_record(ended))
        return ended

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    async def _pause(self, *, drain: bool) -> None:
        """Log the calls of unfinished episodes. With `drain`, first wait until no call is in progress.

        The trainer does not wait until the calls are on disk.
        """
        if drain:
            await self._worker.pause()
        self._log_unfinished()

    def _log_unfinished(self) -> None:
        for episode, running in self._running.items():
            if running.ended or not running.calls:
                continue
            self.paused += 1
            if fresh := running.calls[running.logged :]:
                self._write(paused_record(episode, running.logged, fresh))
                running.logged += len(fresh)

    async def _log_and_wait(self, record: JsonObject) -> None:
        """Log a record, and return when it is on disk."""
        written = self._loop.create_future()
        self._write(record, written)
        await written

    def _write(self, record: JsonObject, written: asyncio.Future[None] | None = None) -> None:
        self._records.append((record, written))
        if self._writing is None or self._writing.done():
            self._writing = self._loop.create_task(self._write_all())

    async def _write_all(self) -> None:
        """Write the records that have accumulated, with one sync for all of them."""
        while self._records:
            batch, self._records = self._records, []
            try:
                await asyncio.to_thread(self._log.write, [record for record, _ in batch])
            except Exception as error:  # noqa: BLE001 - raised in the trainer's thread
                self._fail(error)
                return
            for _, written in batch:
                if written is not None and not written.done():
                    written.set_result(None)


class _IdleClock:
    """A clock that counts the seconds in which no episode runs. It starts idle."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._since: float | None = time.perf_counter()

    @property
    def seconds(self) -> float:
        since = self._since
        return self._sum + (time.perf_counter() - since if since is not None else 0.0)

    def set(self, *, idle: bool) -> None:
        now = time.perf_counter()
        if self._since is not None:
            self._sum += now - self._since
        self._since = now if idle else None


def _oldest_version(trajectory: Trajectory) -> int | None:
    versions = [version for call in calls(trajectory) if (version := update_number(call.version)) is not None]
    return min(versions, default=None)
