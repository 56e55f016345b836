"""The editable context: segments, the view of them that a policy sees, edits, and the events that make up a record.

A view is the record of an episode minus the blocks that edits removed. `fold` is the one function that turns an event
into the next view, in the live episode and in replay. Values and pure functions only, no I/O.

Nothing is ever deleted from the record. An edit changes only what it names: if a block returns that a summary stands
for, the summary stays until it is pruned; if a summary is pruned, what it stands for stays hidden. An edit breaks a
server's cached prefix from the first edited block on, so every edit has a cost.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from context_agent.pruning.budget import Budget, Tier
from context_agent.types import Action, Hit, RankedDocument

_LABEL = re.compile(r"#\d{1,9}\Z")


class Role(StrEnum):
    """What a text segment is."""

    PROMPT = "prompt"
    QUESTION = "question"
    ACTION = "action"
    RESULT = "result"
    USAGE = "usage"


class Source(StrEnum):
    """Which tool brought a block up."""

    SEARCH = "search"
    GREP = "grep"
    READ = "read"
    SPAWN = "spawn"


@dataclass(frozen=True, slots=True)
class Text:
    """A segment that no edit removes. `call` is the index of the call in its turn, -1 without one."""

    role: Role
    text: str
    tokens: int
    turn: int = 0
    call: int = -1
    action: Action | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A chunk as it was shown: addressable by its chunk id, and prunable.

    `key` numbers the blocks of an episode in the order shown; a chunk that was shown twice has two. `text` is
    `header + body + newline`, `tokens` counts all of it. `complete` is False if the body was cut to fit the budget.
    """

    key: int
    header: str
    body: str
    tokens: int
    turn: int
    call: int
    source: Source
    hit: Hit
    complete: bool = True

    @property
    def id(self) -> str:
        """The chunk's id."""
        return self.hit.chunk.id

    @property
    def label(self) -> str:
        """A short name for it, which any call may use unless a chunk has this id."""
        return f"#{self.key}"

    @property
    def document_id(self) -> str:
        """The id of the chunk's document."""
        return self.hit.chunk.document_id

    @property
    def text(self) -> str:
        """The block as it appears in the view."""
        return f"{self.header}{self.body}\n"


@dataclass(frozen=True, slots=True)
class Summary:
    """What a policy wrote to replace segments: addressable by an id of its own, and prunable.

    `key` numbers it among the blocks. `of` are the keys of what it replaced, ascending: blocks, and earlier
    summaries. It is no chunk: it was not retrieved, and finds no gold and no answer.
    """

    key: int
    id: str
    header: str
    body: str
    tokens: int
    turn: int
    call: int
    of: tuple[int, ...]

    @property
    def text(self) -> str:
        """The summary as it appears in the view."""
        return f"{self.header}{self.body}\n"


Editable = Block | Summary
"""What an edit can hide and bring back."""
Segment = Text | Block | Summary


@dataclass(frozen=True, slots=True)
class Edit:
    """The net edit of one turn; all keys ascend.

    `pruned` are the keys that prunes hid, `restored` those that came back, `replaced` those that the `summaries`,
    which the edit adds, replaced. `protected` are those that no summary may replace from now on.
    """

    pruned: tuple[int, ...] = ()
    restored: tuple[int, ...] = ()
    replaced: tuple[int, ...] = ()
    protected: tuple[int, ...] = ()
    summaries: tuple[Summary, ...] = ()


NO_EDIT = Edit()


