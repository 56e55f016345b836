"""Asynchronous rollouts: episodes are sampled in the background while the policy is trained."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Self, TypeVar

from context_agent._support.journal import JsonObject
from context_agent.agent import SearchAgent
from context_agent.errors import ConfigError, DataError, PolicyError
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.tokens.engines import Engine, Score
from context_agent.policies.tokens.prompt import calls
from context_agent.train.config import Notify, RunConfig
from context_agent.train.curriculum import RolloutConfig, RolloutLocation
from context_agent.train.models import LoadedModel, local_engine
from context_agent.train.rl.rollout_log import ConsumedGroups, RolloutLog, finished_record, paused_record
from context_agent.train.rl.rollout_workers import (
    LocalWorker,
    PausableEngine,
    RolloutProcess,
    RolloutWorker,
    RunningEpisode,
)
from context_agent.train.rl.rollouts import (
    EpisodeResult,
    PlayedEpisodes,
    RolloutRequest,
    RolloutSource,
    group_of,
    is_complete,
)
from context_agent.train.rl.weight_sync import CombinedSync, CopySync, PausingSync, WeightSync
from context_agent.train.rows import WeightedRow, row_age, update_number
from context_agent.train.training_run import TrainingRun

T = TypeVar("T")
POLL_SECONDS = 1.0
"""Seconds between two checks that the thread is alive."""


class BackgroundRollouts:
    """Plays the offered requests in a thread, in order, at most `concurrency` episodes at a time.

    An episode has ended once its trajectory is in the log; an episode that the log already has is not played again.
    `offer`, `wait`, `take` and `between_turns` are for the trainer's thread.
    """

    def __init__(
        self,
        worker: RolloutWorker,
        log: RolloutLog,
        concurrency: int,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Only the thread uses the `worker`."""
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
        """Episodes that were unfinished when weights changed, counted at each change."""
        self.mixed = 0
        """Episodes that more than one policy version sampled."""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="ctx1-sample", daemon=True)

    @property
    def idle_seconds(self) -> float:
        """Seconds without a running episode, since the start."""
        return self._idle.seconds

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops the thread and logs the calls of unfinished episodes. Safe to call twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def offer(self, requests: Sequence[RolloutRequest]) -> None:
        """Queues the requests behind those that were offered before."""
        self._loop.call_soon_threadsafe(self._accept, requests)

    def wait(self, ready: Callable[[], T | None]) -> T:
        """Blocks until `ready`, called whenever an episode ends, returns a value. Raises the error that ended the
        thread.
        """
        with self._changed:
            while True:
                if self._failure is not None:
                    raise self._failure
                if (result := ready()) is not None:
                    return result
                self._changed.wait(POLL_SECONDS)
                if not self._thread.is_alive() and self._failure is None:
                    raise PolicyError("the rollout thread has ended")

    def has_ended(self, episode: str) -> bool:
        """Return whether the episode has ended."""
        return episode in self._ended

    def oldest_version(self, episode: str) -> int | None:
        """Return the oldest policy version in the episode; None before its first call and for versions without a
        number.
        """
        if (ended := self._ended.get(episode)) is not None:
            return ended[1]
        running = self._running.get(episode)
        return running.oldest_version if running is not None else None

    def take(self, episode: str) -> EpisodeResult:
        """Return the result of an ended episode, which is then forgotten."""
        with self._changed:
            return self._ended.pop(episode)[0]

    @contextmanager
    def between_turns(self, *, drain: bool) -> Iterator[None]:
        """Pauses the episodes for the block, in which weights change. With `drain` no call is in progress inside it."""
        self._call(self._pause(drain=drain))
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._worker.resume)

    def score(self, ids: Sequence[int]) -> Future[Score]:
        """Ask the worker for its score of the ids. Returns at once."""
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
                    raise PolicyError("the rollout thread has ended") from None

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
                f"the recorded calls of paused episode {request.episode} no longer give the same prompts: the corpus "
                f"or the harness has changed. The episode starts again"
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
        """Logs the calls of unfinished episodes; the trainer does not wait for the disk."""
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
        """Returns when the record is on disk."""
        written = self._loop.create_future()
        self._write(record, written)
        await written

    def _write(self, record: JsonObject, written: asyncio.Future[None] | None = None) -> None:
        self._records.append((record, written))
        if self._writing is None or self._writing.done():
            self._writing = self._loop.create_task(self._write_all())

    async def _write_all(self) -> None:
        """Writes the records that have accumulated, several with one sync."""
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
    """Sums the seconds of idleness; starts idle."""

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


