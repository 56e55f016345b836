"""A worker that plays episodes in its own process, while the trainer runs in another.

In one process, a trainer and a sampler compete for Python's interpreter lock. With a `RolloutProcess`, the trainer
sends requests, and receives replies and trajectories. The model itself is not sent, because both processes share the
memory of its tensors. New weights arrive as a file of the changes (`weight_delta`).
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.context import BaseContext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from context_agent._support.child_process import (
    ChildFailed,
    ChildProcess,
    ParentPipe,
    Progress,
    Reply,
    Request,
    SentRequests,
    child_failure,
    picklable_error,
    start_process,
)
from context_agent._support.processes import exit_reason
from context_agent.errors import ConfigError, ContextAgentError, MissingExtraError, PolicyError, reason_of
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.tokens.engines import Score
from context_agent.train.agents import build_agent
from context_agent.train.config import RunConfig
from context_agent.train.data import open_corpus
from context_agent.train.experimental.async_rollouts.pausable_engine import LocalWorker, PausableEngine, RunningEpisode
from context_agent.train.experimental.async_rollouts.rollout_log import RecordedCall
from context_agent.train.experimental.async_rollouts.weight_channel import WeightChannel, WeightReceiver, WeightSender
from context_agent.train.models import load_renderer
from context_agent.train.rl.rollouts import EpisodeResult, RolloutRequest
from context_agent.train.rl.samplers import local_engine, subagent_engine

try:
    import torch

    # This import lets other processes share the memory of tensors.
    import torch.multiprocessing
except ImportError:
    raise MissingExtraError("torch", "train") from None


POLL_SECONDS = 1.0
"""Seconds between two checks that the other process is alive."""


CLOSE_TIMEOUT = 10.0
"""Seconds that closing waits for the last batch of the process."""


@dataclass(frozen=True, slots=True)
class PlayEpisode:
    """A request to play an episode. Its answer is a `PlayedEpisode`, and each new call is reported as progress.

    Attributes:
        request: The episode.
        calls: The recorded calls that the episode replays first.
    """

    request: RolloutRequest
    calls: tuple[RecordedCall, ...]


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """The result of an episode.

    Attributes:
        result: The trajectory, or the error that ended the episode.
        diverged: True if the harness did not reproduce the recorded prompts.
    """

    result: EpisodeResult
    diverged: bool


@dataclass(frozen=True, slots=True)
class ScoreIds:
    """A request for the log-probabilities of ids."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PauseCalls:
    """A request to hold back new calls. It is answered when no call is in progress."""


@dataclass(frozen=True, slots=True)
class ResumeCalls:
    """A message that lets calls through again."""


@dataclass(frozen=True, slots=True)
class Close:
    """A message that ends the process after its current batch."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A message that the process can play episodes."""


class RolloutProcess:
    """A `RolloutWorker` that plays its episodes in another process. Call `load_model` before any other method.

    Unlike the workers of a `WorkerPool`, the process has a state: the weights, and whether calls are held back. So a
    process that dies is not replaced, and its episodes are not repeated. If this process ends, the other one ends too.
    """

    def __init__(self, run: RunConfig, *, version: str = "0") -> None:
        """Set up the worker without starting the process.

        Args:
            run: The run. The process uses its settings and its corpus.
            version: The name of the initial weights.
        """
        self._run, self._version = run, version
        self._context: BaseContext = get_context("spawn")
        self._staged: WeightSender | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self._child: ChildProcess | None = None
        self._requests = SentRequests(self._send)

    def load_model(self, model: Any, trained: Sequence[int] = ()) -> None:
        """Start the process with a model, and return when it is ready. The model's tensors move to shared memory.

        Args:
            model: The model.
            trained: Indices of the parameters whose new values `put` sends.

        Raises:
            ConfigError: If the model cannot be sent to the process.
            PolicyError: If the process ends at once.
            ContextAgentError: If the process cannot open what it needs, such as the corpus.
        """
        self._folder = TemporaryDirectory(prefix="ctx1-weights-")
        channel = WeightChannel(self._context, Path(self._folder.name) / "changes", self._version)
        self._staged = WeightSender(model, trained, channel)
        receiver = WeightReceiver(trained, channel)
        arguments = (self._run, model.share_memory(), receiver, torch.get_num_threads())
        try:
            started = start_process(_serve, arguments, name="ctx1-sample", context=self._context)
        # Pickling can raise any error of the pickled object.
        except Exception as error:
            raise ConfigError(
                f"the model cannot sample in its own process ({reason_of(error)}). To sample in a thread, set "
                'async_rollouts.sampler = "thread".'
            ) from error
        self._child = ChildProcess(*started)
        try:
            message: Ready | ChildFailed = self._child.pipe.recv()
        except (EOFError, OSError):
            raise self._ended() from None
        if isinstance(message, ChildFailed):
            if isinstance(message.error, ContextAgentError):
                raise message.error
            raise PolicyError(f"the rollout process cannot start: {message.error}")
        threading.Thread(target=self._receive, args=(self._child,), name="ctx1-receive", daemon=True).start()

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
            raise self._ended()
        # The process may have died while it held the lock.
        while not self._staged.lock.acquire(timeout=POLL_SECONDS):
            if not self._is_alive():
                raise self._ended()
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
        wanted = PlayEpisode(request, tuple(running.calls))
        played: PlayedEpisode = await asyncio.wrap_future(self._requests.send(wanted, running.calls.append))
        running.diverged = played.diverged
        return played.result

    async def pause(self) -> None:
        """Hold back new calls, and return when no call is in progress."""
        await asyncio.wrap_future(self._requests.send(PauseCalls()))

    def resume(self) -> None:
        """Let calls through again. If the process has ended, do nothing. The waiting episodes receive the error."""
        with suppress(PolicyError):
            self._send(ResumeCalls())

    async def score(self, ids: Sequence[int]) -> Score:
        """Return the log-probabilities of the ids under the weights that sample.

        Raises:
            PolicyError: If the model fails, or the process has ended.
        """
        scored: Score = await asyncio.wrap_future(self._requests.send(ScoreIds(tuple(ids))))
        return scored

    def close(self) -> None:
        """End the process after its current batch. A second call does nothing."""
        child, self._child = self._child, None
        if child is None:
            return
        child.send(Close())
        child.end(CLOSE_TIMEOUT)
        if self._folder is not None:
            self._folder.cleanup()

    def _send(self, message: Request | ResumeCalls) -> None:
        if self._child is None:
            raise self._ended()
        self._child.send(message)

    def _receive(self, child: ChildProcess) -> None:
        """Pass on the messages of the process until it ends. Then give the error to all waiting callers."""
        try:
            while True:
                self._requests.receive(child.pipe.recv())
        except (EOFError, OSError):
            self._requests.fail(self._ended())
        except BaseException as error:  # noqa: BLE001 - nobody would read the replies any more
            self._requests.fail(
                PolicyError(
                    f"a message of the rollout process cannot be read ({error!r}). Resume the run with --resume."
                )
            )

    def _is_alive(self) -> bool:
        return self._child is not None and self._child.exit_code(0) is None

    def _ended(self) -> PolicyError:
        if self._child is None:
            if self._folder is None:
                return PolicyError("the rollout process has no model yet. Call load_model first.")
            return PolicyError("the rollout process is closed")
        code = self._child.exit_code(POLL_SECONDS)
        reason = f" ({exit_reason(code)})" if code else ""
        return PolicyError(f"the rollout process has ended{reason}")


