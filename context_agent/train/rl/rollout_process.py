"""Episodes in a process of their own: model, harness and corpus, beside a trainer that is never in their way.

Two threads of one process take turns at Python's lock, and a trainer and a sampler both need it all the time. Here the
trainer's process sends questions and gets replies and trajectories. Of the model nothing is sent: its tensors, and the
copies through which new weights come, lie in memory that both processes see.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

from context_agent.errors import ConfigError, MissingExtraError, PolicyError
from context_agent.policies.engines.staged import Staged
from context_agent.policies.engines.transformers import TransformersEngine
from context_agent.train.config import Run
from context_agent.train.data import agent_of, corpus_of, world_of
from context_agent.train.models import searching, spoken
from context_agent.train.rl.rollout_log import Call
from context_agent.train.rl.rollout_workers import Here, Running, Turnstile
from context_agent.train.rl.rollouts import Ask, Ended
from context_agent.trajectory import Trajectory

try:
    import torch
    import torch.multiprocessing as processes
    from accelerate.utils import extract_model_from_parallel
except ImportError:
    raise MissingExtraError("torch", "train") from None

LOOK = 1.0
"""Seconds after which who waits for the other process looks whether it is alive."""
ENDING = 10.0
"""Seconds that a closed process has for its last batch."""
VERSION_BYTES = 64


class Apart:
    """A `Player` whose episodes are played by another process, when it holds a model.

    Close it, or let it end with this process, however that ends.
    """

    def __init__(self, run: Run, *, version: str = "0") -> None:
        """Plays as the run says, on its corpus; `version` names the weights that it begins with."""
        self._run, self._version = run, version
        # A forked process would have the locks of threads that it does not have.
        self._context = processes.get_context("spawn")
        self._staged: Staged | None = None
        self._process: Any = None
        self._near: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._numbers = itertools.count()
        self._playing: dict[int, tuple[Running, asyncio.Future[Ended]]] = {}
        self._shutting: dict[int, asyncio.Future[None]] = {}
        self._over = False

    def hold(self, model: Any, trained: Sequence[int] = ()) -> None:
        """Samples with this model, whose tensors move to shared memory. `put` brings new values of those `trained`.

        Returns when the process is there. Raises `ConfigError` for a model that cannot be sent to it, and
        `PolicyError` where it ends at once.
        """
        named = self._context.Array("c", VERSION_BYTES, lock=False)
        named.value = self._version.encode()
        self._staged = Staged(model, trained, lock=self._context.Lock(), named=named)
        self._staged.share()
        self._near, far = self._context.Pipe()
        # What accelerate wraps forward in for half precision cannot be sent to a process.
        plain = extract_model_from_parallel(model, keep_fp32_wrapper=False)
        given = (self._run, plain.share_memory(), self._staged, far, torch.get_num_threads())
        self._process = self._context.Process(target=_serve, args=given, name="ctx1-sample", daemon=True)
        try:
            self._process.start()
        # Pickle says what it cannot do with whatever error the object at hand raises.
        except Exception as error:
            self._process = None
            raise ConfigError(
                f"the model cannot sample in a process of its own: {error}. A thread of this one can: overlap.sampler "
                '= "thread"'
            ) from error
        far.close()
        try:
            self._near.recv()
        except EOFError:
            raise self._gone() from None

    def put(self, model: Any, version: str) -> None:
        """The weights that this model has now sample from the next batch on. Does not wait for the batch at hand.

        Raises `PolicyError` where the process has ended.
        """
        if self._staged is None or self._process is None or not self._process.is_alive():
            raise self._gone()
        # It may have died with the lock.
        while not self._staged.lock.acquire(timeout=LOOK):
            if not self._process.is_alive():
                raise self._gone()
        try:
            self._staged.put(model, version)
        finally:
            self._staged.lock.release()

    async def play(self, ask: Ask, running: Running) -> Ended:
        """As `Player` says. Raises `ConfigError`, and `PolicyError` where the process has ended."""
        number = next(self._numbers)
        ended: asyncio.Future[Ended] = self._listening().create_future()
        self._playing[number] = running, ended
        try:
            self._send(("play", number, ask, tuple(running.calls)))
            return await ended
        finally:
            del self._playing[number]

    async def shut(self) -> None:
        """As `Player` says."""
        number, done = next(self._numbers), self._listening().create_future()
        self._shutting[number] = done
        self._send(("shut", number))
        await done

    def open(self) -> None:
        """As `Player` says. A process that has ended is told to those who wait for it."""
        with suppress(PolicyError):
            self._send(("open",))

    def close(self) -> None:
        """Ends the process after the batch at hand. Safe to call twice."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(OSError):
            self._near.send(None)
        process.join(ENDING)
        if process.is_alive():
            process.kill()
            process.join()

    def _send(self, message: tuple[Any, ...]) -> None:
        if self._process is None or self._over:
            raise self._gone()
        try:
            self._near.send(message)
        except OSError:
            raise self._gone() from None

    def _listening(self) -> asyncio.AbstractEventLoop:
        """The loop that plays. From the first time on, a thread brings it what the process says."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            threading.Thread(target=self._hear, args=(self._loop,), name="ctx1-hear", daemon=True).start()
        return self._loop

    def _hear(self, loop: asyncio.AbstractEventLoop) -> None:
        # A loop that is closed has nobody who waits.
        with suppress(RuntimeError):
            with suppress(EOFError, OSError):
                while True:
                    loop.call_soon_threadsafe(self._told, *self._near.recv())
            loop.call_soon_threadsafe(self._ended)

    def _told(self, what: str, number: int, *said: Any) -> None:
        if what == "shut":
            self._shutting.pop(number).set_result(None)
            return
        running, ended = self._playing.get(number, (None, None))
        if running is None or ended is None or ended.done():
            return
        if what == "call":
            running.calls.append(*said)
        elif what == "failed":
            ended.set_exception(*said)
        else:
            trajectory, running.diverged = said
            ended.set_result(trajectory)

    def _ended(self) -> None:
        self._over = True
        every: list[asyncio.Future[Any]] = [ended for _, ended in self._playing.values()]
        for waiting in [*every, *self._shutting.values()]:
            if not waiting.done():
                waiting.set_exception(self._gone())

    def _gone(self) -> PolicyError:
        if self._process is None:
            return PolicyError("the process that samples holds no model, or is closed")
        self._process.join(LOOK)
        code = self._process.exitcode
        return PolicyError("the process that samples has ended" + (f" (exit code {code})" if code else ""))


class _Reported(Running):
    """An episode of which each new call is told."""

    def __init__(self, recorded: Sequence[Call], far: Any, number: int) -> None:
        super().__init__(recorded)
        self._far, self._number = far, number

    def add(self, call: Call) -> None:
        super().add(call)
        self._far.send(("call", self._number, call))


def _serve(run: Run, model: Any, staged: Staged, far: Any, threads: int) -> None:
    """Plays until it is told to stop, or there is nobody any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    with ExitStack() as stack:
        world = world_of(run.data)
        corpus = stack.enter_context(corpus_of(run.data)) if world is None else world.corpus
        tokenizer, renderer = spoken(run, world)
        searchers = stack.enter_context(searching(run, tokenizer))
        engine = TransformersEngine(model, name=run.model.name or "tiny", most=run.engine.batch)
        stack.callback(engine.close)
        engine.staged = staged
        turnstile = Turnstile(engine)
        temperature = run.engine.temperature
        agent = agent_of(run, corpus, turnstile, renderer, temperature=temperature, searchers=searchers)
        player = Here(stack.enter_context(agent), turnstile)
        far.send(None)
        asyncio.run(_playing(player, far))