@dataclass(frozen=True, slots=True)
class EditCost:
    """`freed`: tokens that left the view, less those of new summaries (negative when more came back).

    `recomputed`: tokens from the first change on that are in the view now and that no cached prefix holds.
    """

    freed: int = 0
    recomputed: int = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """How the ids of an edit call resolve: what to change, by key, the ids that need no change, the unknown ids."""

    blocks: tuple[Editable, ...]
    unchanged: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """The segments of the record in order, and which of its blocks and summaries are hidden.

    `tokens` is the sum over everything that is not hidden. Views are values: each operation returns a new one.
    A document is in view through its blocks, or through a summary in view that stands for one of them.
    """

    question: str
    budget: Budget
    segments: tuple[Segment, ...] = ()
    hidden: frozenset[int] = frozenset()
    tokens: int = 0
    turn: int = 0
    tools: tuple[str, ...] = ()
    """The tools that the episode's profile has."""
    protected: frozenset[int] = frozenset()
    """Keys of what no summary may replace, because the policy named it to stay or restored it."""
    changed: frozenset[int] = field(default=frozenset(), compare=False)
    """Keys of what the latest edit hid or brought back: from the first of them on, it broke a cached prefix."""

    @property
    def visible(self) -> tuple[Segment, ...]:
        """The segments a policy reads, in order."""
        hidden = self.hidden
        return tuple(s for s in self.segments if isinstance(s, Text) or s.key not in hidden)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks in view, oldest first."""
        hidden = self.hidden
        return tuple(s for s in self.segments if isinstance(s, Block) and s.key not in hidden)

    @property
    def pruned(self) -> tuple[Block, ...]:
        """The blocks that edits removed, oldest first, including those that a summary stands for."""
        return tuple(s for s in self.segments if isinstance(s, Block) and s.key in self.hidden)

    @property
    def editable(self) -> tuple[Editable, ...]:
        """The blocks and summaries in view, in order."""
        hidden = self.hidden
        return tuple(s for s in self.segments if not isinstance(s, Text) and s.key not in hidden)

    @property
    def summaries(self) -> tuple[Summary, ...]:
        """The summaries in view, oldest first."""
        hidden = self.hidden
        return tuple(s for s in self.segments if isinstance(s, Summary) and s.key not in hidden)

    @property
    def citable_blocks(self) -> tuple[Block, ...]:
        """What a ranking may cite: the blocks in view, and the hidden ones that a summary in view stands for.

        Oldest first. A chunk in view has only its blocks in view; a summarized chunk has its latest block.
        """
        visible = self.visible
        blocks = [segment for segment in visible if isinstance(segment, Block)]
        summaries = [segment for segment in visible if isinstance(segment, Summary)]
        if not summaries:
            return tuple(blocks)
        visible_ids = {block.id for block in blocks}
        covered = self.stands_for(*summaries)
        latest = {block.id: block for block in covered if block.id not in visible_ids}
        return tuple(sorted([*blocks, *latest.values()], key=lambda block: block.key))

    def stands_for(self, *summaries: Summary) -> tuple[Block, ...]:
        """Return the blocks that summaries stand for, oldest first.

        A summary stands for the blocks that it replaced, and for those that the summaries it replaced stood for.
        """
        by_key = self.by_key()
        keys = replaced_keys((key for summary in summaries for key in summary.of), by_key)
        return tuple(block for key in sorted(keys) if isinstance(block := by_key[key], Block))

    @property
    def latest(self) -> tuple[Segment, ...]:
        """The visible segments that the last turn added."""
        last = self.turn - 1
        segments: list[Segment] = []
        for segment in reversed(self.segments):
            if segment.turn != last:
                break
            if isinstance(segment, Text) or segment.key not in self.hidden:
                segments.append(segment)
        return tuple(reversed(segments))

    @property
    def tier(self) -> Tier:
        """How full the view is."""
        return self.budget.tier(self.tokens)

    @property
    def max_output(self) -> int:
        """Tokens that the next action may have: view + output + reserve <= window."""
        return max(0, self.budget.window - self.tokens - self.budget.reserve)

    @property
    def result_room(self) -> int:
        """Tokens that a message may take as the answer to a call; the usage line follows it."""
        return self.budget.window - self.tokens - self.budget.reserve * 3 // 4

    def call_room(self, calls: int = 1) -> int:
        """Tokens that one more call may emit: at most `per_call`, never past the hard cutoff.

        A call that stands for several, `calls`, may emit as much as all of them together.
        """
        return max(0, min(self.budget.per_call * calls, self.budget.hard - self.tokens))

    def text(self) -> str:
        """Return the view as one string: what replay reproduces byte for byte."""
        return "".join(segment.text for segment in self.visible)

    def by_id(self) -> dict[str, tuple[Editable, ...]]:
        """Return all blocks and summaries of the record by the id that names them, hidden ones too, oldest first.

        A block goes by its label as well, unless that is another's id.
        """
        by_id: dict[str, list[Editable]] = {}
        labels: dict[str, tuple[Editable, ...]] = {}
        for segment in self.segments:
            if not isinstance(segment, Text):
                by_id.setdefault(segment.id, []).append(segment)
            if isinstance(segment, Block):
                labels[segment.label] = (segment,)
        return labels | {name: tuple(segments) for name, segments in by_id.items()}

    def by_key(self) -> dict[int, Editable]:
        """Return all blocks and summaries of the record by key, hidden ones too."""
        return {segment.key: segment for segment in self.segments if not isinstance(segment, Text)}

    @property
    def next_key(self) -> int:
        """The key of the next block or summary."""
        return sum(not isinstance(segment, Text) for segment in self.segments)

    def shows(self, chunk_id: str) -> bool:
        """Return whether a block of that chunk is in view."""
        return any(block.id == chunk_id for block in self.blocks)

    def select(
        self, chunk_ids: Iterable[str] | None, all_but: Iterable[str] | None
    ) -> tuple[Selection, tuple[Editable, ...]]:
        """(what leaves the view, what the call names to stay): named one by one, or as all but some.

        Ids that are hidden already are `unchanged`, so pruning is idempotent. In an `all_but`, only an id that was
        never shown is unknown. An `all_but` that names only unknown ids selects nothing, because the policy would lose
        the chunks that it meant to keep.
        """
        blocks: dict[int, Editable] = {}
        unchanged: list[str] = []
        unknown: list[str] = []
        by_id = self.by_id()
        for name in dict.fromkeys((chunk_ids or ()) if all_but is None else all_but):
            chunk_id = named_id(name, by_id)
            visible = [block for block in by_id.get(chunk_id, ()) if block.key not in self.hidden]
            blocks |= {block.key: block for block in visible}
            if not visible:
                (unchanged if chunk_id in by_id else unknown).append(chunk_id)
        selection = Selection(tuple(blocks[key] for key in sorted(blocks)), tuple(unchanged), tuple(unknown))
        misnamed = unknown and not (blocks or unchanged)
        return (selection, ()) if all_but is None or misnamed else self._all_but(selection)

    def _all_but(self, selection: Selection) -> tuple[Selection, tuple[Editable, ...]]:
        """Return what leaves the view, and what stays: what is selected and, for a hidden chunk, the summaries of
        it.
        """
        hidden_ids = set(selection.unchanged)
        by_key = {block.key: block for block in selection.blocks}
        for summary in self.summaries if hidden_ids else ():
            if any(block.id in hidden_ids for block in self.stands_for(summary)):
                by_key[summary.key] = summary
        staying_ids = {block.id for block in by_key.values()}
        leaving = tuple(block for block in self.editable if block.id not in staying_ids)
        return Selection(leaving, unknown=selection.unknown), tuple(by_key[key] for key in sorted(by_key))

    def select_hidden(self, chunk_ids: Iterable[str]) -> Selection:
        """Return the latest block of each hidden chunk, and hidden summaries; ids in view are `unchanged`."""
        blocks: dict[int, Editable] = {}
        unchanged: list[str] = []
        unknown: list[str] = []
        by_id = self.by_id()
        for chunk_id in dict.fromkeys(chunk_ids):
            candidates = by_id.get(named_id(chunk_id, by_id), ())
            if not candidates:
                unknown.append(chunk_id)
            elif any(block.key not in self.hidden for block in candidates):
                unchanged.append(chunk_id)
            else:
                blocks[candidates[-1].key] = candidates[-1]
        return Selection(tuple(blocks[key] for key in sorted(blocks)), tuple(unchanged), tuple(unknown))

    def newly_protected(self, blocks: Iterable[Editable]) -> tuple[int, ...]:
        """Return the keys of those blocks that the view does not protect yet, ascending."""
        return tuple(sorted({block.key for block in blocks} - self.protected))

    def apply(self, edit: Edit) -> View:
        """Return the view after a net edit. Raises `KeyError` for a key that the record lacks: the trace is not
        sound.
        """
        by_key = self.by_key() | {summary.key: summary for summary in edit.summaries}
        for summary in edit.summaries:
            if unknown := [key for key in summary.of if key not in by_key or key >= summary.key]:
                raise KeyError(unknown[0])
        hidden, restored = {*edit.pruned, *edit.replaced}, {*edit.restored}
        tokens = self.tokens + sum(summary.tokens for summary in edit.summaries)
        tokens -= sum(by_key[key].tokens for key in hidden)
        tokens += sum(by_key[key].tokens for key in restored)
        return replace(
            self,
            segments=self.segments + edit.summaries,
            hidden=(self.hidden | hidden) - restored,
            tokens=tokens,
            protected=(self.protected - hidden) | {by_key[key].key for key in edit.protected},
            changed=frozenset(hidden | restored) or self.changed,
        )

    def combine(self, first: Edit, second: Edit) -> Edit:
        """Return the net edit of two that follow each other, the first made on this view."""
        hidden_first, hidden_second = {*first.pruned, *first.replaced}, {*second.pruned, *second.replaced}
        restored_first, restored_second = {*first.restored}, {*second.restored}
        hidden = (hidden_first - restored_second) | (hidden_second - restored_first)
        restored = (restored_first - hidden_second) | (restored_second - hidden_first)
        summaries = first.summaries + second.summaries
        replaced = hidden & {key for summary in summaries for key in summary.of}
        protected = ({*first.protected} - hidden_second) | {*second.protected}
        return Edit(
            pruned=tuple(sorted(hidden - replaced)),
            restored=tuple(sorted(restored)),
            replaced=tuple(sorted(replaced)),
            protected=tuple(sorted(protected - self.protected)),
            summaries=summaries,
        )

    def cost(self, edit: Edit) -> EditCost:
        """Return what a net edit of the view frees and breaks."""
        hidden = (self.hidden | {*edit.pruned, *edit.replaced}) - {*edit.restored}
        changed = self.hidden ^ hidden
        freed = recomputed = 0
        broken = False
        for position, segment in enumerate((*self.segments, *edit.summaries)):
            key = None if isinstance(segment, Text) else segment.key
            if key in changed:
                freed += segment.tokens if key in hidden else -segment.tokens
            broken = broken or key in changed or position >= len(self.segments)
            if broken and key not in hidden:
                recomputed += segment.tokens
        added = sum(summary.tokens for summary in edit.summaries)
        return EditCost(freed=freed - added, recomputed=recomputed)


def replaced_keys(keys: Iterable[int], summaries: Mapping[int, Editable]) -> set[int]:
    """Return the keys, and those that the summaries among them replaced, directly or through other summaries.

    Each key is visited once, so a record in which summaries refer to each other in any way ends.
    """
    pending = list(keys)
    visited: set[int] = set()
    while pending:
        if (key := pending.pop()) not in visited:
            visited.add(key)
            if isinstance(segment := summaries.get(key), Summary):
                pending += segment.of
    return visited


def named_id(name: str, known: Container[str]) -> str:
    """Return what a call or a ranking names: an id, or a label, which may have a passage's title ahead of it."""
    label = None if name in known else _LABEL.search(name)
    return label[0] if label else name


