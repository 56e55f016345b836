"""Pruning alone, of passages that another retriever returned and of running conversations.

The pruner of a conversation remembers the passages that it removed, so a pruned prefix stays the same in later
requests. A conversation is recognized by its beginning, up to the user's first message. Only a digest of that beginning
is stored.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from context_agent._support.arguments import real_number, whole_number
from context_agent.errors import ConfigError
from context_agent.harness.profile import default
from context_agent.policies.bridge import BridgePolicy
from context_agent.policies.bridge.candidates import ANALYZED_CHARACTERS, AnalyzedPassage, ChunkCandidate
from context_agent.pruning.formats import read_content
from context_agent.pruning.formats.marks import without_added_context
from context_agent.pruning.messages import checked_messages
from context_agent.pruning.prices import Prices
from context_agent.pruning.pruner import ContextPruner
from context_agent.pruning.report import Pruned
from context_agent.retrieval.embedders import STATIC
from context_agent.retrieval.engines.corpus import ASSUMED_SIZE
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.tokens import HarmonyCounter
from context_agent.types import Chunk

THRESHOLD = 0.01
"""The probability below which a passage is dropped.

`benchmarks/integrations.py` prints the recall and the tokens left.
"""


def prune(
    question: str,
    passages: Sequence[tuple[str, str]],
    *,
    threshold: float = THRESHOLD,
    tokens: int | None = None,
    k: int | None = None,
    policy: BridgePolicy | None = None,
) -> list[tuple[int, float]]:
    """Return the passages that the policy would keep in view.

    The result has pairs of index and probability, in the original order. The policy scores the passages together, as it
    does in its view. If a good passage names another passage, the latter therefore scores higher.

    Args:
        question: The question. If it is empty, no passage is kept.
        passages: Pairs of a title, which may be empty, and a text.
        threshold: The lowest probability of a passage to keep, from 0 to 1.
        tokens: The most tokens of the kept passages together (o200k_harmony). The best passages are kept first.
        k: The most passages to keep.
        policy: The policy that scores. Defaults to the shipped `BridgePolicy`.

    Raises:
        ConfigError: If `threshold` is outside [0, 1], or if `tokens` or `k` is not a whole number of at least 1.
    """
    if not 0 <= real_number(threshold, "threshold") <= 1:
        raise ConfigError(f"`threshold` must be from 0 to 1; got {threshold}")
    for name, number in (("tokens", tokens), ("k", k)):
        if number is not None:
            whole_number(number, name, least=1)
    if not passages or not question.strip():
        return []
    chunks = _chunks(passages, counted=tokens is not None)
    scores = _scores(question, chunks, policy or _default_policy())
    tokens_left = float("inf") if tokens is None else tokens
    kept_indices: list[int] = []
    for index in np.argsort(-scores, kind="stable")[:k]:
        if scores[index] < threshold:
            break
        if chunks[index].tokens <= tokens_left:
            tokens_left -= chunks[index].tokens
            kept_indices.append(int(index))
    return [(index, float(scores[index])) for index in sorted(kept_indices)]


def _scores(question: str, chunks: Sequence[Chunk], policy: BridgePolicy) -> NDArray[np.float32]:
    """Return the policy's probability for each chunk, shape (n_chunks,).

    A word counts as rare if it is rare in these chunks.
    """
    actor = policy.open(question, MemoryCorpus(chunks, embedder=STATIC, calibration=False), profile=default())
    for chunk in chunks:
        passage = AnalyzedPassage(chunk.title, chunk.text)
        actor.notes.add(ChunkCandidate(chunk.id, chunk.document_id, passage, chunk.tokens, hop=0))
    # The number of passages says nothing about the size of the corpus that they come from.
    actor.judgment.corpus_size = ASSUMED_SIZE
    scores = actor.judgment.scores()
    if policy.effort.readings:
        scores = actor.judgment.read(scores)
    return actor.judgment.calibrated(scores)[1]


def _chunks(passages: Sequence[tuple[str, str]], *, counted: bool) -> list[Chunk]:
    """Return the passages as chunks. A chunk contains the part of the text that the policy analyzes.

    The size of a chunk is the size of the whole text. If `counted`, it is in tokens. Otherwise it is in characters,
    which is cheaper.
    """
    count = HarmonyCounter().count if counted else len
    return [
        Chunk(
            str(index),
            str(index),
            0,
            text[:ANALYZED_CHARACTERS],
            0,
            len(text),
            count(text),
            title[:ANALYZED_CHARACTERS],
        )
        for index, (title, text) in enumerate(passages)
    ]


@cache
def _default_policy() -> BridgePolicy:
    return BridgePolicy()


MAX_CONVERSATIONS = 1_000
MAX_MEMORY = 400_000_000
"""The most bytes that all pruners together remember."""
CONVERSATION_BYTES = 700
"""The bytes of a conversation without results."""
IDLE_SECONDS = 3_600.0
"""The default time until an unused pruner is forgotten. Prefix caches of model servers live for minutes to an hour."""


@dataclass(slots=True)
class _Conversation:
    pruner: ContextPruner
    number: int
    used: float = 0.0
    memory: int = CONVERSATION_BYTES
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count_memory(self) -> None:
        self.memory = CONVERSATION_BYTES + self.pruner.memory


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
        limit: The most conversations to remember.
        memory: The most bytes that all pruners together remember. If it is exceeded, the conversations that were used
            least recently are forgotten.
        idle: Seconds after which an unused conversation is forgotten.
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
    def of(cls, budget: int, **options: Any) -> ConversationPruners:
        """Return the pruners for a budget, with further options of `ContextPruner`.

        Raises:
            ConfigError: If the budget or an option is invalid.
        """
        open_pruner = partial(ContextPruner, budget, **options)
        open_pruner()
        return cls(open_pruner)

    def __len__(self) -> int:
        return len(self._conversations)

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
        with conversation.lock:
            pruner = conversation.pruner
            prices = caching.prices(pruner.prices) if caching else None
            pruned = pruner.prune(messages, task, hint=hint, prices=prices)
            conversation.count_memory()
        self._forget()
        return replace(pruned, conversation=conversation.number)

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
        with conversation.lock:
            restored = conversation.pruner.restore(messages, ids)
            conversation.count_memory()
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
            oldest = time.monotonic() - self._idle
            for key, conversation in list(self._conversations.items()):
                fits = len(self._conversations) <= self._limit and memory <= self._memory
                if fits and conversation.used >= oldest:
                    break
                del self._conversations[key]
                memory -= conversation.memory

    def _key(self, messages: Sequence[Any], scope: bytes) -> bytes:
        return conversation_digest(messages, scope, self._secret)


def _prunable_texts(message: Mapping[str, Any]) -> list[str]:
    calls = message.get("tool_calls")
    return [call["function"]["arguments"] for call in calls] if calls else [message["content"]]


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
    for index, message in enumerate(checked_messages(messages)):
        content = read_content(message, index)
        if has_user and content.role == "assistant":
            break
        digest.update(blake2b(f"{content.role}\0{content.text}".encode(errors="surrogatepass")).digest())
        if content.role == "user":
            has_user = True
            if without_added_context(content.text) or not content.text.strip():
                break
    return digest.digest()
