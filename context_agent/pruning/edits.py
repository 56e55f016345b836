"""Edits of the view: prune and restore. Pure functions; nothing is ever deleted from the record.

An edit breaks a server's cached prefix from the first edited block on, so every edit has a bill: the tokens it freed
and the tokens behind the first change that the server must compute again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from context_agent.pruning.view import Block, View


@dataclass(frozen=True, slots=True)
class Edit:
    """Keys of the blocks that one turn's edits hid and brought back, net, ascending."""

    pruned: tuple[int, ...] = ()
    restored: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pruned or self.restored)


@dataclass(frozen=True, slots=True)
class EditCost:
    """`freed`: tokens that left the view (negative when more came back). `recomputed`: tokens behind the first
    changed block that are still in the view and whose cached prefix is lost."""

    freed: int = 0
    recomputed: int = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """How the ids of an edit call resolve: the blocks to change, the ids that need none, the ids nobody knows."""

    blocks: tuple[Block, ...]
    unchanged: tuple[str, ...]
    unknown: tuple[str, ...]


def select_prune(view: View, chunk_ids: Iterable[str]) -> Selection:
    """Every visible block of the chunks; ids already pruned are `unchanged`, so pruning is idempotent."""
    blocks: list[Block] = []
    unchanged: list[str] = []
    unknown: list[str] = []
    known = view.by_chunk()
    for chunk_id in dict.fromkeys(chunk_ids):
        shown = [block for block in known.get(chunk_id, ()) if block.key not in view.hidden]
        blocks += shown
        if not shown:
            (unchanged if chunk_id in known else unknown).append(chunk_id)
    return Selection(tuple(blocks), tuple(unchanged), tuple(unknown))


def select_restore(view: View, chunk_ids: Iterable[str]) -> Selection:
    """The latest block of each pruned chunk; ids in view are `unchanged`."""
    blocks: list[Block] = []
    unchanged: list[str] = []
    unknown: list[str] = []
    known = view.by_chunk()
    for chunk_id in dict.fromkeys(chunk_ids):
        found = known.get(chunk_id, ())
        if not found:
            unknown.append(chunk_id)
        elif any(block.key not in view.hidden for block in found):
            unchanged.append(chunk_id)
        else:
            blocks.append(found[-1])
    return Selection(tuple(blocks), tuple(unchanged), tuple(unknown))


def hide(view: View, blocks: Sequence[Block]) -> View:
    """The view without these blocks, which must be visible in it."""
    freed = sum(block.tokens for block in blocks)
    return replace(view, hidden=view.hidden | {b.key for b in blocks}, tokens=view.tokens - freed)


def show(view: View, blocks: Sequence[Block]) -> View:
    """The view with these hidden blocks back in their old places."""
    back = sum(block.tokens for block in blocks)
    return replace(view, hidden=view.hidden - {b.key for b in blocks}, tokens=view.tokens + back)


def difference(before: View, after: View) -> Edit:
    """The net edit that leads from one view to another of the same record."""
    return Edit(tuple(sorted(after.hidden - before.hidden)), tuple(sorted(before.hidden - after.hidden)))


def apply(view: View, edit: Edit) -> View:
    """The view after a net edit, as replay does it. Keys that the record lacks are an error of the trace."""
    keys = {segment.key: segment for segment in view.segments if isinstance(segment, Block)}
    view = hide(view, [keys[key] for key in edit.pruned])
    return show(view, [keys[key] for key in edit.restored])


def cost(before: View, after: View) -> EditCost:
    """The bill of the net edit between two views of the same record."""
    changed = before.hidden ^ after.hidden
    if not changed:
        return EditCost()
    recomputed = 0
    broken = False
    for segment in after.segments:
        key = segment.key if isinstance(segment, Block) else None
        broken = broken or key in changed
        if broken and (key is None or key not in after.hidden):
            recomputed += segment.tokens
    return EditCost(freed=before.tokens - after.tokens, recomputed=recomputed)
