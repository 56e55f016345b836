"""`search_corpus`: hybrid search by meaning and by words."""

from __future__ import annotations

from pydantic import Field

from context_agent.harness.tools.base import ReadContext, Tool, ToolArguments, ToolKind, ToolOutput
from context_agent.pruning.view import Source

MAX_LIMIT = 10
"""Chunks one search may be asked to show (the published baseline's value)."""


class PublishedSearchArguments(ToolArguments):
    """Search the corpus by meaning and by words. Chunks already shown do not come up again."""

    query: str = Field(min_length=1, description="what to look for, in a few words or a question")


class SearchArguments(PublishedSearchArguments):
    """Search the corpus by meaning and by words. Chunks already shown do not come up again."""

    limit: int | None = Field(default=None, ge=1, le=MAX_LIMIT, description="how many chunks to show at most")


def run(arguments: SearchArguments, context: ReadContext, earlier: int) -> ToolOutput:
    """Searches for more than is shown, because each earlier call of the turn may show up to a limit of the same."""
    limit = arguments.limit or context.profile.search_limit
    hits = context.corpus.search(
        arguments.query,
        k=limit + 1 + context.profile.search_limit * earlier,
        exclude=context.shown_ids | context.excluded_ids,
        where=context.where,
    )
    return ToolOutput(Source.SEARCH, tuple(hits), limit, new_only=True)


TOOL = Tool("search_corpus", ToolKind.READ, SearchArguments, run, PublishedSearchArguments)
