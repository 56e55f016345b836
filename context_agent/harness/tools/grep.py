"""`grep_corpus`: find chunks whose text matches a regular expression."""

from __future__ import annotations

from pydantic import Field

from context_agent.errors import PatternError
from context_agent.harness.tools.tool import LISTED_IDS, ReadContext, ReadTool, ToolArguments, ToolOutput
from context_agent.pruning.view import Source


class GrepArguments(ToolArguments):
    """Find chunks whose text matches a regular expression (RE2 syntax)."""

    pattern: str = Field(min_length=1, description="a regular expression; (?i) ignores case")


def run(arguments: GrepArguments, context: ReadContext, earlier: int) -> ToolOutput:
    """Return new matches. If there are none, return the ids of matches that were shown before."""
    corpus, limit = context.corpus, context.profile.grep_limit
    try:
        hits = corpus.grep(arguments.pattern, limit=limit, exclude=context.shown_ids, where=context.where)
        repeated = [] if hits else corpus.grep(arguments.pattern, limit=LISTED_IDS, where=context.where)
    except PatternError as error:
        return ToolOutput(Source.GREP, message=f"Error: {error}", mistake="bad_pattern")
    return ToolOutput(Source.GREP, tuple(hits), limit, repeated_ids=tuple(hit.chunk.id for hit in repeated))


TOOL = ReadTool("grep_corpus", GrepArguments, run)
