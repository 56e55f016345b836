"""Edits of the view: prune, restore and summarise. Pure functions; nothing is ever deleted from the record.

An edit breaks a server's cached prefix from the first edited block on, so every edit has a cost: the tokens it freed
and the tokens behind the first change that the server must compute again.

An edit changes what it names and nothing else. Where a block comes back that a summary stands for, the summary stays
beside it until it is pruned; where a summary is pruned, what it stands for stays hidden.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from context_agent.pruning.view import Editable, Summary, Text, View


@dataclass(frozen=True, slots=True)
class Edit:
    """The net edit of one turn; all keys ascend.

    `pruned` are the keys that prunes hid, `restored` those that came back, `replaced` those that the `summaries`,
    which the edit adds, took the place of. `protected` are those that no summary may replace from now on.
    """

    pruned: tuple[int, ...] = ()
    restored: tuple[int, ...] = ()
    replaced: tuple[int, ...] = ()
    protected: tuple[int, ...] = ()
    summaries: tuple[Summary, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pruned or self.restored or self.replaced or self.protected or self.summaries)


@dataclass(frozen=True, slots=True)
class EditCost:
    """`freed`: tokens that left the view, less those of new summaries (negative when more came back).

    `recomputed`: tokens from the first change on that are in the view now and that no cached prefix holds.
    """

    freed: int = 0
    recomputed: int = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """How the ids of an edit call resolve: what to change, the ids that need no change, the unknown ids."""

    blocks: tuple[Editable, ...]
    unchanged: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def select(
    view: View, chunk_ids: Iterable[str] | None, all_but: Iterable[str] | None
) -> tuple[Selection, tuple[Editable, ...]]:
    """(what goes, what the call names to stay): named one by one, or as all but some.

    In an `all_but`, an id that nobody knows is unknown.
    """
    if all_but is None:
        return select_prune(view, chunk_ids or ()), ()
    staying = _select_staying(view, all_but)
    staying_ids = {block.id for block in staying.blocks}
    going = tuple(block for block in view.editable if block.id not in staying_ids)
    return Selection(going, unknown=staying.unknown), staying.blocks


def select_prune(view: View, chunk_ids: Iterable[str]) -> Selection:
    """Everything in view of these ids; ids already hidden are `unchanged`, so pruning is idempotent."""
    blocks: list[Editable] = []
    unchanged: list[str] = []
    unknown: list[str] = []
    by_id = view.by_id()
    for chunk_id in dict.fromkeys(chunk_ids):
        visible = [block for block in by_id.get(chunk_id, ()) if block.key not in view.hidden]
        blocks += visible
        if not visible:
            (unchanged if chunk_id in by_id else unknown).append(chunk_id)
    return Selection(tuple(blocks), tuple(unchanged), tuple(unknown))


def select_restore(view: View, chunk_ids: Iterable[str]) -> Selection:
    """The latest block of each hidden chunk, and hidden summaries; ids in view are `unchanged`."""
    blocks: list[Editable] = []
    unchanged: list[str] = []
    unknown: list[str] = []
    by_id = view.by_id()
    for chunk_id in dict.fromkeys(chunk_ids):
        candidates = by_id.get(chunk_id, ())
        if not candidates:
            unknown.append(chunk_id)
        elif any(block.key not in view.hidden for block in candidates):
            unchanged.append(chunk_id)
        else:
            blocks.append(candidates[-1])
    return Selection(tuple(blocks), tuple(unchanged), tuple(unknown))


def _select_staying(view: View, chunk_ids: Iterable[str]) -> Selection:
    """What is to stay in view for these ids: what they name and, for a chunk out of view, the summaries of it."""
    selection = select_prune(view, chunk_ids)
    hidden_ids = set(selection.unchanged)
    covering = {
        summary.key: summary
        for summary in view.summaries
        if any(block.id in hidden_ids for block in view.stands_for(summary))
    }
    by_key = {block.key: block for block in selection.blocks} | covering
    return replace(selection, blocks=tuple(by_key[key] for key in sorted(by_key)))


def keys_of(blocks: Iterable[Editable]) -> tuple[int, ...]:
    """The keys, ascending, as an `Edit` holds them."""
    return tuple(sorted(block.key for block in blocks))


def newly_protected(view: View, blocks: Iterable[Editable]) -> tuple[int, ...]:
    """The keys of those blocks that the view does not protect yet."""
    return tuple(sorted({block.key for block in blocks} - view.protected))


def combine(view: View, first: Edit, second: Edit) -> Edit:
    """The net edit of two that follow each other, the first made on `view`."""
    if not first:
        return second
    summaries = first.summaries + second.summaries
    hidden = ({*_hides(first)} - {*second.restored}) | ({*_hides(second)} - {*first.restored})
    restored = ({*first.restored} - {*_hides(second)}) | ({*second.restored} - {*_hides(first)})
    replaced = hidden & {key for summary in summaries for key in summary.of}
    protected = ({*first.protected} - {*_hides(second)}) | {*second.protected}
    return Edit(
        pruned=tuple(sorted(hidden - replaced)),
        restored=tuple(sorted(restored)),
        replaced=tuple(sorted(replaced)),
        protected=tuple(sorted(protected - view.protected)),
        summaries=summaries,
    )


def apply(view: View, edit: Edit) -> View:
    """The view after a net edit. Raises `KeyError` for a key that the record lacks: the trace is not sound."""
    view = view.append(edit.summaries) if edit.summaries else view
    by_key = view.by_key()
    for summary in edit.summaries:
        if unknown := [key for key in summary.of if key not in by_key or key >= summary.key]:
            raise KeyError(unknown[0])
    hidden, restored = set(_hides(edit)), set(edit.restored)
    tokens = view.tokens
    tokens -= sum(by_key[key].tokens for key in hidden)
    tokens += sum(by_key[key].tokens for key in restored)
    return replace(
        view,
        hidden=(view.hidden | hidden) - restored,
        tokens=tokens,
        protected=(view.protected - hidden) | {by_key[key].key for key in edit.protected},
    )


def cost(view: View, edit: Edit) -> EditCost:
    """What a net edit of the view frees and breaks."""
    hidden = (view.hidden | {*_hides(edit)}) - {*edit.restored}
    changed = view.hidden ^ hidden
    freed = recomputed = 0
    broken = False
    for position, segment in enumerate((*view.segments, *edit.summaries)):
        key = None if isinstance(segment, Text) else segment.key
        if key in changed:
            freed += segment.tokens if key in hidden else -segment.tokens
        broken = broken or key in changed or position >= len(view.segments)
        if broken and key not in hidden:
            recomputed += segment.tokens
    added = sum(summary.tokens for summary in edit.summaries)
    return EditCost(freed=freed - added, recomputed=recomputed)


def _hides(edit: Edit) -> tuple[int, ...]:
    return edit.pruned + edit.replaced
