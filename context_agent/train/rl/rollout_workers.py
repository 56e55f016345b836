"""Workers that play episodes, in this process or in processes of their own.

In asynchronous runs, episodes pause and continue between turns, under new weights or in another process.
`PausableEngine` wraps an engine. It records each call of the running episodes, holds calls back while it is paused, and
replays the recorded calls of an episode. The harness is deterministic over the same corpus, so an episode that is
opened again and given its recorded replies reaches the point where it was paused. Each replayed call checks this: its
prompt must be the recorded one.

In one process, a trainer and a sampler compete for Python's interpreter lock. With a `RolloutProcess` the trainer sends
requests and receives replies and trajectories. The model is not sent: its tensors are in memory that both processes
share. New weights come as a file of what changed (`weight_delta`).

A pool of processes, on this machine or others, plays the episodes of a step and samples from the run's model server:
the trainer sends requests with the name of the weights, and receives trajectories. The model of a trainer that samples
itself cannot be sent to other machines, so the pool needs `engine.kind = "vllm"`.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import signal
import threading
from array import array
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from context_agent._support.worker_pool import CallParent, JobLost, WorkerPool
from context_agent.agent import SearchAgent
from context_agent.errors import ConfigError, MissingExtraError, PolicyError
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.tokens.engines import (
    BatchingEngine,
    Engine,
    Sample,
    SampleRequest,
    Score,
    ScoringEngine,
)
from context_agent.policies.tokens.engines.vllm import VllmEngine
from context_agent.train.config import RunConfig
from context_agent.train.data import build_agent, environment_of, open_corpus
from context_agent.train.models import load_renderer, local_engine, subagent_engine
from context_agent.train.rl.rollout_log import RecordedCall
from context_agent.train.rl.rollouts import EpisodeResult, RolloutRequest, play_episode
from context_agent.train.rl.weight_delta import WeightChannel, WeightReceiver, WeightSender
from context_agent.train.rl.weight_sync import served_engine
from context_agent.train.rows import update_number

try:
    import torch
    import torch.multiprocessing as processes
except ImportError:
    raise MissingExtraError("torch", "train") from None

POLL_SECONDS = 1.0
"""Seconds between two checks that the other process is alive."""
CLOSE_TIMEOUT = 10.0
"""Seconds for the last batch of a process that is closed."""


class RunningEpisode:
    """A running episode: its calls so far, and the recorded ones that it starts with."""

    def __init__(self, recorded: Sequence[RecordedCall] = ()) -> None:
        """`recorded` are its calls in an earlier process, which are on disk."""
        self.calls: list[RecordedCall] = list(recorded)
        self.logged = len(self.calls)
        """How many of the calls are on disk."""
        self.ended = False
        self.diverged = False
        """Whether the harness did not reproduce the recorded prompts."""
        self._played = 0
        self._recorded = self.logged

    def replay(self, prompt: str) -> Sample | None:
        """Return the recorded reply of the next call; None after the last one.

        Raises `PolicyError` if it was sampled on another prompt.
        """
        if self._played >= self._recorded:
            return None
        call = self.calls[self._played]
        if call.prompt != prompt:
            self.diverged = True
            raise PolicyError(f"call {self._played} of a paused episode has another prompt than the recorded one")
        self._played += 1
        return call.sample

    def add(self, call: RecordedCall) -> None:
        """Adds a call that was just sampled."""
        self.calls.append(call)

    @property
    def oldest_version(self) -> int | None:
        """The oldest version of its calls; None if no version is a number."""
        versions = (update_number(call.sample.version) for call in self.calls)
        return min((version for version in versions if version is not None), default=None)


CURRENT_EPISODE: ContextVar[RunningEpisode | None] = ContextVar("running episode", default=None)
"""The episode of the current task."""


class PausableEngine:
    """An engine whose calls can be held back. For one event loop, whose thread alone pauses and resumes it.

    It starts paused, since there is nothing to sample with before the first weights arrive. Do not pause an engine that
    waits for the episodes that it expects: it would wait for the held-back ones.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._open = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._inside = 0

    @property
    def name(self) -> str:
        """The engine's."""
        return self.engine.name

    async def generate(self, request: SampleRequest) -> Sample:
        """Return the recorded reply, or the engine's. Raises `PolicyError` if the record does not fit."""
        running, digest = CURRENT_EPISODE.get(), prompt_digest(request.prompt)
        if running is not None and (recorded := running.replay(digest)) is not None:
            return recorded
        await self._enter()
        try:
            sample = await self.engine.generate(request)
        finally:
            self._leave()
        if running is not None:
            running.add(RecordedCall(digest, sample))
        return sample

    async def score(self, ids: Sequence[int]) -> Score:
        """Return the engine's score, also while calls are held back."""
        if not isinstance(self.engine, ScoringEngine):
            raise PolicyError(f"the engine {self.engine.name} does not score given ids, which training needs")
        return await self.engine.score(ids)

    def expect(self, episodes: int) -> None:
        """Reports to a batching engine how many more episodes are running."""
        if isinstance(self.engine, BatchingEngine):
            self.engine.expect(episodes)

    async def pause(self) -> None:
        """Holds back new calls, and returns when no call is in progress."""
        self._open.clear()
        await self._idle.wait()

    def resume(self) -> None:
        """Lets calls through again."""
        self._open.set()

    async def _enter(self) -> None:
        while not self._open.is_set():
            await self._open.wait()
        self._inside += 1
        self._idle.clear()

    def _leave(self) -> None:
        self._inside -= 1
        if not self._inside:
            self._idle.set()


