"""Functions that open an agent on a Chroma collection for a framework, and close everything that was opened for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from context_agent.agent import SearchAgent
from context_agent.harness.episode import Limits
from context_agent.harness.policy import Policy

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection


@dataclass(frozen=True, slots=True)
class OpenAgent:
    """An agent, and a function that closes it together with everything that was opened for it."""

    agent: SearchAgent
    close: Callable[[], None]


@contextmanager
def open_agent(
    collection: str | Collection | None = None,
    *,
    path: str | None = None,
    url: str | None = None,
    token: str | None = None,
    corpus: Mapping[str, Any] | None = None,
    policy: Policy | str | None = None,
    policy_options: Mapping[str, Any] | None = None,
    limits: Limits | Mapping[str, Any] | None = None,
    **agent_options: Any,
) -> Iterator[OpenAgent]:
    """Open an agent on a Chroma collection.

    Use it in a `with` statement. The agent stays open after the block. Close it with `OpenAgent.close`. If the block
    raises an error, the agent is closed at once. A collection that you pass is never closed.

    Args:
        collection: A Chroma collection, or its name in the folder `path` or on the server at `url`.
        path: The folder of the collection.
        url: The address of the Chroma server.
        token: The bearer token for the server.
        corpus: Further options for `ChromaCorpus.open`.
        policy: A policy, or its name.
        policy_options: Options for a policy given by name.
        limits: The limits, as an object or as a mapping of its fields.
        agent_options: Further options for `SearchAgent`.
    """
    from context_agent.policies import load_policy
    from context_agent.retrieval.chroma.corpus import ChromaCorpus

    stack = ExitStack()
    try:
        settings = {"cache": _temporary_cache(collection, stack), **(corpus or {})}
        if token is not None:
            settings["headers"] = {"Authorization": f"Bearer {token}"}
        if isinstance(policy, str):
            policy = load_policy(policy, **(policy_options or {}))
        if isinstance(limits, Mapping):
            limits = Limits(**limits)
        chroma = stack.enter_context(ChromaCorpus.open(path, url=url, collection=collection, **settings))
        agent = stack.enter_context(SearchAgent(chroma, policy, limits=limits, **agent_options))
        yield OpenAgent(agent, stack.close)
    except BaseException:
        stack.close()
        raise


def _temporary_cache(collection: str | Collection | None, stack: ExitStack) -> str | None:
    """Return a temporary folder for the BM25 index of a collection in memory. For any other collection, return None.

    The stack deletes the folder.
    """
    from tempfile import TemporaryDirectory

    from context_agent.retrieval.chroma.location import Location

    if isinstance(collection, str | None) or not Location.of(None, None, collection).in_memory:
        return None
    return stack.enter_context(TemporaryDirectory(prefix="ctx1-", ignore_cleanup_errors=True))
