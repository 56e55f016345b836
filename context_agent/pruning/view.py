"""The editable context of an episode.

It consists of segments, the view that a policy sees, edits, and the events of the record. A view is the record of an
episode minus the blocks that edits removed. `fold` is the only function that turns an event into the next view, in a
live episode and in replay. This module has values and pure functions, and no I/O.

Nothing is ever deleted from the record. An edit changes only what it names. If a block is restored that a summary
covers, the summary stays until it is pruned. If a summary is pruned, the blocks that it covers stay hidden. An edit
invalidates a server's cached prefix from the first edited block on, so every edit has a cost.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from context_agent.budget import Budget, Tier
from context_agent.types import Action, Hit, RankedDocument

_LABEL = re.compile(r"#\d{1,9}\Z")


class Role(StrEnum):
    """The kind of a text segment."""

    PROMPT = "prompt"
    QUESTION = "question"
    ACTION = "action"
    RESULT = "result"
    USAGE = "usage"


class Source(StrEnum):
    """The tool that returned a block."""

    SEARCH = "search"
    GREP = "grep"
    READ = "read"
    SPAWN = "spawn"


@dataclass(frozen=True, slots=True)
class Text:
    """A segment that no edit can remove.

    Attributes:
        role: The kind of the segment.
        text: The text.
        tokens: Its size in tokens.
        turn: The turn that added it.
        call: The index of the call in its turn, or -1 if it belongs to no call.
        action: The action, if the segment is one.
    """

    role: Role
    text: str
    tokens: int
    turn: int
    call: int = -1
    action: Action | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A chunk as it was shown. Policies address it by its chunk id, and can prune it.

    Attributes:
        key: The number of the block in the episode, in the order shown. A chunk that was shown twice has two blocks.
        header: The line that names the chunk.
        body: The text of the chunk.
        tokens: The tokens of `text`, which is the header, the body and a newline.
        turn: The turn that added it.
        call: The index of the call in its turn.
        source: The tool that returned it.
        hit: The chunk and its score.
        complete: False if the body was cut to fit the budget.
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
        """A short name for the block. Any call may use it, unless a chunk has this id."""
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
    """A text that a policy wrote to replace segments. Policies address it by its own id, and can prune it.

    A summary is not a chunk. No metric counts it as retrieved evidence.

    Attributes:
        key: The number of the summary, counted together with the blocks.
        id: The id of the summary.
        header: The line that names the summary.
        body: The text of the summary.
        tokens: The tokens of `text`, which is the header, the body and a newline.
        turn: The turn that added it.
        call: The index of the call in its turn.
        of: The keys of the blocks and earlier summaries that it replaced, ascending.
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
"""A segment that an edit can hide and restore."""
Segment = Text | Block | Summary


@dataclass(frozen=True, slots=True)
class Edit:
    """The net edit of one turn. All keys ascend.

    Attributes:
        pruned: Keys that prunes hid.
        restored: Keys that were restored.
        replaced: Keys that the new summaries replaced.
        protected: Keys that no summary may replace from now on.
        summaries: The summaries that the edit adds.
    """

    pruned: tuple[int, ...] = ()
    restored: tuple[int, ...] = ()
    replaced: tuple[int, ...] = ()
    protected: tuple[int, ...] = ()
    summaries: tuple[Summary, ...] = ()


NO_EDIT = Edit()


@dataclass(frozen=True, slots=True)
class EditCost:
    """The cost of an edit in tokens.

    Attributes:
        freed: The number of tokens that left the view, minus the tokens of new summaries. If more was restored, it is
            negative.
        recomputed: The number of tokens in the view after the first change. No cached prefix covers them any longer.
    """

    freed: int
    recomputed: int