def prompt_digest(prompt: Sequence[int]) -> str:
    """Return the digest of a prompt's ids."""
    return hashlib.sha256(array("q", prompt).tobytes()).hexdigest()[:16]


class RolloutWorker(Protocol):
    """Plays episodes for one event loop. It starts paused: no policy call goes through before `resume`."""

    async def play(self, request: RolloutRequest, running: RunningEpisode) -> EpisodeResult:
        """Return the result of an episode. Its recorded calls are replayed; each new one is added to `running` at
        once.
        """

    async def pause(self) -> None:
        """Holds back new calls, and returns when no call is in progress."""

    def resume(self) -> None:
        """Lets calls through again."""

    async def score(self, ids: Sequence[int]) -> Score:
        """Return what the weights that sample find of the ids."""


class LocalWorker:
    """Plays in this process."""

    def __init__(self, agent: SearchAgent, engine: PausableEngine) -> None:
        """The agent's policy samples through the `engine`."""
        self._agent, self._engine = agent, engine

    async def play(self, request: RolloutRequest, running: RunningEpisode) -> EpisodeResult:
        """As `RolloutWorker.play`. Raises only `ConfigError`."""
        CURRENT_EPISODE.set(running)
        self._engine.expect(1)
        try:
            return await play_episode(self._agent, request)
        finally:
            self._engine.expect(-1)

    async def pause(self) -> None:
        """The engine's."""
        await self._engine.pause()

    def resume(self) -> None:
        """The engine's."""
        self._engine.resume()

    async def score(self, ids: Sequence[int]) -> Score:
        """Return the engine's."""
        return await self._engine.score(ids)


