"""`restore_chunks`: bring pruned chunks back into the view."""

from __future__ import annotations

from pydantic import Field

from context_agent.harness.tools.tool import (
    ChunkIds,
    EditContext,
    EditReply,
    EditTool,
    ToolArguments,
    edit_reply,
)
from context_agent.pruning.view import NO_EDIT, Edit


class RestoreArguments(ToolArguments):
    """Bring pruned chunks back into the context."""

    chunk_ids: ChunkIds = Field(description="ids of pruned chunks")


def run(arguments: RestoreArguments, context: EditContext) -> EditReply:
    """Show the chunks again in their old places, unless they would pass the hard cutoff."""
    view = context.view
    selection = view.select_hidden(arguments.chunk_ids)
    size = sum(block.tokens for block in selection.blocks)
    free = max(0, context.budget.hard - view.tokens)
    if size > free:
        message = f"Error: these chunks take {size:,} tokens; {free:,} are left."
        return EditReply(NO_EDIT, message, "no_room")
    edit = Edit(
        restored=tuple(block.key for block in selection.blocks),
        protected=view.newly_protected(selection.blocks) if context.protects else (),
    )
    message = f"Restored {len(selection.blocks)} chunks ({size:,} tokens)."
    return edit_reply(edit, [message], "in view already", selection)


TOOL = EditTool("restore_chunks", RestoreArguments, run)
