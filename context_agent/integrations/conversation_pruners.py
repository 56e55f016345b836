"""A pruner for each conversation that a server or a framework prunes.

The pruner of a conversation remembers the passages that it removed, so a pruned prefix stays the same in later
requests. A conversation is recognized by its beginning, up to the user's first message. Only a digest of that beginning
is stored.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import Any

from context_agent._support.event_loops import acquire
from context_agent.pruning.contents import MessageContent
from context_agent.pruning.formats.marks import without_added_context
from context_agent.pruning.formats.recognition import read_content
from context_agent.pruning.messages import Transcript, checked_messages
from context_agent.pruning.prices import Prices
from context_agent.pruning.pruner import ContextPruner
from context_agent.pruning.report import Pruned, PruneReport

MAX_CONVERSATIONS = 1_000
MAX_MEMORY = 400_000_000
"""Maximum number of bytes that all pruners together remember."""
CONVERSATION_BYTES = 700
"""The bytes of a conversation without results."""
IDLE_SECONDS = 3_600.0
"""The default time until an unused pruner is forgotten. It is longer if the prefix cache may live longer."""


@dataclass(slots=True)
class _Conversation:
    pruner: ContextPruner
    number: int
    used: float = 0.0
    lifetime: float = 0.0
    """The longest time in seconds that an unused entry of the prefix cache may live, in the latest request."""
    memory: int = CONVERSATION_BYTES
    stopped: str = ""
    """The reason why the conversation is not pruned any more, or an empty string."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def in_use(self) -> Iterator[ContextPruner]:
        """Yield the pruner, which no other thread uses meanwhile. At the end, count its memory."""
        acquire(self.lock)
        try:
            yield self.pruner
        finally:
            self.memory = CONVERSATION_BYTES + self.pruner.memory
            self.lock.release()


MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class PrefixCaching:
    """The use of the prefix cache in a request.

    Attributes:
        lifetime: The longest time in seconds that an unused entry of the cache may live, or 0 if nothing is cached.
        write: The price of writing a token to the cache, in fresh tokens. If it is None, the pruner's price counts.
    """

    lifetime: float
    write: float | None = None

    @classmethod
    def of_anthropic(cls, ttl: str) -> PrefixCaching:
        """Return the caching of a request to Anthropic's API, with the ratios of Anthropic's price list.

        Without `cache_control` nothing is cached, so every token has the fresh price. Writing a token to the cache
        costs 1.25 times the fresh price for five minutes, and twice the fresh price for an hour.

        Args:
            ttl: The longest lifetime that the request's `cache_control` asks for: `5m`, `1h`, or empty if the request
                has none.
        """
        if not ttl:
            return cls(0.0)
        return cls(HOUR, 2.0) if ttl == "1h" else cls(5 * MINUTE, 1.25)

    def prices(self, prices: Prices) -> Prices:
        """Return the prices for this request."""
        if not self.lifetime:
            return replace(prices, cached=prices.fresh, write=prices.fresh)
        write = prices.write if self.write is None else self.write * prices.fresh
        return replace(prices, write=write, lifetime=self.lifetime)