@dataclass(frozen=True, slots=True)
class Selection:
    """The segments that the ids of an edit call refer to.

    Attributes:
        blocks: The blocks and summaries to change, by ascending key.
        unchanged: Ids that need no change.
        unknown: Ids that were never shown.
    """

    blocks: tuple[Editable, ...]
    unchanged: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """The segments of the record in order, and the keys of the blocks and summaries that are hidden.

    A view is immutable, and each operation returns a new one. A document is in view if one of its blocks is, or if a
    summary in view covers one of its blocks.

    Attributes:
        question: The question of the episode.
        budget: The sizes that limit the view.
        segments: All segments of the record, including hidden ones.
        hidden: Keys of the hidden blocks and summaries.
        tokens: The number of tokens of all segments that are not hidden.
        turn: The number of the current turn, from 0.
        tools: The tools that the episode's profile has.
        protected: Keys that no summary may replace, because the policy named them to stay or restored them.
        changed: Keys that the latest edit hid or restored. The edit invalidated the cached prefix from the first of
            these keys on.
    """

    question: str
    budget: Budget
    segments: tuple[Segment, ...] = ()
    hidden: frozenset[int] = frozenset()
    tokens: int = 0
    turn: int = 0
    tools: tuple[str, ...] = ()
    protected: frozenset[int] = frozenset()
    changed: frozenset[int] = field(default=frozenset(), compare=False)

    @property
    def visible(self) -> tuple[Segment, ...]:
        """The segments that a policy reads, in order."""
        hidden = self.hidden
        return tuple(s for s in self.segments if isinstance(s, Text) or s.key not in hidden)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks in view, oldest first."""
        hidden = self.hidden
        return tuple(s for s in self.segments if isinstance(s, Block) and s.key not in hidden)

    @property
    def pruned(self) -> tuple[Block, ...]:
        """The blocks that edits removed, oldest first, including those that a summary covers."""
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
        """The blocks that a ranking may cite, oldest first: those in view, and those that a summary in view covers.

        If a chunk is in view, only its blocks in view are included. If it is only summarized, its latest block is
        included.
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
        """Return the blocks that summaries cover, oldest first.

        A summary covers the blocks that it replaced, and the blocks that any replaced summaries covered.
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
        """The degree to which the view fills its window."""
        return self.budget.tier(self.tokens)

    @property
    def max_output(self) -> int:
        """Maximum number of tokens that the next action may have, so that view + output + reserve <= window."""
        return max(0, self.budget.window - self.tokens - self.budget.reserve)

    @property
    def result_room(self) -> int:
        """Maximum number of tokens that a message may have as the answer to a call. The usage line needs the rest."""
        return self.budget.window - self.tokens - self.budget.reserve * 3 // 4

    def call_room(self, calls: int = 1) -> int:
        """Return the most tokens that one more call may emit: at most `per_call`, and never beyond the hard threshold.

        Args:
            calls: The number of calls that this call replaces. It may emit as much as all of them together.
        """
        return max(0, min(self.budget.per_call * calls, self.budget.hard - self.tokens))

    def text(self) -> str:
        """Return the view as one string. Replay reproduces it byte for byte."""
        return "".join(segment.text for segment in self.visible)

    def by_id(self) -> dict[str, tuple[Editable, ...]]:
        """Return all blocks and summaries of the record by id, oldest first, including hidden ones.

        A block is also listed under its label, unless the label is the id of another block or summary.
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
        """Return all blocks and summaries of the record by key, including hidden ones."""
        return {segment.key: segment for segment in self.segments if not isinstance(segment, Text)}

    @property
    def next_key(self) -> int:
        """The key that the next block or summary will get."""
        return sum(not isinstance(segment, Text) for segment in self.segments)

    def shows(self, chunk_id: str) -> bool:
        """Return True if a block of that chunk is in view."""
        return any(block.id == chunk_id for block in self.blocks)

    def select(
        self, chunk_ids: Iterable[str] | None, all_but: Iterable[str] | None
    ) -> tuple[Selection, tuple[Editable, ...]]:
        """Find the blocks and summaries that a prune call names.

        An id that is hidden already is `unchanged`, so pruning twice has no further effect. If `all_but` names only
        unknown ids, nothing is selected. Otherwise the policy would lose the chunks that it meant to keep.

        Args:
            chunk_ids: Ids to prune.
            all_but: Ids to keep while everything else is pruned. If it is given, `chunk_ids` is ignored.

        Returns:
            The segments that leave the view, and the segments that the call names to stay.
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
        """Return the segments that leave the view, and the segments that stay.

        The selected segments stay. If a selected chunk is hidden, the summaries that cover it stay.
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
        """Return the latest block of each hidden chunk, and the hidden summaries. An id in view is `unchanged`."""
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
        """Return the keys of the blocks that the view does not protect yet, ascending."""
        return tuple(sorted({block.key for block in blocks} - self.protected))

    def apply(self, edit: Edit) -> View:
        """Return the view after a net edit.

        Raises:
            KeyError: If the edit names a key that the record lacks, so the record is invalid.
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
        """Return the net edit of two edits in a row. The first edit was made on this view."""
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
        """Return how many tokens a net edit of this view frees, and how many must be computed again."""
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
    """Return the keys and the keys that they replaced. A summary can replace keys directly or through other summaries.

    Each key is visited once, so the search ends even if summaries in a record refer to each other in a circle.
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
    """Return the id or label that a call or a ranking names.

    A passage's title may precede a label. A model may write the id as XML does, with `&amp;` for `&`, or with the slash
    of a tag behind it.
    """
    if name in known:
        return name
    written = (html.unescape(name), name.removesuffix("/").rstrip())
    label = _LABEL.search(name)
    return next((variant for variant in written if variant in known), label[0] if label else name)


