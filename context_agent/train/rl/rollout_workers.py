"""Workers that play episodes, and episodes that pause between two turns and continue later.

An episode continues under new weights, or in another process. `PausableEngine` wraps an engine. It records each call of
the running episodes, holds calls back while it is paused, and replays the recorded calls of an episode. The harness is
deterministic over the same corpus, so an episode that is opened again and given its recorded replies reaches the point
where it was paused. Each replayed call checks this: its prompt must be the recorded one.
"""

from __future__ import annotations

import asyncio
import hashlib
from array import array
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Protocol

from context_agent.agent import SearchAgent
from context_agent.errors import PolicyError
from context_agent.policies.tokens.engines import BatchingEngine, Engine, Sample, SampleRequest
from context_agent.train.rl.rollout_log import RecordedCall
from context_agent.train.rl.rollouts import EpisodeResult, RolloutRequest, play_episode, update_number


class RunningEpisode:
    """An episode at work: its calls so far, and the recorded ones that it begins with."""

    def __init__(self, recorded: Sequence[RecordedCall] = ()) -> None:
        """`recorded` are its calls in an earlier process; they are on disk."""
        self.calls: list[RecordedCall] = list(recorded)
        self.logged = len(self.calls)
        """How many of the calls are on disk."""
        self.ended = False
        self.diverged = False
        """Whether the harness did not come to the recorded prompts again."""
        self._played = 0
        self._recorded = self.logged

    def replay(self, prompt: str) -> Sample | None:
        """The recorded reply of the next call, None where the record has ended.

        Raises `PolicyError` where it was sampled on another prompt.
        """
        if self._played >= self._recorded:
            return None
        call = self.calls[self._played]
        if call.prompt != prompt:
            self.diverged = True
            raise PolicyError(f"call {self._played} of a parked episode has another prompt than it was sampled on")
        self._played += 1
        return call.sample

    def add(self, call: RecordedCall) -> None:
        """A call that was sampled just now."""
        self.calls.append(call)

    @property
    def oldest_version(self) -> int | None:
        """The oldest version that sampled any of it; None where none has a number."""
        versions = [made for call in self.calls if (made := update_number(call.sample.version)) is not None]
        return min(versions, default=None)


CURRENT_EPISODE: ContextVar[RunningEpisode | None] = ContextVar("running episode", default=None)
"""The episode that a task plays."""


class PausableEngine:
    """An engine whose calls can be held back. For one event loop, whose thread alone shuts and opens it.

    It begins shut: before the first weights have come there is nothing to sample with. An engine that waits for the
    episodes that it expects must not be shut later on: those at the engine would be waited for in vain.
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
        """The recorded reply, or the engine's. Raises `PolicyError` where the record does not fit."""
        running, spelled = CURRENT_EPISODE.get(), prompt_digest(request.prompt)
        if running is not None and (recorded := running.replay(spelled)) is not None:
            return recorded
        await self._enter()
        try:
            sample = await self.engine.generate(request)
        finally:
            self._leave()
        if running is not None:
            running.add(RecordedCall(spelled, sample))
        return sample

    def expect(self, episodes: int) -> None:
        """Tells an engine that batches how many more episodes are at work."""
        if isinstance(self.engine, BatchingEngine):
            self.engine.expect(episodes)

    async def pause(self) -> None:
        """Lets no new call through, and returns when none is at work any more."""
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
    """Names a prompt by its ids."""
    return hashlib.sha256(array("q", prompt).tobytes()).hexdigest()[:16]


class RolloutWorker(Protocol):
    """Plays episodes for one event loop. It begins shut: no call of a policy goes through before `open`."""

    async def play(self, request: RolloutRequest, running: RunningEpisode) -> EpisodeResult:
        """How an episode ends. Its recorded calls are played again; each new one is added to `running` at once."""

    async def pause(self) -> None:
        """Lets no new call through, and returns when none is at work any more."""

    def resume(self) -> None:
        """Lets calls through again."""


class LocalWorker:
    """Plays in this process."""

    def __init__(self, agent: SearchAgent, engine: PausableEngine) -> None:
        """The agent's policy samples through the `engine`."""
        self._agent, self._engine = agent, engine

    async def play(self, request: RolloutRequest, running: RunningEpisode) -> EpisodeResult:
        """As `Player` says. Raises `ConfigError` alone."""
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