@dataclass(frozen=True, slots=True)
class AsyncLimits:
    """How far sampling may run ahead of training.

    `ahead`: steps; `quota`: the share of its groups that a step waits for; `staleness`: the most updates that a row may
    be old when it is trained.
    """

    ahead: int
    quota: float
    staleness: int


class AsyncRollouts:
    """A `RolloutSource` whose episodes are played in the background, while earlier steps are trained.

    While step n is trained, the episodes of up to `ahead` later steps are sampled. A step trains on the groups that it
    asked for. With a `quota` below 1 it does not wait for the last of them: those continue under newer weights, and a
    later step trains on them. No group is left so long that its rows would be older than `staleness`.
    """

    def __init__(
        self,
        rollouts: RolloutSource,
        config: RolloutConfig,
        *,
        background: BackgroundRollouts,
        log: RolloutLog,
        limits: AsyncLimits,
        sync_seconds: Callable[[], float] = lambda: 0.0,
        oldest_checkpoint: Callable[[], int | None] = lambda: None,
        note: Notify = lambda _: None,
    ) -> None:
        """`rollouts` draws the requests of a step.

        `sync_seconds` is the time that weight syncs have taken so far, `oldest_checkpoint` the oldest update that a run
        may resume from.
        """
        self._rollouts, self._config = rollouts, config
        self._background, self._log, self._limits = background, log, limits
        self._sync_seconds, self._oldest_checkpoint, self._note = sync_seconds, oldest_checkpoint, note
        self._groups: dict[str, list[RolloutRequest]] = {}
        self._next_step = log.next_step
        self._totals: dict[str, float] = {}
        self._left = log.left

    def score(self, ids: Sequence[int]) -> Future[Score]:
        """Ask the sampler in the background for its score of the ids."""
        return self._background.score(ids)

    def refill(self, step: int, first: int, count: int) -> list[RolloutRequest]:
        """Nothing: the questions of later steps are already being sampled."""
        return []

    def draw(self, step: int) -> list[RolloutRequest]:
        """Return the requests of the step; those of later steps start in the background.

        The first call also starts the groups that an interrupted run has left: before it the sampler has no model.
        """
        left, self._left = self._left, ()
        for earlier in sorted(set(map(_step_of, left))):
            self._offer(request for request in self._rollouts.draw(earlier) if group_of(request.episode) in left)
        last = min(step + self._limits.ahead, self._config.steps - 1)
        while self._next_step <= last:
            self._offer(self._rollouts.draw(self._next_step))
            self._next_step += 1
        return self._rollouts.draw(step)

    def play(self, step: int, requests: Sequence[RolloutRequest]) -> PlayedEpisodes:
        """Return the groups that are ready, of this step and of earlier ones; waits until there are enough of them."""
        started = time.perf_counter()
        ready = self._background.wait(lambda: self._ready_groups(step))
        waited = time.perf_counter() - started
        deferred = tuple(group for group in self._due(step) if group not in ready)
        self._log.consume(ConsumedGroups(step, tuple(ready), deferred))
        requests_taken = [request for group in ready for request in self._groups.pop(group)]
        results = [self._background.take(request.episode) for request in requests_taken]
        metrics = {
            "trainer_waited_seconds": waited + self._increase("sync", self._sync_seconds()),
            "sampler_waited_seconds": self._increase("idle", self._background.idle_seconds),
            "episodes_mixed": self._increase("mixed", self._background.mixed),
            "groups_left": float(len(deferred)),
        }
        return PlayedEpisodes(requests_taken, results, waited, metrics)

    def update_metrics(self, rows: Sequence[WeightedRow], update: int) -> dict[str, float]:
        """Return how many sampled rows have which age, and how many episodes were paused for new weights."""
        # Weights that an interrupted run has lost were newer than those now trained: such a row counts as fresh.
        ages = [max(0, row_age(item.row, update)) for item in rows if not item.demonstrated]
        metrics = {f"staleness/{age}": float(count) for age, count in sorted(Counter(ages).items())}
        if ages:
            metrics |= {"staleness/mean": fmean(ages), "staleness/max": float(max(ages))}
        return metrics | {"episodes_paused": self._increase("paused", self._background.paused)}

    def checkpointed(self) -> None:
        """Compacts the log; if that fails, the log stays as it is."""
        oldest = self._oldest_checkpoint()
        if oldest is None:
            return
        try:
            self._log.compact(oldest)
        except DataError as error:
            self._note(f"the rollout log was not compacted: {error}")

    def _offer(self, requests: Iterable[RolloutRequest]) -> None:
        offered = list(requests)
        for request in offered:
            self._groups.setdefault(group_of(request.episode), []).append(request)
        self._background.offer(offered)

    def _due(self, step: int) -> list[str]:
        return [group for group in self._groups if _step_of(group) <= step]

    def _ready_groups(self, step: int) -> list[str] | None:
        """Return the groups that the step trains on; None while it has to wait."""
        due = self._due(step)
        ready = [group for group in due if all(self._background.has_ended(r.episode) for r in self._groups[group])]
        late = set(due).difference(ready)
        if not late:
            return ready
        if step == self._config.steps - 1 or len(ready) < math.ceil(self._limits.quota * len(due)):
            return None
        return None if any(self._is_stale_after(group, step) for group in late) else ready

    def _is_stale_after(self, group: str, step: int) -> bool:
        """Return whether the group's rows would be too old in the last update of the next step."""
        versions = [self._background.oldest_version(request.episode) for request in self._groups[group]]
        oldest = min((version for version in versions if version is not None), default=None)
        last_update = (step + 2) * self._config.substeps - 1
        return oldest is not None and last_update - oldest > self._limits.staleness

    def _increase(self, name: str, total: float) -> float:
        """Return how much a total has grown since the last call."""
        before, self._totals[name] = self._totals.get(name, 0.0), float(total)
        return float(total) - before


