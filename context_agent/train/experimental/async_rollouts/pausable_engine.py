"""An engine that can pause episodes between turns. They continue under new weights or in another process.

`PausableEngine` wraps an engine. It records each call of the running episodes, and holds calls back while it is paused.
The harness is deterministic over the same corpus. If an episode is opened again and receives its recorded replies, it
therefore reaches the point where it was paused. To check this, each replayed call compares its prompt with the recorded
one.
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
from context_agent.policies.tokens.engines import BatchingEngine, Engine, Sample, SampleRequest, Score, ScoringEngine
from context_agent.train.experimental.async_rollouts.rollout_log import RecordedCall
from context_agent.train.rl.rollouts import EpisodeResult, RolloutRequest, play_episode
from context_agent.train.rows import update_number


class RunningEpisode:
    """A running episode: its calls so far, and the recorded calls that it replays first.

    Attributes:
        calls: The calls so far.
        logged: Number of calls that are on disk.
        ended: True if the episode has ended.
        diverged: True if the harness did not reproduce the recorded prompts.
    """

    def __init__(self, recorded: Sequence[RecordedCall] = ()) -> None:
        """Start with the calls that an earlier process recorded on disk."""
        self.calls: list[RecordedCall] = list(recorded)
        self.logged = len(self.calls)
        self.ended = False
        self.diverged = False
        self._played = 0
        self._recorded = self.logged

    def replay(self, prompt: str) -> Sample | None:
        """Return the recorded reply of the next call. After the last recorded call, return None.

        Args:
            prompt: The digest of the call's prompt.

        Raises:
            PolicyError: If the recorded call has another prompt.
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
        """Add a call that was just sampled."""
        self.calls.append(call)

    @property
    def oldest_version(self) -> int | None:
        """Oldest policy version of its calls. None if no version is a number."""
        versions = (update_number(call.sample.version) for call in self.calls)
        return min((version for version in versions if version is not None), default=None)


CURRENT_EPISODE: ContextVar[RunningEpisode | None] = ContextVar("running episode", default=None)
"""The episode that the current task plays."""


class PausableEngine:
    """An engine that can hold back calls. It belongs to one event loop. Only that loop's thread pauses and resumes it.

    The engine starts paused, because it cannot sample before the first weights arrive. If the wrapped engine waits for
    a full batch of expected episodes, do not pause it. It would wait for the calls that are held back.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._open = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._inside = 0

    @property
    def name(self) -> str:
        """Name of the wrapped engine."""
        return self.engine.name

    async def generate(self, request: SampleRequest) -> Sample:
        """Return the recorded reply, or let the engine sample one.

        Raises:
            PolicyError: If the recorded call has another prompt.
        """
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
        """Return the engine's score of the ids, even while calls are held back."""
        if not isinstance(self.engine, ScoringEngine):
            raise PolicyError(
                f"the engine {self.engine.name} does not score given ids, which training needs. Use another engine."
            )
        return await self.engine.score(ids)

    def expect(self, episodes: int) -> None:
        """Tell a batching engine how many more episodes are running."""
        if isinstance(self.engine, BatchingEngine):
            self.engine.expect(episodes)

    async def pause(self) -> None:
        """Hold back new calls, and return when no call is in progress."""
        self._open.clear()
        await self._idle.wait()

    def resume(self) -> None:
        """Let calls through again."""
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
    """A player of episodes for one event loop. It starts paused: no policy call goes through before `resume`."""

    async def play(self, request: RolloutRequest, running: RunningEpisode) -> EpisodeResult:
        """Replay the recorded calls of an episode, play it to its end, and return its result.

        Each new call is added to `running` at once.
        """

    async def pause(self) -> None:
        """Hold back new calls, and return when no call is in progress."""

    def resume(self) -> None:
        """Let calls through again."""

    async def score(self, ids: Sequence[int]) -> Score:
        """Return the log-probabilities of the ids under the weights that sample."""


class LocalWorker:
    """A worker that plays episodes in this process."""

    def __init__(self, agent: SearchAgent, engine: PausableEngine) -> None:
        """Use an agent whose policy samples through the `engine`."""
        self._agent, self._engine = agent, engine

    async def play(self, request: RolloutRequest, running: RunningEpisode) -> EpisodeResult:
        """Play an episode as `RolloutWorker.play` does. Raise only `ConfigError`."""
        CURRENT_EPISODE.set(running)
        self._engine.expect(1)
        try:
            return await play_episode(self._agent, request)
        finally:
            self._engine.expect(-1)

    async def pause(self) -> None:
        """Pause the engine."""
        await self._engine.pause()

    def resume(self) -> None:
        """Resume the engine."""
        self._engine.resume()

    async def score(self, ids: Sequence[int]) -> Score:
        """Return the engine's score of the ids."""
        return await self._engine.score(ids)
