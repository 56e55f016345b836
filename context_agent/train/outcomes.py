"""What an episode came to, read off its unedited record: the one place where a reward's measures come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from context_agent.errors import DataError
from context_agent.eval import metrics
from context_agent.eval.gold import Gold, gold_of, holds, judgeable
from context_agent.eval.replay import Replay
from context_agent.harness.episode import StopReason
from context_agent.harness.trajectory import ToolResult, Trajectory
from context_agent.pruning.view import Block
from context_agent.questions import Question
from context_agent.train.rewards import Ending, Outcome

ENDINGS = {
    StopReason.FINISHED: Ending.FINISHED,
    StopReason.NO_RANKING: Ending.MALFORMED,
    StopReason.TURNS: Ending.CUT,
    StopReason.TIME: Ending.CUT,
    StopReason.TOKENS: Ending.CUT,
    StopReason.WINDOW: Ending.CUT,
}
"""How the harness's reasons to stop read here. The others are the world's doing, and earn nothing, good or bad."""


def spoiled(trajectory: Trajectory) -> bool:
    """Whether a server, the corpus or the caller ended the episode: there is nothing in it to reward."""
    return trajectory.end is None or StopReason(trajectory.end.stop_reason) not in ENDINGS


def outcome(
    trajectory: Trajectory, question: Question, gold: Gold | None = None, *, judged: float | None = None
) -> Outcome:
    """The measures of a whole episode. `gold` is the question's in its corpus (`gold_of`), `judged` a judge's verdict.

    Raises `DataError` for a spoiled episode and for a question with neither gold nor a verdict, `TrajectoryError` for a
    record that does not replay.
    """
    gold = gold or gold_of(question)
    if spoiled(trajectory) or not (gold or judged is not None):
        what = "was ended by something other than its policy" if spoiled(trajectory) else "has no gold"
        raise DataError(f"episode {trajectory.header.id}, question {question.id}: it {what}, so it has no reward")
    assert trajectory.end is not None
    replay = Replay(trajectory, gold)
    returned = [event for event in trajectory.events if isinstance(event, ToolResult)]
    found = [gold.found_by(one.id, (chunk.id for chunk in one.chunks)) for one in trajectory.end.documents]
    return Outcome(
        ending=ENDINGS[StopReason(trajectory.end.stop_reason)],
        precision=metrics.precision_of(found) if gold else 0.0,
        recall=metrics.recall_of(found, gold.needs) if gold else 0.0,
        seen=metrics.recall_of([replay.seen], gold.needs) if gold else 0.0,
        answered=_answered(returned, question.answer),
        calls=tuple(_by_turn(returned).values()),
        prunes=_pruning_turns(returned),
        queries=tuple(str(one.arguments["query"]) for one in returned if "query" in one.arguments),
        pruned=len(replay.pruned),
        pruned_gold=len(replay.pruned & replay.gold),
        mistakes=replay.spent.mistakes,
        golden=bool(gold),
        judged=judged,
    )


def _answered(returned: Iterable[ToolResult], answer: str) -> bool | None:
    """Whether any chunk that was shown holds the answer."""
    if not judgeable(answer):
        return None
    return holds((block.body for one in returned for block in one.segments if isinstance(block, Block)), answer)


def _by_turn(returned: Iterable[ToolResult]) -> dict[int, int]:
    """How many calls each turn made."""
    return dict(sorted(Counter(one.turn for one in returned).items()))


def _pruning_turns(returned: list[ToolResult]) -> tuple[int, ...]:
    """Calls of each turn that did nothing but prune, 0 for the others."""
    other = {one.turn for one in returned if one.name != "prune_chunks"}
    return tuple(0 if turn in other else count for turn, count in _by_turn(returned).items())
