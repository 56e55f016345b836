"""Short ways to write actions in tests."""

from __future__ import annotations

from collections.abc import Sequence

from context_agent import Action, RankedId, ToolCall, View


def search(*queries: str, limit: int | None = None) -> Action:
    """One turn of searches."""
    extra = {} if limit is None else {"limit": limit}
    return Action(calls=tuple(ToolCall("search_corpus", {"query": query, **extra}) for query in queries))


def prune(*ids: str) -> Action:
    """One prune."""
    return Action(calls=(ToolCall("prune_chunks", {"chunk_ids": list(ids)}),))


def restore(*ids: str) -> Action:
    """One restore."""
    return Action(calls=(ToolCall("restore_chunks", {"chunk_ids": list(ids)}),))


def summarize(summary: str, *ids: str, all_but: Sequence[str] | None = None) -> Action:
    """One summary, of the ids or of all but some."""
    selection = {"chunk_ids": list(ids)} if all_but is None else {"all_but": list(all_but)}
    return Action(calls=(ToolCall("summarize_context", {"summary": summary, **selection}),))


def call(name: str, **arguments: object) -> Action:
    """One call of any tool."""
    return Action(calls=(ToolCall(name, arguments),))


def rank(*ids: str) -> Action:
    """The end of an episode."""
    return Action(ranking=tuple(RankedId(item) for item in ids))


def rank_all(view: View) -> Action:
    """Ranks every document in view."""
    return rank(*dict.fromkeys(block.document_id for block in view.blocks))
