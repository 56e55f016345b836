"""The scores of one question, computed from the result of a search. One function scores every system.

`Replay` computes from a trajectory what its episode spent, and what it had found after each turn.

`metrics` defines the metrics and how the values of several rollouts are combined. A metric that does not apply is None,
never a guess. Gold metrics do not apply to a row without gold. `answer_found` does not apply to a row without an
answer, or with an answer such as yes or no. Metrics of the context do not apply to a system without one. If a question
failed, its quality metrics are 0.

Costs in money need prices. The package ships none, because they would be outdated within weeks. A price table is a TOML
file with prices per million tokens:

    currency = "USD"

    [models.my-model]
    prompt = 0.10    # tokens that the server reads for the first time
    cached = 0.02    # tokens in its prefix cache; defaults to the prompt price
    sampled = 0.40   # tokens that it writes
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from context_agent._support.small_files import read_toml
from context_agent._support.validation import explain, validate_plain
from context_agent.agent import SearchResult
from context_agent.errors import ConfigError, reason_of
from context_agent.eval import metrics
from context_agent.eval.gold import Gold, contains_answer, gold_of, is_checkable
from context_agent.eval.metrics import BETAS, DEPTHS, MetricKind, metric_table
from context_agent.eval.records import TurnState
from context_agent.harness.episode import StopReason
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
from context_agent.types import Question, RankedDocument

MILLION = 1_000_000
MAX_PRICE = 1e15
"""The highest price of a million tokens. The sum of a much higher one would not be finite."""
ANY_MODEL = "*"
"""The entry of a price table that applies to every model without its own entry."""
_ERRORS = {StopReason.POLICY_ERROR, StopReason.CORPUS_ERROR, StopReason.CANCELLED}
_CONTEXT_METRICS = {"trajectory_recall", "held_recall"}


class Price(BaseModel):
    """The prices of a model, per million tokens.

    Attributes:
        prompt: The price of tokens that the server reads for the first time.
        sampled: The price of tokens that the model writes.
        cached: The price of prompt tokens in the server's prefix cache. Defaults to the price of `prompt`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: float = Field(ge=0, le=MAX_PRICE)
    sampled: float = Field(ge=0, le=MAX_PRICE)
    cached: float | None = Field(default=None, ge=0, le=MAX_PRICE)

    def of(self, *, prompt: int, cached: int, sampled: int) -> float:
        """Return the price of an episode.

        Args:
            prompt: Tokens that the server reads.
            cached: The number of prompt tokens in the server's prefix cache.
            sampled: Tokens that the model writes.
        """
        cached_price = self.prompt if self.cached is None else self.cached
        return ((prompt - cached) * self.prompt + cached * cached_price + sampled * self.sampled) / MILLION


class _PriceFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    currency: str = "USD"
    models: dict[str, Price]


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices by model, in one currency. The key `*` has the price of every model without its own entry."""

    models: dict[str, Price]
    currency: str = "USD"

    def of(self, model: str) -> Price | None:
        """Return the model's price. If it is unknown, return the price of `*`. If that is unknown too, return None.

        An unknown price is not a price of 0.
        """
        return self.models.get(model) or self.models.get(ANY_MODEL)


def load_prices(path: str | Path) -> PriceTable:
    """Return the price table in a TOML file.

    Raises:
        ConfigError: If the file cannot be read or is not a price table. The message names the wrong field.
    """
    try:
        content = validate_plain(TypeAdapter(_PriceFile), read_toml(path))
    except OSError as error:
        raise ConfigError(
            f"cannot read the prices in {path} ({reason_of(error)}). Pass a TOML file that exists."
        ) from error
    except ValidationError as error:
        raise ConfigError(
            f"{path} is not a price table ({explain(error)}). A price table has `currency`, and tables [models.NAME] "
            "with `prompt`, `sampled` and optionally `cached`, in units of the currency for a million tokens."
        ) from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML ({error}). Correct the file.") from error
    return PriceTable(content.models, content.currency)


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