class RolloutProcess:
    """A `RolloutWorker` whose episodes are played by another process, once it has a model.

    The process also ends with this one.
    """

    def __init__(self, run: RunConfig, *, version: str = "0") -> None:
        """Plays with the run's settings and corpus; `version` names the initial weights."""
        self._run, self._version = run, version
        # A forked process would inherit locks of threads that it lacks.
        self._context = processes.get_context("spawn")
        self._staged: WeightSender | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self._process: Any = None
        # Of two threads that poll a process at once, one may read a wrong exit code.
        self._polling = threading.Lock()
        self._connection: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._numbers = itertools.count()
        self._playing: dict[int, tuple[RunningEpisode, asyncio.Future[EpisodeResult]]] = {}
        self._pausing: dict[int, asyncio.Future[None]] = {}
        self._scoring: dict[int, asyncio.Future[Score]] = {}
        self._has_ended = False

    def hold(self, model: Any, trained: Sequence[int] = ()) -> None:
        """Samples with this model, whose tensors move to shared memory. `put` brings new values of those `trained`.

        Returns when the process is ready. Raises `ConfigError` for a model that cannot be sent to it, and `PolicyError`
        if it ends at once.
        """
        self._folder = TemporaryDirectory(prefix="ctx1-weights-")
        channel = WeightChannel(self._context, Path(self._folder.name) / "changes", self._version)
        self._staged = WeightSender(model, trained, channel)
        self._connection, remote = self._context.Pipe()
        receiver = WeightReceiver(trained, channel)
        arguments = (self._run, model.share_memory(), receiver, remote, torch.get_num_threads())
        self._process = self._context.Process(target=_serve, args=arguments, name="ctx1-sample", daemon=True)
        try:
            self._process.start()
        # Pickle raises whatever the object raises.
        except Exception as error:
            self._process = None
            raise ConfigError(
                f'the model cannot sample in its own process: {error}. Use a thread: async_rollouts.sampler = "thread"'
            ) from error
        remote.close()
        try:
            self._connection.recv()
        except EOFError:
            raise self._gone() from None

    def put(self, model: Any, version: str) -> int:
        """Return the model's current weights sample from the next batch on. Does not wait for the current batch.

        Returns the bytes of what has changed.

        Raises `PolicyError` if the process has ended.
        """
        if self._staged is None or not self._is_alive():
            raise self._gone()
        # The process may have died while it held the lock.
        while not self._staged.lock.acquire(timeout=POLL_SECONDS):
            if not self._is_alive():
                raise self._gone()
        try:
            return self._staged.put(model, version)
        finally:
            self._staged.lock.release()

    async def play(self, request: RolloutRequest, running: RunningEpisode) -> EpisodeResult:
        """As `RolloutWorker.play`. Raises `ConfigError`, and `PolicyError` if the process has ended."""
        number = next(self._numbers)
        ended: asyncio.Future[EpisodeResult] = self._listening().create_future()
        self._playing[number] = running, ended
        try:
            self._send(("play", number, request, tuple(running.calls)))
            return await ended
        finally:
            del self._playing[number]

    async def pause(self) -> None:
        """As `RolloutWorker.pause`."""
        number, done = next(self._numbers), self._listening().create_future()
        self._pausing[number] = done
        self._send(("pause", number))
        await done

    def resume(self) -> None:
        """As `RolloutWorker.resume`. Waiting episodes learn of a process that has ended."""
        with suppress(PolicyError):
            self._send(("resume",))

    async def score(self, ids: Sequence[int]) -> Score:
        """As `RolloutWorker.score`. Raises `PolicyError` if the model fails, or the process has ended."""
        number = next(self._numbers)
        done: asyncio.Future[Score] = self._listening().create_future()
        self._scoring[number] = done
        self._send(("score", number, list(ids)))
        return await done

    def close(self) -> None:
        """Ends the process after the current batch. Safe to call twice."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(OSError):
            self._connection.send(None)
        with self._polling:
            process.join(CLOSE_TIMEOUT)
            if process.is_alive():
                process.kill()
                process.join()
        if self._folder is not None:
            self._folder.cleanup()

    def _send(self, message: tuple[Any, ...]) -> None:
        if self._process is None or self._has_ended:
            raise self._gone()
        try:
            self._connection.send(message)
        except OSError:
            raise self._gone() from None

    def _listening(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the episodes; the first call starts the thread that delivers messages to it."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            threading.Thread(target=self._hear, args=(self._loop,), name="ctx1-hear", daemon=True).start()
        return self._loop

    def _hear(self, loop: asyncio.AbstractEventLoop) -> None:
        # Nothing waits in a closed loop.
        with suppress(RuntimeError):
            with suppress(EOFError, OSError):
                while True:
                    loop.call_soon_threadsafe(self._handle, *self._connection.recv())
            loop.call_soon_threadsafe(self._ended)

    def _handle(self, what: str, number: int, *payload: Any) -> None:
        if what == "pause":
            self._pausing.pop(number).set_result(None)
            return
        if what == "score":
            (outcome,) = payload
            scored = self._scoring.pop(number)
            if isinstance(outcome, PolicyError):
                scored.set_exception(outcome)
            else:
                scored.set_result(outcome)
            return
        running, ended = self._playing.get(number, (None, None))
        if running is None or ended is None or ended.done():
            return
        if what == "call":
            running.calls.append(*payload)
        elif what == "failed":
            ended.set_exception(*payload)
        else:
            trajectory, running.diverged = payload
            ended.set_result(trajectory)

    def _ended(self) -> None:
        self._has_ended = True
        every: list[asyncio.Future[Any]] = [ended for _, ended in self._playing.values()]
        for waiting in [*every, *self._pausing.values(), *self._scoring.values()]:
            if not waiting.done():
                waiting.set_exception(self._gone())

    def _is_alive(self) -> bool:
        process = self._process
        with self._polling:
            return process is not None and process.is_alive()

    def _gone(self) -> PolicyError:
        process = self._process
        if process is None:
            return PolicyError("the rollout process has no model, or is closed")
        with self._polling:
            process.join(POLL_SECONDS)
            code = process.exitcode
        return PolicyError("the rollout process has ended" + (f" (exit code {code})" if code else ""))


class _ReportedEpisode(RunningEpisode):
    """An episode that reports each new call."""

    def __init__(self, recorded: Sequence[RecordedCall], remote: Any, number: int) -> None:
        super().__init__(recorded)
        self._remote, self._number = remote, number

    def add(self, call: RecordedCall) -> None:
        super().add(call)
        self._remote.send(("call", self._number, call))


def _serve(run: RunConfig, model: Any, staged: WeightReceiver, remote: Any, threads: int) -> None:
    """Plays until the trainer closes it or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    with ExitStack() as stack:
        world = environment_of(run.data)
        corpus = stack.enter_context(open_corpus(run.data)) if world is None else world.corpus
        tokenizer, renderer = load_renderer(run, world)
        searchers = stack.enter_context(subagent_engine(run, tokenizer, model.device))
        engine = local_engine(run, model, version="")
        stack.callback(engine.close)
        engine.staged = staged
        pausable = PausableEngine(engine)
        temperature = run.engine.temperature
        agent = build_agent(run, corpus, pausable, renderer, temperature=temperature, searchers=searchers)
        worker = LocalWorker(stack.enter_context(agent), pausable)
        remote.send(None)
        asyncio.run(_serve_messages(worker, remote))