async def _playing(player: Here, far: Any) -> None:
    tasks: set[asyncio.Task[None]] = set()
    while (message := await asyncio.to_thread(_heard, far)) is not None:
        if message[0] == "open":
            player.open()
            continue
        work = _play if message[0] == "play" else _shut
        tasks.add(task := asyncio.create_task(work(player, far, *message[1:])))
        task.add_done_callback(tasks.discard)
    for task in tasks:
        task.cancel()


def _heard(far: Any) -> Any:
    try:
        return far.recv()
    except (EOFError, OSError):
        # The trainer is gone, perhaps with the lock of the weights, for which a batch would wait for ever.
        os._exit(1)


async def _play(player: Here, far: Any, number: int, ask: Ask, calls: Sequence[Call]) -> None:
    running = _Reported(calls, far, number)
    try:
        ended = await player.play(ask, running)
    except Exception as error:  # noqa: BLE001
        kind = ConfigError if isinstance(error, ConfigError) else PolicyError
        far.send(("failed", number, kind(f"{type(error).__name__} in the process that samples: {error}")))
        return
    # Not every error can be sent as it is.
    told = ended if isinstance(ended, Trajectory) else PolicyError(str(ended))
    far.send(("ended", number, told, running.diverged))


async def _shut(player: Here, far: Any, number: int) -> None:
    await player.shut()
    far.send(("shut", number))
