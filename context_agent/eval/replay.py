"""What an episode spent and what it had found after each turn, read off its trajectory by replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from context_agent.eval.gold import Gold
from context_agent.eval.records import Turn
from context_agent.pruning.view import Block, View
from context_agent.trajectory import Acted, Counted, Edited, End, Event, Prompted, Returned, Trajectory


@dataclass(slots=True)
class Spent:
    """Totals of one episode; tokens but for the counts.

    `prompt` sums the views that actions were taken on: what a server reads. `cached` is the part of it that repeats
    the previous prompt and the reply to it, up to the first block that an edit changed: what a prefix cache spares.
    """

    actions: int = 0
    turns: int = 0
    calls: int = 0
    placed: int = 0
    prompt: int = 0
    cached: int = 0
    sampled: int = 0
    lost: int = 0
    freed: int = 0
    peak: int = 0
    end: int = 0
    mistakes: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """After a turn: what was found so far, what is held in view, and which chunks were pruned so far.

    `seen` and `held` are numbers of needs; `pruned` are chunk ids, `pruned_gold` those of them that are gold.
    """

    placed: int
    view: int
    seen: frozenset[int]
    held: frozenset[int]
    pruned: frozenset[str]
    pruned_gold: frozenset[str]


class Replay:
    """One trajectory folded event by event. Raises `TrajectoryError` where the record is not sound."""

    def __init__(self, trajectory: Trajectory, gold: Gold) -> None:
        self.spent = Spent()
        self.states: list[State] = []
        self.shown: set[str] = set()
        """Ids of the chunks ever shown."""
        self.gold: set[str] = set()
        """Those of them that are gold."""
        self.pruned: set[str] = set()
        """Those that a prune took out of view at some time, restored or not. A chunk is in view through a summary, too:
        what is summarised is not pruned, and is when the last summary of it is."""
        self.seen: frozenset[int] = frozenset()
        self._gold = gold
        self._prefix = 0
        view: View | None = None
        for event, after in trajectory.replay():
            self._take(event, view, after)
            view = after
        self.kept = {block.id for block in view.standing} if view is not None else set()
        """Those in the final view, themselves or through a summary."""
        self.held = self._found(view.standing) if view is not None else frozenset()
        self.spent.end = view.tokens if view is not None else 0

    def _take(self, event: Event, before: View | None, after: View) -> None:
        match event:
            case Prompted(segments=segments):
                self.spent.placed += sum(segment.tokens for segment in segments)
            case Acted():
                self._act(event, before, after)
            case Edited() if before is not None:
                self._edit(event, before, after)
            case Returned():
                self._show(event)
            case Counted(segment=segment):
                self.spent.placed += segment.tokens
                self.spent.turns += 1
                self._note(after)
            case End(dropped=dropped):
                self.spent.dropped += sum(dropped.values())

    def _act(self, event: Acted, before: View | None, after: View) -> None:
        prompt = before.tokens if before is not None else 0
        self.spent.actions += 1
        self.spent.prompt += prompt
        self.spent.cached += self._prefix
        self.spent.sampled += event.tokens
        self.spent.placed += event.tokens
        self.spent.peak = max(self.spent.peak, prompt)
        self._prefix = after.tokens

    def _edit(self, event: Edited, before: View, after: View) -> None:
        self.spent.placed += sum(summary.tokens for summary in event.edit.summaries)
        self.spent.lost += event.cost.recomputed
        self.spent.freed += event.cost.freed
        self._prefix = after.tokens - event.cost.recomputed
        self.pruned |= {block.id for block in before.standing} - {block.id for block in after.standing}

    def _show(self, event: Returned) -> None:
        self.spent.calls += 1
        self.spent.mistakes += event.mistake is not None
        self.spent.placed += sum(segment.tokens for segment in event.segments)
        blocks = [segment for segment in event.segments if isinstance(segment, Block)]
        self.shown |= {block.id for block in blocks}
        self.gold |= {block.id for block in blocks if self._gold.found_by(block.document_id, (block.id,))}
        self.seen |= self._found(blocks)

    def _note(self, view: View) -> None:
        pruned = frozenset(self.pruned)
        held = self._found(view.standing)
        state = State(self.spent.placed, view.tokens, self.seen, held, pruned, pruned & self.gold)
        self.states.append(state)

    def _found(self, blocks: Sequence[Block]) -> frozenset[int]:
        return frozenset().union(*(self._gold.found_by(block.document_id, (block.id,)) for block in blocks))


def curve(replays: Sequence[Replay], needs: int) -> tuple[Turn, ...]:
    """The state after each turn. Of several rollouts the n-th turns are taken together, one that has ended stays as it
    was: tokens, views and counts are summed, what was found is united."""
    longest = max((len(one.states) for one in replays), default=0)
    return tuple(_turn(number, replays, needs) for number in range(1, longest + 1)) if needs else ()


def _turn(number: int, replays: Sequence[Replay], needs: int) -> Turn:
    states = [one.states[min(number, len(one.states)) - 1] for one in replays if one.states]
    return Turn(
        turn=number,
        tokens=sum(state.placed for state in states),
        view=sum(state.view for state in states),
        seen=len(frozenset().union(*(state.seen for state in states))) / needs,
        held=len(frozenset().union(*(state.held for state in states))) / needs,
        pruned=sum(len(state.pruned) for state in states),
        pruned_gold=sum(len(state.pruned_gold) for state in states),
    )
