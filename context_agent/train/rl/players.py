"""Who plays the episodes of the background: this process, or another (`apart`)."""

from __future__ import annotations

from typing import Protocol

from context_agent.agent import SearchAgent
from context_agent.train.rl.parking import CURRENT, Running, Turnstile
from context_agent.train.rl.playing import Ask, Ended, one


class Player(Protocol):
    """Plays episodes for one event loop. It begins shut: no call of a policy goes through before `open`."""

    async def play(self, ask: Ask, running: Running) -> Ended:
        """How an episode ends. Its recorded calls are played again; each new one is added to `running` at once."""

    async def shut(self) -> None:
        """Lets no new call through, and returns when none is at work any more."""

    def open(self) -> None:
        """Lets calls through again."""


class Here:
    """Plays in this process."""

    def __init__(self, agent: SearchAgent, turnstile: Turnstile) -> None:
        """The agent's policy samples through the `turnstile`."""
        self._agent, self._turnstile = agent, turnstile

    async def play(self, ask: Ask, running: Running) -> Ended:
        """As `Player` says. Raises `ConfigError` alone."""
        CURRENT.set(running)
        self._turnstile.expect(1)
        try:
            return await one(self._agent, ask)
        finally:
            self._turnstile.expect(-1)

    async def shut(self) -> None:
        """The turnstile's."""
        await self._turnstile.shut()

    def open(self) -> None:
        """The turnstile's."""
        self._turnstile.open()
