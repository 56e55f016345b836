"""The scores of one question, computed from the result of a search. One function scores every system.

`metrics` defines the metrics and how the values of several rollouts are combined. A metric that does not apply is None,
never a guess. Gold metrics do not apply to a row without gold. `answer_found` does not apply to a row without an
answer, or with an answer such as yes or no. Metrics of the context do not apply to a system without one. If a question
failed, its quality metrics are 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from context_agent.agent import SearchResult
from context_agent.eval import metrics
from context_agent.eval.gold import Gold, contains_answer, gold_of, is_checkable
from context_agent.eval.metrics import BETAS, DEPTHS, MetricKind, metric_table
from context_agent.eval.model_prices import Price
from context_agent.eval.records import TurnState
from context_agent.eval.replay import Replay, curve
from context_agent.harness.episode import StopReason
from context_agent.types import Question, RankedDocument

_ERRORS = {StopReason.POLICY_ERROR, StopReason.CORPUS_ERROR, StopReason.CANCELLED}
_CONTEXT_METRICS = {"trajectory_recall", "held_recall"}


def failure_reason(result: SearchResult | None, error: str | None = None) -> str | None:
    """Return why the question failed. If it did not fail, return None.

    A question fails if there is no result or an `error` is given. It also fails if an error of the policy or the
    corpus, or a cancellation, ended every rollout, even if a ranking could be made from the view. Reaching a limit is
    not a failure, so the ranking counts, unless a time limit ended the search before its first turn.
    """
    if error is not None or result is None:
        return error or "no result"
    if not result.searched:
        return "the time limit ended the search before its first turn"
    ends = [trajectory.end for trajectory in result.trajectories]
    if ends and all(end is None or end.stop_reason in _ERRORS for end in ends):
        return result.error or f"the episode ended by {result.stop_reason}"
    return result.error if not ends else None


def rollout_errors(result: SearchResult) -> tuple[str, ...]:
    """Return the errors that ended some rollouts but not all.

    Such a question is scored with the evidence that all of its rollouts had found.
    """
    if failure_reason(result) is not None:
        return ()
    ends = [trajectory.end for trajectory in result.trajectories]
    return tuple(
        (end.error or f"ended by {end.stop_reason}") if end is not None else "ended without an end event"
        for end in ends
        if end is None or end.stop_reason in _ERRORS
    )


def score(
    question: Question,
    result: SearchResult | None,
    *,
    error: str | None = None,
    gold: Gold | None = None,
    depths: Iterable[int] = DEPTHS,
    betas: Iterable[float] = BETAS,
    price: Price | None = None,
    keeps_context: bool = True,
) -> tuple[dict[str, float | None], tuple[TurnState, ...]]:
    """Return the scores of one question and the state after each turn.

    Args:
        question: The question, with its answer and gold.
        result: The result of the search, or None if there is none.
        error: The reason why the question failed, if the result does not show it.
        gold: The question's gold in its corpus (`gold_of`). Defaults to the gold in the question itself.
        depths: The depths of the ranking, in documents.
        betas: The betas of the F-measures.
        price: Prices per token, for the metric `money`.
        keeps_context: False for a system without a context (one-shot retrieval). A failed result cannot show this.

    Returns:
        The value of each metric of `metric_table(depths, betas)` except `seconds`, and the state after each turn.

    Raises:
        TrajectoryError: If a trajectory does not replay.
    """
    gold = gold_of(question) if gold is None else gold
    depths, betas = tuple(depths), tuple(betas)
    replays = [Replay(trajectory, gold) for trajectory in result.trajectories] if result is not None else []
    searchers = [Replay(trajectory, gold) for trajectory in result.searchers] if result is not None else []
    names = [metric.name for metric in metric_table(depths, betas)]
    scores: dict[str, float | None] = {name: None for name in names if name != "seconds"}
    if result is not None:
        scores |= _costs(result, [*replays, *searchers], price)
    if result is not None and gold:
        scores |= _ranking(result.documents, gold, depths, betas) | _context(replays, searchers, gold)
    if is_checkable(question.answer):
        scores["answer_found"] = _answer_found(result, question.answer)
    if failure_reason(result, error) is not None:
        has_context = bool(replays) or (keeps_context and result is None)
        scores |= dict.fromkeys(_applicable(question, gold, depths, betas, has_context), 0.0)
    return scores, curve(replays, gold.needs)


def _ranking(
    documents: Sequence[RankedDocument], gold: Gold, depths: Iterable[int], betas: Iterable[float]
) -> dict[str, float | None]:
    items = [gold.found_by(document.id, (chunk.id for chunk in document.chunks)) for document in documents]
    recall, precision = metrics.recall_of(items, gold.needs), metrics.precision_of(items)
    values: dict[str, float | None] = {"recall": recall, "precision": precision}
    for beta in (1.0, *betas):
        values[f"f{beta:g}"] = metrics.f_beta(precision, recall, beta)
    for k in depths:
        values[f"recall@{k}"] = metrics.recall_of(items[:k], gold.needs)
        values[f"ndcg@{k}"] = metrics.ndcg_of(items, gold.needs, k)
        values[f"all_gold@{k}"] = metrics.all_gold_of(items[:k], gold.needs)
    return values


def _context(replays: Sequence[Replay], searchers: Sequence[Replay], gold: Gold) -> dict[str, float | None]:
    """Return the metrics of what was shown, kept in view and pruned. What was shown includes the views of sub-agents.

    A chunk that two rollouts showed counts twice.
    """
    if not replays:
        return {}
    numbered = list(enumerate(replays))
    gold_chunks = {(number, chunk_id) for number, replay in numbered for chunk_id in replay.gold}
    pruned = ((number, chunk_id) for number, replay in numbered for chunk_id in replay.pruned)
    shown_chunks = ((number, chunk_id) for number, replay in numbered for chunk_id in replay.shown)
    final_view = {(number, chunk_id) for number, replay in numbered for chunk_id in replay.final_view}
    return {
        "trajectory_recall": metrics.recall_of([replay.seen for replay in (*replays, *searchers)], gold.needs),
        "held_recall": metrics.recall_of([replay.held for replay in replays], gold.needs),
        "prune_accuracy": metrics.prune_accuracy(pruned, gold_chunks),
        "prune_recall": metrics.prune_recall(shown_chunks, final_view, gold_chunks),
    }


def _answer_found(result: SearchResult | None, answer: str) -> float:
    documents = result.documents if result is not None else ()
    texts = (text for document in documents for text in (document.title, *(chunk.text for chunk in document.chunks)))
    return float(contains_answer(texts, answer))


def _costs(result: SearchResult, replays: Sequence[Replay], price: Price | None) -> dict[str, float | None]:
    """Return the costs of the episodes, including those of sub-agents.

    A one-shot search has no episode, so its only cost is the tokens of its results.
    """
    if not replays:
        return {"tokens": float(result.tokens)} if result.tokens else {}
    spent = [replay.spent for replay in replays]
    turns, calls = sum(cost.turns for cost in spent), sum(cost.calls for cost in spent)
    prompt, cached = sum(cost.prompt for cost in spent), sum(cost.cached for cost in spent)
    sampled = sum(cost.sampled for cost in spent)
    counts: dict[str, float] = {
        "turns": turns,
        "calls": calls,
        "critical_steps": result.critical_steps,
        "tokens": sum(cost.placed for cost in spent),
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "sampled_tokens": sampled,
        "lost_tokens": sum(cost.lost for cost in spent),
        "freed_tokens": sum(cost.freed for cost in spent),
        "context_end": max(cost.end for cost in spent),
        "context_peak": max(cost.peak for cost in spent),
        "mistakes": sum(cost.mistakes for cost in spent),
        "dropped_ids": sum(cost.dropped for cost in spent),
    }
    return {
        **{name: float(count) for name, count in counts.items()},
        "calls_per_turn": calls / turns if turns else None,
        "money": None if price is None else price.of(prompt=prompt, cached=cached, sampled=sampled),
    }


def _applicable(
    question: Question, gold: Gold, depths: Iterable[int], betas: Iterable[float], has_context: bool
) -> Iterable[str]:
    """Yield the quality metrics that apply to the question. A failed question scores 0 on them."""
    for metric in metric_table(depths, betas):
        applies = is_checkable(question.answer) if metric.name == "answer_found" else bool(gold)
        if metric.kind is MetricKind.QUALITY and applies and (has_context or metric.name not in _CONTEXT_METRICS):
            yield metric.name