class _ReportedEpisode(RunningEpisode):
    """An episode that reports each new call to the trainer."""

    def __init__(self, recorded: Sequence[RecordedCall], parent: ParentPipe, number: int) -> None:
        super().__init__(recorded)
        self._parent, self._number = parent, number

    def add(self, call: RecordedCall) -> None:
        super().add(call)
        self._parent.send(Progress(self._number, call))


def _serve(run: RunConfig, model: Any, staged: WeightReceiver, threads: int, parent: ParentPipe) -> None:
    """Play episodes until the trainer closes the process or ends.

    If the trainer was killed, it cannot delete the folder of the weights, so this process does.
    """
    parent.clean_up = partial(shutil.rmtree, staged.folder, ignore_errors=True)
    torch.set_num_threads(threads)
    with ExitStack() as stack:
        try:
            worker = _open_worker(run, model, staged, stack)
        except Exception as error:  # noqa: BLE001 - the trainer must learn of every error
            parent.send(child_failure(error))
            return
        parent.send(Ready())
        asyncio.run(_serve_messages(worker, parent))


def _open_worker(run: RunConfig, model: Any, staged: WeightReceiver, stack: ExitStack) -> LocalWorker:
    corpus = stack.enter_context(open_corpus(run.data))
    tokenizer, renderer = load_renderer(run)
    searchers = stack.enter_context(subagent_engine(run, tokenizer, model.device))
    engine = local_engine(run, model, version="")
    stack.callback(engine.close)
    engine.staged = staged
    pausable = PausableEngine(engine)
    agent = build_agent(run, corpus, pausable, renderer, temperature=run.engine.temperature, searchers=searchers)
    return LocalWorker(stack.enter_context(agent), pausable)


async def _serve_messages(worker: LocalWorker, parent: ParentPipe) -> None:
    tasks: set[asyncio.Task[None]] = set()
    # If the trainer ends, `receive` ends this process at once. A batch may wait for the lock of the weights, and if the
    # trainer held it, the batch would wait forever.
    while not isinstance(message := await asyncio.to_thread(parent.receive), Close):
        if isinstance(message, ResumeCalls):
            worker.resume()
            continue
        tasks.add(task := asyncio.create_task(_answer(worker, parent, message)))
        task.add_done_callback(tasks.discard)
    for task in tasks:
        task.cancel()


async def _answer(worker: LocalWorker, parent: ParentPipe, request: Request) -> None:
    """Do what the trainer requested, and reply."""
    answer: PlayedEpisode | Score | None = None
    try:
        match request.content:
            case PlayEpisode() as wanted:
                answer = await _play(worker, wanted, _ReportedEpisode(wanted.calls, parent, request.number))
            case ScoreIds(ids):
                answer = await worker.score(ids)
            case PauseCalls():
                await worker.pause()
        parent.send(Reply(request.number, answer))
    except PolicyError as error:
        parent.send(Reply(request.number, None, picklable_error(error)))
    except Exception as error:  # noqa: BLE001
        kind = ConfigError if isinstance(error, ConfigError) else PolicyError
        failure = kind(f"{type(error).__name__} in the rollout process: {reason_of(error)}")
        parent.send(Reply(request.number, None, failure))


async def _play(worker: LocalWorker, wanted: PlayEpisode, running: RunningEpisode) -> PlayedEpisode:
    result = await worker.play(wanted.request, running)
    # Not every error can be pickled.
    return PlayedEpisode(result if isinstance(result, Trajectory) else PolicyError(str(result)), running.diverged)
