"""A worker that plays episodes in its own process, while the trainer runs in another.

In one process, a trainer and a sampler compete for Python's interpreter lock. With a `RolloutProcess`, the trainer
sends requests, and receives replies and trajectories. The model itself is not sent, because both processes share the
memory of its tensors. New weights arrive as a file of the changes (`weight_delta`).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from context_agent.errors import ConfigError, MissingExtraError, PolicyError
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.tokens.engines import Score
from context_agent.train.agents import build_agent
from context_agent.train.config import RunConfig
from context_agent.train.data import environment_of, open_corpus
from context_agent.train.experimental.async_rollouts.pausable_engine import LocalWorker, PausableEngine, RunningEpisode
from context_agent.train.experimental.async_rollouts.rollout_log import RecordedCall
from context_agent.train.experimental.async_rollouts.weight_channel import WeightChannel, WeightReceiver, WeightSender
from context_agent.train.models import load_renderer
from context_agent.train.rl.rollouts import EpisodeResult, RolloutRequest
from context_agent.train.rl.samplers import local_engine, subagent_engine

try:
    import torch
    import torch.multiprocessing as processes
except ImportError:
    raise MissingExtraError("torch", "train") from None


POLL_SECONDS = 1.0
"""Seconds between two checks that the other process is alive."""


CLOSE_TIMEOUT = 10.0
"""Seconds that closing waits for the last batch of the process."""


class RolloutProcess:
    """A `RolloutWorker` that plays its episodes in another process. Call `load_model` before any other method.

    If this process ends, the other one ends too.
    """

    def __init__(self, run: RunConfig, *, version: str = "0") -> None:
        """Set up the worker without starting the process.

        Args:
            run: The run. The process uses its settings and its corpus.
            version: The name of the initial weights.
        """
        self._run, self._version = run, version
        # A forked process would inherit locks whose threads it does not have.
        self._context = processes.get_context("spawn")
        self._staged: WeightSender | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self._process: Any = None
        # If two threads poll a process at once, one of them may read a wrong exit code.
        self._polling = threading.Lock()
        self._connection: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._numbers = itertools.count()
        self._playing: dict[int, tuple[RunningEpisode, asyncio.Future[EpisodeResult]]] = {}
        self._pausing: dict[int, asyncio.Future[None]] = {}
        self._scoring: dict[int, asyncio.Future[Score]] = {}
        self._has_ended = False

    def load_model(self, model: Any, trained: Sequence[int] = ()) -> None:
        """Start the process with a model, and return when it is ready. The model's tensors move to shared memory.

        Args:
            model: The model.
            trained: Indices of the parameters whose new values `put` sends.

        Raises:
            ConfigError: If the model cannot be sent to the process.
            PolicyError: If the process ends at once.
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
        # Pickling can raise any error of the pickled object.
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
        """Send the model's current weights. The process samples with them from its next batch on.

        The call does not wait until the current batch is done.

        Args:
            model: The model.
            version: The name of its weights.

        Returns:
            The number of bytes that were sent.

        Raises:
            PolicyError: If the process has ended.
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
        """Play an episode as `RolloutWorker.play` does.

        Raises:
            ConfigError: If the agent's settings are invalid.
            PolicyError: If the process has ended.
        """
        number = next(self._numbers)
        ended: asyncio.Future[EpisodeResult] = self._listening().create_future()
        self._playing[number] = running, ended
        try:
            self._send(("play", number, request, tuple(running.calls)))
            return await ended
        finally:
            del self._playing[number]

    async def pause(self) -> None:
        """Hold back new calls, and return when no call is in progress."""
        number, done = next(self._numbers), self._listening().create_future()
        self._pausing[number] = done
        self._send(("pause", number))
        await done

    def resume(self) -> None:
        """Let calls through again. If the process has ended, do nothing. The waiting episodes receive the error."""
        with suppress(PolicyError):
            self._send(("resume",))

    async def score(self, ids: Sequence[int]) -> Score:
        """Return the log-probabilities of the ids under the weights that sample.

        Raises:
            PolicyError: If the model fails, or the process has ended.
        """
        number = next(self._numbers)
        done: asyncio.Future[Score] = self._listening().create_future()
        self._scoring[number] = done
        self._send(("score", number, list(ids)))
        return await done

    def close(self) -> None:
        """End the process after its current batch. A second call does nothing."""
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
        """Return the event loop of the episodes. The first call starts the thread that delivers messages to it."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            threading.Thread(target=self._hear, args=(self._loop,), name="ctx1-hear", daemon=True).start()
        return self._loop

    def _hear(self, loop: asyncio.AbstractEventLoop) -> None:
        # If the loop is closed, nothing waits for the message.
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
    """An episode that reports each new call to the trainer."""

    def __init__(self, recorded: Sequence[RecordedCall], remote: Any, number: int) -> None:
        super().__init__(recorded)
        self._remote, self._number = remote, number

    def add(self, call: RecordedCall) -> None:
        super().add(call)
        self._remote.send(("call", self._number, call))


def _serve(run: RunConfig, model: Any, staged: WeightReceiver, remote: Any, threads: int) -> None:
    """Play episodes until the trainer closes the connection or ends."""
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
        # The trainer has ended. If it held the lock of the weights, a batch would wait for it forever.
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
