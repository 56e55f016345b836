"""What an episode spent, and what it had found after each turn, computed by replaying its trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from context_agent.eval.gold import Gold
from context_agent.eval.records import TurnState
from context_agent.harness.trajectory import (
    ActionTaken,
    EditApplied,
    EpisodeEnded,
    Event,
    PromptShown,
    ToolResult,
    Trajectory,
    TurnClosed,
)
from context_agent.pruning.view import Block, View


@dataclass(slots=True)
class EpisodeCosts:
    """Totals of one episode, in tokens except for the counts.

    `prompt` sums the views that actions were taken on, which is what a server reads. `cached` is the part of it that
    repeats the previous prompt and reply, up to the first block that an edit changed; a prefix cache saves that part.
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
class ReplayState:
    """After a turn: what was found so far, what is held in view, and which chunks were pruned so far.

    `seen` and `held` are the numbers of the evidence (`Gold.needs`); `pruned` are chunk ids, `pruned_gold` those of
    them that are gold.
    """

    placed: int
    view: int
    seen: frozenset[int]
    held: frozenset[int]
    pruned: frozenset[str]
    pruned_gold: frozenset[str]


class Replay:
    """One trajectory, folded event by event. Raises `TrajectoryError` if the trajectory does not replay."""

    def __init__(self, trajectory: Trajectory, gold: Gold) -> None:
        self.spent = EpisodeCosts()
        self.states: list[ReplayState] = []
        self.shown: set[str] = set()
        """Ids of the chunks ever shown."""
        self.gold: set[str] = set()
        """The shown chunks that are gold."""
        self.pruned: set[str] = set()
        """Ids of the chunks that a prune removed from view at some time, restored or not. A summary keeps its chunks in
        view: a summarised chunk counts as pruned once the last summary of it is pruned."""
        self.seen: frozenset[int] = frozenset()
        self._gold = gold
        self._prefix = 0
        view: View | None = None
        for event, after in trajectory.replay():
            self._take(event, view, after)
            view = after
        self.final_view = {block.id for block in view.citable_blocks} if view is not None else set()
        """Ids of the chunks in the final view, themselves or through a summary."""
        self.held = self._evidence(view.citable_blocks) if view is not None else frozenset()
        self.spent.end = view.tokens if view is not None else 0

    def _take(self, event: Event, before: View | None, after: View) -> None:
        match event:
            case PromptShown(segments=segments):
                self.spent.placed += sum(segment.tokens for segment in segments)
            case ActionTaken():
                self._act(event, before, after)
            case EditApplied() if before is not None:
                self._edit(event, before, after)
            case ToolResult():
                self._show(event)
            case TurnClosed(segment=segment):
                self.spent.placed += segment.tokens
                self.spent.turns += 1
                self._note(after)
            case EpisodeEnded(dropped=dropped):
                self.spent.dropped += sum(dropped.values())

    def _act(self, event: ActionTaken, before: View | None, after: View) -> None:
        prompt = before.tokens if before is not None else 0
        self.spent.actions += 1
        self.spent.prompt += prompt
        self.spent.cached += self._prefix
        self.spent.sampled += event.tokens
        self.spent.placed += event.tokens
        self.spent.peak = max(self.spent.peak, prompt)
        self._prefix = after.tokens

    def _edit(self, event: EditApplied, before: View, after: View) -> None:
        self.spent.placed += sum(summary.tokens for summary in event.edit.summaries)
        self.spent.lost += event.cost.recomputed
        self.spent.freed += event.cost.freed
        self._prefix = after.tokens - event.cost.recomputed
        self.pruned |= {block.id for block in before.citable_blocks} - {block.id for block in after.citable_blocks}

    def _show(self, event: ToolResult) -> None:
        self.spent.calls += 1
        self.spent.mistakes += event.mistake is not None
        self.spent.placed += sum(segment.tokens for segment in event.segments)
        blocks = [segment for segment in event.segments if isinstance(segment, Block)]
        self.shown |= {block.id for block in blocks}
        self.gold |= {block.id for block in blocks if self._gold.found_by(block.document_id, (block.id,))}
        self.seen |= self._evidence(blocks)

    def _note(self, view: View) -> None:
        pruned = frozenset(self.pruned)
        held = self._evidence(view.citable_blocks)
        state = ReplayState(self.spent.placed, view.tokens, self.seen, held, pruned, pruned & self.gold)
        self.states.append(state)

    def _evidence(self, blocks: Sequence[Block]) -> frozenset[int]:
        return frozenset().union(*(self._gold.found_by(block.document_id, (block.id,)) for block in blocks))


def curve(replays: Sequence[Replay], needs: int) -> tuple[TurnState, ...]:
    """The state after each turn.

    The n-th turns of several rollouts are combined: tokens, views and counts are summed, and what was found is united.
    A rollout that has ended keeps its last state.
    """
    longest = max((len(replay.states) for replay in replays), default=0)
    return tuple(_turn_state(number, replays, needs) for number in range(1, longest + 1)) if needs else ()


def _turn_state(number: int, replays: Sequence[Replay], needs: int) -> TurnState:
    states = [replay.states[min(number, len(replay.states)) - 1] for replay in replays if replay.states]
    return TurnState(
        turn=number,
        tokens=sum(state.placed for state in states),
        view=sum(state.view for state in states),
        seen=len(frozenset().union(*(state.seen for state in states))) / needs,
        held=len(frozenset().union(*(state.held for state in states))) / needs,
        pruned=sum(len(state.pruned) for state in states),
        pruned_gold=sum(len(state.pruned_gold) for state in states),
    )
