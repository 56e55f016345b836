"""The edits of one turn: prunes, then summaries, then restores, applied together; and what each call is told.

A summary is an edit like the others: what it replaces leaves the view and the summary enters it in one event, so
there is no moment in which neither is in view. It takes fewer tokens than what it replaces, so that a turn's edits
other than restores never make a view larger. What the policy kept explicitly (`edits.keep`) it does not replace.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from context_agent.harness.profile import SUMMARIZE, Profile
from context_agent.harness.rendering import Renderer, escape_markers
from context_agent.harness.tool_executor import CheckedCall
from context_agent.harness.tools import PruneArguments, RestoreArguments, SummarizeArguments
from context_agent.pruning import edits
from context_agent.pruning.budget import Budget
from context_agent.pruning.view import Editable, Summary, View

NAME = "summary:{number}"
"""The id of a summary; the first free number is taken."""
NAMED = 5
"""Ids that a report names at most."""
_CLAIMED = re.compile(r"\[\[([^\[\]\n]{1,400})\]\]|#[^\S\n]*DOCUMENT[^\S\n]+ID[^\S\n]*:[^\S\n]*([^\s(]{1,400})", re.I)
"""How a summary cites an id: `[[id]]`, or a block's header copied."""


@dataclass(frozen=True, slots=True)
class EditReply:
    """What an edit call is answered; `mistake` names what the policy did wrong."""

    text: str
    mistake: str | None = None


class Editor:
    """Applies the edit calls of an episode's turns. Keeps nothing: all state is the view's."""

    def __init__(self, profile: Profile, renderer: Renderer, budget: Budget) -> None:
        self._renderer = renderer
        self._budget = budget
        self._keeps = SUMMARIZE in profile.tools

    def apply(self, view: View, calls: Sequence[CheckedCall]) -> tuple[View, dict[int, EditReply]]:
        """The view after the turn's edits, and what each edit call is told, by the call's index. Calls of other tools
        are passed over."""
        told: dict[int, EditReply] = {}
        for call in calls:
            if isinstance(call.arguments, PruneArguments):
                view, told[call.index] = self._prune(view, call.arguments)
        for call in calls:
            if isinstance(call.arguments, SummarizeArguments):
                view, told[call.index] = self._summarize(view, call.index, call.arguments)
        for call in calls:
            if isinstance(call.arguments, RestoreArguments):
                view, told[call.index] = self._restore(view, call.arguments)
        return view, told

    def _prune(self, view: View, arguments: PruneArguments) -> tuple[View, EditReply]:
        going, staying = _chosen(view, arguments)
        after = edits.hide(view, going.blocks)
        if self._keeps:
            after = edits.keep(after, staying)
        return after, _report("Pruned", "already pruned", going)

    def _summarize(self, view: View, call: int, arguments: SummarizeArguments) -> tuple[View, EditReply]:
        chosen, staying = _chosen(view, arguments)
        going = [one for one in chosen.blocks if one.key not in view.kept]
        if not going:
            return view, _nothing(chosen)
        if unseen := _unseen(view, arguments.summary):
            text = f"Error: the summary names ids that were never shown: {_listed(unseen)}. Nothing was replaced."
            return view, EditReply(text, "unknown_id")
        summary = self._made(view, call, going, arguments.summary)
        size = sum(one.tokens for one in going)
        if summary.tokens >= size:
            text = (
                f"Error: with its ids the summary takes {summary.tokens:,} tokens, and what it would replace "
                f"{size:,}: write a shorter one, or prune. Nothing was replaced."
            )
            return view, EditReply(text, "too_long")
        after = edits.keep(edits.hide(view.append([summary]), going), staying)
        words = f"Summarised {len(going)} chunks ({size:,} tokens) as {summary.id} ({summary.tokens:,} tokens)."
        rest = [f"{held} kept explicitly."] if (held := len(chosen.blocks) - len(going)) else []
        return after, _told([words, *rest], "not in view", chosen)

    def _restore(self, view: View, arguments: RestoreArguments) -> tuple[View, EditReply]:
        chosen = edits.select_restore(view, arguments.chunk_ids)
        need = sum(block.tokens for block in chosen.blocks)
        left = max(0, self._budget.hard - view.tokens)
        if need > left:
            return view, EditReply(f"Error: these chunks take {need:,} tokens; {left:,} are left.", "no_room")
        after = edits.show(view, chosen.blocks)
        if self._keeps:
            after = edits.keep(after, chosen.blocks)
        return after, _report("Restored", "in view already", chosen)

    def _made(self, view: View, call: int, going: Sequence[Editable], text: str) -> Summary:
        """The summary as it will stand in the view, naming every chunk that it stands for."""
        keys = tuple(sorted(one.key for one in going))
        bare = Summary(view.next_key, _free_name(view), "", "", 0, view.turn, call, keys)
        ids = tuple(dict.fromkeys(block.id for block in view.stands_for(bare)))
        made = self._renderer.summary(bare.id, ids, text)
        return Summary(bare.key, bare.id, made.header, made.body, made.tokens, view.turn, call, keys)


def _chosen(view: View, arguments: PruneArguments | SummarizeArguments) -> tuple[edits.Selection, tuple[Editable, ...]]:
    """(what goes, what was named to stay): named one by one, or as all but some."""
    if arguments.all_but is None:
        return edits.select_prune(view, arguments.chunk_ids or ()), ()
    going, staying = edits.all_but(view, arguments.all_but)
    return going, staying.blocks


def _shown_ids(view: View) -> set[str]:
    """Every id that the record has shown: of chunks, summaries and documents."""
    return {*view.by_id(), *(block.document_id for block in (*view.blocks, *view.pruned))}


def _free_name(view: View) -> str:
    taken = _shown_ids(view)
    number = 1
    while (name := NAME.format(number=number)) in taken:
        number += 1
    return name


def _unseen(view: View, text: str) -> list[str]:
    """The ids that a text cites and that were never shown, each once."""
    claimed = dict.fromkeys((match[1] or match[2]).strip() for match in _CLAIMED.finditer(text))
    shown = _shown_ids(view) if claimed else set()
    return [one for one in claimed if one not in shown]


def _nothing(chosen: edits.Selection) -> EditReply:
    """Why nothing could be replaced."""
    if chosen.blocks:
        text = f"Error: all {len(chosen.blocks)} were kept explicitly; nothing was replaced."
    elif chosen.unknown:
        text = f"Error: unknown ids: {_listed(chosen.unknown)}. Nothing was replaced."
    else:
        text = "Error: none of these are in view; nothing was replaced."
    return EditReply(text, "unknown_id" if chosen.unknown else "nothing_to_summarize")


def _report(done: str, unchanged: str, chosen: edits.Selection) -> EditReply:
    tokens = sum(block.tokens for block in chosen.blocks)
    return _told([f"{done} {len(chosen.blocks)} chunks ({tokens:,} tokens)."], unchanged, chosen)


def _told(parts: list[str], unchanged: str, chosen: edits.Selection) -> EditReply:
    """The parts, then the ids that changed nothing and those that nobody knows, which are a mistake."""
    if chosen.unchanged:
        parts.append(f"{len(chosen.unchanged)} {unchanged}.")
    if chosen.unknown:
        parts.append(f"Unknown ids: {_listed(chosen.unknown)}.")
    return EditReply(" ".join(parts), "unknown_id" if chosen.unknown else None)


def _listed(ids: Sequence[str]) -> str:
    return ", ".join(escape_markers(one[:80]) for one in ids[:NAMED])
