"""The pruners of running conversations, for faces through which many conversations pass.

A pruner remembers what it removed, so that a pruned prefix stays the same from request to request. A conversation is
recognized by its beginning, up to the user's first message; of that only a digest is stored.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

from context_agent.pruning.messages import Transcript
from context_agent.pruning.pruner import ContextPruner, Pruned

MAX_CONVERSATIONS = 1_000
MAX_CHARACTERS = 200_000_000
"""Characters of tool results that all pruners together remember."""
IDLE_SECONDS = 3_600.0
"""Prefix caches of model servers live for minutes to an hour."""


@dataclass(slots=True)
class _Conversation:
    pruner: ContextPruner
    used: float
    characters: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class ConversationPruners:
    """A pruner for each of at most `limit` conversations, until nobody used it for `idle` seconds. Safe for threads.

    The conversations that were used least recently are forgotten if the pruners remember more than `characters`.
    """

    def __init__(
        self,
        open_pruner: Callable[[], ContextPruner] = ContextPruner,
        *,
        limit: int = MAX_CONVERSATIONS,
        characters: int = MAX_CHARACTERS,
        idle: float = IDLE_SECONDS,
    ) -> None:
        self._open, self._limit, self._characters, self._idle = open_pruner, limit, characters, idle
        self._conversations: OrderedDict[bytes, _Conversation] = OrderedDict()
        self._lock = threading.Lock()
        self._secret = os.urandom(32)

    @classmethod
    def of(cls, budget: int, **options: Any) -> ConversationPruners:
        """Pruners with these options of `ContextPruner`. Raises `ConfigError`."""
        open_pruner = partial(ContextPruner, budget, **options)
        open_pruner()
        return cls(open_pruner)

    def __len__(self) -> int:
        return len(self._conversations)

    def prune(
        self,
        messages: Sequence[Any],
        task: str | None = None,
        *,
        scope: bytes = b"",
        open_pruner: Callable[[], ContextPruner] | None = None,
    ) -> Pruned:
        """As `ContextPruner.prune`. Conversations with the same beginning are the same if their `scope` is, too.

        `open_pruner` makes the pruner of a new conversation, by default the one that all conversations have.
        """
        conversation = self._conversation(messages, scope, open_pruner or self._open)
        with conversation.lock:
            pruned = conversation.pruner.prune(messages, task)
            conversation.characters = conversation.pruner.characters
        self._forget()
        return pruned

    def restore(self, messages: Sequence[Any], ids: Sequence[str], *, scope: bytes = b"") -> list[Any]:
        """As `ContextPruner.restore`. In a conversation that is not remembered, nothing is pruned."""
        with self._lock:
            conversation = self._conversations.get(self._key(messages, scope))
        if conversation is None:
            return self._open().restore(messages, ids)
        with conversation.lock:
            return conversation.pruner.restore(messages, ids)

    def _conversation(
        self, messages: Sequence[Any], scope: bytes, open_pruner: Callable[[], ContextPruner]
    ) -> _Conversation:
        key, now = self._key(messages, scope), time.monotonic()
        with self._lock:
            conversation = self._conversations.get(key) or _Conversation(open_pruner(), now)
            conversation.used = now
            self._conversations[key] = conversation
            self._conversations.move_to_end(key)
        return conversation

    def _forget(self) -> None:
        """Forgets the least recently used conversations until the others are within the limits."""
        with self._lock:
            characters = sum(conversation.characters for conversation in self._conversations.values())
            oldest = time.monotonic() - self._idle
            for key, conversation in list(self._conversations.items()):
                fits = len(self._conversations) <= self._limit and characters <= self._characters
                if fits and conversation.used >= oldest:
                    break
                del self._conversations[key]
                characters -= conversation.characters

    def _key(self, messages: Sequence[Any], scope: bytes) -> bytes:
        """A digest of the scope and the beginning, keyed with a secret of the process."""
        contents = Transcript(messages).contents
        roles = [content.role for content in contents]
        beginning = contents[: roles.index("user") + 1 if "user" in roles else len(roles)]
        digest = blake2b(blake2b(scope, key=self._secret).digest(), key=self._secret)
        for content in beginning:
            digest.update(blake2b(f"{content.role}\0{content.text}".encode(errors="surrogatepass")).digest())
        return digest.digest()
