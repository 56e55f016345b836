"""The outcome of an episode: the measures that the reward needs, taken from the unedited record.

`measure_outcome` is the only function of training that reads an episode. `train.rewards` turns its result into a
reward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from context_agent.errors import DataError
from context_agent.eval import metrics
from context_agent.eval.gold import Gold, contains_answer, gold_of, is_checkable
from context_agent.eval.replay import Replay
from context_agent.harness.action_text import ranking_of
from context_agent.harness.episode import StopReason
from context_agent.harness.ranking import resolve
from context_agent.harness.trajectory import Trajectory
from context_agent.pruning.view import ActionTaken, Block, ToolResult
from context_agent.types import Question, RankedDocument


class Ending(StrEnum):
    """The facts about the end of an episode that its reward depends on."""

    FINISHED = "finished"
    """The policy ended the episode with a valid ranking."""
    MALFORMED = "malformed"
    """The policy ended the episode without a valid ranking."""
    TRUNCATED = "truncated"
    """A limit ended the episode: turns, tokens, time or window."""


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """The measures of an episode. A chunk that occurs several times is counted once.

    Attributes:
        ending: How the episode ended.
        precision: Precision of the whole ranking. 0 if the question has no gold.
        recall: Recall of the whole ranking. 0 if the question has no gold.
        seen: Recall over everything that the episode encountered.
        answered: True if a shown chunk contains the answer. None if no answer is known.
        answer_ranked: True if a gold chunk of a document that the policy ranked contains the answer. None if no answer
            is known.
        ranked: For each document of the ranking, the facts that it covers, as indices below `needs`.
        needs: Number of facts that the question needs.
        cited: Number of documents at the head of `ranked` that the policy named. The profile added the others. None if
            `precision` and `recall` describe the policy's own documents.
        calls: Number of tool calls in each turn.
        finding_calls: Number of calls in each turn that showed evidence for the first time.
        prunes: Number of calls in each turn that only pruned. 0 for a turn with any other call.
        queries: The queries of all searches.
        finding_queries: The queries that showed evidence for the first time.
        pruned: Number of chunks that were ever pruned.
        pruned_gold: Number of pruned chunks that are gold.
        clutter: Number of shown chunks that are not gold.
        cleared: Number of the `clutter` chunks that the final view does not contain.
        gold_shown: Number of shown chunks that are gold.
        gold_kept: Number of the `gold_shown` chunks that the final view contains.
        mistakes: Number of calls that could not run.
        spent: The share of the budget of turns and tokens that the episode spent, from 0 to 1.
        has_gold: True if the question has gold.
        judged: A judge's verdict on the ranking, from 0 to 1. None if there is none.
    """

    ending: Ending
    precision: float
    recall: float
    seen: float
    answered: bool | None = None
    answer_ranked: bool | None = None
    ranked: tuple[frozenset[int], ...] = ()
    needs: int = 0
    cited: int | None = None
    calls: tuple[int, ...] = ()
    finding_calls: tuple[int, ...] = ()
    prunes: tuple[int, ...] = ()
    queries: tuple[str, ...] = ()
    finding_queries: tuple[str, ...] = ()
    pruned: int = 0
    pruned_gold: int = 0
    clutter: int = 0
    cleared: int = 0
    gold_shown: int = 0
    gold_kept: int = 0
    mistakes: int = 0
    spent: float = 0.0
    has_gold: bool = True
    judged: float | None = None

    @property
    def turns(self) -> int:
        """Number of turns in which tools were called."""
        return len(self.calls)


ENDINGS = {
    StopReason.FINISHED: Ending.FINISHED,
    StopReason.NO_RANKING: Ending.MALFORMED,
    StopReason.TURNS: Ending.TRUNCATED,
    StopReason.TIME: Ending.TRUNCATED,
    StopReason.TOKENS: Ending.TRUNCATED,
    StopReason.WINDOW: Ending.TRUNCATED,
}
"""The ending for each stop reason of the harness. Other stop reasons are not the policy's doing and earn no reward."""


def is_aborted(trajectory: Trajectory) -> bool:
    """Return True if a server, the corpus or the caller ended the episode. Such an episode is not rewarded."""
    return trajectory.end is None or StopReason(trajectory.end.stop_reason) not in ENDINGS


