"""`search_corpus`: search by meaning and by words."""

from __future__ import annotations

from pydantic import Field

from context_agent.harness.tools.tool import ReadContext, ReadTool, ToolArguments, ToolOutput
from context_agent.pruning.view import Source

MAX_LIMIT = 10
"""Maximum number of chunks that a call may request: the published baseline's value."""


class PublishedSearchArguments(ToolArguments):
    """Search the corpus by meaning and by words. Chunks already shown do not come up again."""

    query: str = Field(min_length=1, description="what to look for, in a few words or a question")


class SearchArguments(PublishedSearchArguments):
    """Search the corpus by meaning and by words. Chunks already shown do not come up again."""

    limit: int | None = Field(default=None, ge=1, le=MAX_LIMIT, description="how many chunks to show at most")


def run(arguments: SearchArguments, context: ReadContext, earlier: int) -> ToolOutput:
    """Return more hits than are shown, so that the executor can leave some out.

    One further hit shows that more chunks match. Each of the `earlier` reads of the turn may show some of the same
    chunks, so the search requests `search_limit` more hits for each.
    """
    limit = arguments.limit or context.profile.search_limit
    hits = context.corpus.search(
        arguments.query,
        k=limit + 1 + context.profile.search_limit * earlier,
        exclude=context.shown_ids | context.excluded_ids,
        where=context.where,
    )
    return ToolOutput(Source.SEARCH, tuple(hits), limit, new_only=True)


TOOL = ReadTool("search_corpus", SearchArguments, run, PublishedSearchArguments)
