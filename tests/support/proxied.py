"""A client of the pruning proxy, and conversations for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from context_agent.integrations.conversation_pruners import ConversationPruners
from context_agent.integrations.server.proxy import Proxy, proxy_application
from context_agent.integrations.server.settings import Settings
from context_agent.pruning.pruner import ContextPruner
from tests.support.servers import listening

CHAT = "/v1/chat/completions"
KEY = "sk-secret-of-the-client"
TOPICS = ("tides", "violins", "glaciers", "printing", "orchards", "lighthouses", "comets", "salt")


@contextmanager
def proxy_client(
    url: str, *, budget: int = 300, pause: float = 30.0, drop_thinking: bool = False, **settings: Any
) -> Iterator[httpx.Client]:
    """Yield a client of a proxy in front of the upstream. The proxy prunes by words."""
    pruners = ConversationPruners(lambda: ContextPruner(budget, strategy="bm25"))
    limits = Settings(**{"max_body": 1_000_000, "grace": 1.0, **settings})
    proxy = Proxy(url, pruners, limits, pause=pause, drop_thinking=drop_thinking)
    with (
        listening(proxy, proxy_application, dated=False) as address,
        httpx.Client(base_url=address, timeout=120, headers={"Authorization": f"Bearer {KEY}"}) as client,
    ):
        yield client


def tool_result(topic: str) -> str:
    """Return a tool result about one topic in four paragraphs."""
    sentence = f"An entry about {topic} says what everyone knows about {topic} and nothing else. "
    return "\n\n".join(f"{topic.title()} {number}. {sentence * 3}" for number in range(4))


def conversation(steps: int) -> list[dict[str, Any]]:
    """Return a question about the first topic, then a call and a result about each of that many topics."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "What is known about tides?"},
    ]
    for number, topic in enumerate(TOPICS[:steps]):
        function = {"name": "search", "arguments": json.dumps({"query": topic})}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": tool_result(topic)})
    return messages


def proxy_conversation() -> list[dict[str, Any]]:
    """Return two searches with long results, of which one is about the question."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "When is high tide in Orm?"}]
    for number, topic in enumerate(("tide in Orm", "violins", "weather")):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "search", "arguments": topic}}
        text = "\n\n".join(f"Entry {entry} on {topic}: " + f"{topic} again. " * 30 for entry in range(4))
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": text})
    return messages
