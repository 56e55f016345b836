"""The outcome of an episode: what is measured of its unedited record.

`measure_outcome` is the only function of training that reads an episode. `train.rewards` rewards what it returns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from context_agent.errors import DataError
from context_agent.eval import metrics
from context_agent.eval.gold import Gold, gold_of, holds, judgeable
from context_agent.eval.scoring import Replay
from context_agent.harness.action_text import parse_ranking
from context_agent.harness.episode import StopReason
from context_agent.harness.ranking import resolve
from context_agent.harness.trajectory import Trajectory
from context_agent.pruning.view import ActionTaken, Block, ToolResult
from context_agent.types import Question, RankedDocument


class Ending(StrEnum):
    """How an episode ended, as far as a reward cares."""

    FINISHED = "finished"
    """The policy gave a valid ranking."""
    MALFORMED = "malformed"
    """The policy ended without a valid ranking."""
    CUT = "cut"
    """A limit ended it: turns, tokens, time or window."""


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """The measures of an episode. All counts of chunks count each chunk once.

    - `ending`: how it ended.
    - `precision`, `recall`: of the whole ranking; 0 if the question has no gold.
    - `seen`: recall over everything encountered.
    - `answered`: whether a chunk that holds the answer was retrieved; None if no answer is known.
    - `answer_ranked`: whether a gold chunk of a document that the policy ranked holds the answer; None likewise.
    - `ranked`: the facts that each document of the ranking finds, of `needs` in all.
    - `cited`: how many documents at the head of `ranked` the policy named. The profile added the others. None means
      that `precision` and `recall` are those of the policy's own documents.
    - `calls`: the tool calls of each turn.
    - `finding_calls`: the calls of each turn that showed evidence for the first time.
    - `prunes`: the calls of each turn that did nothing but prune, 0 for any other turn.
    - `queries`, `finding_queries`: the queries, and those of them that showed evidence for the first time.
    - `pruned`, `pruned_gold`: the chunks that were pruned at some time, and those of them that are gold.
    - `clutter`, `cleared`: the shown chunks that are not gold, and those of them that the final view lacks.
    - `gold_shown`, `gold_kept`: the shown chunks that are gold, and those of them in the final view.
    - `mistakes`: calls that could not run.
    - `spent`: the share of the budget of turns and tokens that was spent, from 0 to 1.
    - `has_gold`: whether the question has gold.
    - `judged`: a judge's verdict on the ranking, from 0 to 1, or None.
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
        """Turns in which tools were called."""
        return len(self.calls)


ENDINGS = {
    StopReason.FINISHED: Ending.FINISHED,
    StopReason.NO_RANKING: Ending.MALFORMED,
    StopReason.TURNS: Ending.CUT,
    StopReason.TIME: Ending.CUT,
    StopReason.TOKENS: Ending.CUT,
    StopReason.WINDOW: Ending.CUT,
}
"""The endings of the harness's stop reasons. Other stop reasons are not the policy's doing, and earn nothing."""


def is_aborted(trajectory: Trajectory) -> bool:
    """Return whether a server, the corpus or the caller ended the episode, which is then not rewarded."""
    return trajectory.end is None or StopReason(trajectory.end.stop_reason) not in ENDINGS


def measure_outcome(
    trajectory: Trajectory, question: Question, gold: Gold | None = None, *, judged: float | None = None
) -> EpisodeOutcome:
    """Return the measures of a whole episode.

    Args:
        trajectory: The record of the episode.
        question: The question that it was asked.
        gold: The question's gold in its corpus (`gold_of`). Defaults to what the question says.
        judged: A judge's verdict on the ranking.

    Returns:
        The outcome that `compute_reward` rewards.

    Raises:
        DataError: If the episode was aborted, or the question has neither gold nor a verdict.
        TrajectoryError: If the record does not replay.
    """
    gold = gold or gold_of(question)
    if is_aborted(trajectory) or not (gold or judged is not None):
        what = "was aborted" if is_aborted(trajectory) else "has no gold"
        raise DataError(f"episode {trajectory.header.id}, question {question.id}: it {what}, so it cannot be rewarded")
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
    """Return whether any chunk that was shown holds the answer."""
    if not judgeable(answer):
        return None
    return holds((block.body for item in returned for block in _blocks(item)), answer)


def _answer_ranked(documents: Iterable[RankedDocument], gold: Gold, answer: str) -> bool | None:
    """Return whether a gold chunk of these documents holds the answer."""
    if not judgeable(answer):
        return None
    chunks = (chunk for item in documents for chunk in item.chunks if gold.found_by(item.id, (chunk.id,)))
    return holds((chunk.text for chunk in chunks), answer)


def _cited(trajectory: Trajectory) -> int:
    """Return how many documents at the head of the ranking the policy named; the profile may have added others."""
    assert trajectory.end is not None
    profile = trajectory.header.profile
    if not profile.fill_ranking:
        return len(trajectory.end.documents)
    last = [event.action for event in trajectory.events if isinstance(event, ActionTaken)][-1:]
    named = [item for action in last for item in action.ranking or parse_ranking(action.text)]
    *_, view = trajectory.views()
    return len(resolve(named, view, profile.max_ranking).documents)


def _blocks(item: ToolResult) -> list[Block]:
    return [segment for segment in item.segments if isinstance(segment, Block)]


def _finding(returned: Iterable[ToolResult], gold: Gold) -> list[ToolResult]:
    """Return the results that showed evidence which no earlier one had shown."""
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
    """Return how many calls each turn made, or `each` times that."""
    return {turn: each * count for turn, count in sorted(Counter(item.turn for item in returned).items())}


def _pruning_turns(returned: list[ToolResult]) -> tuple[int, ...]:
    """Return the calls of each turn that did nothing but prune, 0 for the others."""
    other_turns = {item.turn for item in returned if item.name != "prune_chunks"}
    return tuple(0 if turn in other_turns else count for turn, count in _calls_by_turn(returned).items())


def _share_spent(trajectory: Trajectory, returned: Iterable[ToolResult]) -> float:
    """Return the mean of two shares, at most 1 each: turns of the turn limit, and tokens placed of the token limit.

    Without a token limit the window is the budget. Sub-agents spend too.
    """
    assert trajectory.end is not None
    header = trajectory.header
    delegated = sum(sub_agent.tokens for item in returned for sub_agent in item.delegated)
    turns = trajectory.critical_steps / (header.limits.get("turns") or header.profile.turns)
    tokens = (trajectory.end.tokens + delegated) / (header.limits.get("tokens") or header.budget.window)
    return (min(1.0, turns) + min(1.0, tokens)) / 2
