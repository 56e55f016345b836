"""`prune_chunks`: removes chunks from the view, those named or all but those named."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from context_agent.harness.tools.base import (
    ChunkIds,
    EditContext,
    EditReply,
    Tool,
    ToolArguments,
    ToolKind,
    counted,
    edit_reply,
)
from context_agent.pruning import edits


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
    """Hides the chunks; those named to keep are protected where the profile has summaries."""
    selection, protected = edits.select(context.view, arguments.chunk_ids, arguments.all_but)
    edit = edits.Edit(
        pruned=edits.keys_of(selection.blocks),
        protected=edits.newly_protected(context.view, protected) if context.protects else (),
    )
    return edit_reply(edit, [f"Pruned {counted(selection)}."], "already pruned", selection)


TOOL = Tool("prune_chunks", ToolKind.EDIT, PruneArguments, run, PublishedPruneArguments)
