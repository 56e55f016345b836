"""A corpus, a scripted server and an agent on both, as the tests of the chat policy use them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from context_agent import Limits, MemoryCorpus, Profile, SearchAgent, SearchResult
from context_agent.policies.chat import ChatPolicy
from context_agent.policies.chat.scripted_server import ScriptedAnswer, ScriptedServer, Step, says
from context_agent.testing.documents import linked_documents
from context_agent.testing.embedders import HashEmbedder

QUESTION = "Which comet is named?"
DONE = says("<Document id=d0></Document>")
"""Ends an episode at once, with a ranking of a document that was never in view."""


@cache
def corpus() -> MemoryCorpus:
    """Sixty documents; an embedder without weights."""
    return MemoryCorpus(linked_documents(), embedder=HashEmbedder())


@contextmanager
def serving(*steps: Step, **options: Any) -> Iterator[ScriptedServer]:
    """Yield a server that plays the steps, then ranks what it saw."""
    with ScriptedServer(steps, **options) as server:
        yield server


def policy(server: ScriptedServer, **options: Any) -> ChatPolicy:
    """Return a policy that waits little."""
    return ChatPolicy(**{"model": "scripted", "base_url": server.url, "backoff": 0.01, "timeout": 5.0, **options})


def ask(
    server: ScriptedServer,
    *,
    limits: Limits | None = None,
    profile: Profile | str | None = None,
    window: int | None = None,
    rollouts: int = 1,
    **options: Any,
) -> SearchResult:
    """Ask the server's model one question."""
    chat_policy = policy(server, **options)
    with SearchAgent(corpus(), chat_policy, limits=limits, profile=profile, budget=window, rollouts=rollouts) as agent:
        return agent.search(QUESTION)


def search(*queries: str, limit: int = 2, **options: Any) -> ScriptedAnswer:
    """Return a reply that searches."""
    return says(calls=[("search_corpus", {"query": query, "limit": limit}) for query in queries], **options)
