"""Actions in short, for a `ScriptedPolicy` or a policy of your own in tests."""

from __future__ import annotations

from collections.abc import Sequence

from context_agent import Action, RankedId, ToolCall, View


def search(*queries: str, limit: int | None = None) -> Action:
    """Return a turn that searches for these queries in parallel, each for at most `limit` chunks."""
    extra = {} if limit is None else {"limit": limit}
    return Action(calls=tuple(ToolCall("search_corpus", {"query": query, **extra}) for query in queries))


def prune(*ids: str) -> Action:
    """Return a turn that prunes these chunks."""
    return Action(calls=(ToolCall("prune_chunks", {"chunk_ids": list(ids)}),))


def restore(*ids: str) -> Action:
    """Return a turn that restores these chunks."""
    return Action(calls=(ToolCall("restore_chunks", {"chunk_ids": list(ids)}),))


def summarize(summary: str, *ids: str, all_but: Sequence[str] | None = None) -> Action:
    """Return a turn that replaces chunks by a summary: those with these ids, or all in view except `all_but`."""
    selection = {"chunk_ids": list(ids)} if all_but is None else {"all_but": list(all_but)}
    return Action(calls=(ToolCall("summarize_context", {"summary": summary, **selection}),))


def call(name: str, **arguments: object) -> Action:
    """Return a turn that calls one tool by its name."""
    return Action(calls=(ToolCall(name, arguments),))


def rank(*ids: str) -> Action:
    """Return the end of an episode, with a ranking of these documents or chunks."""
    return Action(ranking=tuple(RankedId(item) for item in ids))


def rank_all(view: View) -> Action:
    """Return the end of an episode, with a ranking of every document in view."""
    return rank(*dict.fromkeys(block.document_id for block in view.blocks))
