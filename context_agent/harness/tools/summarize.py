"""`summarize_context`: replace chunks with a summary that the policy writes.

In one edit, the chunks leave the view and the summary enters it. A summary takes fewer tokens than what it replaces, so
only a restore makes a view larger. Protected chunks are not replaced.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from pydantic import Field, model_validator

from context_agent.harness.profile import SUMMARIZE
from context_agent.harness.tools.tool import (
    ChunkIds,
    EditContext,
    EditReply,
    EditTool,
    ToolArguments,
    edit_reply,
    listed,
)
from context_agent.pruning.view import NO_EDIT, Edit, Editable, Selection, Summary, View

SUMMARY_ID = "summary:{number}"
"""The form of a summary's id. The first free number is taken."""
_CITED_ID = re.compile(
    r"\[\[([^\[\]\n]{1,400})\]\]|#[^\S\n]*DOCUMENT[^\S\n]+ID[^\S\n]*:[^\S\n]*([^\s(]{1,400})", re.IGNORECASE
)
"""How a summary cites an id: `[[id]]`, or a block's header copied."""


class SummarizeArguments(ToolArguments):
    """Replace chunks by a summary that you write: those named, or all but those named. Their documents may still be
    ranked, restore_chunks brings a chunk back, and prune_chunks takes the summary away by its own id."""

    summary: str = Field(
        min_length=1, description="what they say that matters for the question; cite a chunk as [[its id]]"
    )
    chunk_ids: ChunkIds | None = Field(default=None, description="ids of chunks, or of summaries, to replace")
    all_but: ChunkIds | None = Field(default=None, description="instead: ids to keep word for word; all others go")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.chunk_ids is None) == (self.all_but is None):
            raise ValueError("give either chunk_ids or all_but")
        if not self.summary.strip():
            raise ValueError("the summary is empty")
        return self


def run(arguments: SummarizeArguments, context: EditContext) -> EditReply:
    """Replace the chunks with the summary.

    Nothing is replaced if the summary cites ids that were never shown, or if it is not shorter than the chunks.
    """
    view = context.view
    selection, staying = view.select(arguments.chunk_ids, arguments.all_but)
    replaced = [block for block in selection.blocks if block.key not in view.protected]
    if not replaced:
        return _nothing_replaced(selection)
    if unseen := _unseen_ids(view, arguments.summary):
        message = f"Error: the summary names ids that were never shown: {listed(unseen)}. Nothing was replaced."
        return EditReply(NO_EDIT, message, "unknown_id")
    summary = _summary(context, replaced, arguments.summary)
    size = sum(block.tokens for block in replaced)
    if summary.tokens >= size:
        return _too_long(summary.tokens, size)
    edit = Edit(
        replaced=summary.of,
        protected=view.newly_protected(staying),
        summaries=(summary,),
    )
    sentences = [f"Summarized {len(replaced)} chunks ({size:,} tokens) as {summary.id} ({summary.tokens:,} tokens)."]
    if skipped := len(selection.blocks) - len(replaced):
        sentences.append(f"{skipped} kept explicitly.")
    return edit_reply(edit, sentences, "not in view", selection)


def _summary(context: EditContext, replaced: Sequence[Editable], text: str) -> Summary:
    """Return the summary as it will appear in the view. It names every chunk that it replaces."""
    view, keys = context.view, tuple(block.key for block in replaced)
    draft = Summary(view.next_key, _free_name(view), "", "", 0, view.turn, context.call, keys)
    ids = tuple(dict.fromkeys(block.id for block in view.stands_for(draft)))
    rendered = context.renderer.summary(draft.id, ids, text)
    return replace(draft, header=rendered.header, body=rendered.body, tokens=rendered.tokens)


def _too_long(tokens: int, size: int) -> EditReply:
    message = (
        f"Error: with its ids the summary takes {tokens:,} tokens, and what it would replace {size:,}: "
        "write a shorter one, or prune. Nothing was replaced."
    )
    return EditReply(NO_EDIT, message, "too_long")


def _nothing_replaced(selection: Selection) -> EditReply:
    if selection.blocks:
        message = f"Error: all {len(selection.blocks)} were kept explicitly; nothing was replaced."
    elif selection.unknown:
        message = f"Error: unknown ids: {listed(selection.unknown)}. Nothing was replaced."
    else:
        message = "Error: none of these are in view; nothing was replaced."
    return EditReply(NO_EDIT, message, "unknown_id" if selection.unknown else "nothing_to_summarize")


def _shown_ids(view: View) -> set[str]:
    """Return every id of a chunk, summary or document that the record has shown."""
    return {*view.by_id(), *(block.document_id for block in (*view.blocks, *view.pruned))}


def _free_name(view: View) -> str:
    used_ids = _shown_ids(view)
    number = 1
    while (name := SUMMARY_ID.format(number=number)) in used_ids:
        number += 1
    return name


def _unseen_ids(view: View, text: str) -> list[str]:
    """Return the ids that a text cites and that were never shown, each once."""
    cited = dict.fromkeys((match[1] or match[2]).strip() for match in _CITED_ID.finditer(text))
    shown_ids = _shown_ids(view)
    return [chunk_id for chunk_id in cited if chunk_id not in shown_ids]


TOOL = EditTool(SUMMARIZE, SummarizeArguments, run)
