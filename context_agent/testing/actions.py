"""Short constructors of actions, for a `ScriptedPolicy` or a test policy of your own."""

from __future__ import annotations

from collections.abc import Sequence

from context_agent import Action, RankedId, ToolCall, View
from context_agent.policies.scripted import rank_view


def search(*queries: str, limit: int | None = None) -> Action:
    """Return an action that searches for these queries in parallel.

    Args:
        queries: The queries, one call for each.
        limit: The largest number of chunks that each query returns. Defaults to the profile's limit.
    """
    extra = {} if limit is None else {"limit": limit}
    return Action(calls=tuple(ToolCall("search_corpus", {"query": query, **extra}) for query in queries))


def prune(*ids: str) -> Action:
    """Return an action that prunes the chunks with these ids."""
    return Action(calls=(ToolCall("prune_chunks", {"chunk_ids": list(ids)}),))


def restore(*ids: str) -> Action:
    """Return an action that restores the pruned chunks with these ids."""
    return Action(calls=(ToolCall("restore_chunks", {"chunk_ids": list(ids)}),))


def summarize(summary: str, *ids: str, all_but: Sequence[str] | None = None) -> Action:
    """Return an action that replaces chunks with a summary.

    Args:
        summary: The text of the summary.
        ids: The ids of the chunks to replace.
        all_but: If given, all chunks in view are replaced except those with these ids. `ids` is then ignored.
    """
    selection = {"chunk_ids": list(ids)} if all_but is None else {"all_but": list(all_but)}
    return Action(calls=(ToolCall("summarize_context", {"summary": summary, **selection}),))


def call(name: str, **arguments: object) -> Action:
    """Return an action that calls one tool.

    Args:
        name: The name of the tool.
        arguments: The arguments of the call.
    """
    return Action(calls=(ToolCall(name, arguments),))


def rank(*ids: str) -> Action:
    """Return an action that ends the episode with a ranking of these documents or chunks."""
    return Action(ranking=tuple(RankedId(item) for item in ids))


def rank_all(view: View) -> Action:
    """Return an action that ends the episode with a ranking of every document in view."""
    return rank_view(view)
