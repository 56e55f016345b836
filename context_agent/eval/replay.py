"""What an episode spent, and what it had found after each turn, computed from its trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from context_agent.eval.gold import Gold
from context_agent.eval.records import TurnState
from context_agent.harness.trajectory import Trajectory
from context_agent.pruning.view import (
    ActionTaken,
    Block,
    EditApplied,
    EpisodeEnded,
    Event,
    PromptShown,
    ToolResult,
    TurnClosed,
    View,
)


@dataclass(slots=True)
class EpisodeCosts:
    """The totals of one episode. Sizes are in tokens.

    Attributes:
        turns: The number of completed turns.
        calls: The number of tool calls, including refused ones.
        placed: All tokens that were placed in the context, whether pruned or not.
        prompt: The sum of the sizes of the views on which actions were taken. A server reads these tokens.
        cached: The prompt tokens that repeat the previous prompt and reply, up to the first block that an edit changed.
            A prefix cache saves these tokens.
        sampled: The tokens of the policy's actions.
        lost: The tokens after an edit, whose cached prefix the edit invalidated.
        freed: The tokens that edits removed from the view, minus the tokens that they restored.
        peak: The size of the largest view on which an action was taken.
        end: The size of the final view.
        mistakes: The number of calls that were refused, or that failed because of the policy.
        dropped: The number of ids that were dropped from the final ranking.
    """

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
    """The evidence that an episode had found after a turn.

    Attributes:
        placed: The tokens placed in the context so far.
        view: The tokens in the view.
        seen: The numbers of the evidence (see `Gold.needs`) that was ever shown.
        in_view: The numbers of the evidence that is in the view now.
        pruned: The ids of the chunks pruned so far.
        pruned_gold: The ids of the pruned chunks that are gold.
    """

    placed: int
    view: int
    seen: frozenset[int]
    in_view: frozenset[int]
    pruned: frozenset[str]
    pruned_gold: frozenset[str]


class Replay:
    """The costs and findings of one trajectory, computed event by event.

    Attributes:
        spent: The costs of the episode.
        states: The state after each turn.
        shown: The ids of the chunks that were ever shown.
        gold: The ids of the shown chunks that are gold.
        pruned: The ids of the chunks that a prune removed from the view at some time, whether restored or not. A
            summary keeps its chunks in the view. A summarized chunk counts as pruned when its last summary is pruned.
        seen: The numbers of the evidence that was ever shown.
        final_view: The ids of the chunks in the final view, either themselves or through a summary.
        held: The numbers of the evidence in the final view.

    Raises:
        TrajectoryError: If the trajectory does not replay.
    """

    def __init__(self, trajectory: Trajectory, gold: Gold) -> None:
        self.spent = EpisodeCosts()
        self.states: list[ReplayState] = []
        self.shown: set[str] = set()
        self.gold: set[str] = set()
        self.pruned: set[str] = set()
        self.seen: frozenset[int] = frozenset()
        self._gold = gold
        self._prefix = 0
        view: View | None = None
        for event, after in trajectory.replay():
            self._take(event, view, after)
            view = after
        self.final_view = {block.id for block in view.citable_blocks} if view is not None else set()
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
        in_view = self._evidence(view.citable_blocks)
        state = ReplayState(self.spent.placed, view.tokens, self.seen, in_view, pruned, pruned & self.gold)
        self.states.append(state)

    def _evidence(self, blocks: Sequence[Block]) -> frozenset[int]:
        return frozenset().union(*(self._gold.found_by(block.document_id, (block.id,)) for block in blocks))


def curve(replays: Sequence[Replay], needs: int) -> tuple[TurnState, ...]:
    """Return the state of several rollouts after each turn.

    The n-th turns of the rollouts are combined: tokens, views and counts are summed, and the evidence is united. A
    rollout that has ended keeps its last state. If the question has no gold (`needs` is 0), the curve is empty.
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
        held=len(frozenset().union(*(state.in_view for state in states))) / needs,
        pruned=sum(len(state.pruned) for state in states),
        pruned_gold=sum(len(state.pruned_gold) for state in states),
    )