@dataclass(frozen=True, slots=True)
class SubAgentRecord:
    """A sub-agent in the record of the episode that started it.

    Attributes:
        id: The id of its trajectory. It is empty if no trajectory was begun.
        task: The task that it was given.
        stop_reason: Why it ended.
        documents: The number of documents that it ranked.
        steps: The number of actions that it took.
        tokens: The number of tokens that were placed in its own context.
        error: The error that ended it, if any.
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
    """The first view, with the instructions and the question."""

    segments: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class ActionTaken:
    """An action of the policy.

    Attributes:
        turn: The turn.
        action: The action.
        text: The text of the action.
        tokens: Its size in tokens.
        fits: False if the action was too long for the view and ended the episode.
        seconds: Time that the policy took.
    """

    turn: int
    action: Action
    text: str
    tokens: int
    fits: bool = True
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class EditApplied:
    """The net edit of a turn, with its cost in tokens."""

    turn: int
    edit: Edit
    cost: EditCost


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of one call.

    Attributes:
        turn: The turn.
        call: The index of the call in its turn.
        name: The name of the tool.
        arguments: The arguments of the call.
        segments: The texts and blocks that the call added to the view.
        mistake: The kind of mistake that the policy made. It is None for a valid call.
        seconds: Time that the call took.
        delegated: The sub-agents that the call started, in the order of their tasks.
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
    """The usage line that closes a turn. `total` is the size of the view in tokens, including this line."""

    turn: int
    segment: Text
    total: int


@dataclass(frozen=True, slots=True)
class EpisodeEnded:
    """The end of an episode.

    Attributes:
        stop_reason: The reason for the end of the episode.
        documents: The ranking, best first.
        turns: The number of turns.
        tokens: The number of tokens in the final view.
        digest: SHA-256 of the final view's text, in hexadecimal.
        dropped: The number of ids that were dropped from the ranking because they were not citable, by reason.
        mistakes: The number of calls with a mistake.
        error: The error that ended the episode, if any.
        seconds: Time that the episode took.
        confidence: The probability that the corpus answers the question. It is None if the policy gives none.
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
    """Return the view after an event.

    Raises:
        KeyError: If an edit names a key that the record lacks.
    """
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
    """Return the SHA-256 of the view's text, in hexadecimal."""
    return hashlib.sha256(view.text().encode("utf-8", "surrogatepass")).hexdigest()
