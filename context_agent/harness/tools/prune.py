"""`prune_chunks`: remove chunks from the view, those named or all but those named."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from context_agent.harness.tools.tool import (
    ChunkIds,
    EditContext,
    EditReply,
    EditTool,
    ToolArguments,
    edit_reply,
)
from context_agent.pruning.view import Edit


class PublishedPruneArguments(ToolArguments):
    """Remove chunks from the context to free space."""

    chunk_ids: ChunkIds = Field(description="ids of chunks in view")


class PruneArguments(ToolArguments):
    """Remove chunks from the context to free space: those named, or all but those named."""

    chunk_ids: ChunkIds | None = Field(default=None, description="ids of chunks to remove")
    all_but: ChunkIds | None = Field(default=None, description="instead: ids of the chunks to keep; all others go")

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.chunk_ids is None) == (self.all_but is None):
            raise ValueError("give either chunk_ids or all_but")
        return self


def run(arguments: PruneArguments, context: EditContext) -> EditReply:
    """Hide the chunks. If the profile has summaries, protect the chunks that the call names to keep."""
    selection, staying = context.view.select(arguments.chunk_ids, arguments.all_but)
    size = sum(block.tokens for block in selection.blocks)
    edit = Edit(
        pruned=tuple(block.key for block in selection.blocks),
        protected=context.view.newly_protected(staying) if context.protects else (),
    )
    message = f"Pruned {len(selection.blocks)} chunks ({size:,} tokens)."
    return edit_reply(edit, [message], "already pruned", selection)


TOOL = EditTool("prune_chunks", PruneArguments, run, PublishedPruneArguments)