@dataclass(frozen=True, slots=True)
class SubAgentRecord:
    """A sub-agent as the episode that started it knows it. `id` is its trajectory's, empty where none was begun.

    `documents` is how many it ranked, `steps` how many actions it took, `tokens` what was placed in its own context.
    """

    id: str
    task: str
    stop_reason: str
    documents: int = 0
    steps: int = 0
    tokens: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class PromptShown:
    """The first view: instructions and question."""

    segments: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class ActionTaken:
    """What the policy answered. `fits` is False if the action was too long for the view and ended the episode."""

    turn: int
    action: Action
    text: str
    tokens: int
    fits: bool = True
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class EditApplied:
    """The net edit of a turn, with the summaries that it added, and its bill, in tokens."""

    turn: int
    edit: Edit
    cost: EditCost


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of one call. `mistake` names what the policy did wrong, None for a good call.

    `delegated` are the sub-agents that the call started, in the order of their tasks.
    """

    turn: int
    call: int
    name: str
    arguments: dict[str, Any]
    segments: tuple[Text | Block, ...]
    mistake: str | None = None
    seconds: float = 0.0
    delegated: tuple[SubAgentRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnClosed:
    """The usage line that closes a turn; `total` is the size of the view in tokens, the line included."""

    turn: int
    segment: Text
    total: int


@dataclass(frozen=True, slots=True)
class EpisodeEnded:
    """How it ended. `digest` is the SHA-256 of the final view; `dropped` counts the ids that were not citable.

    `confidence` is the probability that the corpus answers the question, None if the policy gives none.
    """

    stop_reason: str
    documents: tuple[RankedDocument, ...]
    turns: int
    tokens: int
    digest: str
    dropped: dict[str, int] = field(default_factory=dict)
    mistakes: int = 0
    error: str | None = None
    seconds: float = 0.0
    confidence: float | None = None


Event = PromptShown | ActionTaken | EditApplied | ToolResult | TurnClosed | EpisodeEnded


def fold(view: View, event: Event) -> View:
    """Return the view after an event. Raises `KeyError` for an edit that names a key which the record lacks."""
    added: tuple[Segment, ...] = ()
    match event:
        case EditApplied(edit=edit):
            return view.apply(edit)
        case PromptShown(segments=segments) | ToolResult(segments=segments):
            added = segments
        case ActionTaken(fits=True):
            added = (Text(Role.ACTION, event.text, event.tokens, event.turn, action=event.action),)
        case TurnClosed(segment=segment):
            added = (segment,)
            view = replace(view, turn=view.turn + 1)
    tokens = view.tokens + sum(segment.tokens for segment in added)
    return replace(view, segments=view.segments + added, tokens=tokens)


def digest(view: View) -> str:
    """SHA-256 of the view's text, in hexadecimal."""
    return hashlib.sha256(view.text().encode("utf-8", "surrogatepass")).hexdigest()
