"""What a policy sees: the record of an episode minus the blocks that edits removed. Values only, no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from context_agent.pruning.budget import Budget, Tier
from context_agent.types import Action, Hit


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
    """A segment that no edit removes. `call` is the index of the call in its turn, -1 where there is none."""

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
    `header + body + newline`, `tokens` counts all of it. `whole` is False where the body was cut to fit the budget.
    """

    key: int
    header: str
    body: str
    tokens: int
    turn: int
    call: int
    source: Source
    hit: Hit
    whole: bool = True

    @property
    def id(self) -> str:
        """The chunk's id."""
        return self.hit.chunk.id

    @property
    def document_id(self) -> str:
        """The id of the chunk's document."""
        return self.hit.chunk.document_id

    @property
    def text(self) -> str:
        """The block as it stands in the view."""
        return f"{self.header}{self.body}\n"


@dataclass(frozen=True, slots=True)
class Summary:
    """What a policy wrote in place of segments: addressable by an id of its own, and prunable.

    `key` numbers it among the blocks. `of` are the keys of what it took the place of, ascending: blocks, and earlier
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
        """The summary as it stands in the view."""
        return f"{self.header}{self.body}\n"


Editable = Block | Summary
"""What an edit can hide and bring back."""
Segment = Text | Block | Summary


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
        """The blocks that edits removed, oldest first, those that a summary stands for among them."""
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

        Oldest first. Of a chunk that is in view itself no other block is given, of a summarised one the latest.
        """
        visible = self.blocks
        if not (summaries := self.summaries):
            return visible
        visible_ids = {block.id for block in visible}
        covered = sorted((b for summary in summaries for b in self.stands_for(summary)), key=lambda block: block.key)
        latest = {block.id: block for block in covered if block.id not in visible_ids}
        return tuple(sorted([*visible, *latest.values()], key=lambda block: block.key))

    def stands_for(self, summary: Summary) -> tuple[Block, ...]:
        """The blocks that a summary stands for, oldest first: those it took the place of, and those that the
        summaries among them stood for."""
        by_key = self.by_key()
        blocks: dict[int, Block] = {}
        pending = list(summary.of)
        while pending:
            segment = by_key[pending.pop()]
            if isinstance(segment, Summary):
                pending += segment.of
            else:
                blocks[segment.key] = segment
        return tuple(blocks[key] for key in sorted(blocks))

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

    def text(self) -> str:
        """The view as one string: what replay reproduces byte for byte."""
        return "".join(segment.text for segment in self.visible)

    def find(self, chunk_id: str) -> tuple[Block, ...]:
        """All blocks of the record with that chunk id, hidden ones too, oldest first."""
        return self.by_chunk().get(chunk_id, ())

    def by_chunk(self) -> dict[str, tuple[Block, ...]]:
        """All blocks of the record by chunk id, hidden ones too, oldest first."""
        blocks: dict[str, tuple[Block, ...]] = {}
        for segment in self.segments:
            if isinstance(segment, Block):
                blocks[segment.id] = (*blocks.get(segment.id, ()), segment)
        return blocks

    def by_id(self) -> dict[str, tuple[Editable, ...]]:
        """All blocks and summaries of the record by the id that names them, hidden ones too, oldest first."""
        by_id: dict[str, tuple[Editable, ...]] = {}
        for segment in self.segments:
            if not isinstance(segment, Text):
                by_id[segment.id] = (*by_id.get(segment.id, ()), segment)
        return by_id

    def by_key(self) -> dict[int, Editable]:
        """All blocks and summaries of the record by key, hidden ones too."""
        return {segment.key: segment for segment in self.segments if not isinstance(segment, Text)}

    @property
    def next_key(self) -> int:
        """The key of the next block or summary."""
        return sum(not isinstance(segment, Text) for segment in self.segments)

    def shows(self, chunk_id: str) -> bool:
        """Whether a block of that chunk is in view."""
        return any(block.key not in self.hidden for block in self.find(chunk_id))

    def append(self, segments: Iterable[Segment]) -> View:
        """The view with more segments at its end."""
        added = tuple(segments)
        tokens = self.tokens + sum(segment.tokens for segment in added)
        return replace(self, segments=self.segments + added, tokens=tokens)

    def next_turn(self) -> View:
        """The same view, one turn later."""
        return replace(self, turn=self.turn + 1)
