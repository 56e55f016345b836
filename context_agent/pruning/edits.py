"""Edits of the view: prune, restore and summarise. Pure functions; nothing is ever deleted from the record.

An edit breaks a server's cached prefix from the first edited block on, so every edit has a bill: the tokens it freed
and the tokens behind the first change that the server must compute again.

An edit changes what it names and nothing else. Where a block comes back that a summary stands for, the summary stays
beside it until it is pruned; where a summary is pruned, what it stands for stays hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from context_agent.pruning.view import Editable, Summary, Text, View


@dataclass(frozen=True, slots=True)
class Edit:
    """The net edit of one turn; keys ascend.

    `pruned` are the keys that prunes hid, `restored` those that came back, `replaced` those that the `summaries`,
    which the edit adds, took the place of. `kept` are those that are kept explicitly from now on.
    """

    pruned: tuple[int, ...] = ()
    restored: tuple[int, ...] = ()
    replaced: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    summaries: tuple[Summary, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pruned or self.restored or self.replaced or self.kept or self.summaries)


@dataclass(frozen=True, slots=True)
class EditCost:
    """`freed`: tokens that left the view, less those of new summaries (negative when more came back).

    `recomputed`: tokens from the first change on that are in the view now and that no cached prefix holds.
    """

    freed: int = 0
    recomputed: int = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """How the ids of an edit call resolve: what to change, the ids that need none, the ids nobody knows."""

    blocks: tuple[Editable, ...]
    unchanged: tuple[str, ...]
    unknown: tuple[str, ...]


def select_prune(view: View, chunk_ids: Iterable[str]) -> Selection:
    """Everything in view of these ids; ids already hidden are `unchanged`, so pruning is idempotent."""
    blocks: list[Editable] = []
    unchanged: list[str] = []
    unknown: list[str] = []
    known = view.by_id()
    for chunk_id in dict.fromkeys(chunk_ids):
        shown = [block for block in known.get(chunk_id, ()) if block.key not in view.hidden]
        blocks += shown
        if not shown:
            (unchanged if chunk_id in known else unknown).append(chunk_id)
    return Selection(tuple(blocks), tuple(unchanged), tuple(unknown))


def select_keep(view: View, chunk_ids: Iterable[str]) -> Selection:
    """What is to stay in view for these ids: what they name and, for a chunk out of view, the summaries of it."""
    named = select_prune(view, chunk_ids)
    wanted = set(named.unchanged)
    covering = {
        summary.key: summary
        for summary in view.summaries
        if any(block.id in wanted for block in view.stands_for(summary))
    }
    found = {block.key: block for block in named.blocks} | covering
    return replace(named, blocks=tuple(found[key] for key in sorted(found)))


def all_but(view: View, chunk_ids: Iterable[str]) -> tuple[Selection, Selection]:
    """(what goes, what stays) where an edit names what stays. An id to keep that nobody knows is unknown."""
    kept = select_keep(view, chunk_ids)
    stay = {block.id for block in kept.blocks}
    going = tuple(block for block in view.editable if block.id not in stay)
    return Selection(going, (), kept.unknown), kept


def select_restore(view: View, chunk_ids: Iterable[str]) -> Selection:
    """The latest block of each hidden chunk, and hidden summaries; ids in view are `unchanged`."""
    blocks: list[Editable] = []
    unchanged: list[str] = []
    unknown: list[str] = []
    known = view.by_id()
    for chunk_id in dict.fromkeys(chunk_ids):
        found = known.get(chunk_id, ())
        if not found:
            unknown.append(chunk_id)
        elif any(block.key not in view.hidden for block in found):
            unchanged.append(chunk_id)
        else:
            blocks.append(found[-1])
    return Selection(tuple(blocks), tuple(unchanged), tuple(unknown))


def hide(view: View, blocks: Sequence[Editable]) -> View:
    """The view without these, which must be visible in it. What is hidden is no longer kept."""
    freed = sum(block.tokens for block in blocks)
    keys = {block.key for block in blocks}
    return replace(view, hidden=view.hidden | keys, tokens=view.tokens - freed, kept=view.kept - keys)


def show(view: View, blocks: Sequence[Editable]) -> View:
    """The view with these hidden ones back in their old places."""
    back = sum(block.tokens for block in blocks)
    return replace(view, hidden=view.hidden - {b.key for b in blocks}, tokens=view.tokens + back)


def keep(view: View, blocks: Iterable[Editable]) -> View:
    """The view with these kept explicitly: no summary takes their place until a prune has hidden them.

    Kept explicitly is what the policy named to stay in an `all_but`, and what it restored.
    """
    return replace(view, kept=view.kept | {block.key for block in blocks})


def difference(before: View, after: View) -> Edit:
    """The net edit that leads from one view to a later one, whose record may have new summaries and nothing else."""
    summaries = tuple(s for s in after.segments[len(before.segments) :] if isinstance(s, Summary))
    gone = after.hidden - before.hidden
    replaced = gone & {key for summary in summaries for key in summary.of}
    return Edit(
        pruned=tuple(sorted(gone - replaced)),
        restored=tuple(sorted(before.hidden - after.hidden)),
        replaced=tuple(sorted(replaced)),
        kept=tuple(sorted(after.kept - before.kept)),
        summaries=summaries,
    )


def apply(view: View, edit: Edit) -> View:
    """The view after a net edit, as replay does it. Keys that the record lacks are an error of the trace."""
    view = view.append(edit.summaries)
    keys = view.by_key()
    for summary in edit.summaries:
        if unknown := [key for key in summary.of if key not in keys or key >= summary.key]:
            raise KeyError(unknown[0])
    view = hide(view, [keys[key] for key in (*edit.pruned, *edit.replaced)])
    return keep(show(view, [keys[key] for key in edit.restored]), [keys[key] for key in edit.kept])


def cost(before: View, after: View) -> EditCost:
    """The bill of the net edit between two views; the later one's record may have new summaries and nothing else."""
    changed = before.hidden ^ after.hidden
    recomputed = 0
    broken = False
    for place, segment in enumerate(after.segments):
        key = None if isinstance(segment, Text) else segment.key
        broken = broken or key in changed or place >= len(before.segments)
        if broken and (key is None or key not in after.hidden):
            recomputed += segment.tokens
    return EditCost(freed=before.tokens - after.tokens, recomputed=recomputed)