class ConversationPruners:
    """A pruner for each conversation. Threads may share the object.

    Args:
        open_pruner: A function that returns the pruner for a new conversation.
        limit: Maximum number of conversations to remember.
        memory: Maximum number of bytes that all pruners together remember. If they remember more, the conversations
            that were used least recently are forgotten.
        idle: Seconds after which an unused conversation is forgotten. If its prefix may stay in the model server's
            cache for longer, it is remembered for that time.
    """

    def __init__(
        self,
        open_pruner: Callable[[], ContextPruner] = ContextPruner,
        *,
        limit: int = MAX_CONVERSATIONS,
        memory: int = MAX_MEMORY,
        idle: float = IDLE_SECONDS,
    ) -> None:
        self._open, self._limit, self._memory, self._idle = open_pruner, limit, memory, idle
        self._conversations: OrderedDict[bytes, _Conversation] = OrderedDict()
        self._lock = threading.Lock()
        self._secret = os.urandom(32)
        self._last_number = 0

    @classmethod
    def of(cls, budget: int, *, originals_only: bool = True, **options: Any) -> ConversationPruners:
        """Return the pruners for a budget, with further options of `ContextPruner`.

        By default, the conversations must come unpruned, as from a framework that keeps them whole.

        Raises:
            ConfigError: If the budget or an option is invalid.
        """
        open_pruner = partial(ContextPruner, budget, originals_only=originals_only, **options)
        open_pruner()
        return cls(open_pruner)

    def __len__(self) -> int:
        return len(self._conversations)

    def __reduce__(self) -> tuple[Callable[[], ConversationPruners], tuple[()]]:
        """Let a copy, or the object in another process, have the same settings and no conversations."""
        return partial(type(self), self._open, limit=self._limit, memory=self._memory, idle=self._idle), ()

    @property
    def memory(self) -> int:
        """The number of bytes that all pruners together hold in memory."""
        with self._lock:
            return sum(conversation.memory for conversation in self._conversations.values())

    def prune(
        self,
        messages: Sequence[Any],
        task: str | None = None,
        *,
        hint: str = "",
        caching: PrefixCaching | None = None,
        scope: bytes = b"",
        open_pruner: Callable[[], ContextPruner] | None = None,
    ) -> Pruned:
        """Prune a conversation as `ContextPruner.prune` does. The result contains the number of the conversation.

        Args:
            messages: The conversation. Two conversations with the same beginning and the same `scope` count as one.
            task: The task of the agent. Defaults to the last user message.
            hint: The information that the agent is looking for.
            caching: How the request uses the prefix cache. Defaults to the prices of the pruner.
            scope: Bytes that distinguish the conversations of different callers.
            open_pruner: A function that returns the pruner if the conversation is new. Defaults to the function that
                the object was made with.

        Raises:
            ConfigError: If `messages` is not a list of messages.
        """
        conversation = self._conversation(messages, scope, open_pruner or self._open)
        if conversation.stopped:
            strategy, kind = conversation.pruner.strategy, Transcript(messages).kind
            report = PruneReport("passed through", kind, strategy, warnings=(conversation.stopped,))
            return Pruned(list(messages), report, conversation.number)
        try:
            with conversation.in_use() as pruner:
                prices = caching.prices(pruner.prices) if caching else None
                pruned = pruner.prune(messages, task, hint=hint, prices=prices)
                conversation.lifetime = caching.lifetime if caching else 0.0
        finally:
            self._forget()
        return replace(pruned, conversation=conversation.number)

    def stop(self, number: int, reason: str) -> None:
        """Prune the conversation with this number no more. Its later reports have the reason as a warning."""
        with self._lock:
            for conversation in self._conversations.values():
                if conversation.number == number:
                    conversation.stopped = reason

    def changed_parts(self, chat: Sequence[tuple[dict[str, Any], int, Sequence[int]]]) -> dict[int, dict[int, str]]:
        """Prune the messages of a framework, and return the texts that changed.

        Args:
            chat: The framework's messages as chat messages. With each come the number of its own message, and the
                numbers of the parts whose texts pruning may change. They are the calls, or the result.

        Returns:
            The new texts, by the number of the message and the number of the part.
        """
        pruned = self.prune([message for message, _, _ in chat]).messages
        changed: dict[int, dict[int, str]] = {}
        for (before, number, parts), after in zip(chat, pruned, strict=True):
            for part, old, new in zip(parts, _prunable_texts(before), _prunable_texts(after), strict=False):
                if new != old:
                    changed.setdefault(number, {})[part] = new
        return changed

    def restore(self, messages: Sequence[Any], ids: Sequence[str], *, scope: bytes = b"") -> list[Any]:
        """Restore passages as `ContextPruner.restore` does.

        Args:
            messages: The conversation.
            ids: The ids of the passages.
            scope: Bytes that distinguish the conversations of different callers.

        Raises:
            ConfigError: If nothing with one of these ids is pruned, or if the conversation is not remembered.
        """
        key = self._key(messages, scope)
        with self._lock:
            if (conversation := self._conversations.get(key)) is not None:
                self._use(key, conversation)
        if conversation is None:
            return self._open().restore(messages, ids)
        with conversation.in_use() as pruner:
            restored = pruner.restore(messages, ids)
        self._forget()
        return restored

    def _conversation(
        self, messages: Sequence[Any], scope: bytes, open_pruner: Callable[[], ContextPruner]
    ) -> _Conversation:
        key = self._key(messages, scope)
        with self._lock:
            if (conversation := self._conversations.get(key)) is None:
                self._last_number += 1
                conversation = _Conversation(open_pruner(), self._last_number)
            self._use(key, conversation)
        return conversation

    def _use(self, key: bytes, conversation: _Conversation) -> None:
        """Note that a conversation is used now. The caller holds the lock."""
        conversation.used = time.monotonic()
        self._conversations[key] = conversation
        self._conversations.move_to_end(key)

    def _forget(self) -> None:
        """Forget the conversations that were used least recently, until the limits are met."""
        with self._lock:
            memory = sum(conversation.memory for conversation in self._conversations.values())
            now = time.monotonic()
            for key, conversation in list(self._conversations.items()):
                fits = len(self._conversations) <= self._limit and memory <= self._memory
                if not fits or now - conversation.used > max(self._idle, conversation.lifetime):
                    del self._conversations[key]
                    memory -= conversation.memory

    def _key(self, messages: Sequence[Any], scope: bytes) -> bytes:
        return conversation_digest(messages, scope, self._secret)


def _prunable_texts(message: Mapping[str, Any]) -> list[str]:
    calls = message.get("tool_calls")
    return [call["function"]["arguments"] for call in calls] if calls else [message["content"]]


def _contents(messages: Sequence[Any]) -> Iterator[MessageContent]:
    """Yield the contents of messages that follow no message of the agent."""
    for index, message in enumerate(messages):
        content = read_content(message, index, is_last=index == len(messages) - 1)
        yield from (content, *content.later)


def conversation_digest(messages: Sequence[Any], scope: bytes = b"", key: bytes = b"") -> bytes:
    """Return a digest of the scope and of the conversation's beginning.

    The beginning ends with the first message that the user wrote. A message that a coding agent added before, such as
    Codex's `<environment_context>`, is the same in many conversations. If the model answers before the user has written
    one, the beginning ends before the answer. Later messages are not read.

    Args:
        messages: The conversation.
        scope: Bytes that distinguish the conversations of different callers.
        key: The secret key of the digest, at most 64 bytes.
    """
    digest = blake2b(blake2b(scope, key=key).digest(), key=key)
    has_user = False
    for content in _contents(checked_messages(messages)):
        if has_user and content.role == "assistant":
            break
        digest.update(blake2b(f"{content.role}\0{content.text}".encode(errors="surrogatepass")).digest())
        if content.role == "user":
            has_user = True
            if without_added_context(content.text) or not content.text.strip():
                break
    return digest.digest()