def measure_outcome(
    trajectory: Trajectory, question: Question, gold: Gold | None = None, *, judged: float | None = None
) -> EpisodeOutcome:
    """Return the measures of a whole episode.

    Args:
        trajectory: The record of the episode.
        question: The question of the episode.
        gold: The question's gold in its corpus (`gold_of`). Defaults to the gold that the question names.
        judged: A judge's verdict on the ranking, from 0 to 1.

    Returns:
        The outcome that `compute_reward` rewards.

    Raises:
        DataError: If the episode was aborted, or the question has neither gold nor a verdict.
        TrajectoryError: If the record does not replay.
    """
    gold = gold or gold_of(question)
    if is_aborted(trajectory) or not (gold or judged is not None):
        what = "was aborted" if is_aborted(trajectory) else "has no gold"
        raise DataError(
            f"episode {trajectory.header.id} of question {question.id} cannot be rewarded, because it {what}"
        )
    assert trajectory.end is not None
    replay = Replay(trajectory, gold)
    returned = [event for event in trajectory.events if isinstance(event, ToolResult)]
    cited = _cited(trajectory)
    relevance = [
        gold.found_by(document.id, (chunk.id for chunk in document.chunks)) for document in trajectory.end.documents
    ]
    finding = _finding(returned, gold)
    clutter = replay.shown - replay.gold
    return EpisodeOutcome(
        ending=ENDINGS[StopReason(trajectory.end.stop_reason)],
        precision=metrics.precision_of(relevance) if gold else 0.0,
        recall=metrics.recall_of(relevance, gold.needs) if gold else 0.0,
        seen=metrics.recall_of([replay.seen], gold.needs) if gold else 0.0,
        answered=_answered(returned, question.answer),
        answer_ranked=_answer_ranked(trajectory.end.documents[:cited], gold, question.answer),
        ranked=tuple(relevance),
        needs=gold.needs if gold else 0,
        cited=cited,
        calls=tuple(_calls_by_turn(returned).values()),
        finding_calls=tuple({**_calls_by_turn(returned, 0), **_calls_by_turn(finding)}.values()),
        prunes=_pruning_turns(returned),
        queries=_queries(returned),
        finding_queries=_queries(finding),
        pruned=len(replay.pruned),
        pruned_gold=len(replay.pruned & replay.gold),
        clutter=len(clutter),
        cleared=len(clutter - replay.final_view),
        gold_shown=len(replay.gold),
        gold_kept=len(replay.gold & replay.final_view),
        mistakes=replay.spent.mistakes,
        spent=_share_spent(trajectory, returned),
        has_gold=bool(gold),
        judged=judged,
    )


def _answered(returned: Iterable[ToolResult], answer: str) -> bool | None:
    """Return True if a shown chunk contains the answer. If the answer cannot be checked, return None."""
    if not is_checkable(answer):
        return None
    return contains_answer((block.body for item in returned for block in _blocks(item)), answer)


def _answer_ranked(documents: Iterable[RankedDocument], gold: Gold, answer: str) -> bool | None:
    """Return True if a gold chunk of these documents contains the answer. If the answer cannot be checked, return
    None.
    """
    if not is_checkable(answer):
        return None
    chunks = (chunk for item in documents for chunk in item.chunks if gold.found_by(item.id, (chunk.id,)))
    return contains_answer((chunk.text for chunk in chunks), answer)


def _cited(trajectory: Trajectory) -> int:
    """Return the number of documents at the head of the ranking that the policy named.

    The profile may have added the others.
    """
    assert trajectory.end is not None
    profile = trajectory.header.profile
    if not profile.fill_ranking:
        return len(trajectory.end.documents)
    last = [event.action for event in trajectory.events if isinstance(event, ActionTaken)][-1:]
    named = [item for action in last for item in ranking_of(action)]
    *_, view = trajectory.views()
    return len(resolve(named, view, profile.max_ranking).documents)


def _blocks(item: ToolResult) -> list[Block]:
    return [segment for segment in item.segments if isinstance(segment, Block)]


def _finding(returned: Iterable[ToolResult], gold: Gold) -> list[ToolResult]:
    """Return the results that showed evidence for the first time."""
    finding, seen = [], frozenset[int]()
    for item in returned:
        evidence = frozenset[int]().union(*(gold.found_by(block.document_id, (block.id,)) for block in _blocks(item)))
        if evidence - seen:
            finding.append(item)
        seen |= evidence
    return finding


def _queries(returned: Iterable[ToolResult]) -> tuple[str, ...]:
    return tuple(str(item.arguments["query"]) for item in returned if "query" in item.arguments)


def _calls_by_turn(returned: Iterable[ToolResult], each: int = 1) -> dict[int, int]:
    """Return the number of calls in each turn, multiplied by `each`."""
    return {turn: each * count for turn, count in sorted(Counter(item.turn for item in returned).items())}


def _pruning_turns(returned: list[ToolResult]) -> tuple[int, ...]:
    """Return the number of calls in each turn that only pruned. A turn with any other call has 0."""
    other_turns = {item.turn for item in returned if item.name != "prune_chunks"}
    return tuple(0 if turn in other_turns else count for turn, count in _calls_by_turn(returned).items())


def _share_spent(trajectory: Trajectory, returned: Iterable[ToolResult]) -> float:
    """Return the mean of two shares, each at most 1: the turns of the turn limit, and the tokens of the token limit.

    If there is no token limit, the window replaces it. The turns and tokens of sub-agents are included.
    """
    assert trajectory.end is not None
    header = trajectory.header
    delegated = sum(sub_agent.tokens for item in returned for sub_agent in item.delegated)
    turns = trajectory.critical_steps / (header.limits.get("turns") or header.profile.turns)
    tokens = (trajectory.end.tokens + delegated) / (header.limits.get("tokens") or header.budget.window)
    return (min(1.0, turns) + min(1.0, tokens)) / 2