async def _serve_messages(worker: LocalWorker, remote: Any) -> None:
    tasks: set[asyncio.Task[None]] = set()
    while (message := await asyncio.to_thread(_next_message, remote)) is not None:
        if message[0] == "resume":
            worker.resume()
            continue
        kinds: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {"play": _play, "pause": _pause, "score": _score}
        work = kinds[message[0]]
        tasks.add(task := asyncio.create_task(work(worker, remote, *message[1:])))
        task.add_done_callback(tasks.discard)
    for task in tasks:
        task.cancel()


def _next_message(remote: Any) -> Any:
    try:
        return remote.recv()
    except (EOFError, OSError):
        # The trainer has ended, possibly while it held the lock of the weights, for which a batch would wait for ever.
        os._exit(1)


async def _play(
    worker: LocalWorker, remote: Any, number: int, request: RolloutRequest, calls: Sequence[RecordedCall]
) -> None:
    running = _ReportedEpisode(calls, remote, number)
    try:
        ended = await worker.play(request, running)
    except Exception as error:  # noqa: BLE001
        kind = ConfigError if isinstance(error, ConfigError) else PolicyError
        remote.send(("failed", number, kind(f"{type(error).__name__} in the rollout process: {error}")))
        return
    # Not every error can be pickled.
    message = ended if isinstance(ended, Trajectory) else PolicyError(str(ended))
    remote.send(("ended", number, message, running.diverged))


async def _pause(worker: LocalWorker, remote: Any, number: int) -> None:
    await worker.pause()
    remote.send(("pause", number))


async def _score(worker: LocalWorker, remote: Any, number: int, ids: Sequence[int]) -> None:
    try:
        outcome: Score | PolicyError = await worker.score(ids)
    except PolicyError as error:
        outcome = error
    remote.send(("score", number, outcome))


@dataclass(frozen=True, slots=True)
class ServedEpisode:
    """An episode to play, and the model on the server that samples it, with its version."""

    request: RolloutRequest
    model: str
    version: str


RolloutPool = WorkerPool[ServedEpisode, EpisodeResult]


@dataclass(frozen=True, slots=True)
class RolloutSetup:
    """What a worker opens: the run's corpus, tokenizer and agent. All machines must see them under the same paths."""

    run: RunConfig

    def check(self) -> None:
        """Raises `ConfigError` for a run whose episodes only the trainer's process can play."""
        if self.run.engine.kind != "vllm":
            raise ConfigError(
                "--processes and --ray need a model server, since other processes cannot sample from the trainer's own "
                'model: set engine.kind = "vllm"'
            )
        if self.run.async_rollouts is not None or self.run.episodes.searchers is not None:
            raise ConfigError(
                "--processes and --ray exclude [async_rollouts] and episodes.searchers, which need the trainer's "
                "process: remove them"
            )

    def open(self, call: CallParent) -> Callable[[ServedEpisode], Callable[[], EpisodeResult]]:
        """Opens the agent of a worker, which stays open until the process ends."""
        run, stack = self.run, ExitStack()
        world = environment_of(run.data)
        corpus = stack.enter_context(open_corpus(run.data)) if world is None else world.corpus
        _, renderer = load_renderer(run, world)
        engine = served_engine(run)
        agent = stack.enter_context(build_agent(run, corpus, engine, renderer, temperature=run.engine.temperature))
        return lambda episode: lambda: _play_served(agent, engine, episode)


def play_in_pool(pool: RolloutPool, engine: Engine, requests: Sequence[RolloutRequest]) -> list[EpisodeResult]:
    """Return the results of the requests, in order, the same as in one process.

    `engine` is the trainer's, to which weight syncs give the newest weights. An episode whose process dies twice has an
    error as its result.
    """
    assert isinstance(engine, VllmEngine)
    futures = [pool.submit(ServedEpisode(request, engine.model, engine.version)) for request in requests]
    return [_result(future) for future in futures]


def _play_served(agent: SearchAgent, engine: VllmEngine, episode: ServedEpisode) -> EpisodeResult:
    # All episodes in progress are of one step and so of one version.
    engine.model, engine.version = episode.model, episode.version
    return asyncio.run(play_episode(agent, episode.request))


def _result(future: Future[EpisodeResult]) -> EpisodeResult:
    try:
        return future.result()
    except JobLost as lost:
        return PolicyError(str(lost))
