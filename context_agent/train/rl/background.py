"""Episodes that a thread of its own plays while the trainer does something else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from context_agent.errors import DataError, PolicyError
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.token_calls import calls
from context_agent.train.rl.journal import Journal, finished, parked
from context_agent.train.rl.lines import Record
from context_agent.train.rl.parking import Running
from context_agent.train.rl.players import Player
from context_agent.train.rl.playing import Ask, Ended
from context_agent.train.rl.rollouts import whole
from context_agent.train.rl.staleness import number

T = TypeVar("T")
LOOK = 1.0
"""Seconds after which a trainer that waits looks whether the thread is alive."""


class Background:
    """Plays what it is offered, in that order, at most `concurrency` episodes at a time.

    An episode has ended when its trajectory is in the journal; what the journal holds already is not played again.
    `offer`, `wait`, `take` and `between_turns` are for the trainer's thread.
    """

    def __init__(
        self,
        player: Player,
        journal: Journal,
        concurrency: int,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """The `player` is this thread's alone."""
        self._player, self._journal = player, journal
        self._concurrency, self._note = concurrency, note
        self._waiting: deque[Ask] = deque()
        self._running: dict[str, Running] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: dict[str, tuple[Ended, int | None]] = {}
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._records: list[tuple[Record, asyncio.Future[None] | None]] = []
        self._writing: asyncio.Task[None] | None = None
        self._idle = _Idle()
        self.parked = 0
        """Episodes that were unfinished when weights changed, counted each time."""
        self.mixed = 0
        """Episodes that more than one version sampled."""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="ctx1-sample", daemon=True)

    @property
    def idle_seconds(self) -> float:
        """Seconds for which no episode was at work, since the beginning."""
        return self._idle.seconds

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops at the next turn: what is unfinished is parked in the journal. Safe to call twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def offer(self, asks: Sequence[Ask]) -> None:
        """Has them played after those that were offered before."""
        self._loop.call_soon_threadsafe(self._take_up, asks)

    def wait(self, ready: Callable[[], T | None]) -> T:
        """Blocks until `ready`, asked anew whenever an episode ends, is not None. Raises what ended the thread."""
        with self._changed:
            while True:
                if self._failure is not None:
                    raise self._failure
                if (found := ready()) is not None:
                    return found
                self._changed.wait(LOOK)
                if not self._thread.is_alive() and self._failure is None:
                    raise PolicyError("the thread that samples has ended")

    def over(self, episode: str) -> bool:
        """Whether it has ended."""
        return episode in self._ended

    def oldest(self, episode: str) -> int | None:
        """The oldest version that sampled any of it, None where nothing is sampled or no version has a number."""
        if (ended := self._ended.get(episode)) is not None:
            return ended[1]
        running = self._running.get(episode)
        return running.oldest if running is not None else None

    def take(self, episode: str) -> Ended:
        """How an episode ended, once."""
        with self._changed:
            return self._ended.pop(episode)[0]

    @contextmanager
    def between_turns(self, *, drain: bool) -> Iterator[None]:
        """New weights come in its block: what is unfinished is parked. With `drain` no call is at work in it."""
        self._call(self._park(drain=drain))
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._player.open)

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        while True:
            try:
                asked.result(LOOK)
                return
            except TimeoutError:
                if asked.done():
                    raise
                if not self._thread.is_alive():
                    raise PolicyError("the thread that samples has ended") from None

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._ready.set()
        await self._stop.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._player.open()
        self._park_all()
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)

    def _take_up(self, asks: Sequence[Ask]) -> None:
        with self._changed:
            for ask in asks:
                if (known := self._journal.done.pop(ask.episode, None)) is not None:
                    self._ended[ask.episode] = known, _oldest(known)
                else:
                    self._waiting.append(ask)
            self._changed.notify_all()
        self._pump()

    def _pump(self) -> None:
        while self._waiting and len(self._running) < self._concurrency and not self._stop.is_set():
            ask = self._waiting.popleft()
            self._running[ask.episode] = Running(self._journal.parked.pop(ask.episode, ()))
            task = self._loop.create_task(self._work(ask))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._idle.set(idle=not self._running)

    async def _work(self, ask: Ask) -> None:
        try:
            ended = await self._play(ask)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - handed to the trainer's thread, whatever it is
            self._fail(error)
            return
        running = self._running[ask.episode]
        self.mixed += len({call.sample.version for call in running.calls}) > 1
        with self._changed:
            self._ended[ask.episode] = ended, running.oldest
            del self._running[ask.episode]
            self._changed.notify_all()
        self._pump()

    async def _play(self, ask: Ask) -> Ended:
        ended = await self._player.play(ask, self._running[ask.episode])
        if self._running[ask.episode].diverged:
            self._note(
                f"episode {ask.episode} was parked, and its record no longer gives the same prompts: the corpus or the "
                "harness has changed. It begins anew"
            )
            self._running[ask.episode] = Running()
            ended = await self._player.play(ask, self._running[ask.episode])
        self._running[ask.episode].ended = True
        if whole(ended):
            await self._keep(finished(ended))
        return ended

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    async def _park(self, *, drain: bool) -> None:
        """Has the journal keep what is unfinished; the trainer does not wait for the disk."""
        if drain:
            await self._player.shut()
        self._park_all()

    def _park_all(self) -> None:
        for episode, running in self._running.items():
            if running.ended or not running.calls:
                continue
            self.parked += 1
            if fresh := running.calls[running.kept :]:
                self._write(parked(episode, running.kept, fresh))
                running.kept += len(fresh)

    async def _keep(self, record: Record) -> None:
        """Returns when the record is on disk."""
        written = self._loop.create_future()
        self._write(record, written)
        await written

    def _write(self, record: Record, written: asyncio.Future[None] | None = None) -> None:
        self._records.append((record, written))
        if self._writing is None or self._writing.done():
            self._writing = self._loop.create_task(self._write_all())

    async def _write_all(self) -> None:
        """Writes what has come up, several records with one sync."""
        while self._records:
            batch, self._records = self._records, []
            try:
                await asyncio.to_thread(self._journal.write, [record for record, _ in batch])
            except DataError as error:
                self._fail(error)
                return
            for _, written in batch:
                if written is not None and not written.done():
                    written.set_result(None)


class _Idle:
    """Seconds of idleness; it begins idle."""

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


def _oldest(trajectory: Trajectory) -> int | None:
    known = [made for call in calls(trajectory) if (made := number(call.version)) is not None]
    return min(known, default=None)