def _step_of(group: str) -> int:
    return int(group.partition("-")[0])


@contextmanager
def open_async_rollouts(
    config: RunConfig,
    run: TrainingRun,
    rollouts: RolloutSource,
    loaded: LoadedModel,
    *,
    sampler: tuple[Engine, WeightSync],
    open_agent: Callable[[Engine], AbstractContextManager[SearchAgent]],
    resume: bool,
) -> Iterator[tuple[AsyncRollouts, WeightSync]]:
    """Asynchronous rollouts, and what brings new weights to their sampler.

    `sampler` is the engine of the synchronous loop with its weight sync; evaluation uses it. Raises `ConfigError` and
    `DataError` for a log that the run cannot resume from.
    """
    assert config.async_rollouts is not None
    path = run.out / f"buffer-{run.rank}.jsonl"
    if path.exists() and not resume:
        raise ConfigError(
            f"{path} holds episodes of a run that ended before its first checkpoint: resume it with --resume, or name "
            "another folder with --out"
        )
    with ExitStack() as stack:
        log = stack.enter_context(
            RolloutLog(
                path,
                settings=config.plain(),
                substeps=config.rollouts.substeps,
                update=run.first_update,
                rank=run.rank,
                ranks=run.ranks,
                note=run.note,
            )
        )
        worker, weights = stack.enter_context(_open_worker(config, loaded, open_agent, *sampler))
        background = stack.enter_context(BackgroundRollouts(worker, log, config.rollouts.concurrency, run.note))
        pausing = PausingSync(weights, background, drain=config.engine.kind != "transformers")
        source = AsyncRollouts(
            rollouts,
            config.drawing,
            background=background,
            log=log,
            limits=AsyncLimits(config.async_rollouts.ahead, config.async_rollouts.quota, config.loss.staleness),
            sync_seconds=lambda: pausing.seconds,
            oldest_checkpoint=lambda: next((checkpoint.step for checkpoint in run.checkpoints.all()), None),
            note=run.note,
        )
        yield source, CombinedSync([sampler[1], pausing] if weights is not sampler[1] else [pausing])


@contextmanager
def _open_worker(
    config: RunConfig,
    loaded: LoadedModel,
    open_agent: Callable[[Engine], AbstractContextManager[SearchAgent]],
    engine: Engine,
    weights: WeightSync,
) -> Iterator[tuple[RolloutWorker, WeightSync]]:
    """Yield the worker with its weight sync: this process with a server, else a copy of the model.

    The copy is in a process of its own or in a thread.
    """
    assert config.async_rollouts is not None
    location = config.async_rollouts.sampler or _default_location()
    if config.engine.kind == "transformers" and location is RolloutLocation.PROCESS:
        with closing(RolloutProcess(config)) as process:
            yield process, CopySync(process)
        return
    with ExitStack() as stack:
        if config.engine.kind == "transformers":
            engine = local_engine(config, loaded.model)
            stack.callback(engine.close)
            weights = CopySync(engine)
        pausable = PausableEngine(engine)
        yield LocalWorker(stack.enter_context(open_agent(pausable)), pausable), weights


def _default_location() -> RolloutLocation:
    import torch

    return RolloutLocation.THREAD if torch.cuda.is_available() else RolloutLocation.PROCESS
